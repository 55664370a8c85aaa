"""What converters write that the specification does not: loaded as ONNX Runtime loads it."""
import evener
import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


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


def typed(nodes, outputs, value_info, constants=(), opset=17):
    """A model over x, float32 [4], with entries of value_info by name and type."""
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [4])], outputs, list(constants),
                              value_info=[helper.make_tensor_value_info(name, kind, [4]) for name, kind in value_info.items()])
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)]).SerializeToString()


def loaded(content):
    """What the model gives for four ones, and the warnings about types: (node, value, declared, actual)."""
    records = []
    runtime = evener.Runtime(log=records.append)
    found = runtime.session(content).run({"x": numpy.ones(4, "float32")})
    warnings = [r for r in records if r.event == "model.value_type"]
    assert all(r.level == "warning" and r.fields["node"] in r.message and r.fields["value"] in r.message for r in warnings)
    return found, [tuple(r.fields[k] for k in ("node", "value", "declared", "actual")) for r in warnings]


FLOAT, HALF, INT64, BOOL = (getattr(TensorProto, name) for name in ("FLOAT", "FLOAT16", "INT64", "BOOL"))
WRONG = ("tensor(float16)", "tensor(float32)")


def outputs(kind=FLOAT):
    return [helper.make_tensor_value_info("y", kind, [4])]


def test_a_remark_on_an_output_is_ignored_with_a_warning():
    found, warnings = loaded(typed([helper.make_node("Relu", ["x"], ["y"], "relu")], outputs(), {"y": HALF}))
    assert found["y"].dtype == numpy.float32
    assert warnings == [("relu", "y", *WRONG)]


def test_a_remark_on_a_value_between_is_ignored_with_a_warning():
    nodes = [helper.make_node("Exp", ["x"], ["a"], "first"), helper.make_node("Conv", ["b", "w"], ["c"], "conv"),
             helper.make_node("Reshape", ["a", "shape"], ["b"], "second"), helper.make_node("Reshape", ["c", "back"], ["y"], "last")]
    constants = [numpy_helper.from_array(numpy.ones((1, 1, 1), "float32"), "w"), numpy_helper.from_array(numpy.array([1, 1, 4]), "shape"),
                 numpy_helper.from_array(numpy.array([4]), "back")]
    # int64 is a type that Conv does not have; float16 is one that it would be widened for.
    for kind, name in ((HALF, "tensor(float16)"), (INT64, "tensor(int64)")):
        found, warnings = loaded(typed(nodes, outputs(), {"a": kind, "b": kind, "c": kind}, constants))
        numpy.testing.assert_allclose(found["y"], numpy.full(4, numpy.e, "float32"), rtol=1e-6)
        assert sorted(warnings) == [("conv", "c", name, "tensor(float32)"), ("first", "a", name, "tensor(float32)"), ("second", "b", name, "tensor(float32)")]


def test_a_remark_on_a_constant_is_ignored_with_a_warning():
    constant = helper.make_node("Constant", [], ["k"], "constant", value=numpy_helper.from_array(numpy.full(4, 2, "float32")))
    found, warnings = loaded(typed([constant, helper.make_node("Mul", ["x", "k"], ["y"])], outputs(), {"k": HALF}))
    assert found["y"].tolist() == [2] * 4 and warnings == [("constant", "k", *WRONG)]
    initializer = numpy_helper.from_array(numpy.full(4, 3, "float32"), "k")
    found, warnings = loaded(typed([helper.make_node("Mul", ["x", "k"], ["y"])], outputs(), {"k": HALF}, [initializer]))
    assert found["y"].tolist() == [3] * 4 and warnings == [("", "k", *WRONG)]


def test_a_remark_on_an_input_is_ignored_with_a_warning():
    found, warnings = loaded(typed([helper.make_node("Relu", ["x"], ["y"])], outputs(), {"x": HALF}))
    assert found["y"].tolist() == [1] * 4 and warnings == [("", "x", *WRONG)]


def test_remarks_in_bodies_and_branches_are_ignored():
    info = helper.make_tensor_value_info
    body = helper.make_graph([helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Add", ["v", "a"], ["w"], "adds")], "body",
                             [info("i", INT64, []), info("c", BOOL, []), info("v", FLOAT, [4])], [info("d", BOOL, []), info("w", FLOAT, [4])],
                             value_info=[info("w", HALF, [4]), info("v", HALF, [4])])
    nodes = [helper.make_node("Neg", ["x"], ["a"], "neg"), helper.make_node("Loop", ["n", "", "x"], ["y"], "loop", body=body)]
    found, warnings = loaded(typed(nodes, outputs(), {"a": HALF}, [numpy_helper.from_array(numpy.array(2), "n")]))
    assert found["y"].tolist() == [-1] * 4
    assert ("neg", "a", *WRONG) in warnings and ("adds", "w", *WRONG) in warnings
    branch = helper.make_graph([helper.make_node("Neg", ["x"], ["p"], "in_branch")], "branch", [], [info("p", FLOAT, [4])], value_info=[info("p", HALF, [4])])
    other = helper.make_graph([helper.make_node("Abs", ["x"], ["q"])], "other", [], [info("q", FLOAT, [4])])
    nodes = [helper.make_node("If", ["yes"], ["y"], then_branch=branch, else_branch=other)]
    found, warnings = loaded(typed(nodes, outputs(), {}, [numpy_helper.from_array(numpy.array(True), "yes")]))
    assert found["y"].tolist() == [-1] * 4 and warnings == [("in_branch", "p", *WRONG)]


def test_a_remark_that_is_repeated_gives_one_warning():
    nodes = [helper.make_node("Neg", ["x"], ["a"], "first"), helper.make_node("Relu", ["a"], ["y"], "last")]
    content = onnx.ModelProto.FromString(typed(nodes, outputs(), {}))
    content.graph.value_info.extend([helper.make_tensor_value_info("y", HALF, [4])] * 1000)
    found, warnings = loaded(content.SerializeToString())
    assert found["y"].tolist() == [0] * 4 and warnings == [("last", "y", *WRONG)]


def test_models_without_contradictions_have_no_warnings():
    nodes = [helper.make_node("Cast", ["x"], ["h"], to=HALF), helper.make_node("Sin", ["h"], ["s"]), helper.make_node("Cast", ["s"], ["y"], to=FLOAT)]
    found, warnings = loaded(typed(nodes, outputs(), {"h": HALF, "s": HALF}))
    numpy.testing.assert_allclose(found["y"], numpy.full(4, numpy.sin(1)), rtol=1e-3)
    assert warnings == []


def test_a_promised_output_of_another_type_is_an_error():
    for value_info in ({}, {"y": FLOAT}):
        with pytest.raises(evener.Error, match="y"):
            loaded(typed([helper.make_node("Relu", ["x"], ["y"])], outputs(HALF), value_info))
