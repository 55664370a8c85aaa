"""What only a run tells an OpenCL device: tensors without elements, for which it has no reference kernels, and ranks."""
import evener
import numpy
import onnx
import pytest
from common import config, devices_of, opencl_runtime, output_roots_nodes
from onnx import TensorProto, helper


def model_of(nodes, inputs, output, initializers=()):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()]
    graph = helper.make_graph(nodes, "g", values, [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)], list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString()


@pytest.fixture(scope="module")
def runtime():
    return opencl_runtime(config(default="gpu"))


def zeros(*dims):
    return numpy.zeros(dims, "float32")


def test_batch_of_nothing_gives_nothing(runtime):
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4, 5], numpy.arange(20, dtype="float32"))
    session = runtime.session(model_of([helper.make_node("Relu", ["x"], ["r"]), helper.make_node("MatMul", ["r", "w"], ["y"])],
                                       {"x": ["n", 4]}, ["n", 5], [weight]))
    assert devices_of(session) == {"gpu"}
    assert session.run({"x": zeros(0, 4)})["y"].shape == (0, 5)
    assert session.run({"x": numpy.ones((2, 4), "float32")})["y"].tolist() == 2 * [[30, 34, 38, 42, 46]]


@pytest.mark.parametrize("empty", ["past", "new", "neither"])
def test_cache_that_is_empty_yet_is_concatenated(runtime, empty):
    session = runtime.session(model_of([helper.make_node("Concat", ["past", "new"], ["y"], axis=1)],
                                       {"past": [2, "p", 3], "new": [2, "n", 3]}, [2, "t", 3]))
    assert devices_of(session) == {"gpu"}
    arrays = {name: numpy.random.default_rng(1).standard_normal((2, 0 if name == empty else 4, 3)).astype("float32")
              for name in ("past", "new")}
    numpy.testing.assert_array_equal(session.run(arrays)["y"], numpy.concatenate([arrays["past"], arrays["new"]], 1))


def test_sum_of_nothing_is_made_by_the_cpu(runtime):
    session = runtime.session(model_of([helper.make_node("ReduceSum", ["x"], ["y"], name="total", keepdims=0)], {"x": ["n"]}, []))
    assert session.run({"x": zeros(0)})["y"] == 0
    assert devices_of(session) == {"cpu"}
    assert session.run({"x": zeros(3) + 1})["y"] == 3
    assert devices_of(session) == {"gpu"}


@pytest.mark.parametrize("weights, group", [([6, 4, 3, 3], 1), ([6, 4, 1, 1], 1), ([4, 1, 3, 3], 4), ([6, 2, 3, 3], 2)])
def test_convolution_of_computed_weights_and_a_bias_that_is_known(runtime, weights, group):
    rng = numpy.random.default_rng(3)
    bias = rng.standard_normal(weights[0]).astype("float32")
    model = model_of([helper.make_node("Conv", ["x", "w", "b"], ["y"], group=group)],
                     {"x": ["n", 4, "h", "v"], "w": ["o", "i", "p", "q"]}, ["n", "o", "r", "s"],
                     [helper.make_tensor("b", TensorProto.FLOAT, [weights[0]], bias)])
    arrays = {"x": rng.standard_normal((2, 4, 9, 8)).astype("float32"), "w": rng.standard_normal(weights).astype("float32")}
    session = runtime.session(model)
    with evener.Runtime() as cpu:
        numpy.testing.assert_allclose(session.run(arrays)["y"], cpu.session(model).run(arrays)["y"], rtol=1e-4, atol=1e-4)
    assert devices_of(session) == {"gpu"}


def squeezed(dtype):
    """Relu of a squeezed input: its rank depends on the dims that a run brings."""
    values = [helper.make_tensor_value_info("x", dtype, ["a", "b", "c"])]
    nodes = [helper.make_node("Squeeze", ["x"], ["s"]), helper.make_node("Relu", ["s"], ["y"], name="relu")]
    graph = helper.make_graph(nodes, "g", values, [helper.make_tensor_value_info("y", dtype, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8).SerializeToString()


@pytest.mark.parametrize("shape, rank", [((2, 1, 3), 2), ((1, 4, 1), 1), ((2, 3, 4), 3)])
def test_kernels_are_chosen_when_a_rank_is_known(runtime, shape, rank):
    session = runtime.session(squeezed(TensorProto.FLOAT))
    array = numpy.random.default_rng(2).standard_normal(shape).astype("float32")
    result = session.run({"x": array})["y"]
    assert devices_of(session) == {"gpu"} and result.ndim == rank
    numpy.testing.assert_array_equal(result, numpy.maximum(array.squeeze(), 0))


def test_what_is_refused_late_goes_to_the_cpu_where_a_rule_only_prefers():
    session = opencl_runtime(config(["{device: gpu, policy: prefer}"])).session(squeezed(TensorProto.DOUBLE))
    array = numpy.random.default_rng(3).standard_normal((2, 1, 3))
    numpy.testing.assert_array_equal(session.run({"x": array})["y"], numpy.maximum(array.squeeze(), 0))
    relu, = (node for node in output_roots_nodes(session) if node["name"] == "relu")
    assert relu["device"] == "cpu" and "not possible for what the latest run brought" in relu["reason"]


def test_what_is_refused_late_is_an_error_where_the_device_is_required(runtime):
    session = runtime.session(squeezed(TensorProto.DOUBLE))
    with pytest.raises(evener.Error, match="only float32") as raised:
        session.run({"x": numpy.ones((2, 1, 3))})
    assert raised.value.status == evener.Status.UNSUPPORTED and raised.value.node == "relu"
