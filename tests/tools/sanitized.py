#!/usr/bin/env python3
"""Runs Python with a library that was built with AddressSanitizer and UndefinedBehaviorSanitizer, and judges what they report.

usage: sanitized.py --preload FILES [--full-only NAME] -- ARGUMENT...      ARGUMENTs are Python's

FILES, with spaces between, are the sanitizers' runtime and what must be loaded with it (LD_PRELOAD). Python has them preloaded, and
so have the Pythons that it starts as sys.executable, but nothing else that it starts; a program that a test makes with the library
needs EVN_SANITIZER_PRELOAD preloaded. AddressSanitizer writes the reports of all processes into one folder, so that none is missed
whose output and status a test does not look at; what UndefinedBehaviorSanitizer finds ends a process by SIGABRT. The exit status is
Python's, or 1 where an error was reported or a leak that is ours.

A leak is ours when the innermost of its frames that are the library's or Python's are the library's: Python, numpy and ONNX Runtime
keep memory until the process ends, also in callbacks, which the library calls. Python's objects are in malloc's memory
(PYTHONMALLOC): an overflow into them is found there, and so are pointers that keep what is ours.

With --full-only it runs under EVN_TEST_FULL=1 only, and otherwise says that the tests of NAME are skipped.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().with_suffix("")
SKIPPED = 77  # ctest's SKIP_RETURN_CODE
# %M: the module, also of a frame that has a line. A leak alone does not end a process.
OPTIONS = "abort_on_error=1:exitcode=0:log_path='{log}':stack_trace_format='    #%n %p %F %L %M'"
MODULE = re.compile(r"\(([^()\s]+)\+0x[0-9a-f]+\)")
OURS = re.compile(r"libevener|evener$")
PYTHONS = re.compile(r"python|_ctypes")
ERROR = re.compile(r"ERROR: AddressSanitizer|: runtime error: |encountered a fatal error|CHECK failed")


def is_our_leak(block):
    """Whether a paragraph of a report is a direct leak of memory that the library asked for. Indirect leaks follow from direct ones."""
    if not re.match(r"\s*Direct leak of ", block):
        return False
    modules = [found[-1].rsplit("/", 1)[-1] for found in map(MODULE.findall, block.splitlines()) if found]
    return next((bool(OURS.match(module)) for module in modules if OURS.match(module) or PYTHONS.search(module)), False)


def findings(report):
    """The parts of a process's report that are errors or leaks of the library."""
    if ERROR.search(report):
        return [report]
    return [block for block in re.split(r"\n\s*\n", report) if is_our_leak(block)]


def environment(preload, log):
    options = OPTIONS.format(log=log)
    more = {name: ":".join(filter(None, [os.environ.get(name), options])) for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS")}
    more["PYTHONPATH"] = os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH")]))
    return {**os.environ, **more, "PYTHONMALLOC": "malloc", "EVN_SANITIZER_PRELOAD": preload, "EVN_SANITIZED_PYTHON": sys.executable}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preload", required=True, metavar="FILES")
    parser.add_argument("--full-only", metavar="NAME")
    parser.add_argument("arguments", nargs="+", metavar="ARGUMENT")
    arguments = parser.parse_args()
    if arguments.full_only and os.environ.get("EVN_TEST_FULL") != "1":
        print(f"SKIPPED [1] {arguments.full_only}: a long form: set EVN_TEST_FULL=1")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "report"
        done = subprocess.run([FOLDER / "python", *arguments.arguments], env=environment(arguments.preload, log))
        reports = [path.read_text(errors="replace") for path in sorted(pathlib.Path(folder).iterdir())]
    found = [finding for report in reports for finding in findings(report)]
    for finding in found:
        print(finding.rstrip(), end="\n\n")
    print(f"sanitizers: {len(reports)} processes reported something, {len(found)} findings are the library's")
    return 1 if found else done.returncode if done.returncode >= 0 else 128 - done.returncode


if __name__ == "__main__":
    sys.exit(main())
