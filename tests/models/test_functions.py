"""Functions of the model itself: what Evener makes of them against ONNX Runtime, which runs them as functions, against onnx's
reference evaluator, and against ONNX Runtime on what onnx's own inliner makes of them.
"""
import evener
import numpy
import onnx
import onnx.inliner
import onnx.reference
import pytest
from common import assert_close, onnx_runtime
from onnx import TensorProto, helper

LOCAL = "local"
OPSET = 18


def model(nodes, functions, inputs=("x",), outputs=("y",), opset=OPSET, dtypes=None):
    def info(name):
        dtype = (dtypes or {}).get(name, TensorProto.FLOAT)
        return helper.make_tensor_value_info(name, dtype, [] if dtype == TensorProto.BOOL else ["A", "B"])

    graph = helper.make_graph(nodes, "g", [info(name) for name in inputs], [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs])
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(LOCAL, 1)]
    return helper.make_model(graph, functions=functions, opset_imports=imports, ir_version=10)


def function(name, inputs, outputs, nodes, opset=OPSET, **parts):
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(LOCAL, 1)]
    return helper.make_function(LOCAL, name, inputs, outputs, nodes, imports, **parts)


def refer(node, name, to, kind):
    node.attribute.append(onnx.AttributeProto(name=name, ref_attr_name=to, type=kind))
    return node


def call(name, inputs, outputs, **attributes):
    return helper.make_node(name, inputs, outputs, domain=LOCAL, **attributes)


def feeds_of(made, seed):
    random = numpy.random.default_rng(seed)
    return {i.name: numpy.array(seed % 2 == 0) if i.type.tensor_type.elem_type == TensorProto.BOOL
            else random.normal(size=(2, 5)).astype(numpy.float32) for i in made.graph.input}


def assert_all_agree(made, reference=True, inliner=True):
    """onnx's evaluator cannot leave out inputs, nor refer to attributes in bodies; its inliner forgets the defaults of attributes."""
    content = made.SerializeToString()
    judges = [onnx_runtime(content)]
    if inliner:
        judges.append(onnx_runtime(onnx.inliner.inline_local_functions(made).SerializeToString()))
    if reference:
        judges.append(onnx.reference.ReferenceEvaluator(made))
    session = evener.Runtime(threads=1).session(content)
    for seed in (1, 2):
        feeds = feeds_of(made, seed)
        actual = list(session.run(feeds).values())
        for judge in judges:
            assert_close(actual, judge.run(None, feeds))


SCALED = function("Scaled", ["a"], ["b"], [
    refer(helper.make_node("LeakyRelu", ["a"], ["m"]), "alpha", "scale", onnx.AttributeProto.FLOAT), helper.make_node("Tanh", ["m"], ["b"])],
    attribute_protos=[helper.make_attribute("scale", 0.5)])


@pytest.mark.parametrize("first", [{}, {"scale": 0.25}])
def test_a_call_and_a_second_one_with_another_attribute(first):
    made = model([call("Scaled", ["x"], ["t"], **first), call("Scaled", ["t"], ["y"], scale=3.0)], [SCALED])
    assert_all_agree(made, reference=False, inliner=bool(first))


def test_attributes_as_the_reference_evaluator_sees_them():
    gram = function("Gram", ["a"], ["b"], [refer(helper.make_node("Gemm", ["a", "a"], ["b"], transB=1), "alpha", "scale", onnx.AttributeProto.FLOAT)],
                    attributes=["scale"])
    assert_all_agree(model([call("Gram", ["x"], ["t"], scale=-1.0), call("Gram", ["t"], ["y"], scale=3.0)], [gram]))


@pytest.mark.parametrize("inner", [{}, {"scale": 0.25}])
def test_functions_that_call_functions(inner):
    twice = function("Twice", ["a"], ["b", "half"], [
        refer(call("Scaled", ["a"], ["half"]), "scale", "s", onnx.AttributeProto.FLOAT), call("Scaled", ["half"], ["b"], **inner)], attributes=["s"])
    made = model([call("Twice", ["x"], ["t", "spare"], s=2.0), call("Twice", ["t"], ["", "y"], s=-1.5)], [SCALED, twice])
    assert_all_agree(made, reference=False, inliner=bool(inner))


def test_optional_inputs_that_a_call_leaves_out():
    clip = function("Bound", ["a", "low", "high"], ["b"], [helper.make_node("Clip", ["a", "low", "high"], ["b"])])
    low = helper.make_node("Constant", [], ["low"], value_float=-0.25)
    assert_all_agree(model([low, call("Bound", ["x", "low"], ["t"]), call("Bound", ["t", "", "low"], ["s"]), helper.make_node("Add", ["t", "s"], ["y"])], [clip]),
                     reference=False)


@pytest.mark.parametrize("first", [{}, {"slope": 0.25}])
def test_bodies_inside_functions_and_calls_inside_bodies(first):
    then = helper.make_graph([call("Scaled", ["a"], ["t"], scale=2.0), helper.make_node("Add", ["t", "outer"], ["u"])], "then", [],
                             [helper.make_tensor_value_info("u", TensorProto.FLOAT, None)])
    leak = refer(helper.make_node("LeakyRelu", ["a"], ["u"]), "alpha", "slope", onnx.AttributeProto.FLOAT)
    otherwise = helper.make_graph([leak], "else", [], [helper.make_tensor_value_info("u", TensorProto.FLOAT, None)])
    choose = function("Choose", ["c", "a"], ["b"], [
        helper.make_node("Exp", ["a"], ["outer"]), helper.make_node("If", ["c"], ["b"], then_branch=then, else_branch=otherwise)],
        attribute_protos=[helper.make_attribute("slope", 0.125)])
    made = model([call("Choose", ["c", "x"], ["t"], **first), helper.make_node("Neg", ["t"], ["outer"]), call("Choose", ["c", "outer"], ["y"], slope=0.75)],
                 [SCALED, choose], inputs=("c", "x"), dtypes={"c": TensorProto.BOOL})
    assert_all_agree(made, reference=False, inliner=bool(first))


def test_a_function_of_an_older_opset_whose_operators_did_not_change_since():
    old = function("Old", ["a"], ["b"], [helper.make_node("Tanh", ["a"], ["t"]), helper.make_node("Softmax", ["t"], ["b"], axis=1)], opset=13)
    assert_all_agree(model([call("Old", ["x"], ["y"])], [old]))


def test_a_function_of_an_older_opset_whose_operators_did_change():
    """ONNX Runtime refuses it: the model is the judge's only after conversion by hand."""
    old = function("Old", ["a"], ["b"], [helper.make_node("ReduceSum", ["a"], ["b"], axes=[1], keepdims=1)], opset=11)
    graph = model([helper.make_node("Neg", ["x"], ["t"]), call("Old", ["t"], ["y"])], [])
    graph.functions.append(old)
    feeds = feeds_of(graph, 1)
    actual, = evener.Runtime(threads=1).session(graph.SerializeToString()).run(feeds).values()
    assert_close([actual], [-feeds["x"].sum(axis=1, keepdims=True)])


# Operators that ONNX defines by a function of other operators: [attributes].
DEFINED = {"Celu": {"alpha": 2.0}, "Clip": {}, "Gelu": {"approximate": "tanh"}, "GroupNormalization": None, "HardSigmoid": {"alpha": 0.3},
           "HardSwish": {}, "LayerNormalization": None, "LeakyRelu": {"alpha": 0.1}, "LogSoftmax": {"axis": 1}, "MeanVarianceNormalization": {"axes": [1]},
           "Mish": {}, "PRelu": None, "ReduceL1": {"keepdims": 1}, "ReduceLogSumExp": {"keepdims": 0}, "Relu": {}, "Selu": {}, "Shrink": {"lambd": 0.2},
           "Softmax": {"axis": 0}, "Softplus": {}, "Softsign": {}, "ThresholdedRelu": {"alpha": 0.4}}


def definitions():
    for name, attributes in DEFINED.items():
        schema = onnx.defs.get_schema(name, 20)
        if attributes is not None and schema.has_function:
            yield name, schema, attributes


def test_there_are_definitions_to_test():
    assert len(list(definitions())) >= 8


@pytest.mark.parametrize("name, schema, attributes", list(definitions()), ids=[name for name, _, _ in definitions()])
def test_an_operator_and_its_definition_as_a_function_agree(name, schema, attributes):
    body = schema.function_body
    version = body.opset_import[0].version
    local = helper.make_function(LOCAL, name, body.input, body.output, body.node, [helper.make_opsetid("", version)],
                                 attributes=[a for a, s in schema.attributes.items() if not s.default_value.name],
                                 attribute_protos=[s.default_value for s in schema.attributes.values() if s.default_value.name])
    called = model([call(name, ["x"], ["y"], **attributes)], [local], opset=20)
    plain = model([helper.make_node(name, ["x"], ["y"], **attributes)], [], opset=20)
    wanted = onnx_runtime(plain.SerializeToString())
    session = evener.Runtime(threads=1).session(called.SerializeToString())
    for seed in (1, 2):
        feeds = feeds_of(called, seed)
        assert_close(list(session.run(feeds).values()), wanted.run(None, feeds))


def test_recursion_is_refused():
    again = function("Again", ["a"], ["b"], [call("Again", ["a"], ["b"])])
    made = model([call("Again", ["x"], ["y"])], [])
    made.functions.append(again)
    with pytest.raises(evener.Error, match="function Again"):
        evener.Runtime(threads=1).model(made.SerializeToString())
