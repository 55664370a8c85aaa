"""Outputs that stay on the device or are skipped, views of tensors, and strings."""
import os

import evener
import numpy
import onnx
import pytest
from helpers import floats
from onnx import helper

FLOAT, STRING = onnx.TensorProto.FLOAT, onnx.TensorProto.STRING


def model_of(nodes, inputs, outputs):
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(*value) for value in inputs],
                              [helper.make_tensor_value_info(*value) for value in outputs])
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString()


@pytest.fixture
def session(runtime):
    """n = -x, e = exp(n), a = |x|."""
    nodes = [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Exp", ["n"], ["e"]), helper.make_node("Abs", ["x"], ["a"])]
    return runtime.session(model_of(nodes, [("x", FLOAT, ["rows", 2])], [(name, FLOAT, ["rows", 2]) for name in "nea"]))


X = floats(1, -2, 3, -4).reshape(2, 2)


def test_skipped_outputs_are_not_given(session):
    everything = session.run({"x": X})
    for skip in (["n"], ["e", "a"], ("n", "e", "a"), [], {"a"}):
        some = session.run({"x": X}, skip=skip)
        assert list(some) == [name for name in "nea" if name not in skip]
        for name, array in some.items():
            numpy.testing.assert_array_equal(array, everything[name])
        assert list(session.submit({"x": X}, skip=skip).result(60)) == list(some)


def test_skipped_names_are_checked(session):
    with pytest.raises(evener.Error) as raised:
        session.run({"x": X}, skip=["z"])
    assert raised.value.status == evener.Status.INVALID_ARGUMENT
    assert '"z"' in str(raised.value)
    with pytest.raises(TypeError):
        session.run({"x": X}, skip="n")
    assert session.run({"x": X})["n"].tolist() == (-X).tolist()


@pytest.mark.parametrize("run", ["run", "submit"])
def test_outputs_on_the_device_are_tensors_that_runs_take(session, run):
    def call(inputs, **arguments):
        result = getattr(session, run)(inputs, outputs_on_device=True, **arguments)
        return result if run == "run" else result.result(60)

    first = call({"x": X}, skip=["e"])
    assert list(first) == ["n", "a"]
    assert all(isinstance(tensor, evener.Tensor) for tensor in first.values())
    assert first["n"].shape == (2, 2)
    second = call({"x": first["n"]})
    del first
    numpy.testing.assert_array_equal(second["n"].numpy(), X)
    numpy.testing.assert_array_equal(session.run({"x": second["n"]})["a"], abs(X))


def test_tensors_of_an_opencl_device(runtime):
    try:
        runtime.device("opencl:0")
    except evener.Error:
        if os.environ.get("EVN_REQUIRE_OPENCL") == "1":
            raise
        pytest.skip("no OpenCL device")
    nodes = [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Exp", ["n"], ["e"])]
    session = runtime.session(model_of(nodes, [("x", FLOAT, ["rows", 32])], [(name, FLOAT, ["rows", 32]) for name in "ne"]), device="opencl:0")
    x = numpy.arange(96, dtype="float32").reshape(3, 32) / 64
    there = session.run({"x": x}, outputs_on_device=True, skip=["e"])["n"]
    assert there.device == "opencl:0"
    numpy.testing.assert_array_equal(there.numpy(), -x)
    with pytest.raises(BufferError):
        numpy.from_dlpack(there)
    row = there.rows(1, 2)  # begins at 128 bytes
    assert row.device == "opencl:0"
    numpy.testing.assert_array_equal(row.numpy(), -x[1:2])
    again = session.run({"x": row}, outputs_on_device=True)
    assert {tensor.device for tensor in again.values()} == {"opencl:0"}
    numpy.testing.assert_array_equal(again["n"].numpy(), x[1:2])
    numpy.testing.assert_array_equal(session.run({"x": row})["n"], x[1:2])
    with pytest.raises(evener.Error) as raised:
        there.view(1, (2,))
    assert raised.value.status == evener.Status.UNSUPPORTED


def test_strings_on_the_device_are_arrays(runtime):
    session = runtime.session(model_of([helper.make_node("StringConcat", ["s", "s"], ["t"]), helper.make_node("Neg", ["x"], ["y"])],
                                       [("s", STRING, ["n"]), ("x", FLOAT, [1])], [("t", STRING, ["n"]), ("y", FLOAT, [1])]))
    got = session.run({"s": numpy.array(["a", "bc"], object), "x": floats(1)}, outputs_on_device=True)
    assert got["t"].tolist() == ["aa", "bcbc"]
    assert isinstance(got["y"], evener.Tensor)


def test_values_may_be_skipped(runtime):
    sequence = helper.make_tensor_sequence_value_info("parts", FLOAT, None)
    graph = helper.make_graph([helper.make_node("SplitToSequence", ["x"], ["parts"], axis=0), helper.make_node("Neg", ["x"], ["y"])], "g",
                              [helper.make_tensor_value_info("x", FLOAT, [2, 2])],
                              [sequence, helper.make_tensor_value_info("y", FLOAT, [2, 2])])
    model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString()
    session = runtime.session(model)
    assert [part.tolist() for part in session.run({"x": X}, skip=["y"])["parts"]] == [[row] for row in X.tolist()]
    assert list(session.run({"x": X}, skip=["parts"])) == ["y"]
    assert list(session.submit({"x": X}, skip=["parts"]).result(60)) == ["y"]
    on_device = session.run({"x": X}, outputs_on_device=True)
    assert isinstance(on_device["y"], evener.Tensor)
    assert len(on_device["parts"]) == 2


def test_views_share_the_memory(session):
    tensor = session.run({"x": X}, outputs_on_device=True)["a"]
    array = tensor.numpy()
    row, flat, scalar = tensor.view(2, (1, 2)), tensor.view(0, (4,)), tensor.view(3, ())
    assert (row.shape, flat.shape, scalar.shape) == ((1, 2), (4,), ())
    array[1, 0] = 9
    assert row.numpy().tolist() == [[9, 4]]
    assert flat.numpy().tolist() == [1, 2, 9, 4]
    assert tensor.rows(1).numpy().tolist() == [[9, 4]]
    assert tensor.rows(0, 1).shape == (1, 2)
    assert tensor.rows(-1).numpy().tolist() == [[9, 4]]
    assert tensor.rows(2, 9).shape == (0, 2)
    part = tensor.rows(1)
    del tensor, array, row, flat, scalar
    assert part.numpy().tolist() == [[9, 4]]
    assert session.run({"x": part})["n"].tolist() == [[-9, -4]]


def test_views_are_checked(session):
    tensor = session.run({"x": X}, outputs_on_device=True)["a"]
    for first, shape in ((1, (4,)), (5, ()), (0, (3, 2)), (0, (2**40, 2**40)), (0, (-1,))):
        with pytest.raises(evener.Error) as raised:
            tensor.view(first, shape)
        assert raised.value.status == evener.Status.INVALID_ARGUMENT
    with pytest.raises(evener.Error) as raised:
        tensor.view(0, (1,) * 9)
    assert raised.value.status == evener.Status.LIMIT
    with pytest.raises(IndexError):
        tensor.view(-1, (1,))
    with pytest.raises(IndexError):
        tensor.view(0, ()).rows(0)


def test_many_strings(runtime):
    session = runtime.session(model_of([helper.make_node("Identity", ["s"], ["t"])], [("s", STRING, ["n", "m"])], [("t", STRING, ["n", "m"])]))
    given = numpy.array([["", "é", "x" * 5000], ["\0", "end", "\udcff"]], object)
    got = session.run({"s": given})["t"]
    assert got.shape == (2, 3)
    assert got.tolist() == given.tolist()
    assert session.run({"s": numpy.empty((0, 3), object)})["t"].shape == (0, 3)
