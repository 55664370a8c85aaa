"""What converters write that the specification does not: loaded as ONNX Runtime loads it."""
import evener
import numpy
from onnx import helper


def model(declared, *imports):
    graph = helper.make_graph([helper.make_node("Reshape", ["x", "shape"], ["y"])], "g",
                              [helper.make_tensor_value_info("x", 1, ["n", 4]), helper.make_tensor_value_info("shape", 7, [2])],
                              [helper.make_tensor_value_info("y", 1, declared)])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid(domain, version) for domain, version in imports])


def run(content):
    feeds = {"x": numpy.arange(8, dtype="float32").reshape(2, 4), "shape": numpy.array([4, 2])}
    return evener.Runtime().session(content.SerializeToString()).run(feeds)["y"]


def test_an_import_may_be_written_twice():
    assert run(model(["a", "b"], ("", 21), ("ai.onnx.ml", 3), ("", 21))).shape == (4, 2)


def test_outputs_may_have_other_dims_than_declared():
    for declared in ([4, 7], ["a", 7], ["a"], [1, 2, 3]):
        assert run(model(declared, ("", 21))).shape == (4, 2), declared


def test_what_is_computed_counts_where_both_are_known():
    content = model([3, 3], ("", 21))
    content.graph.node[0].op_type = "Add"
    for value, name in zip(content.graph.input, ("x", "shape")):
        value.CopyFrom(helper.make_tensor_value_info(name, 1, [2, 4]))
    session = evener.Runtime().session(content.SerializeToString())
    assert [(output.name, tuple(output.shape)) for output in session.outputs] == [("y", (2, 4))]
    ones = numpy.ones((2, 4), "float32")
    numpy.testing.assert_array_equal(session.run({"x": ones, "shape": ones})["y"], 2 * ones)
