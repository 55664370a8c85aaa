"""What the library exports and what it needs: exactly the header's functions, and only the C library."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = os.environ["EVENER_LIBRARY"]
NODE = re.compile(r"EVN_0(\.\d+)?(@|$)")  # a version of symbols; the linker lists them as symbols too


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def dynamic_symbols(kind):
    lines = output("nm", "-D", "--extern-only", kind, LIBRARY).splitlines()  # gold lists a local one of libstdc++ too
    return {line.split()[-1] for line in lines}


def header_functions():
    text = "".join((ROOT / "include/evener" / name).read_text() for name in ("evener.h", "quantize.h", "request.h", "state.h", "event.h", "opencl.h", "train.h", "api.h"))
    return set(re.findall(r"EVN_API[^;(]*?\b(evn_\w+)\(", text))


def test_exports_are_exactly_the_functions_of_the_header():
    exported = {name.split("@")[0] for name in dynamic_symbols("--defined-only")}
    assert len(header_functions()) > 30
    assert {name for name in exported if not NODE.match(name)} == header_functions()


def test_every_export_has_a_version_of_the_abi():
    names = {name for name in dynamic_symbols("--defined-only") if not NODE.match(name)}
    assert all(NODE.match(name.split("@@")[1]) for name in names), names


def test_only_the_c_library_is_needed():
    needed = re.findall(r"NEEDED.*\[(.*?)\]", output("readelf", "-d", LIBRARY))
    # libdl and libpthread are parts of the C library until 2.33.
    assert set(needed) <= {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"}, needed


def test_no_later_c_library_is_needed_than_is_promised():
    """Builds of the preset portable run from EVENER_GLIBC on (scripts/test --full=portable), others where they were built."""
    floor = os.environ.get("EVENER_GLIBC") or os.confstr("CS_GNU_LIBC_VERSION").split()[1]
    for path in sorted(pathlib.Path(LIBRARY).resolve().parent.glob("libevener*.so")):
        versions = {tuple(map(int, version.split("."))) for version in re.findall(r"\bGLIBC_([\d.]+)", output("readelf", "-VW", str(path)))}
        assert versions and max(versions) <= tuple(map(int, floor.split("."))), (path.name, max(versions))
        assert "GLIBC_ABI" not in output("readelf", "-VW", str(path)), path.name


def test_the_soname_carries_the_abi_major():
    assert re.search(r"SONAME.*\[libevener\.so\.0\]", output("readelf", "-d", LIBRARY))


def test_nothing_is_writable_and_executable_and_bindings_are_immediate():
    assert "TEXTREL" not in output("readelf", "-d", LIBRARY)
    assert re.search(r"FLAGS.*(BIND_NOW|NOW)", output("readelf", "-d", LIBRARY))
    stack = [line for line in output("readelf", "-lW", LIBRARY).splitlines() if "GNU_STACK" in line]
    assert stack and "RWE" not in stack[0]


def test_no_unique_symbols_keep_the_library_loaded():
    assert not [line for line in output("nm", "-D", LIBRARY).splitlines() if " u " in line]


def test_the_library_never_ends_the_process_itself():
    wanted = {name.split("@")[0] for name in dynamic_symbols("--undefined-only")}
    assert not wanted & {"exit", "_exit", "quick_exit", "printf", "puts", "perror", "system", "execve", "fork"}, wanted


def test_the_header_compiles_as_c11_and_cxx(tmp_path):
    (tmp_path / "a.c").write_text('#include "evener/evener.h"\nint f(void); int f(void) { evn_error e = EVN_ERROR_INIT; return e.status; }\n')
    (tmp_path / "a.cc").write_text('#include "evener/evener.h"\nint f() { evn_error e = EVN_ERROR_INIT; return e.status; }\n')
    include = f"-I{ROOT}/include"
    output("cc", "-std=c11", "-pedantic-errors", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", include, str(tmp_path / "a.c"))
    output("c++", "-std=c++11", "-pedantic-errors", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", include, str(tmp_path / "a.cc"))
    output("c++", "-std=c++20", "-pedantic-errors", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", include, str(tmp_path / "a.cc"))


@pytest.mark.parametrize("standard", ["c++17", "c++20"])
@pytest.mark.parametrize("names", [["c++"], ["clang++-14", "clang++-15", "clang++"]], ids=["c++", "clang++"])
def test_the_cxx_header_stands_alone_without_warnings(tmp_path, names, standard):
    compiler = next((name for name in names if shutil.which(name)), None)
    if compiler is None:
        pytest.skip(f"there is no {names[0]}")
    source = tmp_path / "a.cc"
    source.write_text("#include <evener/operator.hpp>\nint f(const evener::Session& s) { return static_cast<int>(s.run(evener::Tensor()).size()); }\n")
    options = ["-pedantic-errors", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-Werror"]
    output(compiler, f"-std={standard}", *options, "-fsyntax-only", f"-I{ROOT}/include", str(source))


def test_sizes(capsys, tmp_path):
    """Prints the sizes of the library and of its modules without debug information. None fails (docs/decisions/0024-size.md)."""
    folder = pathlib.Path(LIBRARY).resolve().parent
    with capsys.disabled():
        for path in sorted(folder.glob("libevener*.so")):
            output("strip", "--strip-unneeded", "-o", str(tmp_path / path.name), str(path))
            print(f"{path.name}: {(tmp_path / path.name).stat().st_size} bytes")
