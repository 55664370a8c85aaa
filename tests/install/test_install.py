"""The installed library as its users meet it: C clients through pkg-config, find_package and dlopen, from a fresh prefix."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

HERE = pathlib.Path(__file__).parent
BUILD = pathlib.Path(os.environ["EVENER_BUILD"])
MODULE = "libevener_openblas.so"
IMAGE_MODULE = "libevener_image.so"


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prefix")
    subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(folder)], check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """y = 2 x + 1, with a MatMul by the identity so that a kernel with packed weights runs."""
    nodes = [
        helper.make_node("MatMul", ["x", "eye"], ["m"]),
        helper.make_node("Mul", ["m", "two"], ["d"]),
        helper.make_node("Add", ["d", "one"], ["y"]),
    ]
    constants = [
        onnx.numpy_helper.from_array(np.eye(3, dtype=np.float32), "eye"),
        onnx.numpy_helper.from_array(np.array([2], np.float32), "two"),
        onnx.numpy_helper.from_array(np.array([1], np.float32), "one"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 3])],
        constants,
    )
    path = tmp_path_factory.mktemp("model") / "twice.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def library_folder(prefix):
    return next(prefix.glob("lib/**/libevener.so")).parent


def run(command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_a_c_client_links_through_pkg_config(prefix, model, tmp_path):
    folder = library_folder(prefix)
    environment = dict(os.environ, PKG_CONFIG_PATH=str(folder / "pkgconfig"))
    flags = run(["pkg-config", "--cflags", "--libs", "evener"], env=environment).split()
    client = tmp_path / "client"
    run(["cc", "-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror", HERE / "client.c", "-o", client, *flags, f"-Wl,-rpath,{folder}"])
    assert "ok" in run([client, model])


def test_a_cxx_client_finds_the_wrapper_header(prefix, model, tmp_path):
    folder = library_folder(prefix)
    environment = dict(os.environ, PKG_CONFIG_PATH=str(folder / "pkgconfig"))
    flags = run(["pkg-config", "--cflags", "--libs", "evener"], env=environment).split()
    client = tmp_path / "client"
    source = HERE.parents[1] / "examples" / "cpp" / "classify.cpp"
    run(["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", source, "-o", client, *flags, f"-Wl,-rpath,{folder}"])
    assert run([client, model]).splitlines()[0] == "2 1.01569"


@pytest.mark.parametrize("compiler", ["g++", "clang++-14"])
def test_exceptions_of_the_hosts_own_runtime_end_in_the_library(prefix, tmp_path, compiler):
    """The library has a C++ runtime of its own, linked statically: here another one throws through it."""
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    node = helper.make_node("Fold", ["x"], ["y"], name="fold_1", domain="example")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 12]) for name in ("x", "y")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("example", 1)]
    onnx.save(helper.make_model(helper.make_graph([node], "g", values[:1], values[1:]), opset_imports=opsets, ir_version=8), tmp_path / "fold.onnx")
    folder = library_folder(prefix)
    client = tmp_path / "client"
    run([compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", HERE / "throwing_client.cc", "-o", client, f"-I{prefix}/include", f"-L{folder}",
         "-levener", f"-Wl,-rpath,{folder}"])
    lines = run([client, tmp_path / "fold.onnx"]).splitlines()
    assert sorted(lines) == ["custom operator example::Fold: run threw an exception"] * 2 + [
        "custom operator example::Fold: run threw an exception: boom"]


def test_a_c_client_links_through_find_package(prefix, model, tmp_path):
    shutil.copy(HERE / "client.c", tmp_path)
    shutil.copy(HERE / "consumer.cmake.txt", tmp_path / "CMakeLists.txt")
    run(["cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}"])
    run(["cmake", "--build", tmp_path / "build"])
    assert "ok" in run([tmp_path / "build" / "client", model])


def test_the_linked_client_needs_no_libstdcxx(prefix, model, tmp_path):
    folder = library_folder(prefix)
    client = tmp_path / "client"
    run(["cc", HERE / "client.c", "-o", client, f"-I{prefix}/include", f"-L{folder}", "-levener", f"-Wl,-rpath,{folder}"])
    assert "libstdc++" not in run(["ldd", client])
    assert "ok" in run([client, model])


def test_the_licences_are_installed(prefix):
    assert "yaml-cpp" in (prefix / "share" / "doc" / "evener" / "NOTICE").read_text()
    assert "Apache License" in (prefix / "share" / "doc" / "evener" / "LICENSE").read_text()


def test_the_description_of_the_configuration_is_installed(prefix):
    assert (prefix / "share" / "evener" / "schema.yaml").read_bytes() == (HERE.parents[1] / "config" / "schema.yaml").read_bytes()


@pytest.mark.parametrize("asked, found", [("0.3", True), ("0.3.0", True), ("0.2", False), ("0.1", False), ("0.4", False), ("1.0", False)])
def test_find_package_takes_no_other_minor_version_before_1(prefix, asked, found, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.25)\nproject(asks LANGUAGES NONE)\nfind_package(evener {asked})\nmessage(STATUS \"found ${{evener_FOUND}}\")\n")
    assert f"found {1 if found else 0}" in run(["cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}"])


def install_without(part, folder, tmp_path):
    """`cmake --install` of a build in which a file is not there."""
    script = (BUILD / "cmake_install.cmake").read_text()
    assert f"{BUILD}/{part}" in script
    changed = tmp_path / "cmake_install.cmake"
    changed.write_text(script.replace(f"{BUILD}/{part}", f"{BUILD}/absent/{part}"))
    return subprocess.run(["cmake", f"-DCMAKE_INSTALL_PREFIX={folder}", "-P", changed], capture_output=True, text=True)


def test_what_is_not_built_is_left_out(tmp_path):
    for part in ("libevener.a", "libevener_mpi.so", "evener"):
        folder = tmp_path / part / "prefix"
        (tmp_path / part).mkdir(exist_ok=True)
        done = install_without(part, folder, tmp_path / part)
        assert done.returncode == 0, done.stderr
        assert f"absent/{part}" in done.stdout
        assert [path for path in folder.rglob("evener.h")] and library_folder(folder)
        assert not [path for path in folder.rglob(part) if path.is_file()]


def test_without_the_library_nothing_is_installed(tmp_path):
    version = next(BUILD.glob("libevener.so.*.*.*")).name
    done = install_without(version, tmp_path / "prefix", tmp_path)
    assert done.returncode != 0 and "nothing is installed" in done.stderr
    assert not (tmp_path / "prefix").exists()


def test_what_is_installed_is_stripped(prefix, tmp_path):
    """The size of libevener.so itself is held by tests/abi."""
    for binary in [*library_folder(prefix).glob("libevener*.so"), prefix / "bin" / "evener"]:
        sections = run(["readelf", "-WS", binary])
        assert ".symtab" not in sections and ".debug_" not in sections, binary
    run(["strip", "-o", tmp_path / "stripped", BUILD / "libevener.so"])
    assert (library_folder(prefix) / "libevener.so").stat().st_size <= (tmp_path / "stripped").stat().st_size


def test_the_debug_component_has_what_was_stripped(prefix, tmp_path):
    run(["cmake", "--install", BUILD, "--prefix", tmp_path, "--component", "debug"])
    digits = re.search(r"Build ID: ([0-9a-f]+)", run(["readelf", "-n", library_folder(prefix) / "libevener.so"]))[1]
    assert ".debug_info" in run(["readelf", "-WS", tmp_path / "lib" / "debug" / ".build-id" / digits[:2] / f"{digits[2:]}.debug"])
    assert not list(tmp_path.rglob("*.so"))


def test_the_installed_command_runs(prefix):
    assert "0.3.0" in run([prefix / "bin" / "evener", "version"])


@pytest.mark.parametrize("threads", [1, 2])
def test_open_run_close_a_thousand_times_keeps_memory_flat(prefix, model, tmp_path, threads):
    client = tmp_path / "client"
    run(["cc", "-std=gnu11", "-Wall", "-Werror", "-O1", HERE / "dlopen_client.c", "-o", client, f"-I{prefix}/include", "-ldl"])
    assert "libstdc++" not in run(["ldd", client])
    early, late = map(int, run([client, library_folder(prefix) / "libevener.so", model, 1000, threads]).split())
    assert late - early <= 512, f"resident memory grew from {early} to {late} KiB in 900 rounds"


def test_closing_the_library_while_objects_live_unloads_nothing(prefix, model, tmp_path):
    client = tmp_path / "client"
    run(["cc", "-std=gnu11", "-Wall", "-Werror", "-O1", HERE / "closing_client.c", "-o", client, f"-I{prefix}/include", "-ldl"])
    run([client, library_folder(prefix) / "libevener.so", model, 30])


def test_the_modules_that_pkg_config_names_lie_beside_the_library(prefix):
    folder = library_folder(prefix)
    environment = dict(os.environ, PKG_CONFIG_PATH=str(folder / "pkgconfig"))
    named = run(["pkg-config", "--variable=modules", "evener"], env=environment).split()
    assert sorted(named) == sorted(path.name for path in folder.glob("libevener_*.so"))


DOUBLES = """
import json, sys
import numpy as np
import evener
model = sys.argv[1]
a = np.arange(21, dtype=np.float64).reshape(3, 7) / 8
b = np.arange(35, dtype=np.float64).reshape(7, 5) / 16 - 1
with evener.Runtime(threads=1) as runtime, runtime.session(model) as session:
    y = session.run({"a": a, "b": b})["y"]
    assert np.abs(y - a @ b).max() < 1e-12
    print(json.dumps(json.loads(session.explain("json"))["nodes"][0]))
"""


def explain_doubles(folder, tmp_path):
    """The explanation of a MatMul of float64, after it has given the right product."""
    values = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape) for name, shape in (("a", [3, 7]), ("b", [7, 5]), ("y", [3, 5]))]
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["y"])], "g", values[:2], values[2:])
    path = tmp_path / "doubles.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    environment = dict(os.environ, EVENER_LIBRARY=str(folder / "libevener.so"))
    return json.loads(run([sys.executable, "-c", DOUBLES, path], env=environment))


def test_the_openblas_module_multiplies_doubles(prefix, tmp_path):
    if not (library_folder(prefix) / MODULE).exists():
        pytest.skip("built without OpenBLAS")
    node = explain_doubles(library_folder(prefix), tmp_path)
    assert node["kernel"] == "matmul_openblas" and MODULE not in node["refused"]


def test_without_the_openblas_module_the_reference_runs_and_explain_says_why(prefix, tmp_path):
    folder = tmp_path / "without"
    shutil.copytree(library_folder(prefix), folder, symlinks=True, ignore=shutil.ignore_patterns("libevener_*.so"))
    node = explain_doubles(folder, tmp_path)
    assert node["kernel"] == "reference" and f"matmul_openblas: {MODULE}" in node["refused"]


PICTURE = """
import sys
import numpy as np
import evener
with evener.Runtime(threads=1) as runtime:
    try:
        session = runtime.session(sys.argv[1])
    except evener.Error as error:
        print(error.status.name, error.node, error.message)
    else:
        print(session.run({"file": np.frombuffer(b"P5 2 1 255 ab", np.uint8)})["pixels"].tolist())
"""


def load_picture(folder, tmp_path):
    """What a program says that decodes a picture with the library of a folder. It runs where a file stands that must not be opened."""
    node = helper.make_node("ImageDecoder", ["file"], ["pixels"], name="decode_1", pixel_format="Grayscale")
    values = [helper.make_tensor_value_info(name, TensorProto.UINT8, shape) for name, shape in (("file", ["n"]), ("pixels", [None] * 3))]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    path = tmp_path / "picture.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    (tmp_path / IMAGE_MODULE).write_bytes(b"not a library")
    environment = dict(os.environ, EVENER_LIBRARY=str(folder / "libevener.so"), PYTHONPATH=str(HERE.parents[1] / "bindings" / "python"))
    return run([sys.executable, "-c", PICTURE, path], env=environment, cwd=tmp_path)


def test_the_image_module_decodes(prefix, tmp_path):
    if not (library_folder(prefix) / IMAGE_MODULE).exists():
        pytest.skip("built without the libraries of pictures")
    assert load_picture(library_folder(prefix), tmp_path) == f"{[[[ord('a')], [ord('b')]]]}\n"


def test_without_the_image_module_a_model_that_needs_it_is_refused(prefix, tmp_path):
    folder = tmp_path / "without"
    shutil.copytree(library_folder(prefix), folder, symlinks=True, ignore=shutil.ignore_patterns("libevener_*.so"))
    said = load_picture(folder, tmp_path)
    assert said.startswith("UNSUPPORTED decode_1 ImageDecoder needs libevener_image.so") and f"{folder}/{IMAGE_MODULE}" in said


LOSS = """
import json, sys
import numpy as np
import evener
with evener.Runtime(threads=1) as runtime, runtime.session(sys.argv[1]) as session:
    loss = session.run({"x": np.zeros((2, 4), np.float32), "labels": np.zeros(2, np.int64)})["loss"]
    assert abs(loss - np.log(4)) < 1e-6
    print(json.dumps(json.loads(session.explain("json"))["nodes"][0]))
    try:
        evener.Trainer(runtime, sys.argv[1], "output")
    except evener.Error as error:
        print(error.status.name, error)
"""


def explain_loss(folder, tmp_path):
    """The explanation of a SoftmaxCrossEntropyLoss that gave the right loss, and how a trainer is refused: the model has nothing to learn."""
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4]), helper.make_tensor_value_info("labels", TensorProto.INT64, [2])]
    node = helper.make_node("SoftmaxCrossEntropyLoss", ["x", "labels"], ["loss"])
    graph = helper.make_graph([node], "g", values, [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "loss.onnx")
    node, refused = run([sys.executable, "-c", LOSS, tmp_path / "loss.onnx"], env=dict(os.environ, EVENER_LIBRARY=str(folder / "libevener.so"))).splitlines()
    return json.loads(node), refused


def test_the_library_alone_has_kernels_of_training_and_trainers(prefix, tmp_path):
    folder = tmp_path / "without"
    shutil.copytree(library_folder(prefix), folder, symlinks=True, ignore=shutil.ignore_patterns("libevener_*.so"))
    node, refused = explain_loss(folder, tmp_path)
    assert node["kernel"] == "cross_entropy_loss" and refused.startswith("INVALID_ARGUMENT") and "nothing can learn" in refused
