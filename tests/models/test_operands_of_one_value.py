"""Nodes that read one value, or a value and a part of it, as several operands: an output may lie in the memory of an operand only
where no other operand is read from there."""
import evener
import numpy
import pytest
from common import config, opencl_runtime
from onnx import TensorProto, helper, numpy_helper

INDICES = numpy.array([2, 1, 0])


def model_of(node, dims, constants=(), opset=18):
    """exp(x) -> node -> -y: what the node reads and writes is memory of the run's."""
    nodes = [helper.make_node("Exp", ["x"], ["a"]), node, helper.make_node("Neg", ["b"], ["y"])]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", TensorProto.FLOAT, dims)], [value("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(array, name) for name, array in constants])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()


def runtime_of(device, more=""):
    if device == "cpu":
        return evener.Runtime(config_text="version: 1\ndevices: {cpu: {type: cpu, threads: 2}}\n" + more)
    return opencl_runtime(config(default="[gpu, cpu]") + more)


@pytest.fixture(scope="module", params=("cpu", "opencl"))
def device(request):
    return request.param


@pytest.fixture(scope="module")
def runtime(device):
    return runtime_of(device)


def ran(runtime, model, x):
    return runtime.session(model).run({"x": x})["y"]


@pytest.mark.parametrize("op", ("ScatterElements", "ScatterND"))
def test_what_is_scattered_into_itself(runtime, op):
    indices = INDICES if op == "ScatterElements" else INDICES[:, None]
    x = numpy.array([0.5, 1.5, 2.5], "float32")
    model = model_of(helper.make_node(op, ["a", "i", "a"], ["b"]), [3], [("i", indices)])
    numpy.testing.assert_allclose(ran(runtime, model, x), -numpy.exp(x)[::-1], rtol=1e-5)


@pytest.mark.parametrize("op, wanted", (("Sum", lambda a: 3 * a), ("Mean", lambda a: a), ("Max", lambda a: a)))
def test_operands_that_are_all_the_same(runtime, device, op, wanted):
    x = numpy.random.default_rng(1).normal(size=(4, 33)).astype("float32")
    model = model_of(helper.make_node(op, ["a", "a", "a"], ["b"]), [4, 33])
    for each in (runtime, runtime_of(device, "passes: {disable: expand_variadic}\n")):
        numpy.testing.assert_allclose(ran(each, model, x), -wanted(numpy.exp(x)), rtol=1e-5)


@pytest.mark.parametrize("op", ("Sub", "Mul", "Div", "Max", "PRelu"))
@pytest.mark.parametrize("width", (5, 16, 50000))
def test_rows_and_one_of_them(runtime, op, width):
    x = numpy.random.default_rng(2).uniform(-1, 1, (4, width)).astype("float32")
    graph = [helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Gather", ["a", "zero"], ["r"]),
             helper.make_node(op, ["a", "r"], ["b"]), helper.make_node("Neg", ["b"], ["y"])]
    value = helper.make_tensor_value_info
    made = helper.make_graph(graph, "g", [value("x", TensorProto.FLOAT, [4, width])], [value("y", TensorProto.FLOAT, None)],
                             [numpy_helper.from_array(numpy.array(0), "zero")])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()
    a = numpy.exp(x)
    functions = {"Sub": numpy.subtract, "Mul": numpy.multiply, "Div": numpy.divide, "Max": numpy.maximum, "PRelu": lambda a, r: a}
    numpy.testing.assert_allclose(ran(runtime, model, x), -functions[op](a, a[0]), rtol=1e-5, atol=1e-6)


def made(nodes, inputs, outputs, constants=(), opset=21):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value(name, TensorProto.FLOAT, dims) for name, dims in inputs],
                              [value(name, TensorProto.FLOAT, None) for name in outputs],
                              [numpy_helper.from_array(numpy.asarray(array), name) for name, array in constants])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10).SerializeToString()


@pytest.mark.parametrize("dtype", (TensorProto.INT4, TensorProto.UINT4))
@pytest.mark.parametrize("op", ("Split", "Slice", "Gather"))
def test_parts_of_elements_smaller_than_a_byte(op, dtype):
    node = helper.make_node
    cut = {"Split": node("Split", ["q", "two"], ["p0", "p1"], axis=0), "Slice": node("Slice", ["q", "begin", "end"], ["p1"]),
           "Gather": node("Gather", ["q", "rows"], ["p1"])}[op]
    model = made([node("Cast", ["x"], ["q"], to=dtype), cut, node("Cast", ["p1"], ["y"], to=TensorProto.FLOAT)], [("x", [4, 64])], ["y"],
                 [("two", [2, 2]), ("begin", [2]), ("end", [4]), ("rows", [2, 3])])
    x = numpy.arange(256).reshape(4, 64).astype("float32") % 8
    x[:2] = 7 - x[:2]
    numpy.testing.assert_array_equal(evener.Runtime(threads=1).session(model).run({"x": x})["y"], x[2:])


@pytest.mark.parametrize("between", ("Reshape", "Unsqueeze"))
@pytest.mark.parametrize("cut", ("Gather", "Slice"))
def test_parts_of_a_part_follow_it_when_dims_change(cut, between):
    node = helper.make_node
    first = node("Gather", ["h", "last"], ["g"]) if cut == "Gather" else node("Slice", ["h", "from", "end"], ["g"])
    second = node("Reshape", ["g", "halves"], ["r"]) if between == "Reshape" or cut == "Slice" else node("Unsqueeze", ["g", "zero"], ["r"])
    splits = [64, 64] if between == "Unsqueeze" and cut == "Gather" else [1, 1]
    axis = 1 if splits == [64, 64] else 0
    model = made([node("Exp", ["x"], ["h"]), first, second, node("Split", ["r", "parts"], ["a", "b"], axis=axis), node("Neg", ["a"], ["y"]),
                  node("Neg", ["b"], ["z"])], [("x", ["N", 128])], ["y", "z"],
                 [("last", -1), ("from", [-1]), ("end", [2**40]), ("halves", [2, 64]), ("zero", [0]), ("parts", splits)])
    session = evener.Runtime(threads=1).session(model)
    generator = numpy.random.default_rng(1)
    for rows in (*range(2, 14), *range(13, 1, -1)):
        x = generator.uniform(-1, 1, (rows, 128)).astype("float32")
        got = session.run({"x": x})
        wanted = -numpy.exp(x[-1])
        numpy.testing.assert_allclose(numpy.concatenate([got["y"].ravel(), got["z"].ravel()]), wanted, rtol=1e-5)


@pytest.mark.parametrize("reader", ("the caller", "a convolution"))
def test_channels_are_not_written_over_while_they_are_read(reader):
    """A unit of ShuffleNet, beside another reader of what was joined first."""
    node, generator = helper.make_node, numpy.random.default_rng(3)
    constants = [("parts", [24, 24])]

    def convolution(x, y, inputs, outputs, side, group=1):
        weight = f"w{len(constants)}"
        constants.append((weight, generator.normal(0, 0.3, (outputs, inputs // group, side, side)).astype("float32")))
        return node("Conv", [x, weight], [y], pads=[side // 2] * 4, group=group)

    nodes = [convolution("x", "a", 16, 24, 1), convolution("x", "b", 16, 24, 3), node("Concat", ["a", "b"], ["X"], axis=1),
             node("Split", ["X", "parts"], ["S0", "S1"], axis=1), convolution("S1", "c", 24, 24, 1), convolution("c", "d", 24, 24, 3, 24),
             convolution("d", "u", 24, 24, 1), node("Concat", ["S0", "u"], ["Z"], axis=1), convolution("Z", "y", 48, 16, 1)]
    outputs = ["y", "b"]
    if reader == "a convolution":
        nodes.append(convolution("b", "e", 24, 16, 1))
        outputs = ["y", "e"]
    model = made(nodes, [("x", [1, 16, 9, 7])], outputs, constants)
    x = generator.normal(size=(1, 16, 9, 7)).astype("float32")
    runtime = evener.Runtime(threads=2)
    got = runtime.session(model).run({"x": x})
    wanted = runtime.session(model, disabled_passes=["channel_views"]).run({"x": x})
    for name in outputs:
        numpy.testing.assert_allclose(got[name], wanted[name], rtol=1e-4, atol=1e-4)
