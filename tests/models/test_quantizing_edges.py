"""Small models at the edges of the quantizer: channels without weights, and DequantizeLinear that the model has itself."""
import evener
import numpy
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_quantizing_subgraphs import model_of, value


def constant(name, array):
    return numpy_helper.from_array(numpy.asarray(array), name)


def quantized(model, batches, **options):
    """(runtime, session in float32, session in 8 bits)"""
    runtime = evener.Runtime(threads=1)
    quantizer = evener.Quantizer(runtime, model.SerializeToString(), **options)
    for batch in batches:
        quantizer.add_batch(batch)
    return runtime, runtime.session(model.SerializeToString()), runtime.session(quantizer.finish())


@pytest.mark.parametrize("qoperator", (False, True))
@pytest.mark.parametrize("per_tensor", (False, True))
@pytest.mark.parametrize("kind", ("Conv", "Gemm", "Gemm transposed"))
def test_the_bias_of_a_channel_without_weights_stays(kind, per_tensor, qoperator):
    generator = numpy.random.default_rng(3)
    bias = numpy.array([0.1, -0.2, 0.4, 0.3], "float32")
    if kind == "Conv":
        weights, dims = generator.normal(0, 1e-3, (4, 3, 3, 3)).astype("float32"), (1, 3, 8, 8)
        node = helper.make_node("Conv", ["x", "w", "b"], ["y"])
    else:
        weights, dims = generator.normal(0, 1e-3, (4, 12)).astype("float32"), (5, 12)
        node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=int(kind != "Gemm"))
    weights[2] = 0
    if per_tensor:
        weights[:] = 0
    if kind == "Gemm":
        weights = numpy.ascontiguousarray(weights.T)
    model = model_of([node], [value("x", dims=dims)], [value("y", dims=["n", "m", "h", "w"] if kind == "Conv" else ["n", "m"])], [constant("w", weights), constant("b", bias)])
    x = generator.uniform(0, 255, dims).astype("float32")
    _, in_float, in_bytes = quantized(model, [{"x": x}], per_tensor=per_tensor, qoperator=qoperator)
    wanted, got = in_float.run({"x": x})["y"], in_bytes.run({"x": x})["y"]
    step = (max(wanted.max(), 0) - min(wanted.min(), 0)) / 255
    assert numpy.abs(wanted - got)[:, 2].max() <= 0.51 * step + 1e-6


@pytest.mark.parametrize("scale, dtype, zero", (("an input", "uint8", 7), ("a constant", "int32", None), ("a constant", "uint8", 7),
                                                ("one for each channel", "uint8", [7, 8, 9])))
@pytest.mark.parametrize("op", ("Flatten", "GlobalAveragePool", "Sigmoid", "MaxPool", "Add"))
def test_a_model_may_have_dequantizers_of_its_own(op, scale, dtype, zero):
    generator = numpy.random.default_rng(5)
    inputs, feeds = [value("x", {"uint8": TensorProto.UINT8, "int32": TensorProto.INT32}[dtype], [2, 3, 4, 4])], {}
    feeds["x"] = generator.integers(0, 200, (2, 3, 4, 4)).astype(dtype)
    constants = [constant("w", generator.normal(0, 1, (3 if op == "GlobalAveragePool" else 48, 5)).astype("float32"))]
    scales = numpy.array([0.01, 0.02, 0.03] if scale == "one for each channel" else 0.02, "float32")
    if scale == "an input":
        inputs.append(value("s", dims=[]))
        feeds["s"] = scales
    else:
        constants.append(constant("s", scales))
    if zero is not None:
        constants.append(constant("z", numpy.array(zero, dtype)))
    nodes = [helper.make_node("DequantizeLinear", ["x", "s"] + ["z"] * (zero is not None), ["f"])]
    attributes = {"kernel_shape": [1, 1]} if op == "MaxPool" else {}
    nodes.append(helper.make_node(op, ["f", "f"] if op == "Add" else ["f"], ["g"], **attributes))
    nodes += [helper.make_node("Flatten", ["g"], ["h"]), helper.make_node("MatMul", ["h", "w"], ["y"])]
    model = model_of(nodes, inputs, [value("y", dims=["n", 5])], constants)
    _, in_float, in_bytes = quantized(model, [feeds], qoperator=True)
    wanted, got = in_float.run(feeds)["y"], in_bytes.run(feeds)["y"]
    numpy.testing.assert_allclose(got, wanted, atol=0.03 * numpy.abs(wanted).max())
