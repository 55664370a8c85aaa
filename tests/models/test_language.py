"""Attention of language models over caches that grow: a state gives the bits that carried caches give, and ONNX Runtime nearly the same.

The caches' width is open in the model, as it is in those that onnxruntime-genai exports.
"""
import evener
import numpy
import onnx
import pytest
from common import onnx_runtime
from onnx import TensorProto, helper

CASES = {
    "groups": dict(heads=8, groups=2, depth=64),
    "one_group_of_an_odd_number": dict(heads=7, groups=1, depth=48),
    "more_heads_than_a_block": dict(heads=22, groups=1, depth=16),
    "a_window": dict(heads=4, groups=2, depth=32, window=40),
    "a_window_without_groups": dict(heads=3, groups=3, depth=16, window=7),
}
PIECES = [50, 3, *[1] * 90, 70, 1, 1]  # positions of each run


def model(heads, groups, depth, window):
    node = helper.make_node("GroupQueryAttention", ["query", "key", "value", "past_key", "past_value", "lengths", "total", "cos", "sin"],
                            ["y", "present_key", "present_value"], domain="com.microsoft", num_heads=heads, kv_num_heads=groups, do_rotary=1,
                            **({"local_window_size": window} if window else {}))
    positions = sum(PIECES)
    angles = numpy.arange(positions)[:, None] / 100 ** (numpy.arange(depth // 2) / (depth // 2))
    given = [("query", TensorProto.FLOAT, [1, "steps", heads * depth]), ("key", TensorProto.FLOAT, [1, "steps", groups * depth]),
             ("value", TensorProto.FLOAT, [1, "steps", groups * depth]), ("past_key", TensorProto.FLOAT, [1, groups, "past", "width"]),
             ("past_value", TensorProto.FLOAT, [1, groups, "past", "width"]), ("lengths", TensorProto.INT32, [1]), ("total", TensorProto.INT32, [])]
    made = [("y", [1, "steps", heads * depth]), ("present_key", [1, groups, "all", "width"]), ("present_value", [1, groups, "all", "width"])]
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info(*value) for value in given],
                              [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in made],
                              [onnx.numpy_helper.from_array(f(angles).astype("float32"), name) for name, f in (("cos", numpy.cos), ("sin", numpy.sin))])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


@pytest.mark.parametrize("name", CASES)
def test_a_cache_that_grows(name):
    sizes = {"window": 0, **CASES[name]}
    heads, groups, depth = sizes["heads"], sizes["groups"], sizes["depth"]
    content = model(**sizes)
    oracle = onnx_runtime(content)
    random = numpy.random.default_rng(3)
    with evener.Runtime(threads=2, cache_dir="") as runtime, runtime.session(content) as session:
        capacity = sum(PIECES)
        state = session.state([("present_key", "past_key", capacity), ("present_value", "past_value", capacity)])
        caches = {key: numpy.zeros((1, groups, 0, depth), "float32") for key in ("past_key", "past_value")}
        past = 0
        for steps in PIECES:
            drawn = {key: random.standard_normal((1, steps, n * depth)).astype("float32") for key, n in (("query", heads), ("key", groups), ("value", groups))}
            drawn["lengths"], drawn["total"] = numpy.array([past + steps - 1], "int32"), numpy.array(past + steps, "int32")
            kept = session.run(drawn, state=state)["y"]
            carried = session.run({**drawn, **caches})
            assert numpy.array_equal(kept, carried["y"]), f"{steps} after {past}"
            wanted = oracle.run(None, {**drawn, **caches})
            numpy.testing.assert_allclose(carried["y"], wanted[0], rtol=1e-4, atol=1e-5)
            caches = {"past_key": carried["present_key"], "past_value": carried["present_value"]}
            for key, array in zip(caches, wanted[1:]):
                numpy.testing.assert_allclose(caches[key], array, rtol=1e-5, atol=1e-6)
            past += steps
