"""The operators of ai.onnx.ml over maps, and pipelines as scikit-learn's converters write them; ONNX Runtime is the judge."""
import evener
import numpy
import onnx
import pytest
from common import onnx_runtime
from onnx import TensorProto, helper

f32, i64 = numpy.float32, numpy.int64
ML = "ai.onnx.ml"
KEYS = {"int64": TensorProto.INT64, "string": TensorProto.STRING}
VALUES = {"float": TensorProto.FLOAT, "double": TensorProto.DOUBLE, "int64": TensorProto.INT64, "string": TensorProto.STRING}


def tensor_type(name):
    return helper.make_tensor_type_proto(VALUES[name], None)


def map_type(key, value):
    kind = onnx.TypeProto()
    kind.map_type.key_type = KEYS[key]
    kind.map_type.value_type.CopyFrom(tensor_type(value))
    return kind


def model_of(nodes, inputs, outputs):
    """`inputs`: TypeProtos by their names; `outputs`: names, or types by them."""
    given = [helper.make_value_info(name, kind) for name, kind in inputs.items()]
    made = [helper.make_value_info(name, outputs[name]) if isinstance(outputs, dict) else onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "graph", given, made)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, "node" if outputs == ["y"] else outputs[0], domain=ML, **attributes)


@pytest.fixture(scope="module")
def runtime():
    return evener.Runtime(threads=1)


def run(runtime, model, feeds):
    return runtime.session(model).run(feeds)


@pytest.mark.parametrize("attributes", [{"classlabels_strings": ["b", "é", ""]}, {"classlabels_int64s": [5, -1, 2]}])
@pytest.mark.parametrize("x", [numpy.arange(6, dtype=f32).reshape(2, 3), numpy.arange(3, dtype=f32), numpy.zeros((0, 3), f32)])
def test_zip_map(runtime, x, attributes):
    model = model_of([node("ZipMap", ["x"], ["y"], **attributes)], {"x": tensor_type("float")}, ["y"])
    actual = run(runtime, model, {"x": x})["y"]
    assert actual == onnx_runtime(model).run(None, {"x": x})[0]
    assert len(actual) == (1 if x.ndim == 1 else len(x))


def test_zip_map_of_a_width_that_is_known_at_run_only(runtime):
    model = model_of([node("ZipMap", ["x"], ["y"], classlabels_int64s=[1, 2])], {"x": tensor_type("float")}, ["y"])
    for shape in ((2, 3), (1, 2, 2), ()):
        with pytest.raises(evener.Error) as failure:
            run(runtime, model, {"x": numpy.zeros(shape, f32)})
        assert failure.value.status == evener.Status.INVALID_ARGUMENT


DICTS = [("string", "float", {"a": 4.0, "é": -8.5, "none": 1.0}, ["é", "b", "a"]), ("string", "double", {"a": 4.0}, ["a", "c"]),
         ("string", "int64", {"a": 4, "b": -(2**62)}, ["b", "a", "b"]), ("int64", "float", {1: 4.0, -7: 3.0}, [2, -7, 1]),
         ("int64", "double", {1: 4.0, 2: 1e300}, [2, 3, 1]), ("int64", "string", {1: "x", 9: "é"}, [9, 2, 1]), ("string", "float", {}, ["a", "b"])]


@pytest.mark.parametrize("key, value, given, words", DICTS)
def test_dict_vectorizer(runtime, key, value, given, words):
    model = model_of([node("DictVectorizer", ["x"], ["y"], **{f"{key}_vocabulary": words})], {"x": map_type(key, value)}, ["y"])
    actual = run(runtime, model, {"x": given})["y"]
    wanted = [[given.get(word, "" if value == "string" else 0) for word in words]]
    assert actual.tolist() == wanted and actual.dtype == {"float": f32, "double": float, "int64": i64, "string": object}[value]
    if value == "float" and given:  # ONNX Runtime's Python gives no other maps to it
        numpy.testing.assert_array_equal(actual, onnx_runtime(model).run(None, {"x": given})[0])


CASTS = [{3: 1.5, 1: -2.0, 4: 1e10}, {0: 1e-7, 2: 16777217.0}, {4: -0.0}]


@pytest.mark.parametrize("given", CASTS)
@pytest.mark.parametrize("form", ["DENSE", "SPARSE"])
@pytest.mark.parametrize("to", ["TO_FLOAT", "TO_STRING", "TO_INT64"])
def test_cast_map_of_numbers(runtime, given, form, to):
    model = model_of([node("CastMap", ["x"], ["y"], cast_to=to, map_form=form, max_map=5)], {"x": map_type("int64", "float")}, ["y"])
    actual, wanted = run(runtime, model, {"x": given})["y"], onnx_runtime(model).run(None, {"x": given})[0]
    assert actual.dtype == wanted.dtype
    numpy.testing.assert_array_equal(actual, wanted)


@pytest.mark.parametrize("to, wanted", [("TO_FLOAT", [-2.0, 1500.0, numpy.inf]), ("TO_STRING", ["-2", "1.5e3", "1e99"]), ("TO_INT64", [-2, 1500, 2**63 - 1])])
def test_cast_map_of_texts(runtime, to, wanted):
    model = model_of([node("CastMap", ["x"], ["y"], cast_to=to)], {"x": map_type("int64", "string")}, ["y"])
    assert run(runtime, model, {"x": {7: "1e99", -1: "-2", 3: "1.5e3"}})["y"].tolist() == [wanted]
    assert run(runtime, model, {"x": {}})["y"].shape == (1, 0)


@pytest.mark.parametrize("attributes, value, given", [
    ({"map_form": "SPARSE", "max_map": 3}, "float", {3: 1.0}), ({"map_form": "SPARSE", "max_map": 3}, "float", {-1: 1.0}),
    ({"cast_to": "TO_FLOAT"}, "string", {1: "word"}), ({"cast_to": "TO_INT64"}, "string", {1: ""})])
def test_cast_map_refuses_what_has_no_place_or_is_no_number(runtime, attributes, value, given):
    model = model_of([node("CastMap", ["x"], ["y"], **attributes)], {"x": map_type("int64", value)}, ["y"])
    with pytest.raises(evener.Error) as failure:
        run(runtime, model, {"x": given})
    assert failure.value.status == evener.Status.INVALID_ARGUMENT and failure.value.node == "node"


@pytest.mark.parametrize("op, kind, attributes, named", [
    ("CastMap", map_type("string", "float"), {}, "map(string"), ("CastMap", map_type("int64", "double"), {}, "float64"),
    ("CastMap", tensor_type("float"), {}, "tensor(float32)"), ("CastMap", map_type("int64", "float"), {"cast_to": "TO_DOUBLE"}, "cast_to"),
    ("CastMap", map_type("int64", "float"), {"map_form": "FLAT"}, "map_form"),
    ("CastMap", map_type("int64", "float"), {"map_form": "SPARSE", "max_map": -(2**63)}, "max_map"),
    ("DictVectorizer", map_type("int64", "float"), {}, "vocabulary"),
    ("DictVectorizer", map_type("int64", "float"), {"string_vocabulary": ["a"]}, "map(int64"),
    ("DictVectorizer", map_type("int64", "int64"), {"int64_vocabulary": [1]}, "map(int64,tensor(int64))"),
    ("DictVectorizer", map_type("string", "float"), {"string_vocabulary": ["a"], "int64_vocabulary": [1]}, "vocabulary"),
    ("ZipMap", map_type("string", "float"), {"classlabels_int64s": [1]}, "map(string"),
    ("ZipMap", tensor_type("double"), {"classlabels_int64s": [1]}, "float64"),
])
def test_types_and_attributes_that_do_not_fit_are_refused_while_loading(runtime, op, kind, attributes, named):
    with pytest.raises(evener.Error) as failure:
        runtime.session(model_of([node(op, ["x"], ["y"], **attributes)], {"x": kind}, ["y"]))
    assert failure.value.status == evener.Status.INVALID_MODEL and failure.value.node == "node" and named in str(failure.value)


def test_a_place_for_every_key_is_limited(runtime):
    model = model_of([node("CastMap", ["x"], ["y"], map_form="SPARSE", max_map=2**62)], {"x": map_type("int64", "float")}, ["y"])
    with pytest.raises(evener.Error) as failure:
        run(runtime, model, {"x": {1: 2.0}})
    assert failure.value.status == evener.Status.LIMIT


# ---------------------------------------------------------------------------------------------------------- pipelines --

def maps_of(key):
    kind = onnx.TypeProto()
    kind.sequence_type.elem_type.CopyFrom(map_type(key, "float"))
    return kind


@pytest.mark.parametrize("labels", [{"classlabels_strings": ["no", "yes", "é"]}, {"classlabels_int64s": [3, 1, 2]}])
@pytest.mark.parametrize("kind", ["linear", "trees"])
def test_a_classifier_that_names_its_probabilities(runtime, kind, labels):
    keys = {"classlabels_ints" if kind == "linear" and name.endswith("64s") else name: value for name, value in labels.items()}
    if kind == "linear":
        weights = {"coefficients": [1.0, 2.0, -1.0, 0.5, 0.0, 3.0], "intercepts": [0.5, 0.0, -0.5]}
        classifier = node("LinearClassifier", ["x"], ["label", "scores"], post_transform="SOFTMAX", **weights, **keys)
    else:
        trees = {"nodes_treeids": [0] * 5, "nodes_nodeids": [0, 1, 2, 3, 4], "nodes_featureids": [0, 0, 1, 0, 0], "nodes_values": [0.5, 0.0, -0.5, 0.0, 0.0],
                 "nodes_modes": ["BRANCH_LEQ", "LEAF", "BRANCH_GT", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 3, 0, 0],
                 "nodes_falsenodeids": [2, 0, 4, 0, 0], "class_treeids": [0] * 4, "class_nodeids": [1, 3, 4, 4], "class_ids": [0, 1, 2, 0],
                 "class_weights": [1.0, 1.0, 0.75, 0.25]}
        classifier = node("TreeEnsembleClassifier", ["x"], ["label", "scores"], **trees, **keys)
    labels_type = tensor_type("string" if "classlabels_strings" in labels else "int64")
    nodes = [classifier, node("ZipMap", ["scores"], ["probabilities"], **labels)]
    outputs = {"label": labels_type, "probabilities": maps_of("string" if "classlabels_strings" in labels else "int64")}
    model = model_of(nodes, {"x": tensor_type("float")}, outputs)
    x = numpy.random.default_rng(2).normal(size=(9, 2)).astype(f32)
    actual = run(runtime, model, {"x": x})
    label, probabilities = onnx_runtime(model).run(None, {"x": x})
    assert actual["label"].tolist() == label.tolist()
    assert [list(sorted(row)) for row in actual["probabilities"]] == [list(sorted(row)) for row in probabilities]
    for mine, wanted in zip(actual["probabilities"], probabilities):
        numpy.testing.assert_allclose([mine[k] for k in wanted], list(wanted.values()), rtol=2e-6)


def test_records_that_become_features(runtime):
    nodes = [node("DictVectorizer", ["record"], ["v"], string_vocabulary=["age", "height", "weight"]),
             node("Scaler", ["v"], ["s"], offset=[40.0, 170.0, 70.0], scale=[0.1, 0.05, 0.0625]),
             node("LinearRegressor", ["s"], ["y"], coefficients=[1.0, -2.0, 0.5], intercepts=[0.25])]
    model = model_of(nodes, {"record": map_type("string", "float")}, ["y"])
    session = runtime.session(model)
    for record in ({"age": 31.0, "weight": 80.0}, {"height": 190.0, "age": 60.0, "weight": 90.5}):
        numpy.testing.assert_allclose(session.run({"record": record})["y"], onnx_runtime(model).run(None, {"record": record})[0], rtol=2e-6)


def test_maps_pass_through_a_sequence(runtime):
    """One record of many, put to numbers."""
    nodes = [node("ZipMap", ["x"], ["maps"], classlabels_int64s=[7, 2, 5]), helper.make_node("SequenceAt", ["maps", "at"], ["one"]),
             node("CastMap", ["one"], ["y"])]
    model = model_of(nodes, {"x": tensor_type("float"), "at": tensor_type("int64")}, ["y"])
    x = numpy.arange(12, dtype=f32).reshape(4, 3)
    assert run(runtime, model, {"x": x, "at": numpy.array(2, i64)})["y"].tolist() == [[7.0, 8.0, 6.0]]
