"""The texts of Debian's packages: descriptions, copyright, change log, manual page, scripts."""
import os
import re
import time

from . import common

MAINTAINER = os.environ.get("EVN_PACKAGE_MAINTAINER", "Evener <maintainer@evener.invalid>")

ABOUT = """ Evener runs ONNX models on CPUs and OpenCL devices, several of them at
 once. It is meant to be part of other programs: a C API with a stable ABI,
 one allocator, limits for memory and time, errors that name the node.
"""
LIBRARY = "embeddable inference of ONNX models (library)\n" + ABOUT + """ .
 This package has the shared library, and the modules that it opens when a
 model needs them.
"""
DEVELOPMENT = "embeddable inference of ONNX models (development)\n" + ABOUT + """ .
 This package has the headers for C and C++, the static library, and what
 pkg-config and CMake need.
"""
COMMAND = "run and inspect ONNX models\n" + ABOUT + """ .
 This package has the command evener, which runs, measures, explains and
 quantizes models.
"""
PYTHON = "embeddable inference of ONNX models (Python 3)\n" + ABOUT + """ .
 This package has the module for Python 3.
"""

COMPILE = """#!/bin/sh
set -e
if [ "$1" = configure ] && command -v py3compile >/dev/null 2>&1; then
  py3compile -p python3-evener
fi
"""
CLEAN = """#!/bin/sh
set -e
if command -v py3clean >/dev/null 2>&1; then
  py3clean -p python3-evener
fi
"""


def overrides(name):
    """What lintian says of the library's package and is as it should be, with the reason."""
    return f"""# The modules are no libraries to link with: libevener opens them by their path, from beside itself.
{name}: sharedobject-in-library-directory-missing-soname *
"""


def changelog(version):
    date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(common.epoch()))
    return f"evener ({version}) unstable; urgency=medium\n\n  * Version {version}; CHANGELOG.md of the sources says what is new.\n\n -- {MAINTAINER}  {date}\n".encode()


def manual(packaging):
    commands = re.findall(r'^    \{"([a-z-]+)", (?:nullptr|"([^"]*)"), "([^"]+)",$', (common.SOURCE / "src" / "cli" / "commands.cc").read_text(), re.M)
    day = time.strftime("%Y-%m-%d", time.gmtime(common.epoch()))
    lines = [f'.TH EVENER 1 "{day}" "evener {packaging.version}" "User Commands"', ".SH NAME", "evener \\- run and inspect ONNX models", ".SH SYNOPSIS",
             ".B evener", ".I COMMAND", ".RI [ OPTION ]...", ".SH DESCRIPTION", "Runs ONNX models over CPU and OpenCL devices.",
             ".B evener help", "lists the commands, and", ".B evener", ".I COMMAND", ".B \\-\\-help", "says what one takes."]
    if not commands:
        raise common.Failure("src/cli/commands.cc has no table of commands that the manual page could have")
    lines.append(".SH COMMANDS")
    for name, argument, about in commands:
        lines += [".TP", "\\fB" + name.replace("-", "\\-") + "\\fR" + (f" \\fI{argument}\\fR" if argument else ""), about.replace("-", "\\-")]
    return ("\n".join(lines) + "\n").encode()


def metadata(packaging):
    return f"Metadata-Version: 2.1\nName: evener\nVersion: {packaging.version}\nSummary: {common.SUMMARY}\nLicense: Apache-2.0\nRequires-Python: >=3.9\nRequires-Dist: numpy\n"


def indented(text):
    return "".join(f" {line.rstrip()}\n" if line.strip() else " .\n" for line in text.strip("\n").splitlines())


def copyright(packaging):
    """In Debian's machine-readable form, whose name is the address after `Format:`; nothing is got from there. It has the project's licence, and
    the sections of NOTICE, each of which begins with a line `FILE: WORK`."""
    parts = re.split(r"^={20,}\n", (common.SOURCE / "NOTICE").read_text(), flags=re.M)[1:]
    text = f"""Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: evener
Comment: The binaries have parts of other works inside, whose terms follow those of Evener.
 libstdc++ and libgcc are also linked into the library, under the GPL, version 3 or
 later, with the GCC Runtime Library Exception.

Files: *
Copyright: the Evener authors
License: Apache-2.0
 On Debian systems, the full text of the Apache License, Version 2.0 is in
 /usr/share/common-licenses/Apache-2.0.
"""
    for part in parts:
        title, _, body = part.partition("\n")
        file, work = title.split(": ")
        lines = body.splitlines()
        holders = [line.replace("Copyright ", "").replace("(c) ", "") for line in lines if line.startswith("Copyright ")]
        rest = "\n".join(line for line in lines if not line.startswith("Copyright "))
        text += f"\nFiles: */{file}*\nCopyright: " + "\n ".join(holders) + f"\nLicense: {work}-terms\n" + indented(rest)
    return text
