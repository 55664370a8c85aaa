#!/usr/bin/env python3
"""Counts the skipped tests of ctest's logs by cause.

usage: skips.py [--strict] BUILD...       BUILD: a build folder that ctest has run in

Causes are GoogleTest's GTEST_SKIP messages, pytest's reasons (run with -rs) and what a test of ctest's own says before it is skipped.
With --strict (CI) the exit status is 1 where a test was skipped for another cause than hardware that is not there, another build or
--full that tests it, or software that scripts/test does not install (OPTIONAL).
"""
import argparse
import collections
import pathlib
import re
import sys

# What a machine or its kernel may lack.
HARDWARE = (r"this (CPU|machine|processor) has no ", r"no products of bfloat16 on this machine", r"these loops do not run on it",
            r"needs two cores", r"the processor does not say", r"needs x86-64", r"the device is no CPU", r"the system has no seccomp filters",
            r"no CPUID faulting: the processor has none", r"the kernel does not tell who uses AVX-512", r"no AVX-512 that could be hidden", r"this processor has all classes")
# What is tested by another build or lane of scripts/test.
ELSEWHERE = (r"set EVN_TEST_FULL=1", r"with EVN_TEST_FULL=1", r"runs once, on every cluster", r"sanitizers make frames larger",
             r"only what is shipped is measured", r"is built without the sanitizers", r"the OpenBLAS module is not built",
             r"built without OpenBLAS", r"clang\+\+-14", r"AddressSanitizer's allocator",
             r"a sanitizer has memory of its own", r"sanitizers need address space", r"sanitizers have heads of their own", r"ThreadSanitizer's runtime",
             r"the release build runs it", r"the emulator's ")
# Software that scripts/test does not install.
OPTIONAL = (r"could not import 'torch'", r"Node\.js is not installed", r"Chromium is not installed", r"no locale with another point is installed")
KINDS = ("hardware that is not there", "tested by another build or lane", "optional software", "another cause")
GTEST = re.compile(r"^\S+:\d+: Skipped\n(.*)$", re.M)
PYTEST = re.compile(r"^SKIPPED \[(\d+)\] \S+?(?::\d+)?: (.*)$", re.M)
TOLD = re.compile(r"^(this CPU has no \w+)$", re.M)


def kind_of(cause):
    for kind, patterns in zip(KINDS, (HARDWARE, ELSEWHERE, OPTIONAL)):
        if any(re.search(pattern, cause) for pattern in patterns):
            return kind
    return KINDS[-1]


def causes_of(log):
    """cause -> how many tests were skipped for it, of the text of ctest's LastTest.log."""
    causes = collections.Counter(cause.strip() or "no cause given" for cause in GTEST.findall(log))
    for count, cause in PYTEST.findall(log):
        causes[cause.strip()] += int(count)
    causes.update(cause for cause in TOLD.findall(GTEST.sub("", log)))
    return causes


def report(causes):
    """The lines to print."""
    lines = [f"skipped: {sum(causes.values())}"]
    for kind in KINDS:
        of_kind = sorted(((count, cause) for cause, count in causes.items() if kind_of(cause) == kind), reverse=True)
        if of_kind:
            lines.append(f"  {kind}: {sum(count for count, _ in of_kind)}")
            lines += [f"    {count} x {cause}" for count, cause in of_kind]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strict", action="store_true", help="fail where a test was skipped for a cause that CI does not excuse")
    parser.add_argument("builds", nargs="+", type=pathlib.Path, metavar="BUILD")
    arguments = parser.parse_args()
    failed = False
    for build in arguments.builds:
        log = build / "Testing" / "Temporary" / "LastTest.log"
        causes = causes_of(log.read_text(errors="replace"))
        print(f"{build}: " + "\n".join(report(causes)))
        unexcused = [cause for cause in causes if kind_of(cause) == KINDS[-1]]
        if arguments.strict and unexcused:
            print(f"{build}: under CI nothing is skipped for such causes: " + "; ".join(sorted(unexcused)))
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
