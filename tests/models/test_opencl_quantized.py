"""Quantized networks that run wholly on an OpenCL device. Between the ends all is whole numbers: the bits are those of the CPU."""
import networks
import numpy
import onnx
import pytest
import test_quantized_models as quantized
from common import config, devices_of, opencl_runtime, output_roots_nodes
from onnxruntime import quantization
from zoo import fetched


@pytest.fixture(scope="module")
def runtimes():
    return opencl_runtime(config(default="gpu")), opencl_runtime(config(default="cpu"))


def assert_same_bits(runtimes, model, feeds_of):
    device, cpu = (runtime.session(model) for runtime in runtimes)
    assert devices_of(device) == {"gpu"}
    for seed in (3, 4):
        feeds = feeds_of(seed)
        ours, wanted = device.run(feeds), cpu.run(feeds)
        assert all(numpy.ptp(array) > 0 for array in wanted.values())
        for name, array in wanted.items():
            numpy.testing.assert_array_equal(ours[name], array, name)
    return {node["op"] for node in output_roots_nodes(device)}


@pytest.mark.parametrize("activations", (quantization.QuantType.QUInt8, quantization.QuantType.QInt8), ids=("uint8", "int8"))
@pytest.mark.parametrize("per_channel", (False, True), ids=("tensor", "channel"))
def test_a_quantized_network_runs_wholly_on_opencl(runtimes, tmp_path, activations, per_channel):
    """Up to its last product: what follows is a softmax of floats."""
    path = tmp_path / "quantized.onnx"
    network = quantized.convolutional_network(numpy.random.default_rng(1))
    network.graph.node.pop()
    network.graph.output[0].name = network.graph.node[-1].output[0]
    quantized.quantize(network, path, (2, 3, 24, 32), activations, per_channel, quantization.QuantFormat.QDQ)
    operators = assert_same_bits(runtimes, onnx.load(path).SerializeToString(),
                                 lambda seed: {"x": numpy.random.default_rng(seed).standard_normal((3, 3, 24, 32), "float32")})
    assert operators >= {"QuantizeLinear", "QLinearConv", "ByteTable", "QLinearAdd", "QLinearGlobalAveragePool", "DequantizeLinear"}


@pytest.mark.parametrize("name", ("mobilenet_v2_int8_qdq", "resnet50_int8_qdq", "yolo_like_640_int8_qdq"))
def test_quantized_skeletons_run_wholly_on_opencl(runtimes, name):
    content = networks.filled_skeleton(name)
    assert_same_bits(runtimes, content, lambda seed: networks.noise_inputs(content, {}, seed))


@pytest.mark.parametrize("dtype", ("uint8", "int8"))
@pytest.mark.parametrize("planes, x_scale, y_scale", (((1024, 1024), 1 / 255, 1 / 255), ((8, 8), 1, 1e-3), ((8, 8), 1, 1e-6), ((8, 8), 1, 1e-30),
                                                      ((8, 8), 1e-3, 1), ((8, 8), 1e-30, 1)))
def test_means_of_planes_of_any_size_and_scale(runtimes, dtype, planes, x_scale, y_scale):
    zero = 3
    x = numpy.random.default_rng(1).integers(numpy.iinfo(dtype).min, numpy.iinfo(dtype).max, (1, 4, *planes), dtype, endpoint=True)
    x[0, :2] = zero
    x[0, 1, 0, 0] += 1
    x[0, 2] = numpy.iinfo(dtype).max
    nodes = [onnx.helper.make_node("DequantizeLinear", ["x", "x_scale", "zero"], ["numbers"]), onnx.helper.make_node("GlobalAveragePool", ["numbers"], ["mean"]),
             onnx.helper.make_node("QuantizeLinear", ["mean", "y_scale", "zero"], ["y"])]
    kind = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
    constants = {"x_scale": numpy.float32(x_scale), "y_scale": numpy.float32(y_scale), "zero": numpy.array(zero, dtype)}
    graph = onnx.helper.make_graph(nodes, "mean", [onnx.helper.make_tensor_value_info("x", kind, x.shape)], [onnx.helper.make_tensor_value_info("y", kind, (1, 4, 1, 1))],
                                   [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    device, cpu = (runtime.session(model) for runtime in runtimes)
    assert devices_of(device) == {"gpu"} and {node["op"] for node in output_roots_nodes(device)} == {"QLinearGlobalAveragePool"}
    numpy.testing.assert_array_equal(device.run({"x": x})["y"], cpu.run({"x": x})["y"])
