#!/usr/bin/env python3
"""Makes SPIR-V of the texts that `evener programs --sources -o FOLDER` has written, beside them, for devices that take it and have no compiler.

usage: make_il.py FOLDER [--clang PROGRAM] [--llvm-spirv PROGRAM]

Needs clang and llvm-spirv of the same LLVM (Debian: clang-15, llvm-spirv-15). `devices.NAME.programs: FOLDER` reads the files il-*.bin, which are
SPIR-V behind 32 bytes: "EVNCLB01", which text it is of, the size, a checksum. The driver optimizes them; clang does not, as llvm-spirv of LLVM 15
has no word for some of what its optimizations make.
"""
import argparse
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

MAGIC = b"EVNCLB01"


def checksum(content):
    value = 0xCBF29CE484222325
    for byte in content:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def compile_text(text, clang, translator):
    """(name of the file, its bytes)"""
    comment, name, identity, *options = [*text.read_text().split("\n", 1)[0].split(), "", "", ""]
    options = [option for option in options if option]
    if comment != "//" or not name.startswith("il-") or "/" in name:
        sys.exit(f"make_il.py: {text} is no text of evener programs --sources")
    with tempfile.TemporaryDirectory() as folder:
        bitcode, spirv = f"{folder}/bc", f"{folder}/spv"
        for command in ([clang, "-target", "spir64", *options, "-Xclang", "-finclude-default-header", "-O0", "-Xclang", "-disable-O0-optnone",
                         "-emit-llvm", "-c", "-x", "cl", str(text), "-o", bitcode], [translator, bitcode, "-o", spirv]):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"make_il.py: {text.name}: {command[0]} failed: {done.stderr.strip()}")
        content = pathlib.Path(spirv).read_bytes()
    return name, struct.pack("<8sQQQ", MAGIC, int(identity, 16), len(content), checksum(content)) + content


def found(names):
    for name in names:
        if shutil.which(name):
            return name
    sys.exit(f"make_il.py: there is no {names[0]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--clang")
    parser.add_argument("--llvm-spirv")
    arguments = parser.parse_args()
    clang = arguments.clang or found(["clang-15", "clang"])
    translator = arguments.llvm_spirv or found(["llvm-spirv-15", "llvm-spirv"])
    texts = sorted(arguments.folder.glob("*.cl"))
    if not texts:
        sys.exit(f"make_il.py: {arguments.folder} has no texts")
    for text in texts:
        name, content = compile_text(text, clang, translator)
        (arguments.folder / name).write_bytes(content)
    print(f"{len(texts)} programs are in {arguments.folder}")


if __name__ == "__main__":
    main()
