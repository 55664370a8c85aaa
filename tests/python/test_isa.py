"""bench/isa.py and bench/only_isa.c, which keep engines to a class of instruction sets while they are compared: what programs see
and who notices."""
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
import report  # noqa: E402

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
# The compiler's look, and in a thread the features of leaf 7 that the instruction shows.
SEE = r"""
#include <cpuid.h>
#include <pthread.h>
#include <stdio.h>
#include "only_isa.h"
static void* see(void* unused) {
  for (unsigned i = 0; i < sizeof kFeatures / sizeof *kFeatures; ++i) {
    unsigned r[4];
    __cpuid_count(7, kFeatures[i].subleaf, r[kEax], r[kEbx], r[kEcx], r[kEdx]);
    if (r[kFeatures[i].reg] >> kFeatures[i].bit & 1) printf(" %s", kFeatures[i].flag);
  }
  return unused;
}
int main(int count, char** arguments) {
  pthread_t thread;
  printf("%d %d", !!__builtin_cpu_supports("avx2"), !!__builtin_cpu_supports("avx512f"));
  pthread_create(&thread, NULL, see, NULL);
  pthread_join(thread, NULL);
  fflush(stdout);
  if (count > 1 && arguments[1][0]) *(volatile int*)0 = 1;
  return 0;
}
"""
# What CPUID shows of the features of leaf 7 on a processor that has all: a line for each class, with what becomes of other leaves.
SHOW = r"""
#include <stdio.h>
#include "only_isa.h"
static unsigned shown(enum isa_class c, unsigned leaf, unsigned subleaf, unsigned reg) {
  unsigned r[4] = {~0u, ~0u, ~0u, ~0u};
  hide(c, leaf, subleaf, r);
  return r[reg];
}
int main(void) {
  for (int c = 0; c < kClasses; ++c) {
    printf("%s %u %x %x %x %x %x", kClassNames[c], shown(c, 7, 0, kEax), shown(c, 7, 1, kEbx) | shown(c, 7, 2, kEax),
           shown(c, 0xd, 0, kEax), shown(c, 0xd, 5, kEbx), shown(c, 0x1d, 1, kEax), shown(c, 0x24, 0, kEbx));
    for (unsigned i = 0; i < sizeof kFeatures / sizeof *kFeatures; ++i) {
      const struct feature* f = &kFeatures[i];
      if (shown(c, 7, f->subleaf, f->reg) >> f->bit & 1) printf(" %s", f->flag);
    }
    printf("\n");
  }
  printf("%x %x %d\n", shown(kAvx2, 7, 0, kEbx), shown(kAvx2, 1, 0, kEcx), find_class("avx3"));
  return 0;
}
"""
WIDE = """void wide(void) { __asm__ volatile("vpternlogd $255, %zmm16, %zmm16, %zmm16"); }"""
LEAK = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import isa
watch = isa.Watch("avx2")
isa.time.sleep(0.1)
watch.check()
print("none yet", flush=True)
ctypes.CDLL(sys.argv[2]).wide()
watch.check()
"""
COMPILER = os.environ.get("CC", "cc")


def compiled(source, output, *options):
    command = [COMPILER, "-x", "c", "-", "-o", output, "-pthread", "-I", REPOSITORY / "bench", *options]
    subprocess.run(command, input=source, text=True, check=True)
    return output


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("isa")


@pytest.fixture(scope="module")
def limit(folder):
    if os.uname().machine != "x86_64" or not shutil.which(COMPILER):
        pytest.skip("needs x86-64 and a C compiler")
    made = isa.Only("avx2", folder)
    if "no CPUID faulting" in made.why or not made.hidden:
        pytest.skip(made.why or "this processor has no instruction set beyond AVX2")
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


def test_each_class_shows_what_evener_finds_in_it_by_itself(limit, folder):
    for name in isa.available(isa.flags()):
        environment = isa.Only(name, folder).environment("evener")
        assert "EVN_CPU_ISA" not in environment
        command = [os.environ["EVENER_COMMAND"], "devices"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        assert next(line.split() for line in done.stdout.splitlines() if "driver:" in line) == ["driver:", name.partition("_")[0]]  # which names no extension


def test_a_process_without_the_mask_is_refused():
    with pytest.raises(RuntimeError, match="not preloaded"):
        isa.Watch("avx2")


def test_the_library_ends_a_program_whose_class_it_does_not_know(tmp_path):
    if os.uname().machine != "x86_64" or not shutil.which(COMPILER):
        pytest.skip("needs x86-64 and a C compiler")
    done = subprocess.run([sys.executable, "-c", ""], capture_output=True, text=True,
                          env=dict(os.environ, LD_PRELOAD=str(isa.build(tmp_path)), EVENER_ONLY_ISA="avx3"))
    assert done.returncode == 77 and done.stderr == 'EVENER_ONLY_ISA: there is no class of instruction sets "avx3"\n'


def test_each_class_shows_its_own_features_and_no_others(tmp_path):
    if not shutil.which(COMPILER):
        pytest.skip("needs a C compiler")
    show = compiled(SHOW, tmp_path / "show")
    *lines, rest = subprocess.run([show], capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(isa.CLASSES)
    for line in lines:
        name, subleaf, later, state, wide_state, tiles, avx10, *shown = line.split()
        needs, shows = isa.CLASSES[name].needs, isa.CLASSES[name].shows
        assert set(shown) == {*needs, *shows} - {"avx2", "fma"}
        has_subleaf = any(flag in shown for flag in ("avx_vnni", "avx512_bf16"))
        assert (int(subleaf), later, avx10) == (has_subleaf, "0", "0")
        hidden = [bits for bits, flag in ((0xe0, "avx512f"), (0x60000, "amx_tile")) if flag not in shown] + [0x80000]
        assert int(state, 16) == 0xffffffff & ~sum(hidden)
        assert (wide_state != "0", tiles != "0") == ("avx512f" in shown, "amx_tile" in shown)
    # AVX2 (EBX bit 5) and other leaves stay.
    ebx, other, unknown = rest.split()
    assert int(ebx, 16) >> 5 & 1 and other == "ffffffff" and unknown == "-1"


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    """A command that runs a program as where CPUID faults, its class to be named; the program."""
    if os.uname().machine != "x86_64" or not shutil.which(COMPILER):
        pytest.skip("needs x86-64 and a C compiler")
    folder = tmp_path_factory.mktemp("faults")
    source = (REPOSITORY / "tests" / "python" / "cpuid_faults.c").read_text()
    tracer = compiled(source, folder / "cpuid_faults", "-O2", "-Wall", "-Werror")
    see, library = compiled(SEE, folder / "see"), isa.build(folder)

    def run(name, *arguments):
        done = subprocess.run([tracer, see, *arguments], capture_output=True, text=True,
                              env=dict(os.environ, CPUID_FAULTS_PRELOAD=str(library), EVENER_ONLY_ISA=name))
        if done.returncode == 76:
            pytest.skip("this process may not trace others")
        return done

    return run


@pytest.mark.parametrize("name", list(isa.CLASSES))
def test_a_program_and_its_threads_see_what_the_processor_has_of_a_class(name, faults):
    there = isa.flags()
    if "avx2" not in there:
        pytest.skip("this processor has no AVX2")
    done = faults(name)
    assert (done.returncode, done.stderr) == (0, "")
    avx2, avx512, *seen = done.stdout.split()
    shown = {*isa.CLASSES[name].needs, *isa.CLASSES[name].shows} - {"avx2", "fma"}
    assert avx2 == "1" and avx512 == str(int("avx512f" in shown & there)) and shown & there <= set(seen) <= shown


def test_a_fault_that_is_not_of_cpuid_ends_the_program(faults):
    assert faults("avx2", "write").returncode == 128 + signal.SIGSEGV


SAPPHIRE_RAPIDS = isa.CLASSES["avx512_amx"].needs + isa.CLASSES["avx512_amx"].shows + ("avx", "avx2", "fma", "amd_ibs")
ZEN_4 = isa.CLASSES["avx512_bf16"].needs + isa.CLASSES["avx512_bf16"].shows + ("avx2", "fma")


def test_what_a_class_hides_of_a_processor():
    assert isa.available(frozenset(SAPPHIRE_RAPIDS)) == list(isa.CLASSES) and isa.best_class(frozenset(ZEN_4)) == "avx512_bf16"
    assert isa.beyond("avx512_amx", SAPPHIRE_RAPIDS) == [] == isa.beyond("avx512_bf16", ZEN_4)
    assert isa.beyond("avx512_amx", (*SAPPHIRE_RAPIDS, "amx_fp16")) == ["amx_fp16"]
    assert isa.beyond("avx512_bf16", SAPPHIRE_RAPIDS) == ["amx_bf16", "amx_int8", "amx_tile", "avx512_fp16", "avx_vnni"]
    assert isa.beyond("avx2", ("avx2", "fma", "vaes", "avx_vnni")) == ["avx_vnni"]
    assert isa.best_class(frozenset(("sse2",))) is None


@pytest.mark.parametrize("name", ["avx2_vnni", "avx512_amx"])
def test_a_class_beyond_the_processor_is_an_error(name, tmp_path, monkeypatch):
    monkeypatch.setattr(isa, "flags", lambda: frozenset(ZEN_4))
    there = "avx2, avx512, avx512_vnni, avx512_bf16"
    with pytest.raises(RuntimeError, match=f"--isa {name}: this processor has no a[mv]x_.*; its classes are: {there}$"):
        isa.Only(name, tmp_path)


def test_compare_says_that_a_class_is_beyond_the_processor():
    lacking = [name for name in isa.CLASSES if name not in isa.available(isa.flags())]
    if not lacking:
        pytest.skip("this processor has all classes")
    command = [sys.executable, REPOSITORY / "bench" / "compare.py", "--isa", lacking[-1], "simple_cnn"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith(f"compare.py: --isa {lacking[-1]}: this processor has no ")


def test_where_a_processor_has_nothing_beyond_the_class_all_engines_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(isa, "flags", lambda: frozenset(ZEN_4))
    limit = isa.Only("avx512_bf16", tmp_path)
    assert not limit.masked and "nothing had to be hidden" in limit.method
    for engine in ("ort", "evener", "openvino"):
        assert limit.missing(engine) == "" and limit.environment(engine) == dict(os.environ)


@pytest.mark.parametrize("name", list(isa.CLASSES)[:-1])
def test_where_cpuid_cannot_be_masked_engines_without_a_switch_are_left_out(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CC", str(tmp_path / "none"))
    monkeypatch.setattr(isa, "flags", lambda: frozenset(SAPPHIRE_RAPIDS))
    limit = isa.Only(name, tmp_path)
    assert not limit.masked and "no C compiler" in limit.method and "not measurable here" in limit.method
    for engine in ("evener", "evener_int8", "evener_fp32", "evener_bf16", "evener:before"):
        assert limit.environment(engine)["EVN_CPU_ISA"] == name and not limit.missing(engine)
    for engine in ("openvino", "openvino_int8", "openvino_default"):
        assert limit.environment(engine)["ONEDNN_MAX_CPU_ISA"] == isa.CLASSES[name].onednn and not limit.missing(engine)
        assert limit.environment(engine).get(isa.OPENVINO_PRECISION) == (None if name == "avx512_bf16" else "f32")
    for engine in ("ort", "ort_int8", "mnn", "ncnn"):
        assert limit.missing(engine) == f"has no switch for {name}"
    monkeypatch.setattr(compare.ENGINES["ort"], "missing", lambda: "")
    monkeypatch.setattr(compare.ENGINES["evener"], "missing", lambda: "")
    assert compare.parse_engines("ort,evener", limit) == (["evener"], {"ort": f"has no switch for {name}"})
    assert capsys.readouterr().out == f"not compared: ONNX Runtime: has no switch for {name}\n"
    made = report.Report(compare.ENGINES, ["evener"], {"ort": limit.missing("ort")}, 5, 0.5, limit, reference="ort")
    made.add(1, "net", [report.Row("evener", "", 0.01, 1.0, 0.5, 0.02, rounds=[0.01], is_peer=False)])
    page = made.markdown()
    assert page.startswith(f"# Benchmarks with {limit.title}\n") and "Outputs are compared with those of ONNX Runtime" in page
    assert "| model | Evener | ONNX Runtime |\n" in page and "| net | 10.00 (1.00) | not measurable here |" in page
