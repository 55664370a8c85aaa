"""bench/isa.py and bench/only_avx2.c, which keep engines to AVX2 while they are compared: what programs see and who notices."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "bench"))

import compare  # noqa: E402
import isa  # noqa: E402

# The compiler's look at CPUID, then the instruction in a thread (leaf 7, EBX bit 5: AVX2, bit 16: AVX512F); then it ends as asked.
TELL = r"""
#include <cpuid.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
static void* tell(void* unused) {
  unsigned a, b, c, d;
  __cpuid_count(7, 0, a, b, c, d);
  printf(" %u %u", b >> 5 & 1, b >> 16 & 1);
  return unused;
}
int main(int count, char** arguments) {
  pthread_t thread;
  printf("%d %d %d", !!__builtin_cpu_supports("fma"), !!__builtin_cpu_supports("avx2"), !!__builtin_cpu_supports("avx512f"));
  pthread_create(&thread, NULL, tell, NULL);
  pthread_join(thread, NULL);
  if (count > 1 && strcmp(arguments[1], "write") == 0) *(volatile int*)0 = 1;
  if (count > 1 && strcmp(arguments[1], "raise") == 0) raise(SIGSEGV);
  return 0;
}
"""
WIDE = """void wide(void) { __asm__ volatile("vpternlogd $255, %zmm16, %zmm16, %zmm16"); }"""
LEAK = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import isa
watch = isa.Watch()
isa.time.sleep(0.1)
watch.check()
print("none yet", flush=True)
ctypes.CDLL(sys.argv[2]).wide()
watch.check()
"""
COMPILER = os.environ.get("CC", "cc")


def compiled(source, output, *options):
    subprocess.run([COMPILER, "-x", "c", "-", "-o", output, "-pthread", *options], input=source, text=True, check=True)
    return output


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("isa")


@pytest.fixture(scope="module")
def limit(folder):
    if os.uname().machine != "x86_64" or not shutil.which(COMPILER):
        pytest.skip("needs x86-64 and a C compiler")
    made = isa.OnlyAvx2(folder)
    if "no CPUID faulting" in made.why:
        pytest.skip(made.why)
    assert made.masked, made.why
    return made


@pytest.fixture(scope="module")
def tell(limit, folder):
    return compiled(TELL, folder / "tell")


@pytest.fixture(scope="module")
def has_avx512(tell):
    if subprocess.run([tell], capture_output=True, text=True, check=True).stdout != "1 1 1 1 1":
        pytest.skip("this processor has no AVX-512 that could be hidden")


def test_cpuid_shows_avx2_and_no_avx512_in_the_program_and_its_threads(limit, tell, has_avx512):
    for engine in ("ort", "evener"):
        shown = subprocess.run([tell], capture_output=True, text=True, check=True, env=limit.environment(engine)).stdout
        assert shown == "1 1 0 1 0"


def test_evener_finds_avx2_by_itself(limit, has_avx512):
    environment = limit.environment("evener")
    assert "EVN_CPU_ISA" not in environment
    done = subprocess.run([os.environ["EVENER_COMMAND"], "devices"], capture_output=True, text=True, check=True, env=environment)
    assert next(line.split() for line in done.stdout.splitlines() if "driver:" in line) == ["driver:", "avx2"]


@pytest.mark.parametrize("how", ["write", "raise"])
def test_a_segmentation_fault_of_the_programs_own_ends_it(limit, tell, how):
    assert subprocess.run([tell, how], capture_output=True, env=limit.environment("ort")).returncode == -signal.SIGSEGV


def test_a_process_that_uses_avx512_in_spite_of_cpuid_is_noticed(limit, folder, has_avx512):
    if not pathlib.Path("/proc/self/arch_status").exists():
        pytest.skip("the kernel does not tell who uses AVX-512")
    wide = compiled(WIDE, folder / "wide.so", "-shared", "-fPIC")
    done = subprocess.run([sys.executable, "-c", LEAK, REPOSITORY / "bench", wide], capture_output=True, text=True,
                          env=limit.environment("ort"))
    assert done.stdout == "none yet\n" and done.returncode == 1
    assert done.stderr.splitlines()[-1] == "RuntimeError: a thread has used AVX-512 in spite of CPUID"


def test_a_process_without_the_mask_is_refused():
    with pytest.raises(RuntimeError, match="not preloaded"):
        isa.Watch()


def test_where_cpuid_cannot_be_masked_engines_without_a_switch_are_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CC", str(tmp_path / "none"))
    limit = isa.OnlyAvx2(tmp_path)
    assert not limit.masked and "no C compiler" in limit.method
    assert limit.environment("openvino")["ONEDNN_MAX_CPU_ISA"] == "AVX2" and limit.environment("evener")["EVN_CPU_ISA"] == "avx2"
    monkeypatch.setattr(compare.ENGINES["ort"], "missing", lambda: "")
    monkeypatch.setattr(compare.ENGINES["evener"], "missing", lambda: "")
    assert compare.parse_engines("ort,evener", limit) == (["evener"], {"ort": "has no switch for avx2"})
    assert capsys.readouterr().out == "not compared: ONNX Runtime: has no switch for avx2\n"
