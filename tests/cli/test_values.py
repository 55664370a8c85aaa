"""Outputs that are no tensors: `evener run` prints and writes what is in them, and every command that runs a model runs theirs."""
import json

import numpy as np
import onnx
import pytest
from command import COMMAND, FAILURE, evener, value
from onnx import TensorProto, helper, numpy_helper

if not COMMAND:
    pytest.skip("EVENER_COMMAND is not set", allow_module_level=True)


@pytest.fixture
def classifier(tmp_path):
    """Scores as a table, and as scikit-learn's converters give them: a sequence of maps (ZipMap)."""
    nodes = [helper.make_node("Softmax", ["x"], ["scores"], axis=1),
             helper.make_node("ZipMap", ["scores"], ["zipped"], domain="ai.onnx.ml", classlabels_strings=["cat", "dog", "fox"])]
    maps = helper.make_value_info("zipped", helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))))
    graph = helper.make_graph(nodes, "g", [value("x", ["n", 3])], [value("scores", ["n", 3]), maps])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)], ir_version=8)
    onnx.save(model, tmp_path / "maps.onnx")
    return tmp_path / "maps.onnx"


def test_run_prints_and_writes_maps(classifier, tmp_path):
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    np.save(tmp_path / "x.npy", x)
    out, _ = evener("run", classifier, "--input", f"x={tmp_path / 'x.npy'}", "--output", tmp_path / "out.npz", "--output-dir", tmp_path)
    assert "output scores: float32 [5,3], min" in out
    assert "output zipped: seq(map(string,tensor(float32))), 5 parts\n  0: {\"cat\": 0.09" in out and "\n  ...\n" in out
    e = np.exp(x - x.max(1, keepdims=True))
    with np.load(tmp_path / "out.npz") as archive:
        for row in range(5):
            assert archive[f"zipped.{row}.keys"].tolist() == ["cat", "dog", "fox"]
            np.testing.assert_allclose(archive[f"zipped.{row}.values"], (e / e.sum(1, keepdims=True))[row], rtol=1e-5)
    assert np.load(tmp_path / "zipped.4.values.npy").shape == (3,)


@pytest.mark.parametrize("words", [("--runs", 3, "--layers"), ("--clients", 2, "--duration", 0.2), ("--clients", 2, "--sync", "--duration", 0.2)])
def test_bench_runs_maps(classifier, words):
    out = json.loads(evener("bench", classifier, "--shape", "x=4x3", "--json", *words)[0])
    assert out.get("runs", 1) and "error" not in out


def test_explain_and_trace_run_maps(classifier, tmp_path):
    evener("explain", classifier, "--shape", "x=4x3", "--run", "--html", tmp_path / "page.html")
    evener("trace", classifier, "--shape", "x=4x3", "-o", tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())


def test_compare_descends_into_maps_and_counts_what_is_not_compared(classifier, tmp_path):
    words = ("compare", classifier, "--with", classifier, "--shape", "x=4x3")
    scores, zipped = json.loads(evener(*words, "--json")[0])["outputs"]
    assert scores["largest_error"] == 0 and zipped["largest_error"] == 0 and zipped["cosine"] == pytest.approx(1)
    out, _ = evener(*words)
    assert 'output "zipped": cosine 1.00000' in out and "tensors that are not float32 and not compared: 4\n" in out

    def sequence(name, axis_size, element=TensorProto.FLOAT):
        nodes = [helper.make_node("Cast", ["x"], ["c"], to=element), helper.make_node("SplitToSequence", ["c", "size"], ["s"], axis=0)]
        parts = helper.make_value_info("s", helper.make_sequence_type_proto(helper.make_tensor_type_proto(element, None)))
        graph = helper.make_graph(nodes, "g", [value("x", [4, 3])], [parts], [numpy_helper.from_array(np.array(axis_size, np.int64), "size")])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / name)
        return tmp_path / name

    ones, twos, integers = sequence("ones.onnx", 1), sequence("twos.onnx", 2), sequence("integers.onnx", 2, TensorProto.INT32)
    assert 'output "s": cosine' in evener("compare", ones, "--with", ones)[0]
    assert 'output "s" has other parts' in evener("compare", ones, "--with", twos, code=FAILURE)[1]
    assert 'output "s": not float32, not compared' in evener("compare", twos, "--with", integers)[0]


def test_a_default_may_be_left_out_beside_an_output_that_is_a_sequence(tmp_path):
    nodes = [helper.make_node("Mul", ["x", "k"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"]),
             helper.make_node("SequenceConstruct", ["y"], ["s"])]
    parts = helper.make_value_info("s", helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2])))
    constants = [numpy_helper.from_array(np.float32([number]), name) for name, number in (("k", 2), ("b", 1))]
    graph = helper.make_graph(nodes, "g", [value("x", [2]), value("k", [1]), value("b", [1])], [parts], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "s.onnx")
    np.savez(tmp_path / "in.npz", x=np.float32([1, 2]), b=np.float32([10]))
    evener("run", tmp_path / "s.onnx", "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as archive:
        assert archive["s.0"].tolist() == [12, 14]


@pytest.mark.parametrize("names", [("k",), ("b",), ("k", "b")])
def test_compare_takes_inputs_with_a_default(tmp_path, names):
    constants = [numpy_helper.from_array(np.float32([number]), name) for name, number in (("k", 2), ("b", 1))]
    graph = helper.make_graph([helper.make_node("Mul", ["x", "k"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"])], "g",
                              [value("x", [2]), value("k", [1]), value("b", [1])], [value("y", [2])], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    words = []
    for name in names:
        np.save(tmp_path / f"{name}.npy", np.float32([10]))
        words += ["--input", f"{name}={tmp_path / name}.npy"]
    found = json.loads(evener("compare", tmp_path / "m.onnx", "--with", tmp_path / "m.onnx", *words, "--json")[0])
    assert found["outputs"][0]["largest_error"] == 0
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=3), tmp_path / "bare.onnx")
    _, err = evener("compare", tmp_path / "m.onnx", "--with", tmp_path / "bare.onnx", *words, code=FAILURE)
    assert f'input "{names[0]}" is given' in err


def test_a_sequence_may_have_more_parts_than_there_are_handles_or_places_in_an_archive(tmp_path):
    graph = helper.make_graph(
        [helper.make_node("SplitToSequence", ["x"], ["s"], keepdims=0)], "g", [value("x", ["n"])],
        [helper.make_value_info("s", helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [])))])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "s.onnx")
    assert "300000 parts" in evener("run", tmp_path / "s.onnx", "--shape", "x=300000")[0]
    _, err = evener("run", tmp_path / "s.onnx", "--shape", "x=66000", "--output", tmp_path / "out.npz", code=FAILURE)
    assert "--output-dir" in err and not (tmp_path / "out.npz").exists()


def test_a_part_and_an_output_of_one_name_are_both_written(tmp_path):
    parts = helper.make_value_info("a", helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2])))
    nodes = [helper.make_node("SequenceConstruct", ["x"], ["a"]), helper.make_node("Neg", ["x"], ["a.0"])]
    graph = helper.make_graph(nodes, "g", [value("x", [2])], [parts, value("a.0", [2])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "s.onnx")
    np.save(tmp_path / "x.npy", np.float32([1, 2]))
    evener("run", tmp_path / "s.onnx", "--input", f"x={tmp_path / 'x.npy'}", "--output", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as archive:
        assert {name: archive[name].tolist() for name in archive} == {"a.0": [1, 2], "a.0-2": [-1, -2]}
