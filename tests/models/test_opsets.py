"""Quantizing a model of an old opset writes it in a newer one: ONNX Runtime must find the same numbers in both files."""
import evener
import numpy
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

F = TensorProto.FLOAT


def node(op, inputs=("x",), outputs=("y",), **attributes):
    return helper.make_node(op, list(inputs), list(outputs), name=op.lower(), **attributes)


def constant(name, numbers, dtype):
    return numpy_helper.from_array(numpy.array(numbers, dtype), name)


SHAPE = (2, 3, 4, 6)
# name: opset, nodes from x (2, 3, 4, 6) to y, constants
CASES = {
    "clip": (7, [node("Clip", min=-0.5, max=0.25)], []),
    "clip_above": (9, [node("Clip", max=0.25)], []),
    "pad": (9, [node("Pad", pads=[0, 0, 1, 2, 0, 0, 3, 1], value=1.5)], []),
    "pad_reflect": (10, [node("Pad", pads=[0, 0, 1, 2, 0, 0, 3, 1], mode="reflect")], []),
    "slice": (9, [node("Slice", starts=[1, -3], ends=[3, 1000], axes=[1, 3])], []),
    "softmax": (11, [node("Softmax")], []),
    "softmax_middle": (11, [node("Softmax", axis=2)], []),
    "softmax_last": (11, [node("Softmax", axis=3)], []),
    "log_softmax": (12, [node("LogSoftmax", axis=-2)], []),
    "hardmax": (11, [node("Hardmax", axis=2)], []),
    "reduce_sum": (11, [node("ReduceSum", axes=[1, -1], keepdims=0)], []),
    "reduce_mean": (11, [node("ReduceMean", axes=[2])], []),
    "squeeze": (11, [node("Unsqueeze", outputs=("u",), axes=[1, 5]), node("Squeeze", ("u",), axes=[1])], []),
    "split": (11, [node("Split", outputs=("a", "b"), axis=3, split=[2, 4]), node("Concat", ("b", "a"), axis=3)], []),
    "split_even": (11, [node("Split", outputs=("a", "b"), axis=3), node("Concat", ("b", "a"), axis=3)], []),
    "top_k": (9, [node("TopK", outputs=("y", "places"), axis=3, k=2)], []),
    "upsample7": (7, [node("Upsample", scales=[1.0, 1.0, 2.0, 3.0], mode="nearest")], []),
    "upsample9": (9, [node("Upsample", ("x", "scales"), mode="linear")], [constant("scales", [1, 1, 2, 1.5], "float32")]),
    "resize10": (10, [node("Resize", ("x", "scales"), mode="nearest")], [constant("scales", [1, 1, 0.5, 2.5], "float32")]),
    "scatter": (9, [node("Scatter", ("x", "places", "news"), axis=3)],
                [constant("places", [[[[1, 0]]]], "int64"), constant("news", [[[[7, 8]]]], "float32")]),
    "dropout": (7, [node("Relu", outputs=("r",)), node("Dropout", ("r",), ratio=0.5)], []),
    "pools": (8, [node("MaxPool", outputs=("m",), kernel_shape=[2, 2]), node("AveragePool", ("m",), kernel_shape=[2, 3])], []),
    "gemm": (8, [node("Flatten", outputs=("f",), axis=2), node("Gemm", ("f", "g", "c"), transB=1)],
             [constant("g", numpy.ones((2, 24)), "float32"), constant("c", numpy.ones((6, 2)), "float32")]),
}


def run(model, x):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(["y", "q"], {"x": x})


@pytest.mark.parametrize("name", CASES)
def test_an_operator_of_an_old_opset_says_the_same_in_the_new(name, tmp_path):
    opset, nodes, constants = CASES[name]
    rng = numpy.random.default_rng(1)
    weight = numpy_helper.from_array(rng.standard_normal((6, 5)).astype("float32"), "w")
    graph = helper.make_graph([*nodes, helper.make_node("MatMul", ["x", "w"], ["q"], name="product")], "g",
                              [helper.make_tensor_value_info("x", F, ["N", *SHAPE[1:]])],
                              [helper.make_tensor_value_info("y", F, None), helper.make_tensor_value_info("q", F, None)], [*constants, weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 4
    old = model.SerializeToString()
    x = rng.standard_normal(SHAPE).astype("float32")
    with evener.Runtime(threads=1) as runtime:
        quantizer = evener.Quantizer(runtime, old, keep=["gemm"])
        quantizer.add_batch({"x": x}).save(tmp_path / "new.onnx")
    new = onnx.load(tmp_path / "new.onnx")
    assert [o.version for o in new.opset_import] == [13] and new.ir_version >= 7
    onnx.checker.check_model(new, full_check=True)
    (y_old, q_old), (y_new, q_new) = run(old, x), run(new.SerializeToString(), x)
    assert y_old.shape == y_new.shape and numpy.ptp(y_old) > 0
    numpy.testing.assert_allclose(y_new, y_old, rtol=1e-6, atol=1e-7)
    assert (q_old * q_new).sum() > 0.999 * numpy.sqrt((q_old ** 2).sum() * (q_new ** 2).sum())


def test_a_node_that_cannot_be_said_is_named(tmp_path):
    weight = numpy_helper.from_array(numpy.ones((4, 2), "float32"), "w")
    graph = helper.make_graph([node("BatchNormalization", ("x", "s", "b", "m", "v"), ("y", "m2", "v2", "sm", "sv")),
                               helper.make_node("MatMul", ["x", "w"], ["q"], name="product")], "g",
                              [helper.make_tensor_value_info("x", F, [2, 4])],
                              [helper.make_tensor_value_info(n, F, None) for n in ("y", "q", "m2", "v2", "sm", "sv")],
                              [weight, *(constant(n, [1, 1, 1, 1], "float32") for n in "sbmv")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)])
    model.ir_version = 4
    with evener.Runtime(threads=1) as runtime, pytest.raises(evener.Error) as caught:
        evener.Quantizer(runtime, model.SerializeToString())
    assert caught.value.status == evener.Status.UNSUPPORTED
