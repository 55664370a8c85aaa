#!/usr/bin/env python3
"""Fails when an object that was compiled for one instruction-set cluster could leak code into another: each must define exactly one
global symbol (its table of loops), nothing weak, and need nothing but C functions and its cluster's loops of epilogues.

usage: check_simd_symbols.py BUILD_DIRECTORY
"""
import pathlib
import re
import subprocess
import sys


def problems_of(path, cluster, family):
    expected = f"evn::{cluster}::loops_{family}"
    base = cluster.split("_")[0].replace("neon", "baseline")  # NEON is the baseline of aarch64
    out = subprocess.run(["nm", "-C", str(path)], check=True, capture_output=True, text=True).stdout
    found = []
    bad = []
    for line in out.splitlines():
        match = re.match(r"^[0-9a-f ]{16} (\S) (.*)$", line)
        if not match:
            continue
        kind, name = match.groups()
        if kind == "U":
            if name in (f"evn::{cluster}::loops_epilogue_ops", f"evn::{base}::loops_epilogue_ops"):
                continue  # the code of epilogues, of the same cluster or of the one that this is an extension of
            if "::" in name or name.startswith(("operator", "_Z")):
                bad.append(f"needs {name}")
        elif kind in "VvWwu":
            bad.append(f"has the weak symbol {name}")
        elif kind.isupper() and not name.startswith("__odr_asan."):  # the sanitizer's mark of a global
            found.append(name)
    if found != [expected]:
        bad.append(f"defines {found or 'nothing'} instead of {expected} alone")
    return bad


def main():
    build = pathlib.Path(sys.argv[1])
    objects = sorted(build.glob("CMakeFiles/evn_simd_*_o[0-9].dir/**/*.o"))
    if not objects:
        print(f"no objects of evn_simd_* in {build}")
        return 1
    bad = 0
    for path in objects:
        cluster = re.search(r"evn_simd_(?:training_)?(\w+)_o\d\.dir", str(path))[1]
        for problem in problems_of(path, cluster, path.name.split(".")[0].removesuffix("_" + cluster).removesuffix("_loops")):
            print(f"{cluster} {path.name}: {problem}")
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
