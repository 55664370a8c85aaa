"""Attributes are honoured or refused: the tables have those of ONNX's own schemas, and what is not computed is refused when a model loads, whatever
is known of its shapes. tests/conformance/attributes_test.cc sees to it that something reads each of them."""
import json
import os
import warnings

import evener
import numpy
import onnx
import pytest
from differential.trial import operator_rows
from onnx import TensorProto, helper
from onnx.backend.test.case.node import collect_testcases

FLOAT, HALF, DOUBLE, BFLOAT = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16
OLDEST = 7  # opset that the library reads

# Rows that take more than the schema of their version: attributes of a later version, or of the library's own (docs/operators.md).
LENIENT = {("", "QuantizeLinear", 19): {"block_size", "output_dtype"}, **{("", "GridSample", version): {"cubic_border"} for version in (16, 20, 22)}}


def schemas():
    """The schemas of operators that the library has, with the library's row for each."""
    rows = operator_rows(os.environ["EVENER_BUILD"])
    every = onnx.defs.get_all_schemas_with_history()
    for schema in every:
        later = [s.since_version for s in every if (s.domain, s.name) == (schema.domain, schema.name) and s.since_version > schema.since_version]
        if schema.domain == "" and later and min(later) <= OLDEST:
            continue  # of opsets that are not read
        by_version = rows.get((schema.domain, schema.name), {})
        versions = [version for version in by_version if version <= schema.since_version]
        if versions and "attributes" in by_version[max(versions)]:
            yield schema, set(by_version[max(versions)]["attributes"])


def test_the_tables_have_the_attributes_of_the_schemas():
    compared, wrong = 0, []
    for schema, attributes in schemas():
        compared += 1
        lenient = LENIENT.get((schema.domain, schema.name, schema.since_version), set())
        if attributes - lenient != set(schema.attributes):
            wrong.append(f"{schema.domain}::{schema.name} {schema.since_version}: {sorted(attributes ^ set(schema.attributes))}")
    assert wrong == []
    assert compared > 300


def model(op, opset, inputs, dtype, attributes, shape):
    node = helper.make_node(op, [name for name, _ in inputs], ["y"], name="the_node", **attributes)
    values = [helper.make_tensor_value_info(name, dtype, dims if shape else None) for name, dims in inputs]
    graph = helper.make_graph([node], "g", values, [helper.make_tensor_value_info("y", 2 if op == "QuantizeLinear" else dtype, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10).SerializeToString()


NORM = [("x", [2, 4]), ("scale", [4])]
GROUP = [("x", [2, 4, 3]), ("scale", [4]), ("bias", [4])]
ATTENTION = [("q", [1, 2, 3, 4]), ("k", [1, 2, 3, 4]), ("v", [1, 2, 3, 4])]
RANGE = [("start", []), ("limit", []), ("delta", [])]
QUANTIZE = [("x", [4]), ("scale", [])]
REFUSED = [
    ("LayerNormalization", 17, NORM, {"stash_type": BFLOAT}, FLOAT), ("LayerNormalization", 17, NORM, {"stash_type": HALF}, HALF),
    ("RMSNormalization", 23, NORM, {"stash_type": HALF}, FLOAT), ("RMSNormalization", 23, NORM, {"stash_type": BFLOAT}, BFLOAT),
    ("GroupNormalization", 21, GROUP, {"num_groups": 2, "stash_type": HALF}, FLOAT),
    ("GroupNormalization", 21, GROUP, {"num_groups": 2, "stash_type": 7}, FLOAT),
    ("Attention", 23, ATTENTION, {"softmax_precision": 7}, FLOAT),
    ("Range", 27, RANGE, {"stash_type": HALF}, HALF), ("Range", 27, RANGE, {"stash_type": DOUBLE}, BFLOAT),
    ("QuantizeLinear", 23, QUANTIZE, {"precision": HALF}, FLOAT), ("QuantizeLinear", 23, QUANTIZE, {"precision": DOUBLE}, FLOAT),
]
TAKEN = [
    ("LayerNormalization", 17, NORM, {"stash_type": FLOAT}, FLOAT), ("RMSNormalization", 23, NORM, {"stash_type": DOUBLE}, FLOAT),
    ("RMSNormalization", 23, NORM, {"stash_type": FLOAT}, HALF), ("GroupNormalization", 21, GROUP, {"num_groups": 2, "stash_type": DOUBLE}, FLOAT),
    ("Range", 27, RANGE, {"stash_type": FLOAT}, HALF), ("Range", 27, RANGE, {"stash_type": HALF}, FLOAT),
    ("QuantizeLinear", 23, QUANTIZE, {"precision": FLOAT}, FLOAT),
] + [("Attention", 23, ATTENTION, {"softmax_precision": precision}, FLOAT) for precision in (FLOAT, HALF, DOUBLE, BFLOAT)]


@pytest.fixture(scope="module")
def runtime():
    with evener.Runtime(threads=1, cache_dir="") as opened:
        yield opened


@pytest.mark.parametrize("shape", [True, False], ids=["shapes", "no-ranks"])
@pytest.mark.parametrize("op, opset, inputs, attributes, dtype", REFUSED)
def test_what_is_not_computed_is_refused_at_load_with_node_and_attribute(runtime, op, opset, inputs, attributes, dtype, shape):
    name = list(attributes)[-1]
    with pytest.raises(evener.Error, match=f"'{name}' is {attributes[name]}") as caught:
        runtime.model(model(op, opset, inputs, dtype, attributes, shape))
    wrong_type = attributes[name] == 7
    assert caught.value.node == "the_node"
    assert caught.value.status == (evener.Status.INVALID_MODEL if wrong_type else evener.Status.UNSUPPORTED)


@pytest.mark.parametrize("op, opset, inputs, attributes, dtype", TAKEN)
def test_what_is_computed_is_taken(runtime, op, opset, inputs, attributes, dtype):
    session = runtime.session(model(op, opset, inputs, dtype, attributes, True))
    assert session.outputs[0].name == "y"


@pytest.mark.parametrize("op, inputs, attributes", [
    ("Attention", ATTENTION, {"softmax_precision": DOUBLE}), ("Attention", ATTENTION, {"softmax_precision": HALF}),
    ("RMSNormalization", NORM, {"stash_type": DOUBLE}), ("GroupNormalization", GROUP, {"num_groups": 2, "stash_type": DOUBLE})])
def test_kernels_in_float32_leave_other_precisions_to_the_reference(runtime, op, inputs, attributes):
    def kernel(given):
        session = runtime.session(model(op, 23, inputs, FLOAT, given, True))
        return json.loads(session.explain("json"))["nodes"][0]["kernel"]
    assert kernel(attributes) == "reference"
    assert kernel({name: value for name, value in attributes.items() if name == "num_groups"}) != "reference"


def test_softmax_precision_is_that_of_casts_around_the_softmax(runtime):
    random = numpy.random.default_rng(3)
    feeds = {name: random.normal(0, 3, dims).astype("float32") for name, dims in ATTENTION}
    got = runtime.session(model("Attention", 23, ATTENTION, FLOAT, {"softmax_precision": HALF, "scale": 1.0}, True)).run(feeds)["y"]
    scores = (feeds["q"].astype("float64") @ feeds["k"].astype("float64").swapaxes(-1, -2)).astype("float16").astype("float64")
    weights = numpy.exp(scores - scores.max(-1, keepdims=True))
    weights = (weights / weights.sum(-1, keepdims=True)).astype("float16").astype("float64")
    exact = weights @ feeds["v"].astype("float64")
    numpy.testing.assert_allclose(got, exact, rtol=1e-6, atol=1e-6)
    plain = runtime.session(model("Attention", 23, ATTENTION, FLOAT, {"scale": 1.0}, True)).run(feeds)["y"]
    assert numpy.abs(plain - exact).max() > 1e-4  # which in float32 is another number


# Any text is a value of these; of the last two where nothing is asked that they would change.
FREE_TEXTS = {("LabelEncoder", "default_string"), ("RegexFullMatch", "pattern"), ("StringSplit", "delimiter"), ("StringNormalizer", "locale"),
              ("Resize", "keep_aspect_ratio_policy")}


def test_words_that_are_none_of_an_attributes_values_are_refused(runtime):
    tried, accepted = set(), set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in cases:
        if case.model is None or len(case.model.graph.node) != 1:
            continue
        node = case.model.graph.node[0]
        opset = next((o.version for o in case.model.opset_import if o.domain == node.domain), 1)
        if not onnx.defs.has(node.op_type, node.domain):
            continue
        words = [name for name, a in onnx.defs.get_schema(node.op_type, opset, node.domain).attributes.items()
                 if a.type == onnx.defs.OpSchema.AttrType.STRING]
        for name in words:
            changed = onnx.ModelProto()
            changed.CopyFrom(case.model)
            kept = [a for a in node.attribute if a.name != name] + [helper.make_attribute(name, "nonsense")]
            del changed.graph.node[0].attribute[:]
            changed.graph.node[0].attribute.extend(kept)
            tried.add((node.op_type, name))
            try:
                runtime.session(changed.SerializeToString())
                accepted.add((node.op_type, name))
            except evener.Error as error:
                assert error.status in (evener.Status.INVALID_MODEL, evener.Status.UNSUPPORTED), (case.name, error)
    assert accepted <= FREE_TEXTS
    assert len(tried) > 20
