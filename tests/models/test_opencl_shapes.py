"""Tensors without elements on an OpenCL device, which has no reference kernels to fall back on."""
import evener
import numpy
import onnx
import pytest
from common import config, devices_of, opencl_runtime
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


def test_sum_of_nothing_is_refused_by_name(runtime):
    session = runtime.session(model_of([helper.make_node("ReduceSum", ["x"], ["y"], name="total", keepdims=0)], {"x": ["n"]}, []))
    with pytest.raises(evener.Error, match="no elements") as raised:
        session.run({"x": zeros(0)})
    assert raised.value.status == evener.Status.UNSUPPORTED and raised.value.node == "total"
    assert session.run({"x": zeros(3) + 1})["y"] == 3
