"""The operators of ai.onnx.ml, one node at a time, with ONNX Runtime as the judge; whole numbers and strings are equal, floats too
but for those that are computed."""
import evener
import numpy
import onnx
import pytest
from common import onnx_runtime
from onnx import helper

f32, f64, i16, i32, i64 = numpy.float32, numpy.float64, numpy.int16, numpy.int32, numpy.int64
WORDS = numpy.array([["a", "b", "", "d"], ["é", "a", "b", "zz"]], object)
NUMBERS = numpy.array([[3, -1, 0, 7], [2, 3, 7, 100]])
TYPES = {"O": onnx.TensorProto.STRING}


def tensor(values, dtype):
    if dtype is object:
        return helper.make_tensor("t", onnx.TensorProto.STRING, [len(values)], [v.encode() for v in values])
    return onnx.numpy_helper.from_array(numpy.array(values, dtype), "t")


def label_cases():
    keys = {"strings": ["a", "", "é"], "int64s": [3, -1, 7], "floats": [3.0, float("nan"), 7.0]}
    values = {"strings": ["x", "", "ü"], "int64s": [9, 8, -7], "floats": [0.5, -2.0, 1e9]}
    given = {"strings": WORDS, "int64s": NUMBERS.astype(i64), "floats": None}
    for version in (2, 4):
        if version == 2:  # in which ONNX Runtime finds no NaN
            given["floats"] = NUMBERS.astype(f32)
        else:
            given["floats"] = numpy.where(NUMBERS == 0, numpy.nan, NUMBERS).astype(f32)
        for k in keys:
            for v in values:
                attributes = {f"keys_{k}": keys[k], f"values_{v}": values[v]}
                yield "LabelEncoder", version, [given[k]], attributes
                yield "LabelEncoder", version, [given[k]], attributes | {"default_string": "?", "default_int64": 5, "default_float": 2.5}
    yield "LabelEncoder", 1, [WORDS], {"classes_strings": ["a", "é", ""]}
    yield "LabelEncoder", 1, [NUMBERS.astype(i64)], {"classes_strings": ["a", "é", ""], "default_string": "none"}
    for key, value in ((object, i16), (f64, f64)):
        attributes = {"keys_tensor": tensor(["a", "d", "é"] if key is object else [3, -1, 7], key)}
        attributes["values_tensor"] = tensor(["x", "y", "ü"] if value is object else [1, 2, -3], value)
        attributes["default_tensor"] = tensor(["no"] if value is object else [11], value)
        yield "LabelEncoder", 4, [WORDS if key is object else NUMBERS.astype(key)], attributes


def other_cases():
    for dtype in (f32, f64, i32, i64, object):
        x = WORDS if dtype is object else NUMBERS.astype(dtype)
        yield "ArrayFeatureExtractor", 1, [x, numpy.array([[2, 0, 2]], i64)], {}
        yield "ArrayFeatureExtractor", 1, [x[0], numpy.array([3, 1], i64)], {}
        if dtype is not i32:  # for which ONNX Runtime has no kernel
            yield "OneHotEncoder", 1, [x], {"cats_strings": ["b", "zz"]} if dtype is object else {"cats_int64s": [7, 2, -1]}
    yield "Binarizer", 1, [NUMBERS.astype(f32)], {"threshold": 2.5}
    yield "CategoryMapper", 1, [WORDS], {"cats_strings": ["b", "zz"], "cats_int64s": [5, -5]}
    yield "CategoryMapper", 1, [NUMBERS.astype(i64)], {"cats_strings": ["b", "zz"], "cats_int64s": [7, -1], "default_string": "?"}


# Two trees over four features, the first of two branches.
TREES = {"nodes_treeids": [0] * 5 + [1] * 3, "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2], "nodes_featureids": [0, 0, 3, 0, 0, 1, 0, 0],
         "nodes_modes": ["BRANCH_LEQ", "LEAF", "BRANCH_GT", "LEAF", "LEAF", "BRANCH_LT", "LEAF", "LEAF"],
         "nodes_values": [0.5, 0.0, -0.5, 0.0, 0.0, 0.25, 0.0, 0.0], "nodes_truenodeids": [1, 0, 3, 0, 0, 1, 0, 0],
         "nodes_falsenodeids": [2, 0, 4, 0, 0, 2, 0, 0], "nodes_missing_value_tracks_true": [1, 0, 0, 0, 0, 0, 0, 0]}
ROWS = numpy.random.default_rng(3).normal(size=(40, 4))
ROWS[5] = numpy.nan
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")


def votes(prefix, ids, weights):
    if set(ids) == {0}:  # with ONNX Runtime taking the first vote of a leaf only
        where = {"treeids": [0, 0, 0, 1, 1], "nodeids": [1, 3, 4, 1, 2], "ids": ids, "weights": weights}
        return {f"{prefix}_{name}": value for name, value in where.items()}
    where = {"treeids": [0, 0, 0, 1, 1, 1, 1], "nodeids": [1, 3, 4, 1, 2, 2, 1], "ids": ids, "weights": weights}
    return {f"{prefix}_{name}": value for name, value in where.items()}


def as_tensors(attributes):
    names = ("nodes_values", "target_weights", "base_values", "class_weights")
    return {f"{k}_as_tensor" if k in names else k: tensor(v, f64) if k in names else v for k, v in attributes.items()}


def tree_cases():
    for transform in TRANSFORMS:
        targets = TREES | votes("target", [0, 1, 0, 0, 1, 0, 1], [0.1, 0.2, 0.3, 0.05, 0.4, 0.15, 0.35]) | {"n_targets": 2, "post_transform": transform}
        classes = TREES | votes("class", [0, 1, 2, 0, 1, 2, 1], [0.1, 0.2, 0.3, 0.05, 0.4, 0.15, 0.35]) | {"post_transform": transform}
        for aggregate in ("SUM", "AVERAGE", "MIN", "MAX"):
            attributes = targets | {"aggregate_function": aggregate, "base_values": [0.05, 0.1]}
            yield "TreeEnsembleRegressor", 1, [ROWS.astype(f32)], attributes
            yield "TreeEnsembleRegressor", 3, [ROWS], as_tensors(attributes)
        yield "TreeEnsembleClassifier", 1, [ROWS.astype(f32)], classes | {"classlabels_strings": ["a", "é", "c"]}
        labels = {"classlabels_int64s": [5, -1, 7]}
        yield "TreeEnsembleClassifier", 3, [ROWS], as_tensors(classes | labels | {"base_values": [0.31, 0.1, 0.0]})
        yield "TreeEnsembleClassifier", 1, [numpy.trunc(ROWS[6:] * 3).astype(i64)], classes | labels
        if transform == "PROBIT":  # of which ONNX Runtime writes the first of the two scores only
            continue
        for weights in ([0.1, 0.9, 0.3, 0.05, 0.45], [-1.0, 2.0, 0.5, -1.0, 1.0]):
            pair = classes | votes("class", [0] * 5, weights) | {"classlabels_strings": ["no", "yes"]}
            yield "TreeEnsembleClassifier", 1, [ROWS.astype(f32)], pair
            yield "TreeEnsembleClassifier", 1, [ROWS.astype(f32)], pair | {"base_values": [0.125]}
    yield "TreeEnsembleRegressor", 1, [ROWS.astype(f32)], TREES | votes("target", [0] * 5, [1.0, 2.0, 3.0, 4.0, -5.0]) | {"n_targets": 1}


def linear_cases():
    x, whole = ROWS[6:].astype(f32), numpy.trunc(ROWS[6:] * 3)
    one, three = [0.5, -1.0, 0.25, 0.125], [0.5, -1.0, 0.25, 0.125, 1.0, 0.5, 0.0, -0.5, 0.75, 0.25, -1.0, 0.375]
    for transform in TRANSFORMS:
        if transform != "PROBIT":  # of which ONNX Runtime writes the first of the two scores only
            pair = {"coefficients": one, "intercepts": [0.25], "classlabels_strings": ["no", "yes"], "post_transform": transform}
            yield "LinearClassifier", 1, [x], pair
        rows = {"coefficients": three, "intercepts": [0.25, -0.5, 0.0], "post_transform": transform}
        for given in (x, whole.astype(i64)):
            yield "LinearClassifier", 1, [given], rows | {"classlabels_ints": [5, -1, 7]}
        yield "LinearRegressor", 1, [x], rows | {"targets": 3}
    yield "LinearRegressor", 1, [whole.astype(f32)], {"coefficients": one}
    for dtype in (f32, f64, i64, i32):
        for lists in ({"offset": [1.0], "scale": [0.5]}, {"offset": [1.0, 2.0, 0.0, 4.0], "scale": [0.5, 2.0, -1.0, 1.0]}):
            yield "Scaler", 1, [whole.astype(dtype)], lists
        for norm in ("MAX", "L1", "L2"):
            yield "Normalizer", 1, [numpy.concatenate([whole, numpy.zeros((1, 4))]).astype(dtype)], {"norm": norm}
    for values in ([9.0], [9.0, 8.0, 7.0, 6.0]):
        yield "Imputer", 1, [whole.astype(f32)], {"imputed_value_floats": values, "replaced_value_float": 1.0}
        yield "Imputer", 1, [ROWS.astype(f32)], {"imputed_value_floats": values, "replaced_value_float": float("nan")}
        yield "Imputer", 1, [whole.astype(i64)], {"imputed_value_int64s": [int(v) for v in values], "replaced_value_int64": 1}
    yield "FeatureVectorizer", 1, [x, x[:, :2]], {"inputdimensions": [4, 2]}


CASES = [*label_cases(), *other_cases(), *tree_cases(), *linear_cases()]


def model_of(op, version, inputs, attributes):
    names = [f"x{index}" for index in range(len(inputs))]
    types = [TYPES.get(x.dtype.char) or helper.np_dtype_to_tensor_dtype(x.dtype) for x in inputs]
    variables = [helper.make_tensor_value_info(name, kind, x.shape) for name, kind, x in zip(names, types, inputs)]
    outputs = ["y", "z"] if op.endswith("Classifier") else ["y"]
    node = helper.make_node(op, names, outputs, "node", domain="ai.onnx.ml", **attributes)
    graph = helper.make_graph([node], "graph", variables, [onnx.ValueInfoProto(name=name) for name in outputs])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


@pytest.fixture(scope="module")
def runtime():
    return evener.Runtime(threads=1)


@pytest.mark.parametrize("case", CASES, ids=[f"{index}-{case[0]}" for index, case in enumerate(CASES)])
def test_agrees_with_onnx_runtime(runtime, case):
    model = model_of(*case)
    feeds = {f"x{index}": x for index, x in enumerate(case[2])}
    actual = runtime.session(model).run(feeds)
    for name, wanted in zip(("y", "z"), onnx_runtime(model).run(None, feeds)):
        assert (actual[name].shape, actual[name].dtype.kind) == (wanted.shape, wanted.dtype.kind)
        if "post_transform" not in case[3] and case[0] != "Normalizer":
            numpy.testing.assert_array_equal(actual[name], wanted)
        elif wanted.dtype.kind == "f":  # whose probit is an approximation
            rtol = 2e-3 if case[3].get("post_transform") == "PROBIT" else 2e-6
            numpy.testing.assert_allclose(actual[name], wanted, rtol=rtol, atol=rtol)
        else:
            assert actual[name].tolist() == wanted.tolist()


def pair_of_trees(random, ids, signed, base, transform, strings):
    """Some trees of one or two levels whose leaves vote for the classes `ids` of two."""
    nodes, leaves = [], []
    for tree in range(int(random.integers(1, 4))):
        inner = (1 << int(random.integers(1, 3))) - 1
        for i in range(2 * inner + 1):
            leaf = i >= inner
            nodes.append((tree, i, 0 if leaf else int(random.integers(4)), "LEAF" if leaf else "BRANCH_LEQ", 0.0 if leaf else int(random.integers(-8, 9)) / 8,
                          0 if leaf else 2 * i + 1, 0 if leaf else 2 * i + 2))
            for k in ids if leaf else ():
                leaves.append((tree, i, k, int(random.integers(-16 if signed else 0, 17)) / 32))
    names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    attributes = {f"nodes_{name}": list(column) for name, column in zip(names, zip(*nodes))}
    attributes |= {f"class_{name}": list(column) for name, column in zip(("treeids", "nodeids", "ids", "weights"), zip(*leaves))}
    attributes |= {"classlabels_strings": ["no", "yes"]} if strings else {"classlabels_int64s": [10, 11]}
    return attributes | {"post_transform": transform} | ({} if base is None else {"base_values": base})


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("voted", [0, 1])
def test_trees_that_vote_for_one_of_two_classes(runtime, voted, transform):
    """Base values are left to the test below: those of a class without votes ONNX Runtime takes for the other's, or forgets the votes."""
    random = numpy.random.default_rng([voted, TRANSFORMS.index(transform)])
    x = numpy.round(random.normal(size=(30, 4)) * 4) / 8
    for index in range(24):
        base = [0.125] if index % 3 == 2 else None
        attributes = pair_of_trees(random, [voted], index % 2 == 1, base, transform, index % 4 == 3)
        model = model_of("TreeEnsembleClassifier", 1, [x.astype(f32)], attributes)
        labels, scores = onnx_runtime(model).run(None, {"x0": x.astype(f32)})
        found = runtime.session(model).run({"x0": x.astype(f32)})
        assert found["y"].tolist() == labels.tolist(), attributes
        if transform == "PROBIT" and voted == 0:  # of which ONNX Runtime writes the first of the two scores only
            continue
        judged = ~numpy.isnan(scores) if transform == "SOFTMAX_ZERO" else ...  # ONNX Runtime divides by 0 where all scores are 0
        numpy.testing.assert_allclose(found["z"][judged], scores[judged], rtol=2e-3 if transform == "PROBIT" else 2e-6, atol=2e-6, err_msg=str(attributes))


@pytest.mark.parametrize("voted", [0, 1])
@pytest.mark.parametrize("signed", [False, True])
def test_each_class_has_its_base_value(runtime, voted, signed):
    leaves = [-0.75, 0.5] if signed else [0.25, 0.75]
    attributes = {"nodes_treeids": [0] * 3, "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0] * 3, "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
                  "nodes_values": [0.0] * 3, "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "class_treeids": [0, 0],
                  "class_nodeids": [1, 2], "class_ids": [voted] * 2, "class_weights": leaves, "classlabels_int64s": [10, 11]}
    x = numpy.array([[-1.0], [1.0]], f32)
    for base in ([0.5, 0.125], [-0.25, 1.0]):
        found = runtime.session(model_of("TreeEnsembleClassifier", 1, [x], attributes | {"base_values": base})).run({"x0": x})
        sums = [leaf + base[voted] for leaf in leaves]
        assert found["y"].tolist() == [11 if s > (0 if signed else 0.5) else 10 for s in sums]
        if voted == 1:
            numpy.testing.assert_array_equal(found["z"], [[base[0], s] for s in sums])
        else:
            numpy.testing.assert_array_equal(found["z"], [[-s if signed else 1 - s, s] for s in sums])


def test_of_two_classes_with_votes_the_better_one_is_chosen(runtime):
    """ONNX Runtime answers 0 or 1 here, whatever the labels are, and looks at the second score only."""
    random = numpy.random.default_rng(5)
    x = numpy.round(random.normal(size=(30, 4)) * 4) / 8
    for index in range(8):
        attributes = pair_of_trees(random, [0, 1], index % 2 == 1, None, "NONE", False)
        found = runtime.session(model_of("TreeEnsembleClassifier", 1, [x.astype(f32)], attributes)).run({"x0": x.astype(f32)})
        assert found["y"].tolist() == [10 + int(s[1] > s[0]) for s in found["z"]]


def test_tensors_of_int16_and_strings(runtime):
    attributes = {"keys_tensor": tensor([3, -1, 7], i16), "values_tensor": tensor(["x", "y", "ü"], object), "default_tensor": tensor(["no"], object)}
    actual = runtime.session(model_of("LabelEncoder", 4, [NUMBERS.astype(i16)], attributes)).run({"x0": NUMBERS.astype(i16)})["y"]
    assert actual.tolist() == [["x", "y", "no", "ü"], ["no", "x", "ü", "no"]]


GOOD = TREES | votes("target", [0, 1, 0, 0, 1, 0, 1], [1.0] * 7) | {"n_targets": 2}


def test_the_trees_that_the_refused_ones_come_from_are_taken(runtime):
    model = model_of("TreeEnsembleRegressor", 3, [NUMBERS.astype(i64)], GOOD)
    assert runtime.session(model).run({"x0": NUMBERS.astype(i64)})["y"].shape == (2, 2)


@pytest.mark.parametrize("op, attributes", [
    ("LabelEncoder", {"keys_int64s": [1, 2], "values_int64s": [1]}),
    ("LabelEncoder", {"keys_int64s": [1]}),
    ("LabelEncoder", {"keys_int64s": [1], "keys_floats": [1.0], "values_int64s": [1]}),
    ("LabelEncoder", {"keys_strings": ["a"], "values_int64s": [1]}),
    ("CategoryMapper", {"cats_strings": ["a"], "cats_int64s": [1, 2]}),
    ("OneHotEncoder", {}),
    ("LinearRegressor", {"coefficients": [1.0] * 4, "targets": 0}),
    ("LinearRegressor", {"coefficients": [1.0] * 3}),
    ("LinearRegressor", {"coefficients": [1.0] * 4, "intercepts": [1.0, 2.0]}),
    ("LinearClassifier", {"coefficients": [1.0] * 4, "classlabels_ints": [1, 2, 3]}),
    ("LinearClassifier", {"coefficients": [1.0] * 4}),
    ("Scaler", {"scale": [1.0] * 3, "offset": [1.0] * 3}),
    ("Scaler", {"scale": [1.0]}),
    ("Normalizer", {"norm": "L3"}),
    ("Imputer", {"imputed_value_floats": [1.0]}),
    ("Imputer", {"imputed_value_int64s": [1, 2, 3]}),
    ("FeatureVectorizer", {"inputdimensions": [3]}),
    ("TreeEnsembleRegressor", {"n_targets": 1}),
    *[("TreeEnsembleRegressor", GOOD | change) for change in (
        {"n_targets": 0}, {"n_targets": 1}, {"n_targets": -(2**63)}, {"target_ids": [0, 1, 0, 0, 1, 0, -1]}, {"target_nodeids": [1, 3, 4, 1, 2, 2, 9]},
        {"target_nodeids": [0, 3, 4, 1, 2, 2, 1]}, {"target_treeids": [0, 0, 0, 1, 1, 1, 2]}, {"target_weights": [1.0]}, {"base_values": [1.0]},
        {"nodes_truenodeids": [0, 0, 3, 0, 0, 1, 0, 0]}, {"nodes_truenodeids": [1, 0, 0, 0, 0, 1, 0, 0]}, {"nodes_values": [1.0]},
        {"nodes_truenodeids": [2, 0, 3, 0, 0, 1, 0, 0]}, {"nodes_falsenodeids": [2, 0, 99, 0, 0, 2, 0, 0]}, {"nodes_modes": ["LEAF"]},
        {"nodes_featureids": [4, 0, 3, 0, 0, 1, 0, 0]}, {"nodes_featureids": [-1, 0, 3, 0, 0, 1, 0, 0]}, {"nodes_nodeids": [0] * 8},
        {"nodes_modes": ["BRANCH"] * 8}, {"nodes_missing_value_tracks_true": [1]}, {"post_transform": "NO"}, {"aggregate_function": "NO"})],
])
def test_lists_that_do_not_fit_are_refused_while_loading(runtime, op, attributes):
    with pytest.raises(evener.Error) as caught:
        runtime.session(model_of(op, 4, [NUMBERS.astype(i64)], attributes))
    assert caught.value.status == evener.Status.INVALID_MODEL
