#!/usr/bin/env python3
"""Names pages of measurements that are older than the code they measure. It warns and never fails.

usage: check_pages.py [REPOSITORY]

A page that a program measured carries the commit it was measured at: `<!-- measured at HASH ... -->`. PAGES says what each page
measures; a page is old when a commit after its stamp has changed a file there.
"""
import pathlib
import re
import subprocess
import sys

ENGINE = ("src", "include", "CMakeLists.txt", "cmake/library.cmake", "cmake/registration.cmake")
PAGES = {
    "docs/models.md": (*ENGINE, "bench/models"),
    "docs/benchmarks-float32-amx.md": (*ENGINE, "bench"),
    "docs/benchmarks-avx2.md": (*ENGINE, "bench"),
    "docs/benchmarks-epyc.md": (*ENGINE, "bench"),
    "docs/benchmarks-int8.md": (*ENGINE, "bench"),
    "docs/benchmarks-int8-epyc.md": (*ENGINE, "bench"),
    "docs/benchmarks-language.md": (*ENGINE, "bench/language.py", "bench/language_models.py"),
    "docs/benchmarks-gpu.md": ("src/backends/opencl", "bench/gpu.py"),
    "docs/benchmarks-serving.md": (*ENGINE, "bench"),
}
STAMP = re.compile(r"<!-- measured at ([0-9a-f]{7,40})\b")


def git(root, *arguments):
    """What git prints, or None where it fails: the commit is not there, or this is no repository."""
    try:
        made = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    except OSError:
        return None
    return made.stdout.strip() if made.returncode == 0 else None


def warning(root, page, measured):
    """What is to be said of one page, or None."""
    path = root / page
    if not path.exists():
        return f"{page}: there is no such page"
    stamp = STAMP.search(path.read_text())
    if stamp is None:
        return f"{page}: it does not say which commit it measured"
    commit = stamp[1]
    if git(root, "cat-file", "-e", f"{commit}^{{commit}}") is None:
        why = "the clone is shallow" if git(root, "rev-parse", "--is-shallow-repository") == "true" else "it is unknown here"
        return f"{page}: cannot be compared with commit {commit}: {why}"
    if git(root, "merge-base", "--is-ancestor", commit, "HEAD") is None:
        return f"{page}: cannot be compared with commit {commit}: HEAD does not descend from it"
    later = git(root, "rev-list", "--count", f"{commit}..HEAD", "--", *measured)
    if later is None:
        return f"{page}: git cannot list what changed since {commit}"
    return None if later == "0" else f"{page}: measured at {commit}; {later} later commits changed what it measures"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[1])
    for page, measured in PAGES.items():
        text = warning(root, page, measured)
        if text is not None:
            print(f"warning: {text}")


if __name__ == "__main__":
    main()
