"""Builds libevener (the CMake preset "release") and puts it into the package, so that the wheel needs nothing else.

Needs what the library's own build needs: CMake, Ninja, a C++20 compiler, yaml-cpp. EVENER_LIBRARY, when set, names a library
that is taken as it is instead.
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


def version():
    """The one version number, which CMakeLists.txt has."""
    return re.search(r"project\(evener VERSION ([\d.]+)", (REPOSITORY / "CMakeLists.txt").read_text())[1]


def build_library():
    """The path of the library."""
    named = os.environ.get("EVENER_LIBRARY")
    if named:
        return pathlib.Path(named)
    subprocess.run(["cmake", "--preset", "release"], cwd=REPOSITORY, check=True)
    subprocess.run(["cmake", "--build", "--preset", "release", "--target", "evener"], cwd=REPOSITORY, check=True)
    return REPOSITORY / "build" / "release" / "libevener.so"


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        library = build_library()
        target = pathlib.Path(self.build_lib) / "evener"
        for file in [library, *library.parent.glob("libevener_*.so")]:  # modules that it opens lie beside it
            shutil.copyfile(file.resolve(), target / file.name)


class PlatformWheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]  # ctypes: any Python 3, this platform


class PlatformDistribution(Distribution):
    def has_ext_modules(self):
        return True


# What setuptools leaves behind goes where everything built goes.
FOLDER = REPOSITORY / "build" / "wheel"
FOLDER.mkdir(parents=True, exist_ok=True)
setup(version=version(), packages=["evener"], distclass=PlatformDistribution,
      options={"build": {"build_base": str(FOLDER)}, "egg_info": {"egg_base": str(FOLDER)}},
      cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel})
