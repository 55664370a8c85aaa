"""The packages of the build under test, made once, and what their consumers share."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["EVENER_BUILD"])
VERSION = re.search(r"project\(evener VERSION ([\d.]+)", (REPOSITORY / "CMakeLists.txt").read_text())[1]
FULL = bool(os.environ.get("EVN_TEST_FULL"))


def run(command, **options):
    """Runs a command, which must end well, and gives what it wrote to stdout."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def plain(**more):
    """The environment of a program that knows nothing of this checkout and this build."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("EVENER_") and key not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
    return dict(kept, **{key: str(value) for key, value in more.items()})


def make_packages(out, build=BUILD, source=REPOSITORY, kinds=()):
    """Runs scripts/package, and gives the paths that it printed."""
    printed = run([sys.executable, source / "scripts" / "package", *kinds, "-o", out, "--build", build], env=plain())
    return [pathlib.Path(line) for line in printed.splitlines()]


def needs(command):
    if shutil.which(command) is None:
        pytest.skip(f"there is no {command}")


@pytest.fixture(scope="session")
def packages(tmp_path_factory):
    """A folder with the packages of all kinds whose tools are here."""
    folder = tmp_path_factory.mktemp("packages")
    make_packages(folder)
    return folder


@pytest.fixture(scope="session")
def root(packages, tmp_path_factory):
    """A folder into which all Debian packages are unpacked, as into the root of a system."""
    needs("dpkg-shlibdeps")
    folder = tmp_path_factory.mktemp("root")
    debs = sorted(packages.glob("*.deb"))
    assert len(debs) == 6
    for deb in debs:
        run(["dpkg-deb", "-x", deb, folder])
    return folder


@pytest.fixture(scope="session")
def libraries(root):
    """The folder of the unpacked libraries."""
    return next(root.glob("usr/lib/*/libevener.so")).parent


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """y = 2 x + 1 for rows of three, as tests/install/client.c wants it."""
    nodes = [helper.make_node("MatMul", ["x", "eye"], ["m"], name="product"), helper.make_node("Mul", ["m", "two"], ["d"]), helper.make_node("Add", ["d", "one"], ["y"])]
    constants = [numpy_helper.from_array(array, name) for name, array in
                 (("eye", np.eye(3, dtype=np.float32)), ("two", np.array([2], np.float32)), ("one", np.array([1], np.float32)))]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 3]) for name in ("x", "y")]
    path = tmp_path_factory.mktemp("model") / "twice.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:], constants), opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path
