"""Operators of ai.onnx.ml: encoders, linear models and trees. Sums of trees and scores are of numbers with few bits, so that no order of
adding decides which class wins."""
import numpy
import onnx

from .draw import operator

ML = "ai.onnx.ml"
_WORDS = ("a", "b", "", "é", "zz", "A", "10")
_TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")  # PROBIT is of (0, 1) only
_TOLERANCE = (1e-4, 1e-5, 1e-6)


def _coarse(draw, count, low=-2, high=2, bits=3):
    """Numbers of a few bits behind the point."""
    return [float(x) for x in draw.rng.integers(low << bits, (high << bits) + 1, count) / 2 ** bits]


def _rows(draw, features, dtype, low=-4, high=4):
    shape = (draw.int(1, 5), features)
    return numpy.array(_coarse(draw, shape[0] * features, low, high, 1)).reshape(shape).astype(dtype)


def _tensor(values, dtype):
    if dtype == "string":
        return onnx.helper.make_tensor("t", onnx.TensorProto.STRING, [len(values)], [x.encode() for x in values])
    return onnx.numpy_helper.from_array(numpy.array(values, dtype), "t")


def _different(draw, count, low=-9, high=9):
    return [int(x) for x in draw.rng.permutation(numpy.arange(low, high + 1))[:count]]


@operator("ArrayFeatureExtractor", domain=ML)
def extract(draw):
    x = draw.values(draw.shape(1, 3, zero=0), draw.one("float32", "float64", "int32", "int64"))
    return draw.case([x, draw.indices(draw.one((draw.int(1, 4),), (1, draw.int(1, 4))), x.shape[-1], "int64", False)])


@operator("Binarizer", domain=ML)
def binarize(draw):
    return draw.case([draw.values(draw.shape(1, 2, zero=0), "float32")], draw.some(threshold=draw.real(-1, 1)))


@operator("LabelEncoder", domain=ML)
def label(draw):
    shape, count = draw.shape(1, 2, zero=0), draw.int(1, 4)
    if draw.opset < 2:
        words = list(dict.fromkeys(draw.one(*_WORDS) for _ in range(count)))
        x = draw.strings(shape, *_WORDS) if draw.maybe() else draw.values(shape, "int64", 0, 5)
        return draw.case([x], {"classes_strings": words, **draw.some(default_string="?", default_int64=7)})
    lists = {"strings": list(dict.fromkeys(draw.one(*_WORDS) for _ in range(count)))}
    count = len(lists["strings"])
    lists.update(int64s=_different(draw, count), floats=[float(x) / 2 for x in _different(draw, count)])
    key, value = draw.one(*lists), draw.one(*lists)
    keys, values = lists[key], (lists | {"int64s": _different(draw, count), "strings": [draw.one(*_WORDS) for _ in range(count)]})[value]
    if key == "strings":
        x = draw.strings(shape, *_WORDS)
    else:
        x = numpy.array([draw.one(*keys, 3) for _ in range(int(numpy.prod(shape)))]).reshape(shape).astype("int64" if key == "int64s" else "float32")
    if draw.opset >= 4 and draw.maybe(0.4) and "floats" not in (key, value):
        types = {"strings": "string", "int64s": "int64"}
        default = _tensor(["no"] if value == "strings" else [11], types[value])
        attributes = {"keys_tensor": _tensor(keys, types[key]), "values_tensor": _tensor(values, types[value]), "default_tensor": default}
        return draw.case([x], attributes)
    attributes = {f"keys_{key}": keys, f"values_{value}": values}
    return draw.case([x], {**attributes, **draw.some(default_string="?", default_int64=5, default_float=2.5)})


@operator("CategoryMapper", domain=ML)
def category_map(draw):
    words = list(dict.fromkeys(draw.one(*_WORDS) for _ in range(4)))
    numbers, shape = _different(draw, len(words)), draw.shape(1, 2, zero=0)
    x = draw.strings(shape, *_WORDS) if draw.maybe() else draw.values(shape, "int64", -9, 9)
    return draw.case([x], {"cats_strings": words, "cats_int64s": numbers, **draw.some(default_string="?", default_int64=5)})


@operator("OneHotEncoder", domain=ML)
def one_hot(draw):
    shape, strings, zeros = draw.shape(1, 2, zero=0), draw.maybe(0.4), draw.int(0, 1)
    if strings:
        kept = list(dict.fromkeys(draw.one(*_WORDS) for _ in range(4)))
        return draw.case([draw.strings(shape, *(_WORDS if zeros else kept))], {"cats_strings": kept, "zeros": zeros})
    kept = _different(draw, draw.int(1, 4), -3, 3)
    values = [draw.one(*kept, *(range(-3, 4) if zeros else ())) for _ in range(int(numpy.prod(shape)))]
    x = numpy.array(values).reshape(shape).astype(draw.one("int64", "float32", "float64"))
    return draw.case([x], {"cats_int64s": kept, "zeros": zeros})


@operator("Scaler", domain=ML)
def scale(draw):
    features = draw.int(1, 4)
    count = draw.one(1, features)
    return draw.case([_rows(draw, features, draw.one("float32", "float64", "int64", "int32"))],
                     {"offset": _coarse(draw, count), "scale": _coarse(draw, count)})


@operator("Normalizer", domain=ML)
def normalize(draw):
    x = _rows(draw, draw.int(1, 4), draw.one("float32", "float64", "int64", "int32"))
    return draw.case([x], {"norm": draw.one("MAX", "L1", "L2")}, tolerance=_TOLERANCE)


@operator("Imputer", domain=ML)
def impute(draw):
    features = draw.int(1, 4)
    count = draw.one(1, features)
    if draw.maybe(0.4):
        return draw.case([_rows(draw, features, "int64")], {"imputed_value_int64s": _different(draw, count), "replaced_value_int64": draw.int(-2, 2)})
    x = _rows(draw, features, "float32")
    missing = draw.one(float("nan"), 0.0, 1.5)
    x[draw.rng.random(x.shape) < 0.3] = missing
    return draw.case([x], {"imputed_value_floats": _coarse(draw, count), "replaced_value_float": missing})


@operator("FeatureVectorizer", domain=ML)
def vectorize(draw):
    rows, widths, dtype = draw.int(1, 4), [draw.int(1, 3) for _ in range(draw.int(1, 3))], draw.one("float32", "float64", "int64", "int32")
    return draw.case([draw.values((rows, width), dtype) for width in widths], {"inputdimensions": widths})


@operator("LinearRegressor", domain=ML)
def linear(draw):
    features, targets = draw.int(1, 4), draw.int(1, 3)
    attributes = {"coefficients": _coarse(draw, features * targets), "targets": targets, **draw.some(intercepts=_coarse(draw, targets))}
    return draw.case([_rows(draw, features, "float32")], attributes, tolerance=_TOLERANCE)


def _labels(draw, count):
    if draw.maybe():
        return {"classlabels_ints": _different(draw, count)}
    return {"classlabels_strings": [f"{draw.one('a', 'é', 'Z')}{i}" for i in range(count)]}


@operator("LinearClassifier", domain=ML)
def linear_classifier(draw):
    features, classes = draw.int(1, 4), draw.int(3, 4)
    x = _rows(draw, features, draw.one("float32", "int64", "int32", "float64"))
    attributes = {"coefficients": _coarse(draw, features * classes, bits=6), "intercepts": _coarse(draw, classes, bits=6), **_labels(draw, classes)}
    attributes["post_transform"] = draw.one(*_TRANSFORMS)
    return draw.case([x], attributes, 2, tolerance=_TOLERANCE)


def _trees(draw, features, modes):
    """Nodes of complete and lopsided trees, and of each tree its leaves."""
    nodes, leaves = {name: [] for name in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids", "missing")}, []

    def add(tree, depth):
        number = sum(t == tree for t in nodes["treeids"])
        leaf = depth == 0 or number > 0 and draw.maybe(0.25)
        at = len(nodes["treeids"])
        entry = (tree, number, 0 if leaf else draw.int(0, features - 1), "LEAF" if leaf else draw.one(*modes),
                 0.0 if leaf else _coarse(draw, 1, bits=1)[0], 0, 0, 0 if leaf else draw.int(0, 1))
        for name, value in zip(nodes, entry):
            nodes[name].append(value)
        if leaf:
            leaves.append((tree, number))
        else:
            nodes["truenodeids"][at], nodes["falsenodeids"][at] = add(tree, depth - 1), add(tree, depth - 1)
        return number
    for tree in range(draw.int(1, 3)):
        add(tree, draw.int(1, 3))
    return {f"nodes_{name}" if name != "missing" else "nodes_missing_value_tracks_true": values for name, values in nodes.items()}, leaves


def _ensemble(draw, prefix, count, double):
    features = draw.int(1, 4)
    modes = ("BRANCH_LEQ",) if draw.maybe() else ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
    attributes, leaves = _trees(draw, features, modes)
    every = draw.maybe(0.6)
    votes = [(tree, node, target) for tree, node in leaves for target in range(count) if every or target == 0 or draw.maybe(0.7)]
    for name, values in zip(("treeids", "nodeids", "ids"), zip(*votes)):
        attributes[f"{prefix}_{name}"] = list(values)
    attributes[f"{prefix}_weights"] = _coarse(draw, len(votes), bits=6)
    if draw.maybe():
        attributes["base_values"] = _coarse(draw, count, bits=6)
    x = _rows(draw, features, "float64" if double else draw.one("float32", "float32", "float64", "int64", "int32"))
    if x.dtype.kind == "f" and draw.maybe(0.3):
        x[draw.rng.random(x.shape) < 0.2] = numpy.nan
    if double:
        for name in ("nodes_values", f"{prefix}_weights", "base_values"):
            if name in attributes:
                attributes[f"{name}_as_tensor"] = _tensor(attributes.pop(name), "float64")
    return x, attributes


@operator("TreeEnsembleRegressor", domain=ML)
def tree_regressor(draw):
    targets = draw.int(1, 3)
    x, attributes = _ensemble(draw, "target", targets, draw.opset >= 3 and draw.maybe(0.3))
    attributes.update(n_targets=targets, **draw.some(aggregate_function=draw.one("SUM", "AVERAGE", "MIN", "MAX")))
    attributes["post_transform"] = draw.one(*_TRANSFORMS) if targets > 1 else "NONE"
    return draw.case([x], attributes, tolerance=_TOLERANCE)


@operator("TreeEnsembleClassifier", domain=ML)
def tree_classifier(draw):
    classes = draw.int(3, 4)
    x, attributes = _ensemble(draw, "class", classes, draw.opset >= 3 and draw.maybe(0.3))
    labels = _labels(draw, classes)
    attributes.update({name.replace("_ints", "_int64s"): values for name, values in labels.items()}, post_transform=draw.one(*_TRANSFORMS))
    return draw.case([x], attributes, 2, tolerance=_TOLERANCE)


@operator("TreeEnsemble", domain=ML)
def tree_ensemble(draw):
    """Each tree has branches behind one another, and leaves of one target at both ends."""
    dtype, features, targets, trees = draw.one("float32", "float64"), draw.int(1, 4), draw.int(1, 3), draw.int(1, 3)
    nodes, leaves, roots = [], 0, []
    for _ in range(trees):
        roots.append(len(nodes))
        depth = draw.int(1, 3)
        for level in range(depth):
            last = level == depth - 1
            nodes.append((draw.int(0, features - 1), draw.int(0, 5), _coarse(draw, 1, bits=1)[0], leaves if last else len(nodes) + 1, int(last), leaves + last, 1,
                          draw.int(0, 1)))
            leaves += 2 if last else 1
    columns = [list(column) for column in zip(*nodes)]
    names = ("nodes_featureids", "nodes_modes", "nodes_splits", "nodes_truenodeids", "nodes_trueleafs", "nodes_falsenodeids", "nodes_falseleafs",
             "nodes_missing_value_tracks_true")
    attributes = dict(zip(names, columns))
    attributes["nodes_modes"] = _tensor(attributes["nodes_modes"], "uint8")
    attributes["nodes_splits"] = _tensor(attributes["nodes_splits"], dtype)
    attributes.update(tree_roots=roots, n_targets=targets, leaf_targetids=[draw.int(0, targets - 1) for _ in range(leaves)],
                      leaf_weights=_tensor(_coarse(draw, leaves, bits=6), dtype), aggregate_function=draw.int(0, 3), post_transform=0)
    return draw.case([_rows(draw, features, dtype)], attributes, tolerance=_TOLERANCE)
