"""How compare.py keeps engines to AVX2 on a processor that has more, and how a worker process makes sure that it is kept to it.

Where the processor and the kernel can make CPUID fault, only_avx2.c answers for it, to every engine alike, and glibc's own routines
are told by its tunables. Elsewhere some engines have switches of their own, which need not reach all that an engine contains.
"""
import ctypes
import os
import pathlib
import subprocess
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parent / "only_avx2.c"
SWITCHES = {"evener": {"EVN_CPU_ISA": "avx2"}, "openvino": {"ONEDNN_MAX_CPU_ISA": "AVX2"}}  # engine -> its environment
TUNABLES = "glibc.cpu.hwcaps=" + ",".join(f"-{name}" for name in ("AVX512F", "AVX512VL", "AVX512BW", "AVX512DQ", "AVX512CD"))
GRAIN = 0.02  # seconds; the kernel's clock is that coarse


def build(folder):
    """The library for LD_PRELOAD; RuntimeError where it cannot be built."""
    library = pathlib.Path(folder) / "only_avx2.so"
    command = [os.environ.get("CC", "cc"), "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden",
               "-Wl,-z,initfirst", "-o", str(library), str(SOURCE)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise RuntimeError(f"no C compiler: {error}") from None
    if done.returncode:
        errors = [line.partition("error: ")[2] for line in done.stderr.splitlines() if "error: " in line]
        raise RuntimeError(f"the C compiler says: {(errors or ['nothing'])[0]}")
    return library


class Unlimited:
    """All that the processor has."""
    name, method, masked = "", "", False

    def environment(self, engine):
        return dict(os.environ)

    def missing(self, engine):
        return ""


class OnlyAvx2:
    """AVX2 by CPUID for everything, or by the engines' own switches where that cannot be."""
    name = "avx2"

    def __init__(self, folder):
        self.why = ""
        try:
            self.library = build(folder)
            probe = subprocess.run([sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv[1]); import isa; isa.Watch()",
                                    str(SOURCE.parent)], env=self.masked_environment(), capture_output=True, text=True)
            if probe.returncode:
                self.why = (probe.stderr.strip().splitlines() or [f"a program ended with {probe.returncode}"])[-1]
        except RuntimeError as error:
            self.why = str(error)
        self.masked = not self.why
        tells = pathlib.Path("/proc/self/arch_status").exists()
        seen = " The kernel saw no AVX-512 state in an engine's threads." if tells else ""
        if self.masked:
            self.method = ("Every engine, and the program that measures the peak, was kept to AVX2 by `bench/only_avx2.c`: CPUID "
                           f"shows them neither AVX-512 nor AMX.{seen}")
        else:
            self.method = (f"CPUID could not be made to hide what is beyond AVX2 ({self.why}): Evener was kept to it by "
                           "`EVN_CPU_ISA=avx2`, OpenVINO by `ONEDNN_MAX_CPU_ISA=AVX2`, which need not reach all of its products; "
                           "the others have no switch. The peak is that of AVX2.")

    def masked_environment(self):
        def extended(name, value, separator):
            return separator.join(part for part in (value, os.environ.get(name)) if part)

        return dict(os.environ, LD_PRELOAD=extended("LD_PRELOAD", str(self.library), ":"),
                    GLIBC_TUNABLES=extended("GLIBC_TUNABLES", TUNABLES, ":"))

    def environment(self, engine):
        return self.masked_environment() if self.masked else dict(os.environ, **SWITCHES.get(engine, {}))

    def missing(self, engine):
        """Why an engine cannot be kept to it, or ""."""
        return "" if self.masked or engine in SWITCHES else f"has no switch for {self.name}"


def avx512_uses():
    """thread -> seconds since the kernel last saw AVX-512 state in it; nothing where the kernel does not tell."""
    found = {}
    for task in pathlib.Path("/proc/self/task").iterdir():
        try:
            fields = dict(line.split(":") for line in (task / "arch_status").read_text().splitlines())
            elapsed = int(fields.get("AVX512_elapsed_ms", "-1"))
        except OSError:  # the kernel has no such file, or the thread has ended
            continue
        if elapsed >= 0:
            found[task.name] = elapsed / 1000
    return found


class Watch:
    """Inside a process that is kept to AVX2: RuntimeError where it is not."""

    def __init__(self):
        try:
            library = ctypes.CDLL(None)
            answered, cpuid = library.only_avx2_answered, library.only_avx2_cpuid
        except AttributeError:
            raise RuntimeError("only_avx2.so is not preloaded") from None
        answered.restype = ctypes.c_ulong
        registers, before = (ctypes.c_uint * 4)(), answered()
        cpuid(7, 0, registers)
        if answered() != before + 1 or registers[1] >> 16 & 1:
            raise RuntimeError("CPUID still shows AVX-512")
        self.start = time.monotonic()

    def check(self):
        """That no thread has used AVX-512 since the start. What threads did before is the parent's, whose mark a child inherits."""
        time.sleep(GRAIN)  # the kernel looks when it switches threads
        past = time.monotonic() - self.start - GRAIN
        if any(elapsed < past for elapsed in avx512_uses().values()):
            raise RuntimeError("a thread has used AVX-512 in spite of CPUID")
