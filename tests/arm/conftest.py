"""Runs programs of the aarch64 build under qemu."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("EVENER_ARM_BUILD") or REPOSITORY / "build" / "aarch64")
sys.path[:0] = [str(REPOSITORY / "bench"), str(REPOSITORY / "bench" / "models")]


def sysroot():
    return re.search(r"^EVN_ARM64_SYSROOT:PATH=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M)[1]


class Machine:
    """A processor as qemu has it, by its name there."""

    def __init__(self, cpu="max"):
        self.cpu = cpu

    def run(self, *command, fails=False, **environment):
        """What the program prints; it must succeed, or with `fails` end with an error."""
        done = subprocess.run(["qemu-aarch64", "-cpu", self.cpu, "-L", sysroot(), *map(str, command)], capture_output=True, text=True,
                              env={**os.environ, **environment})
        assert (done.returncode != 0) == fails, f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stderr if fails else done.stdout


@pytest.fixture(scope="session", autouse=True)
def needed():
    if not shutil.which("qemu-aarch64"):
        pytest.skip("qemu-user is not installed")


@pytest.fixture(scope="session")
def command():
    path = BUILD / "evener"
    assert path.exists(), f"{path} is missing: cmake --preset aarch64 && cmake --build --preset aarch64"
    return path
