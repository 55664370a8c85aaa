"""Models that a trainer could misread: it reads them right, or refuses them by the name of a node."""
import evener
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

F, INT = TensorProto.FLOAT, TensorProto.INT64
node = helper.make_node


@pytest.fixture(scope="module")
def runtime():
    with evener.Runtime(threads=1) as made:
        yield made


def model(nodes, weights, x=(None, 6), y=(None, 6), opset=17):
    """`x`, `y`: dims; y may be None: not declared."""
    graph = helper.make_graph(list(nodes), "g", [helper.make_tensor_value_info("x", F, x)], [helper.make_tensor_value_info("y", F, y)],
                              [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()


def floats(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def described(trainer):
    rows = trainer.describe("dict")
    return {p["name"]: p.get("note", "") for p in rows["parameters"]}, {f["name"]: f["reason"] for f in rows["frozen"]}


def trained_weights(trainer, path):
    trainer.finish(path)
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


# --------------------------------------------------------------------------------------- activations at the end --

W = floats(6, 6)
LINEAR = node("MatMul", ["x", "w"], ["l"])


def log_softmax(x, axis):
    x = x - x.max(axis, keepdims=True)
    return x - np.log(np.exp(x).sum(axis, keepdims=True))


@pytest.mark.parametrize("opset, axis", [(11, 1), (11, 2), (12, -1), (17, -1), (17, 2), (17, 0), (17, None)])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_a_softmax_along_another_axis_than_the_loss_is_refused(op, opset, axis, runtime):
    end = node(op, ["l"], ["y"], name="end", **({} if axis is None else {"axis": axis}))
    with pytest.raises(evener.Error, match="along axis 1 of the output") as refused:
        evener.Trainer(runtime, model([LINEAR, end], {"w": W}, (None, 4, 6), (None, 4, 6), opset))
    assert refused.value.status.name == "UNSUPPORTED" and refused.value.node == "end"


@pytest.mark.parametrize("tail", [(), ("Identity",), ("Dropout",), ("Identity", "Cast"), ("Transpose",)], ids="-".join)
@pytest.mark.parametrize("rank", [2, 3])
def test_a_softmax_along_the_classes_is_left_to_the_loss(rank, tail, runtime, tmp_path):
    dims, turned = [None, 4, 6][3 - rank:], "Transpose" in tail and rank == 3
    dims[0] = None
    nodes = [LINEAR, node("Softmax", ["l"], ["y0"], axis=-1 if turned or rank == 2 else 1, name="end")]
    for at, op in enumerate(tail):
        more = {"Cast": {"to": F}, "Transpose": {"perm": [0, 2, 1] if rank == 3 else [0, 1]}}.get(op, {})
        nodes.append(node(op, [f"y{at}"], [f"y{at + 1}"], **more))
    nodes[-1].output[0] = "y"
    m = model(nodes, {"w": W}, dims, [dims[0], *(reversed(dims[1:]) if turned else dims[1:])])
    x = floats(5, *dims[1:], seed=2)
    logits = (x @ W).astype(np.float64)
    logits = logits.transpose(0, 2, 1) if turned else logits
    z = np.exp(log_softmax(floats(*logits.shape, seed=3).astype(np.float64), 1))
    trainer = evener.Trainer(runtime, m, learning_rate=0.0)
    expected = -(z * log_softmax(logits, 1)).sum(1).mean()
    assert trainer.evaluate({"x": x}, z.astype(np.float32)).loss == pytest.approx(expected, rel=1e-4)
    if "Dropout" not in tail:
        assert trainer.step({"x": x}, z.astype(np.float32)).loss == pytest.approx(expected, rel=1e-4)
    assert "Softmax end" in trainer.describe()
    trainer.finish(tmp_path / "m.onnx")
    assert "Softmax" in [n.op_type for n in onnx.load(tmp_path / "m.onnx").graph.node]


def test_a_softmax_before_a_reshape_is_refused(runtime):
    nodes = [LINEAR, node("Softmax", ["l"], ["p"], axis=1, name="end"), node("Flatten", ["p"], ["y"])]
    with pytest.raises(evener.Error, match="Flatten") as refused:
        evener.Trainer(runtime, model(nodes, {"w": W}, (None, 4, 6), (None, 24)))
    assert refused.value.status.name == "UNSUPPORTED" and refused.value.node == "end"


@pytest.mark.parametrize("tail", [("Identity",), ("Squeeze",), ("Dropout", "Squeeze"), ("Unsqueeze", "Reshape"), ("Flatten",), ("Cast",)], ids="-".join)
def test_a_sigmoid_before_nodes_that_keep_the_elements_is_left_to_the_loss(tail, runtime, tmp_path):
    """Another reader of the Sigmoid does not matter, as the loss does not depend on it."""
    nodes = [LINEAR, node("Sigmoid", ["l"], ["y0"], name="end"), node("ReduceSum", ["y0"], ["sum"], keepdims=0)]
    for at, op in enumerate(tail):
        more = {"Squeeze": ["one"], "Unsqueeze": ["two"], "Reshape": ["dims"]}.get(op, [])
        nodes.append(node(op, [f"y{at}", *more], [f"y{at + 1}"], **({"to": F} if op == "Cast" else {})))
    nodes[-1].output[0] = "y"
    labels_shape = (8,) if tail[-1] in ("Squeeze", "Reshape") else (8, 1)
    w = W[:, :1]
    m = onnx.load_from_string(model(nodes, {"w": w, "one": np.array([1]), "two": np.array([2]), "dims": np.array([-1])}, y=[None] * len(labels_shape)))
    m.graph.output.append(helper.make_tensor_value_info("sum", F, []))
    x, z = floats(8, 6, seed=2), (np.arange(8) % 2).astype(np.float32)
    logits = (x @ w).ravel().astype(np.float64)
    trainer = evener.Trainer(runtime, m.SerializeToString(), "bce_with_logits", learning_rate=0.0)
    found = trainer.evaluate({"x": x}, z.reshape(labels_shape))
    expected = (np.logaddexp(0, logits) - logits * z).mean()
    assert found.loss == pytest.approx(expected, rel=1e-5) and found.correct == ((logits > 0) == (z > 0.5)).sum()
    if "Dropout" not in tail:
        assert trainer.step({"x": x}, z.reshape(labels_shape)).loss == pytest.approx(expected, rel=1e-5)
    assert "Sigmoid end" in trainer.describe()
    trainer.finish(tmp_path / "m.onnx")
    assert "Sigmoid" in [n.op_type for n in onnx.load(tmp_path / "m.onnx").graph.node]


def test_an_output_without_classes_is_refused(runtime):
    nodes = [LINEAR, node("ReduceSum", ["l", "one"], ["y"], keepdims=0)]
    for y in ([None], None):
        with pytest.raises(evener.Error, match="axis 1") as refused:
            trainer = evener.Trainer(runtime, model(nodes, {"w": W, "one": np.array([1])}, y=y))
            trainer.evaluate({"x": floats(4, 6)}, np.zeros(4, np.int64))
        assert refused.value.status.name == "INVALID_ARGUMENT"


# ------------------------------------------------------------------------------------------------------- bodies --

NORM = {"s": np.ones(6, np.float32), "b": np.zeros(6, np.float32), "m": np.full(6, 0.3, np.float32), "v": np.full(6, 2, np.float32)}
INNER = {"BatchNormalization": ([node("BatchNormalization", ["l", *NORM], ["o"], name="inner")], NORM), "Dropout": ([node("Dropout", ["l", "ratio"], ["o"], name="inner")], {"ratio": np.float32(0.9)})}


def within(kind, op):
    """A model with a node in a branch or body, named "inner"."""
    info = helper.make_tensor_value_info
    (inner,), weights = INNER[op]
    weights = {"w": W, "u": floats(6, 6, seed=4), **weights}
    start = [LINEAR]
    if kind == "If":
        other = helper.make_graph([node("Identity", ["l"], ["e"])], "else", [], [info("e", F, None)])
        weights["low"] = np.float32(-1e9)
        start += [node("ReduceSum", ["x"], ["sum"], keepdims=0), node("Greater", ["sum", "low"], ["yes"])]
        outer = node("If", ["yes"], ["h"], name="outer", then_branch=helper.make_graph([inner], "then", [], [info("o", F, None)]), else_branch=other)
    elif kind == "Loop":
        again = node("Identity", ["c"], ["c2"])
        body = helper.make_graph([inner, again], "body", [info("i", INT, []), info("c", TensorProto.BOOL, []), info("l", F, [None, 6])], [info("c2", TensorProto.BOOL, []), info("o", F, [None, 6])])
        weights["n"] = np.int64(2)
        start[0] = node("MatMul", ["x", "w"], ["first"])
        outer = node("Loop", ["n", "", "first"], ["h"], name="outer", body=body)
    else:
        body = helper.make_graph([inner], "body", [info("l", F, [None, 6])], [info("o", F, [None, 6])])
        weights["one"] = np.array([0])
        start = [node("MatMul", ["x", "w"], ["first"]), node("Unsqueeze", ["first", "one"], ["row"])]
        outer = node("Scan", ["row"], ["rows"], name="outer", body=body, num_scan_inputs=1)
        return model([*start, outer, node("Squeeze", ["rows", "one"], ["h"]), node("MatMul", ["h", "u"], ["y"])], weights)
    return model([*start, outer, node("MatMul", ["h", "u"], ["y"])], weights)


@pytest.mark.parametrize("op", INNER)
@pytest.mark.parametrize("kind", ["If", "Loop", "Scan"])
def test_what_trains_by_the_batch_in_a_body_is_refused_unless_it_is_frozen(kind, op, runtime):
    with pytest.raises(evener.Error, match=f"{op}.*{kind}.*frozen") as refused:
        evener.Trainer(runtime, within(kind, op))
    assert refused.value.status.name == "UNSUPPORTED" and "inner" in refused.value.node
    trainer = evener.Trainer(runtime, within(kind, op), frozen=[refused.value.node], learning_rate=0.0)
    assert described(trainer)[1][refused.value.node].startswith("frozen")
    x, z = floats(8, 6, seed=2), np.arange(8) % 6
    assert trainer.step({"x": x}, z).loss == pytest.approx(trainer.evaluate({"x": x}, z).loss, rel=1e-5)


# --------------------------------------------------------------------------------------------------- statistics --

def normalized(*names):
    """Two normalizations, by initializers of these names (scale, bias, mean, variance of each); one that begins with `s` or `v` has ones, another one zeros."""
    weights = {name: (np.ones if name[0] in "sv" else np.zeros)(6, np.float32) for name in names}
    nodes = [LINEAR, node("BatchNormalization", ["l", *names[:4]], ["h"], name="first"), node("BatchNormalization", ["h", *names[4:]], ["k"], name="second"), node("MatMul", ["k", "u"], ["y"])]
    return model(nodes, {"w": W, "u": floats(6, 6, seed=4), **weights})


APART = ("s1", "b1", "m1", "v1", "s2", "b2", "m2", "v2")


@pytest.mark.parametrize("joined", [{"v1": "s1"}, {"m1": "b1"}, {"m1": "b1", "v1": "s1", "v2": "s2", "m2": "b2"}, {"v2": "s1"}, {"m2": "m1"}, {"v2": "v1"}], ids=str)
def test_a_statistic_that_is_something_else_too_moves_alone(joined, runtime, tmp_path):
    """As exporters write a fresh network that keep one of several initializers that are equal."""
    made = []
    for names in (APART, [joined.get(name, name) for name in APART]):
        trainer = evener.Trainer(runtime, normalized(*names), learning_rate=0.05)
        x, z = floats(8, 6, seed=2) + 1, np.arange(8) % 6
        losses = [trainer.step({"x": x}, z).loss for _ in range(3)] + [trainer.evaluate({"x": x}, z).loss]
        trainer.finish(tmp_path / "m.onnx")
        graph = onnx.load(tmp_path / "m.onnx").graph
        values = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        norms = {n.name: [values[i].tolist() for i in n.input[1:]] for n in graph.node if n.op_type == "BatchNormalization"}
        made.append((losses, norms))
    assert made[0] == made[1] and made[0][1]["first"][3] != [1] * 6


@pytest.mark.parametrize("joined, frozen, stay", [
    ({"m2": "m1", "v2": "v1"}, "first", {"first"}), ({"m2": "m1", "v2": "v1"}, "second", {"second"}), ({"m2": "m1", "v2": "v1"}, "v1", {"first", "second"}),
    ({"m2": "m1"}, "first", {"first"}), ({"m2": "m1"}, "m1", {"first", "second"}), ({"v1": "s1"}, "s1", {"first"}), ({"v2": "s1"}, "s1", {"second"}),
    ({"m2": "m1"}, "first/mean", {"first"}), ({"m1": "b1"}, "first/mean", {"first"}), ({"v2": "s1"}, "second/variance", {"second"}),
    ({"m2": "m1", "v2": "v1", "b1": "m1"}, "first/mean", {"first", "second"}),
], ids=str)
def test_a_frozen_norm_keeps_statistics_that_something_else_reads(joined, frozen, stay, runtime, tmp_path):
    """`stay`: the nodes that `frozen` names, by themselves, by a statistic or by the copy of a statistic that is shared."""
    trainer = evener.Trainer(runtime, normalized(*(joined.get(name, name) for name in APART)), frozen=[frozen], learning_rate=0.05)
    assert {"first", "second"} & set(described(trainer)[1]) == stay
    for _ in range(3):
        trainer.step({"x": floats(8, 6, seed=2) + 1}, np.arange(8) % 6)
    values = trained_weights(trainer, tmp_path / "m.onnx")
    norms = {n.name: n.input[3:] for n in onnx.load(tmp_path / "m.onnx").graph.node if n.op_type == "BatchNormalization"}
    assert {name for name, (mean, variance) in norms.items() if (values[mean] == 0).all() and (values[variance] == 1).all()} == stay


def test_norms_that_share_both_statistics_are_refused_by_name(runtime):
    with pytest.raises(evener.Error, match="shares its statistics") as refused:
        evener.Trainer(runtime, normalized("s1", "b1", "m1", "v1", "s2", "b2", "m1", "v1"))
    assert refused.value.status.name == "UNSUPPORTED" and refused.value.node == "second"


def test_the_moving_mean_of_an_export_for_training_may_be_read(runtime, tmp_path):
    nodes = [LINEAR, node("BatchNormalization", ["l", *NORM], ["o", "m2", "v2"], name="norm", training_mode=1), node("Sub", ["o", "m2"], ["y"])]
    trainer = evener.Trainer(runtime, model(nodes, {"w": W, **NORM}), "mse", learning_rate=0.01)
    assert set(described(trainer)[0]) == {"w", "s", "b"}
    x, z = floats(8, 6, seed=2), floats(8, 6, seed=3)
    for _ in range(3):
        trainer.step({"x": x}, z)
    assert not np.array_equal(trained_weights(trainer, tmp_path / "m.onnx")["m"], NORM["m"])
    y, = runtime.session(tmp_path / "m.onnx").run({"x": x}).values()
    assert trainer.evaluate({"x": x}, z).loss == pytest.approx(float(((np.asarray(y) - z) ** 2).mean()), rel=1e-5)


@pytest.mark.parametrize("rows", [1, 2])
def test_the_variance_of_one_value_a_channel_stays(rows, runtime, tmp_path):
    m = model([LINEAR, node("BatchNormalization", ["l", *NORM], ["y"], name="norm")], {"w": W, **NORM})
    trainer = evener.Trainer(runtime, m, learning_rate=0.0)
    for _ in range(3):
        assert not trainer.step({"x": floats(rows, 6, seed=2)}, np.arange(rows)).skipped
    after = trained_weights(trainer, tmp_path / "m.onnx")
    assert (after["m"] != NORM["m"]).all() and (after["v"] == NORM["v"]).all() == (rows == 1)


# ----------------------------------------------------------------------------------------------------- epsilons --

@pytest.mark.parametrize("ending, learns", [
    ([node("Pow", ["p", "two"], ["y"])], True), ([node("Pow", ["p", "half"], ["y"])], False), ([node("Pow", ["p", "minus"], ["y"])], False),
    ([node("Sqrt", ["p"], ["y"])], False), ([node("Log", ["p"], ["y"])], False),
], ids=["square", "root", "reciprocal", "sqrt", "log"])
@pytest.mark.parametrize("layer", [False, True], ids=["of a mean", "of a layer"])
def test_a_small_bias_is_no_epsilon(layer, ending, learns, runtime):
    """Added to the output of a layer it learns, with a note if it may be an epsilon."""
    start = [node("MatMul", ["x", "w"], ["l"])] if layer else [node("MatMul", ["x", "w"], ["k"]), node("ReduceMean", ["k"], ["l"], axes=[1])]
    weights = {"w": np.full((6, 1), 0.3, np.float32), "e": np.array([5e-4], np.float32), "two": np.float32(2), "half": np.float32(0.5), "minus": np.int64(-1)}
    used = {name for n in ending for name in n.input} | {"w", "e"}
    m = model([*start, node("Add", ["l", "e"], ["p"]), *ending], {k: v for k, v in weights.items() if k in used}, y=(None, 1))
    learning, staying = described(evener.Trainer(runtime, m, "mse"))
    assert ("e" in learning) == (learns or layer) and ("e" in staying) == (not learns and not layer)
    if layer:
        assert ("epsilon" in learning["e"]) == (not learns)


# ------------------------------------------------------------------------------------------ what a trainer says --

def test_a_constant_of_one_number_is_listed(runtime):
    nodes = [LINEAR, node("Constant", [], ["half"], value_float=0.5), node("Mul", ["l", "half"], ["y"])]
    assert "Constant" in described(evener.Trainer(runtime, model(nodes, {"w": W})))[1]["half"]


def test_labels_of_another_type_are_refused_by_its_name(runtime):
    trainer = evener.Trainer(runtime, model([node("MatMul", ["x", "w"], ["y"])], {"w": W}), "mse")
    with pytest.raises(evener.Error, match="labels have dtype int64"):
        trainer.step({"x": floats(4, 6)}, np.zeros((4, 6), np.int64))
