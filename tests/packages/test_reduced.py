"""Builds of some operators, features and instruction sets: what is chosen, and in the long form builds for the OCR models, their sizes, bits and refusals."""
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest
from conftest import BUILD, FULL, REPOSITORY, plain, run
from onnx import TensorProto, helper

MODELS = pathlib.Path(os.environ.get("EVENER_MODELS", REPOSITORY / "build" / "models"))
OCR = ["ch_PP-OCRv4_det_infer.onnx", "ch_PP-OCRv4_rec_infer.onnx", "ch_ppocr_mobile_v2.0_cls_infer.onnx"]


def select(folder, *specs):
    """What scripts/select_operators.py chooses: file names, the header's text."""
    run([sys.executable, REPOSITORY / "scripts/select_operators.py", "--cmake", folder / "kept.cmake", "--header", folder / "kept.h", *specs])
    return {pathlib.Path(line.strip()).name for line in (folder / "kept.cmake").read_text().splitlines() if line.endswith(".cc")}, (folder / "kept.h").read_text()


def refused(*specs):
    done = subprocess.run([sys.executable, REPOSITORY / "scripts/select_operators.py", "--cmake", os.devnull, "--header", os.devnull, *specs], capture_output=True, text=True)
    assert done.returncode != 0
    return done.stderr


def passes_of_the_source():
    return re.findall(r'^    \{"(\w+)", "', (REPOSITORY / "src/graph/passes/passes.cc").read_text(), re.M)


def test_the_table_of_rewrites_has_each_pass_and_known_operators():
    rows = [line.split("|") for line in (REPOSITORY / "src/graph/passes/operators.txt").read_text().splitlines() if line and not line.startswith("#")]
    names = [row[0].strip() for row in rows if not row[0].startswith("(")]
    assert names == passes_of_the_source() and len(names) > 20
    known = {row["name"] for row in json.loads(run([BUILD / "list_operators"]))} | {"FusedConv", "FusedGemm", "FusedMatMul"}
    words = {word for row in rows for part in row[1:] for group in part.split() for word in group.lstrip("@").split("+")} - {"*"}
    of_the_loader = {"Gradient", "If", "FlexAttention", "Upsample", "Scatter"}  # which has other operators for them
    assert words <= known | of_the_loader, words - known


def test_without_operators_all_is_chosen(tmp_path):
    files, header = select(tmp_path)
    assert {path.name for path in (REPOSITORY / "src/ops").glob("*.cc")} <= files
    assert "kLeftOut[] = {nullptr}" in header and "= false" not in header


def test_every_operator_is_found_with_its_kernels(tmp_path):
    """For each operator of the library: the family that defines it and the files of its kernels are chosen by its name."""
    rows = json.loads(run([BUILD / "list_operators"]))
    sys.path.insert(0, str(REPOSITORY / "scripts"))
    import select_operators
    tables = select_operators.tables()
    for row in rows:
        places = {part for path, names in tables.items() if row["name"] in names for part in path.parts}
        assert "ops" in places, row["name"]
        for backend, kernels in row["kernels"].items():
            assert not kernels or backend in places, (row["name"], backend, kernels)


def test_branches_and_functions_are_read(tmp_path):
    def graph(node, name):
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    branches = {"then_branch": graph(helper.make_node("Erf", ["x"], ["y"]), "a"), "else_branch": graph(helper.make_node("Cosh", ["x"], ["y"]), "b")}
    node = helper.make_node("If", ["c"], ["y"], **branches)
    call = helper.make_node("Mine", ["x"], ["z"], domain="local")
    mine = helper.make_function("local", "Mine", ["x"], ["z"], [helper.make_node("Det", ["x"], ["z"])], [helper.make_opsetid("", 17)])
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2]), helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    whole = helper.make_graph([node, call], "g", values, [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "yz"])
    onnx.save(helper.make_model(whole, functions=[mine], opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]), tmp_path / "m.onnx")
    files, header = select(tmp_path, str(tmp_path / "*.onnx"))
    assert "det.cc" in files and "softmax.cc" not in files and not {'"Erf"', '"Cosh"', '"Det"'} & set(re.findall(r'"\w+"', header))
    assert '"Softmax"' in header and "kKeeps_fuse_gelu = true" in header and "kKeeps_fuse_qdq = false" in header


@pytest.mark.parametrize("body", [b"", b"\xff" * 40, b"\x3a\x7f\x01", b"PK\x03\x04" + bytes(64)])
def test_what_is_no_model_is_refused(body, tmp_path):
    (tmp_path / "bad.onnx").write_bytes(body)
    assert "is no ONNX model" in refused(str(tmp_path / "bad.onnx"))


def test_unknown_names_and_empty_patterns_are_refused(tmp_path):
    assert "there is no operator Sofmax" in refused("Sofmax")
    assert "no file is" in refused(str(tmp_path / "*.onnx"))


def features(folder, *names):
    """What scripts/select_features.py writes: the list for CMake, the header, the functions that refuse."""
    paths = [folder / name for name in ("features.cmake", "kept_features.h", "left_out_functions.cc")]
    run([sys.executable, REPOSITORY / "scripts/select_features.py", "--cmake", paths[0], "--header", paths[1], "--source", paths[2], *names])
    return [path.read_text() for path in paths]


def rows_of_features():
    rows = [[part.strip() for part in line.split("|")] for line in (REPOSITORY / "src/api/features.txt").read_text().splitlines() if not line.startswith("#")]
    return {name: (option, files.split()) for name, option, files, _ in rows}


def test_parts_have_files_with_functions_of_the_api(tmp_path):
    exported = set(re.findall(r"evn_\w+", (REPOSITORY / "src/api/library/evener.map").read_text()))
    listed = (REPOSITORY / "docs/packaging.md").read_text()
    for name, (option, files) in rows_of_features().items():
        made, header, source = features(tmp_path, *(rows_of_features().keys() - {name}))
        expected = {word for file in files for word in re.findall(r"^evn_status (evn_\w+)\(", (REPOSITORY / "src/api" / file).read_text(), re.M)}
        assert set(re.findall(r"^evn_status (evn_\w+)\(", source, re.M)) == expected and expected and expected <= exported
        assert f"kHas_{name} = false" in header and header.count("= true") == len(rows_of_features()) - 1
        assert f"set(EVN_HAS_{name} OFF)" in made and len(re.findall(r"_api\.cc$", made, re.M)) == len(files)
        assert f"`-D{option}`" in listed


def test_a_build_of_all_leaves_nothing_out(tmp_path):
    made, header, source = features(tmp_path, *rows_of_features())
    assert "_api.cc" not in made and "false" not in header and "evn_status" not in source


def test_functions_that_refuse_say_why_and_release_what_there_is_not(tmp_path):
    """All parts left out: the generated file is compiled with the library's own error handling, and called."""
    features(tmp_path)
    (tmp_path / "host.c").write_text("""
#include <stdio.h>
#include <string.h>
#include "evener/api.h"
int main(void) {
  evn_error error = EVN_ERROR_INIT;
  evn_quantizer quantizer = (evn_quantizer)8;
  const evn_status status = evn_quantizer_create(NULL, NULL, NULL, &quantizer, &error);
  puts(error.message);
  if (status != EVN_ERROR_UNSUPPORTED || error.status != status || quantizer != (evn_quantizer)8) return 1;
  if (evn_quantizer_create(NULL, NULL, NULL, NULL, NULL) != EVN_ERROR_UNSUPPORTED) return 2;
  return evn_quantizer_release(NULL) != EVN_OK || evn_quantizer_release(quantizer) != EVN_ERROR_INVALID_HANDLE ? 3 : 0;
}
""")
    sources = [tmp_path / "left_out_functions.cc", *(REPOSITORY / "src/api" / name for name in ("left_out.cc", "barrier.cc"))]
    compiler = os.environ.get("CXX", "c++")
    run([os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Wextra", "-Werror", "-c", "-I", REPOSITORY / "include", tmp_path / "host.c", "-o", tmp_path / "host.o"])
    run([compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-I", REPOSITORY / "include", "-I", REPOSITORY / "src", *sources, tmp_path / "host.o", BUILD / "libevn_base.a", "-fno-lto", "-pthread",
         "-o", tmp_path / "host"])
    assert run([tmp_path / "host"]).strip() == "evn_quantizer_create: this build of the library leaves it out (EVN_FEATURES=core)"


@pytest.mark.parametrize("setting, message", [
    ("-DEVN_FEATURES=quantizer", 'EVN_FEATURES is "quantizer", expected all or core'),
    ("-DEVN_INSTRUCTION_SETS=avx3", "there is no avx3 in src/backends/cpu/isas.cmake"),
    ("-DEVN_FEATURES=core;-DEVN_TESTS=ON", "give -DEVN_TESTS=OFF with it"),
    ("-DEVN_TRAINING=OFF;-DEVN_TESTS=ON", "give -DEVN_TESTS=OFF with it"),
    ("-DEVN_OPERATORS=Gradient", "a build that differentiates has them all"),
    ("-DEVN_INSTRUCTION_SETS=baseline;-DEVN_TESTS=ON", "give -DEVN_TESTS=OFF with it"),
])
def test_settings_that_are_wrong_are_refused_when_cmake_configures(setting, message, tmp_path):
    command = ["cmake", "-S", REPOSITORY, "-B", tmp_path, "-DEVN_TESTS=OFF", *setting.split(";")]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode != 0 and message in " ".join(done.stderr.split()), done.stderr


RUN = """
import sys, hashlib
import numpy as np
import evener
random = np.random.default_rng(7)
with evener.Runtime(threads=1) as runtime:
    for path, shape in zip(sys.argv[1:], ((1, 3, 96, 160), (1, 3, 48, 160), (1, 3, 48, 192))):
        session = runtime.session(path)
        name = session.inputs[0].name
        y = session.run({name: random.standard_normal(shape).astype("float32")})
        print(hashlib.sha256(b"".join(np.ascontiguousarray(v).tobytes() for v in y.values())).hexdigest())
"""


def ocr_models():
    paths = [MODELS / name for name in OCR]
    if not all(path.exists() for path in paths):
        pytest.skip("the OCR models are not fetched")
    return paths


def build_reduced(folder, paths, *settings):
    """A build for the models, compiled and linked as the build under test is. Gives the size of the stripped library."""
    same = [f"-D{key}={value}" for key, value in re.findall(r"^(EVN_QUICK_BUILD):\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M)]
    run(["cmake", "--preset", "release", "-B", folder, "-DEVN_TESTS=OFF", "-DEVN_OPENBLAS=OFF", "-DEVN_IMAGE=OFF", f"-DEVN_OPERATORS={';'.join(map(str, paths))}", *same, *settings],
        cwd=REPOSITORY)
    run(["cmake", "--build", folder, "--target", "evener", "evener_cli"])
    run(["strip", "-o", folder / "stripped.so", folder / "libevener.so"])
    return (folder / "stripped.so").stat().st_size


SMALLEST = """
import sys
import numpy
import evener
path = sys.argv[1]
def nothing(*given):
    return None
with evener.Runtime(threads=2, memory_limit=256 << 20) as runtime:
    session = runtime.session(path)
    inputs = {session.inputs[0].name: numpy.zeros((1, 3, 32, 32), numpy.float32)}
    refusals = {
        "a configuration": lambda: evener.Runtime(config_text="devices: {}"),
        "devices": lambda: runtime.calibrate(),
        "operators": lambda: runtime.register_operator("mine", "Mine", nothing, nothing),
        "the quantizer": lambda: evener.Quantizer(runtime, path),
        "reports": lambda: session.explain(),
        "requests": lambda: session.submit(inputs),
        "states": lambda: session.state([(session.outputs[0].name, session.inputs[0].name)]),
        "training": lambda: evener.Trainer(runtime, path),
    }
    for name, call in refusals.items():
        try:
            call()
            print(name, "is there")
        except evener.Error as error:
            print(name, error.status.name, str(error).rpartition("(")[2])
"""


REFUSED_BY_CORE = [f"{name} UNSUPPORTED EVN_FEATURES=core)" for name in ("a configuration", "devices", "operators", "the quantizer", "reports", "requests", "states")]


@pytest.mark.skipif(not FULL, reason="a long form: set EVN_TEST_FULL=1")
@pytest.mark.skipif(platform.machine() != "x86_64" or " avx2 " not in pathlib.Path("/proc/cpuinfo").read_text(), reason="the build is for AVX2 alone")
def test_the_smallest_build_for_the_ocr_models(tmp_path):
    """One instruction set and the core, optimized for size: the bits of the whole library with that instruction set."""
    paths = ocr_models()
    folder = tmp_path / "smallest"
    size = build_reduced(folder, paths, "-DEVN_FEATURES=core", "-DEVN_INSTRUCTION_SETS=avx2", "-DCMAKE_BUILD_TYPE=MinSizeRel")
    print(f"the smallest build for the OCR models: {size} bytes")
    environment = plain(PYTHONPATH=REPOSITORY / "bindings/python", PYTHONDONTWRITEBYTECODE=1, EVN_CPU_ISA="avx2")
    of_smallest = dict(environment, EVENER_LIBRARY=str(folder / "libevener.so"))
    bits = [run([sys.executable, "-c", RUN, *paths], env=dict(environment, EVENER_LIBRARY=str(library / "libevener.so"))) for library in (folder, BUILD)]
    assert bits[0] == bits[1] and len(bits[0].splitlines()) == 3
    assert run([sys.executable, "-c", SMALLEST, paths[0]], env=of_smallest).splitlines() == [*REFUSED_BY_CORE, "training UNSUPPORTED EVN_TRAINING=OFF)"]
    done = subprocess.run([sys.executable, "-c", "import evener; evener.Runtime()"], env=dict(of_smallest, EVN_CPU_ISA="baseline"), capture_output=True, text=True)
    assert done.returncode != 0 and "there are: avx2" in done.stderr


@pytest.mark.skipif(not FULL, reason="a long form: set EVN_TEST_FULL=1")
def test_a_build_for_the_ocr_models(tmp_path):
    paths = ocr_models()
    folder = tmp_path / "reduced"
    size = build_reduced(folder, paths)
    print(f"a build for the OCR models: {size} bytes")

    environment = plain(PYTHONPATH=REPOSITORY / "bindings/python", PYTHONDONTWRITEBYTECODE=1)
    bits = [run([sys.executable, "-c", RUN, *paths], env=dict(environment, EVENER_LIBRARY=str(library / "libevener.so"))) for library in (folder, BUILD)]
    assert bits[0] == bits[1] and len(bits[0].splitlines()) == 3

    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], name="the_lstm", hidden_size=2)
    weights = [onnx.numpy_helper.from_array(np.zeros(shape, np.float32), name) for name, shape in (("w", (1, 8, 3)), ("r", (1, 8, 2)))]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 3]), helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    onnx.save(helper.make_model(helper.make_graph([node], "g", values[:1], values[1:], weights), opset_imports=[helper.make_opsetid("", 14)], ir_version=8), tmp_path / "lstm.onnx")
    done = subprocess.run([folder / "evener", "run", tmp_path / "lstm.onnx"], capture_output=True, text=True, env=plain())
    assert done.returncode == 4 and "the_lstm" in done.stderr and "operator LSTM (domain ai.onnx) is not in this build of the library (EVN_OPERATORS)" in done.stderr
    for path in sorted(MODELS.glob("*.onnx")):  # each of them runs or is refused, and none ends the process
        done = subprocess.run([folder / "evener", "inspect", path], capture_output=True, text=True, env=plain())
        assert done.returncode == 0, (path, done.stderr)
        assert "is not in this build" in done.stdout or "loads" in done.stdout, (path, done.stdout)


@pytest.mark.skipif(not FULL, reason="a long form: set EVN_TEST_FULL=1")
def test_a_build_without_training(tmp_path):
    """EVN_TRAINING=OFF: all but trainers."""
    paths = ocr_models()
    folder = tmp_path / "inference"
    run(["cmake", "--preset", "release", "-B", folder, "-DEVN_TESTS=OFF", "-DEVN_OPENBLAS=OFF", "-DEVN_IMAGE=OFF", "-DEVN_QUICK_BUILD=ON", "-DEVN_TRAINING=OFF"], cwd=REPOSITORY)
    run(["cmake", "--build", folder])
    environment = plain(PYTHONPATH=REPOSITORY / "bindings/python", PYTHONDONTWRITEBYTECODE=1, EVENER_LIBRARY=str(folder / "libevener.so"))
    of_build = dict(environment, EVENER_LIBRARY=str(BUILD / "libevener.so"))
    bits = [run([sys.executable, "-c", RUN, *paths], env=library) for library in (environment, of_build)]
    assert bits[0] == bits[1]
    lines = run([sys.executable, "-c", SMALLEST, paths[0]], env=environment).splitlines()
    assert lines[-1] == "training UNSUPPORTED EVN_TRAINING=OFF)" and not any("EVN_FEATURES" in line for line in lines)
