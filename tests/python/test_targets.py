"""What configuring says of targets that the library is not for."""

import pathlib
import platform
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def configure(build, *options):
    return subprocess.run(["cmake", "-S", ROOT, "-B", build, "-G", "Ninja", "-DEVN_TESTS=OFF", *options], capture_output=True, text=True)


def words(text):
    return re.sub(r"\s+", " ", text)


@pytest.mark.skipif(platform.machine() != "x86_64" or not shutil.which("gcc"), reason="-m32 is an option of gcc for x86-64")
def test_a_32_bit_target_is_refused_with_the_reason(tmp_path):
    # Programs of 32 bits need not link here: what the compiler says of a pointer's size is read from an object file.
    toolchain = tmp_path / "toolchain.cmake"
    toolchain.write_text("set(CMAKE_SYSTEM_NAME Linux)\nset(CMAKE_SYSTEM_PROCESSOR i686)\nset(CMAKE_C_COMPILER gcc)\nset(CMAKE_CXX_COMPILER g++)\n"
                         "set(CMAKE_C_FLAGS_INIT -m32)\nset(CMAKE_CXX_FLAGS_INIT -m32)\nset(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)\n")
    done = configure(tmp_path / "build", f"-DCMAKE_TOOLCHAIN_FILE={toolchain}")
    assert done.returncode != 0
    said = words(done.stderr)
    assert "a 32-bit one (i686, " in said and "needs 64 bits: its handles fill 64 bits of a pointer" in said and "4 GiB" in said


def test_an_aarch64_build_without_its_libraries_is_refused_with_what_brings_them(tmp_path):
    done = configure(tmp_path / "build", f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/cmake/aarch64.cmake", f"-DEVN_ARM64_SYSROOT={tmp_path}")
    assert done.returncode != 0
    said = words(done.stderr)
    assert f"{tmp_path} has no libyaml-cpp.a for aarch64: run scripts/arm64_sysroot" in said
