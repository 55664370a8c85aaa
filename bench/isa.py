"""Classes of instruction sets: how compare.py keeps engines to one on a processor that has more, and how a worker process makes
sure that it is kept to it.

Where the processor has nothing beyond the class there is nothing to do. Where the processor and the kernel can make CPUID fault,
only_isa.c answers for it, to every engine alike, and glibc's own routines are told by its tunables. Elsewhere some engines have
switches of their own, which need not reach all that an engine contains, and the others cannot be measured.
"""
import ctypes
import os
import pathlib
import re
import subprocess
import sys
import time
import typing

from engines import OPENVINO_PRECISION


class Class(typing.NamedTuple):
    """Its name is also the value of EVN_CPU_ISA for it."""
    title: str
    onednn: str     # the value of ONEDNN_MAX_CPU_ISA
    needs: tuple    # flags of /proc/cpuinfo without which a processor is not of the class
    shows: tuple    # those beyond AVX2 that it may have besides, as only_isa.h shows them


WIDE = ("avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl")
VECTOR_BITS = ("gfni", "vaes", "vpclmulqdq")
ICE_LAKE = ("avx512ifma", "avx512vbmi", "avx512_vbmi2", "avx512_bitalg", "avx512_vpopcntdq", *VECTOR_BITS)
CLASSES = {
    "avx2": Class("AVX2", "AVX2", ("avx2", "fma"), ()),
    "avx2_vnni": Class("AVX-VNNI", "AVX2_VNNI", ("avx2", "fma", "avx_vnni"), VECTOR_BITS),
    "avx512": Class("AVX-512", "AVX512_CORE", WIDE, ()),
    "avx512_vnni": Class("AVX-512 VNNI", "AVX512_CORE_VNNI", (*WIDE, "avx512_vnni"), ()),
    "avx512_bf16": Class("AVX512-BF16", "AVX512_CORE_BF16", (*WIDE, "avx512_vnni", "avx512_bf16"), ICE_LAKE),
    "avx512_amx": Class("AMX", "AVX512_CORE_AMX", (*WIDE, "avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16"),
                        (*ICE_LAKE, "avx512_fp16", "avx_vnni")),
}
# What products are made of; GFNI, VAES and VPCLMULQDQ, which no engine multiplies with, are no reason to hide anything.
BEYOND_AVX2 = re.compile(r"avx512|avx10|avx_|amx_|apx")
FOLDER = pathlib.Path(__file__).resolve().parent
SOURCE = FOLDER / "only_isa.c"
EVENER, OPENVINO = re.compile(r"evener\b|evener_"), re.compile(r"openvino\b|openvino_")  # names of engines that have switches
TUNABLES = "glibc.cpu.hwcaps=" + ",".join(f"-{flag.upper()}" for flag in WIDE)
GRAIN = 0.02  # seconds; the kernel's clock is that coarse


def build(folder):
    """The library for LD_PRELOAD; RuntimeError where it cannot be built."""
    library = pathlib.Path(folder) / "only_isa.so"
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


def flags():
    """Those of the processor in /proc/cpuinfo; none where the system has no such file."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    found = re.search(r"^flags\s*:(.*)$", text, re.M)
    return frozenset(found[1].split() if found else ())


def available(there):
    """The classes that a processor with these flags has, by name."""
    return [name for name, entry in CLASSES.items() if set(entry.needs) <= there]


def beyond(name, there):
    """The flags of a processor that the class hides."""
    entry = CLASSES[name]
    return sorted(flag for flag in there if BEYOND_AVX2.match(flag) and flag not in entry.needs + entry.shows)


def best_class(there):
    """The last class that a processor with these flags has; None where it has none."""
    return ([None] + available(there))[-1]


class Unlimited:
    """All that the processor has."""
    name, title, method, masked = "", "", "", False

    def environment(self, engine):
        return dict(os.environ)

    def missing(self, engine):
        return ""


class Only:
    """A class of instruction sets: by CPUID for everything, or by the engines' own switches where that cannot be."""

    def __init__(self, name, folder):
        """RuntimeError where the processor is not of the class."""
        there = flags()
        self.name, self.title = name, CLASSES[name].title
        lacking = [flag for flag in CLASSES[name].needs if flag not in there]
        if lacking:
            raise RuntimeError(f"--isa {name}: this processor has no {', '.join(lacking)}; its classes are: "
                               f"{', '.join(available(there)) or 'none'}")
        self.hidden = beyond(name, there)
        self.switches = {EVENER: {"EVN_CPU_ISA": name}, OPENVINO: {"ONEDNN_MAX_CPU_ISA": CLASSES[name].onednn}}
        if "avx512_bf16" not in CLASSES[name].needs:  # it would choose bfloat16, in which oneDNN then cannot compute
            self.switches[OPENVINO][OPENVINO_PRECISION] = "f32"
        self.why = self.find_why(folder) if self.hidden else ""
        self.masked = bool(self.hidden) and not self.why
        self.method = self.find_method()

    def find_why(self, folder):
        """Why CPUID cannot be made to hide something, or ""."""
        try:
            self.library = build(folder)
        except RuntimeError as error:
            return str(error)
        program = "import sys; sys.path.insert(0, sys.argv[1]); import isa; isa.Watch(sys.argv[2])"
        probe = subprocess.run([sys.executable, "-c", program, str(FOLDER), self.name], env=self.masked_environment(), capture_output=True, text=True)
        return (probe.stderr.strip().splitlines() or [f"a program ended with {probe.returncode}"])[-1] if probe.returncode else ""

    def find_method(self):
        if not self.hidden:
            return f"The processor has nothing beyond {self.title} (`--isa {self.name}`): nothing had to be hidden from any engine."
        if not self.masked:
            switch = f"`ONEDNN_MAX_CPU_ISA={CLASSES[self.name].onednn}`"
            if OPENVINO_PRECISION in self.switches[OPENVINO]:
                switch += " and to float32 where it would choose bfloat16"
            return (f"CPUID could not be made to hide what is beyond {self.title} ({self.why}): Evener was kept to it by "
                    f"`EVN_CPU_ISA={self.name}`, OpenVINO by {switch}, which need not reach all of its products; the others have "
                    f"no switch and are not measurable here. The peak is that of {self.title}.")
        tells = is_narrow(self.name) and pathlib.Path("/proc/self/arch_status").exists()
        seen = " The kernel saw no AVX-512 state in an engine's threads." if tells else ""
        return (f"Every engine, and the program that measures the peak, was kept to {self.title} by `bench/only_isa.c`: CPUID "
                f"shows them nothing beyond it ({', '.join(self.hidden)}).{seen}")

    def masked_environment(self):
        def extended(name, value, separator):
            return separator.join(part for part in (value, os.environ.get(name)) if part)

        made = dict(os.environ, LD_PRELOAD=extended("LD_PRELOAD", str(self.library), ":"), EVENER_ONLY_ISA=self.name)
        if is_narrow(self.name):
            made["GLIBC_TUNABLES"] = extended("GLIBC_TUNABLES", TUNABLES, ":")
        return made

    def switch(self, engine):
        """The variables of the environment that keep an engine to the class; None where it has no switch."""
        return next((switch for names, switch in self.switches.items() if names.match(engine)), None)

    def environment(self, engine):
        if self.masked:
            return self.masked_environment()
        return dict(os.environ, **(self.switch(engine) or {} if self.hidden else {}))

    def missing(self, engine):
        """Why an engine cannot be kept to it, or ""."""
        return f"has no switch for {self.name}" if self.hidden and not self.masked and self.switch(engine) is None else ""


def is_narrow(name):
    """Whether a class has no AVX-512."""
    return "avx512f" not in CLASSES[name].needs


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
    """Inside a process that is kept to a class: RuntimeError where it is not."""

    def __init__(self, name):
        try:
            library = ctypes.CDLL(None)
            answered, cpuid = library.only_isa_answered, library.only_isa_cpuid
        except AttributeError:
            raise RuntimeError("only_isa.so is not preloaded") from None
        answered.restype = ctypes.c_ulong
        registers, before = (ctypes.c_uint * 4)(), answered()
        cpuid(7, 0, registers)
        if answered() != before + 1:
            raise RuntimeError("CPUID does not fault")
        self.is_narrow = is_narrow(name)
        shows = registers[1] >> 16 & 1, registers[3] >> 24 & 1  # AVX512F, AMX's tiles
        if shows[0] and self.is_narrow or shows[1] and "amx_tile" not in CLASSES[name].needs:
            raise RuntimeError(f"CPUID still shows what is beyond {CLASSES[name].title}")
        self.start = time.monotonic()

    def check(self):
        """That no thread of a process without AVX-512 has used it since the start. What threads did before is the parent's, whose
        mark a child inherits."""
        if not self.is_narrow:
            return
        time.sleep(GRAIN)  # the kernel looks when it switches threads
        past = time.monotonic() - self.start - GRAIN
        if any(elapsed < past for elapsed in avx512_uses().values()):
            raise RuntimeError("a thread has used AVX-512 in spite of CPUID")
