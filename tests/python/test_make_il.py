"""scripts/make_il.py, with programs in the place of clang and llvm-spirv that say what they were given."""
import pathlib
import struct
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "make_il.py"


def make(folder, *words):
    return subprocess.run([sys.executable, str(SCRIPT), str(folder), *map(str, words)], capture_output=True, text=True)


def program(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def tools(folder):
    clang = program(folder / "clang", 'for last; do :; done\necho "$@" >"$last"\n')
    return "--clang", clang, "--llvm-spirv", program(folder / "llvm-spirv", 'cp "$1" "$3"\n')


def test_files_have_the_name_and_the_head_that_the_library_looks_for(tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "lrn-lrn.cl").write_text("// il-0123456789abcdef.bin fedcba9876543210 -cl-std=CL1.2 -DEVN_LANES=4\nkernel void lrn() {}\n")
    done = make(texts, *tools(tmp_path))
    assert done.returncode == 0, done.stderr
    content = (texts / "il-0123456789abcdef.bin").read_bytes()
    magic, identity, size, checksum = struct.unpack("<8sQQQ", content[:32])
    assert (magic, identity, size) == (b"EVNCLB01", 0xFEDCBA9876543210, len(content) - 32)
    value = 0xCBF29CE484222325
    for byte in content[32:]:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    assert checksum == value
    assert "-target spir64 -cl-std=CL1.2 -DEVN_LANES=4 " in content[32:].decode()


def test_what_cannot_be_made_is_an_error(tmp_path):
    assert "has no texts" in make(tmp_path, *tools(tmp_path)).stderr
    (tmp_path / "other.cl").write_text("kernel void f() {}\n// of another kind\n")
    assert "other.cl is no text of evener programs" in make(tmp_path, *tools(tmp_path)).stderr
    (tmp_path / "other.cl").write_text("// il-0.bin 1 -DX\n")
    failing = program(tmp_path / "failing", "echo broken >&2\nexit 1\n")
    done = make(tmp_path, "--clang", failing, "--llvm-spirv", failing)
    assert done.returncode == 1 and "other.cl" in done.stderr and "broken" in done.stderr
    assert not list(tmp_path.glob("*.bin"))
