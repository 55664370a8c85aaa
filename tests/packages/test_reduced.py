"""Builds of some operators (EVN_OPERATORS): what is chosen, and in the long form a build for the OCR models, its size, its bits and what it refuses."""
import json
import os
import pathlib
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
    assert "kLeftOut[] = {nullptr}" in header and "false" not in header


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


@pytest.mark.skipif(not FULL, reason="a long form: set EVN_TEST_FULL=1")
def test_a_build_for_the_ocr_models(tmp_path):
    paths = [MODELS / name for name in OCR]
    if not all(path.exists() for path in paths):
        pytest.skip("the OCR models are not fetched")
    folder = tmp_path / "reduced"
    settings = [f"-D{key}={value}" for key, value in re.findall(r"^(EVN_(?:LTO|QUICK_BUILD)):\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M)]
    run(["cmake", "--preset", "release", "-B", folder, "-DEVN_TESTS=OFF", "-DEVN_OPENBLAS=OFF", "-DEVN_IMAGE=OFF", f"-DEVN_OPERATORS={';'.join(map(str, paths))}", *settings],
        cwd=REPOSITORY)
    run(["cmake", "--build", folder, "--target", "evener", "evener_cli"])
    run(["strip", "-o", tmp_path / "small.so", folder / "libevener.so"])
    run(["strip", "-o", tmp_path / "whole.so", BUILD / "libevener.so"])
    small, whole = (tmp_path / "small.so").stat().st_size, (tmp_path / "whole.so").stat().st_size
    assert small <= 0.75 * whole, (small, whole)

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
