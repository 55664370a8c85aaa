"""tests/tools/sanitized.py: errors and leaks of a library are found wherever Python calls it, leaks of others do not count."""
import os
import pathlib
import subprocess
import sys

import pytest

RUNNER = pathlib.Path(__file__).resolve().parents[1] / "tools" / "sanitized.py"
sys.path.insert(0, str(RUNNER.parent))

import sanitized  # noqa: E402

COMPILER = "gcc"
FAULTS = r"""
#include <stdlib.h>
#include <string.h>
typedef void (*callback)(void);
void* kept;
void keep(void) { kept = malloc(11); }
void leak(void) { memset(malloc(4321), 1, 4321); }
int past_the_end(int n) { char* p = malloc(n); memset(p, 0, n); int found = p[n]; free(p); return found; }
int overflow(int n) { return n * 2; }
void write_at(char* p, int n) { p[n] = 1; }
void call(callback f) { f(); }
"""


@pytest.fixture(scope="module")
def preload():
    paths = [subprocess.run([COMPILER, f"-print-file-name={name}"], check=True, capture_output=True, text=True).stdout.strip()
             for name in ("libasan.so", "libstdc++.so")]
    assert all(map(os.path.isabs, paths)), "this test needs the sanitizers of GCC"
    return " ".join(paths)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("faults") / "libevener_faults.so"
    options = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-shared", "-fPIC"]
    subprocess.run([COMPILER, "-x", "c", "-", "-o", path, *options], input=FAULTS, text=True, check=True)
    return path


@pytest.fixture
def run(preload, library):
    def run(code, *options, **environment):
        code = f"import ctypes, os, subprocess, sys\nlibrary = ctypes.CDLL({str(library)!r})\n{code}"
        plain = {name: value for name, value in os.environ.items() if name not in ("ASAN_OPTIONS", "LSAN_OPTIONS", "EVN_TEST_FULL")}
        command = [sys.executable, RUNNER, "--preload", preload, *options, "--", "-c", code]
        return subprocess.run(command, capture_output=True, text=True, env={**plain, **environment})
    return run


@pytest.mark.parametrize("code, said", [
    ("library.leak()", "Direct leak of 4321 byte"), ("library.past_the_end(7)", "heap-buffer-overflow"),
    ("library.overflow(2**30)", "signed integer overflow"),
    ("library.write_at(ctypes.create_string_buffer(100), 100)", "heap-buffer-overflow"),  # Python's memory
    ("library.call(ctypes.CFUNCTYPE(None)(library.leak))", "Direct leak of 4321 byte"),
])
def test_what_the_library_does_wrong_is_told(run, code, said):
    done = run(code)
    assert done.returncode != 0 and said in done.stdout + done.stderr, done


def test_a_child_is_watched_though_nobody_looks_at_it(run, library):
    inner = f"import ctypes; ctypes.CDLL({str(library)!r}).leak()"
    done = run(f"subprocess.run([sys.executable, '-c', {inner!r}], capture_output=True, env=dict(os.environ, PYTHONPATH=''))")
    assert done.returncode == 1 and "Direct leak of 4321 byte" in done.stdout


@pytest.mark.parametrize("code", [
    "library.keep()", "ctypes.CFUNCTYPE(None)(lambda: None)", "ctypes.pythonapi.PyMem_Malloc(1000)",
    "library.call(ctypes.CFUNCTYPE(None)(lambda: ctypes.pythonapi.PyMem_Malloc(1000) and None))"])
def test_what_python_keeps_is_no_finding(run, code):
    done = run(code)
    assert (done.returncode, done.stderr) == (0, "") and "0 findings are the library's" in done.stdout, done


def test_the_exit_status_is_that_of_python(run):
    assert run("sys.exit(3)").returncode == 3
    assert run("os.abort()").returncode == 128 + 6


def test_only_python_has_the_runtime_preloaded(run):
    shown = run("""
print(os.environ.get("LD_PRELOAD"), "libasan" in open("/proc/self/maps").read())
print(subprocess.run(["cat", "/proc/self/maps"], capture_output=True, text=True).stdout.count("libasan"))
code = "print('libasan' in open('/proc/self/maps').read())"
print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)""").stdout
    assert shown.split()[:4] == ["None", "True", "0", "True"]


def test_long_forms_are_skipped_and_counted(run):
    sys.path.insert(0, str(RUNNER.parents[2] / "scripts"))
    import skips
    done = run("print('ran')", "--full-only", "python.models")
    assert done.returncode == sanitized.SKIPPED and "ran" not in done.stdout
    causes = skips.causes_of(done.stdout)
    assert sum(causes.values()) == 1 and {skips.kind_of(cause) for cause in causes} == {"tested by another build or lane"}
    assert run("print('ran')", "--full-only", "python.models", EVN_TEST_FULL="1").stdout.startswith("ran\n")


def frames(*modules):
    return "\n".join(["Direct leak of 8 byte(s) in 1 object(s) allocated from:", "    #0 0x1 in malloc (libasan.so.8+0xb)",
                      *(f"    #{at + 1} 0x2 in f /a/b.c:3 ({module}+0x12)" for at, module in enumerate(modules))])


@pytest.mark.parametrize("modules, ours", [
    (["libevener.so.0.3.0", "libffi.so.8", "libpython3.11.so.1.0"], True), (["evener"], True),
    (["libjpeg.so.62", "libevener_image.so", "python3.11"], True),
    (["_ctypes.cpython-311-x86_64-linux-gnu.so", "libevener.so.0"], False), (["onnxruntime_pybind11_state.so"], False), ([], False),
])
def test_whose_leak_it_is(modules, ours):
    assert sanitized.is_our_leak(frames(*modules)) == ours
    assert not sanitized.is_our_leak(frames(*modules).replace("Direct", "Indirect"))
