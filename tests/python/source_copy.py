"""A copy of what the library is built from, for tests that change it."""

import pathlib
import shutil

ROOT = pathlib.Path(__file__).resolve().parents[2]


def copy_sources(to):
    for name in ("CMakeLists.txt", "CMakePresets.json"):
        shutil.copy(ROOT / name, to)
    for name in ("cmake", "include", "pkgconfig", "scripts", "src"):
        shutil.copytree(ROOT / name, to / name)
    (to / "bindings").mkdir()
    for path in (ROOT / "bindings").glob("*.py"):  # they read the public headers
        shutil.copy(path, to / "bindings")
