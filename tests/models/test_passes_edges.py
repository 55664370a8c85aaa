"""Small models at the edges of rewrites of graphs: bodies and sequences of float16, states that are handed on through many, bytes between
pools and bounds, branches that are never taken."""
import evener
import numpy
import pytest
from onnx import TensorProto, helper, numpy_helper

H, F, I, B = TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node


def value(name, dtype, dims=None):
    return helper.make_tensor_value_info(name, dtype, dims)


def constant(name, array, dtype=None):
    return numpy_helper.from_array(numpy.asarray(array, dtype), name)


def model_of(nodes, inputs, outputs, constants=(), opset=18):
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()


def ran(content, feeds, disabled=()):
    text = f"version: 1\npasses: {{disable: [{', '.join(disabled)}]}}\n" if disabled else "version: 1\n"
    return evener.Runtime(threads=1, config_text=text).session(content).run(feeds)


@pytest.mark.parametrize("reads", ("a state", "a captured value"))
@pytest.mark.parametrize("op", ("Loop", "Scan"))
def test_bodies_of_float16(op, reads):
    other = "y" if reads == "a captured value" else "s"
    nodes, x = [node("Add", ["x", "x"], ["y"])], numpy.array([1.5, -2], "float16")
    if op == "Loop":
        body = helper.make_graph([node("Identity", ["c"], ["c2"]), node("Add", ["s", other], ["s2"])], "b",
                                 [value("i", I, []), value("c", B, []), value("s", H, [2])], [value("c2", B, []), value("s2", H, [2])])
        nodes.append(node("Loop", ["three", "", "y"], ["out"], body=body))
    else:
        body = helper.make_graph([node("Add", ["s", other], ["s2"]), node("Identity", ["e"], ["e2"])], "b",
                                 [value("s", H, [2]), value("e", I, [])], [value("s2", H, [2]), value("e2", I, [])])
        nodes.append(node("Scan", ["y", "list"], ["out", "more"], body=body, num_scan_inputs=1))
    content = model_of(nodes, [value("x", H, [2])], [value("out", H, [2])], [constant("three", 3), constant("list", [1, 2, 3])])
    y = 2 * x.astype("float32")
    wanted = 4 * y if reads == "a captured value" else 8 * y
    got = ran(content, {"x": x})["out"]
    assert got.dtype == numpy.float16
    numpy.testing.assert_array_equal(got, wanted)


def test_sequences_of_float16():
    """Values that are computed go into sequences, and what comes out of these is computed with."""
    nodes = [node("Add", ["x", "x"], ["y"]), node("SequenceEmpty", [], ["none"], dtype=H), node("SequenceInsert", ["none", "y"], ["one"]),
             node("SequenceInsert", ["one", "x"], ["two"]), node("SequenceAt", ["two", "last"], ["z"]), node("Mul", ["z", "y"], ["out"]),
             node("SequenceConstruct", ["y", "z"], ["pair"]), node("ConcatFromSequence", ["pair"], ["all"], axis=0),
             node("Identity", ["pair"], ["same"]), node("SequenceLength", ["same"], ["count"])]
    content = model_of(nodes, [value("x", H, [2])], [value("out", H, [2]), value("all", H, [4]), value("count", I, []),
                                                     helper.make_tensor_sequence_value_info("pair", H, None)], [constant("last", 1)])
    x = numpy.array([1.5, -2], "float16")
    got = ran(content, {"x": x})
    numpy.testing.assert_array_equal(got["out"], x * (x + x))
    numpy.testing.assert_array_equal(got["all"], numpy.concatenate([x + x, x]))
    assert got["count"] == 2 and [part.tolist() for part in got["pair"]] == [(x + x).tolist(), x.tolist()]


def test_a_sequence_of_float16_that_is_given():
    nodes = [node("SequenceAt", ["list", "first"], ["a"]), node("Add", ["a", "a"], ["out"])]
    content = model_of(nodes, [helper.make_tensor_sequence_value_info("list", H, None)], [value("out", H, None)], [constant("first", 0)])
    x = numpy.array([1.5, -2], "float16")
    numpy.testing.assert_array_equal(ran(content, {"list": [x]})["out"], x + x)


@pytest.mark.parametrize("states", range(1, 12))
def test_shapes_that_go_from_state_to_state(states):
    names = [f"s{k}" for k in range(states)]
    inner = [node("Identity", ["c"], ["c2"]), node("Concat", ["s0", "s0"], ["t0"], axis=0), node("Size", [names[-1]], ["size"])]
    inner += [node("Identity", [names[k - 1]], [f"t{k}"]) for k in range(1, states)]
    made = [f"t{k}" for k in range(states)]
    body = helper.make_graph(inner, "b", [value("i", I, []), value("c", B, [])] + [value(name, F) for name in names],
                             [value("c2", B, [])] + [value(name, F) for name in made] + [value("size", I, [])])
    turns = states + 2
    outputs = [f"y{k}" for k in range(states)] + ["sizes"]
    loop = node("Loop", ["turns", "", *["x"] * states], outputs, body=body)
    content = model_of([loop], [value("x", F, [1])], [value(outputs[-2], F), value("sizes", I)], [constant("turns", turns)])
    got = ran(content, {"x": numpy.array([3], "float32")})
    assert got[outputs[-2]].tolist() == [3.0] * 2 ** (turns - states + 1)
    assert got["sizes"].tolist() == [2 ** max(0, turn - states + 1) for turn in range(turns)]


@pytest.mark.parametrize("keepdims", (0, 1))
@pytest.mark.parametrize("dtype, zero", (("int8", 0), ("uint8", 120)))
def test_a_bound_behind_a_mean_of_bytes(dtype, zero, keepdims):
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["d"]),
             node("ReduceMean", ["d", "axes"], ["m"], keepdims=keepdims), node("Relu", ["m"], ["r"]), node("QuantizeLinear", ["r", "t", "z"], ["y"])]
    kind = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8}[dtype]
    content = model_of(nodes, [value("x", F, [2, 3, 4, 4])], [value("y", kind)],
                       [constant("s", 0.02, "float32"), constant("t", 0.01, "float32"), constant("z", zero, dtype), constant("axes", [2, 3])])
    x = numpy.random.default_rng(1).normal(size=(2, 3, 4, 4)).astype("float32")
    got, wanted = ran(content, {"x": x})["y"], ran(content, {"x": x}, ["fuse_qdq", "move_bytes"])["y"]
    assert got.shape == wanted.shape == ((2, 3, 1, 1) if keepdims else (2, 3))
    assert numpy.abs(got.astype(int) - wanted).max() <= 1


def test_a_maximum_of_padding_is_no_byte():
    nodes = [node("DequantizeLinear", ["x", "s", "z"], ["d"]), node("MaxPool", ["d"], ["m"], kernel_shape=[1, 2], dilations=[1, 2], pads=[0, 1, 0, 1]),
             node("QuantizeLinear", ["m", "t", "z"], ["y"])]
    content = model_of(nodes, [value("x", TensorProto.UINT8, [1, 1, 1, 1])], [value("y", TensorProto.UINT8)],
                       [constant("s", 0.1, "float32"), constant("t", 0.2, "float32"), constant("z", 128, "uint8")])
    assert ran(content, {"x": numpy.full((1, 1, 1, 1), 200, "uint8")})["y"].ravel().tolist() == [0]


def test_a_branch_with_scales_that_do_not_fit_is_never_taken():
    wrong = helper.make_graph([node("DequantizeLinear", ["w", "scales"], ["d"], axis=1), node("Add", ["d", "x"], ["a"])], "t", [], [value("a", F)])
    right = helper.make_graph([node("Neg", ["x"], ["b"])], "e", [], [value("b", F)])
    content = model_of([node("If", ["c"], ["y"], then_branch=wrong, else_branch=right)], [value("c", B, []), value("x", F, [2, 3])], [value("y", F)],
                       [constant("w", numpy.ones((2, 3)), "int8"), constant("scales", [1, 1, 1, 1], "float32")])
    x = numpy.ones((2, 3), "float32")
    numpy.testing.assert_array_equal(ran(content, {"c": numpy.array(False), "x": x})["y"], -x)
