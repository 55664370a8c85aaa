"""Builds libevener (the CMake preset "release", without tests) and puts it into the package, so that the wheel needs nothing else.

Needs what the library's own build needs: CMake, Ninja, a C++20 compiler, yaml-cpp, OpenCL's headers. EVENER_LIBRARY, when set,
names a library that is taken as it is instead.
"""
import os
import pathlib
import re
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / "build" / "wheel"  # what setuptools leaves behind goes there, too


def version():
    """The one version number, which CMakeLists.txt has."""
    return re.search(r"project\(evener VERSION ([\d.]+)", (REPOSITORY / "CMakeLists.txt").read_text())[1]


def build_library():
    """The path of the library."""
    named = os.environ.get("EVENER_LIBRARY")
    if named:
        return pathlib.Path(named)
    build = FOLDER / "library"  # of its own: build/release may be in use, or configured otherwise
    subprocess.run(["cmake", "--preset", "release", "-B", str(build), "-DEVN_TESTS=OFF"], cwd=REPOSITORY, check=True)
    subprocess.run(["cmake", "--build", str(build)], check=True)
    installed = FOLDER / "installed"
    shutil.rmtree(installed, ignore_errors=True)
    subprocess.run(["cmake", "--install", str(build), "--prefix", str(installed)], check=True)  # which strips it
    return next(installed.glob("lib*/**/libevener.so"))


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        library = build_library()
        target = pathlib.Path(self.build_lib) / "evener"
        for old in target.glob("libevener*"):
            old.unlink()
        shutil.copyfile(library, target / "libevener.so")
        for module in library.parent.glob("libevener_*.so"):  # it opens them from beside itself
            shutil.copyfile(module, target / module.name)
        for text in ("LICENSE", "NOTICE", "config/schema.yaml"):
            shutil.copyfile(REPOSITORY / text, target / pathlib.Path(text).name)


class PlatformWheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]  # ctypes: any Python 3, this platform


class PlatformDistribution(Distribution):
    def has_ext_modules(self):
        return True


FOLDER.mkdir(parents=True, exist_ok=True)
setup(version=version(), packages=["evener"], distclass=PlatformDistribution,
      options={"build": {"build_base": str(FOLDER)}, "egg_info": {"egg_base": str(FOLDER)}},
      cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel})
