"""`evener inspect` of a small file whose shapes take long to infer ends when `load_time` is over."""
import numpy as np
import onnx
import pytest
from command import COMMAND, MODEL, evener
from onnx import TensorProto, helper, numpy_helper

if not COMMAND:
    pytest.skip("EVENER_COMMAND is not set", allow_module_level=True)

LEVELS, STATES, NODES = 15, 10, 4000


def loop(level):
    """A Loop whose states get another shape in each round of the inference. Its body reads the states of the Loop around it, so that each
    round there infers the body again."""
    names = [f"v{level}_{k}" for k in range(STATES)]
    made = [f"w{level}_{k}" for k in range(STATES)]
    nodes = [helper.make_node("Identity", ["c"], ["c2"]), helper.make_node("Concat", [names[-1]] * 2, [made[-1]], axis=0)]
    nodes += [helper.make_node("Identity", [names[k + 1]], [made[k]]) for k in range(STATES - 1)]
    nodes += [helper.make_node("Neg", [names[0]], [f"n{level}_{k}"]) for k in range(NODES)]
    if level < LEVELS - 1:
        nodes += [helper.make_node("Neg", [f"v{level + 1}_{k}"], [f"r{level}_{k}"]) for k in range(STATES)]
    if level > 0:
        nodes += loop(level - 1)
    inputs = [helper.make_tensor_value_info("i", TensorProto.INT64, []), helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    inputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
    outputs = [helper.make_tensor_value_info("c2", TensorProto.BOOL, [])]
    outputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in made]
    body = helper.make_graph(nodes, f"b{level}", inputs, outputs)
    return [helper.make_node("Loop", ["turns", "", *["one"] * STATES], [f"y{level}_{k}" for k in range(STATES)], body=body)]


def test_inspection_ends_when_its_time_is_over(tmp_path):
    constants = [numpy_helper.from_array(np.array(3), "turns"), numpy_helper.from_array(np.ones(1, "float32"), "one")]
    graph = helper.make_graph(loop(LEVELS - 1), "g", [], [helper.make_tensor_value_info(f"y{LEVELS - 1}_0", TensorProto.FLOAT, None)], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "loops.onnx")
    (tmp_path / "c.yaml").write_text("version: 1\nlimits: {load_time: 200ms}\n")
    _, err = evener("inspect", tmp_path / "loops.onnx", "--config", tmp_path / "c.yaml", code=MODEL)
    assert "EVN_ERROR_TIMEOUT" in err, err
