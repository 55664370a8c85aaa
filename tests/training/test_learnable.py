"""What a trainer lets learn, what stays and why; losses at their corners; labels that do not fit; steps that would make a parameter not finite."""
import os

import evener
import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

F, INT = TensorProto.FLOAT, TensorProto.INT64
node = helper.make_node


@pytest.fixture(scope="module")
def runtime():
    with evener.Runtime(threads=2) as made:
        yield made


@pytest.fixture(params=["cpu", "opencl"])
def device(request, runtime):
    try:
        runtime.device(request.param)
    except evener.Error:
        assert not os.environ.get("EVN_REQUIRE_OPENCL")
        pytest.skip("this machine has no OpenCL device")
    return request.param


def model(nodes, weights, inputs=(("x", F, [None, 3]),), outputs=(("y", F, None),), opset=21, domains=()):
    graph = helper.make_graph([n for n in nodes], "g", [helper.make_tensor_value_info(*i) for i in inputs], [helper.make_tensor_value_info(*o) for o in outputs],
                              [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()])
    for at, n in enumerate(graph.node):
        n.name = n.name or f"{n.op_type}_{at}"
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)], ir_version=10).SerializeToString()


def floats(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def described(trainer):
    rows = trainer.describe("dict")
    return {p["name"]: p.get("note", "") for p in rows["parameters"]}, {f["name"]: f["reason"] for f in rows["frozen"]}


X = floats(4, 3)
LINEAR = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["y"])]
W, B = floats(3, 2, seed=2), floats(2, seed=3)


# ------------------------------------------------------------------------------------------------------ losses --

def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def sigmoid(x):
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


LOGITS = np.array([[0, -0.0, 0, 1e-30, -1e-40], [20, -20, 90, -90, 15], [1000, -1000, 1e30, -1e30, 3]], np.float32)
TARGETS = np.array([[0, 1, 0.25, 1, 0], [1, 0, 1, 0, 0.5], [1, 0, 1, 0, 1]], np.float32)


def gradient_by_bias(runtime, loss, start, labels, device="cpu"):
    """The loss and its derivative by an output that is a bias."""
    m = model([node("Mul", ["x", "zero"], ["none"]), node("Add", ["none", "bias"], ["y"])], {"bias": start, "zero": np.zeros(1, np.float32)},
              inputs=[("x", F, [None, start.shape[1]])])
    trainer = evener.Trainer(runtime, m, loss, frozen=["zero"], learning_rate=1.0, device=device)
    step = trainer.step({"x": np.ones_like(start)}, labels)
    return step, trainer.gradients["bias"]


def test_the_gradient_of_bce_is_right_at_every_logit(runtime, device):
    x, z = LOGITS.astype(np.float64), TARGETS.astype(np.float64)
    step, found = gradient_by_bias(runtime, "bce_with_logits", LOGITS, TARGETS, device)
    wanted = (z * -sigmoid(-x) + (1 - z) * sigmoid(x)) / x.size
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-37)
    assert step.loss == pytest.approx(float((z * softplus(-x) + (1 - z) * softplus(x)).mean()), rel=1e-6)


def test_a_zero_head_learns_by_bce(runtime):
    m = model(LINEAR, {"w": np.zeros((3, 1), np.float32), "b": np.zeros(1, np.float32)}, outputs=[("y", F, [None, 1])])
    trainer = evener.Trainer(runtime, m, "bce_with_logits", learning_rate=1.0)
    z = np.array([[0], [0], [0], [1]], np.float32)
    trainer.step({"x": X}, z)
    np.testing.assert_allclose(trainer.parameters["w"], -X.T @ (0.5 - z) / 4, rtol=1e-6)
    np.testing.assert_allclose(trainer.parameters["b"], [-0.25], rtol=1e-6)


@pytest.mark.parametrize("loss, slope", [("l1", lambda d: np.sign(d)), ("mse", lambda d: 2 * d)])
def test_losses_of_differences_at_0(loss, slope, runtime):
    start, labels = np.array([[0, -0.0, 1, 2, -1e20]], np.float32), np.array([[-0.0, 0, 1, 1, 0]], np.float32)
    _, found = gradient_by_bias(runtime, loss, start, labels)
    np.testing.assert_allclose(found, slope(start.astype(np.float64) - labels) / 5, rtol=1e-6)


def test_probabilities_of_0_may_meet_logits_of_minus_infinity(runtime):
    m = model([node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "mask"], ["y"])], {"w": floats(3, 3), "mask": np.array([0, -np.inf, 0], np.float32)})
    trainer = evener.Trainer(runtime, m, learning_rate=0.1)
    step = trainer.step({"x": X}, np.array([[0.5, 0, 0.5]] * 4, np.float32))
    assert np.isfinite(step.loss) and not step.skipped
    assert trainer.step({"x": X}, np.array([0, 2, 0, 2])).loss < 2


# ------------------------------------------------------------------------------------- what learns and what stays --

def test_outputs_of_constants_do_not_learn(runtime, tmp_path):
    constants = [node("Constant", [], ["c"], value=numpy_helper.from_array(np.array([[0.5, 1.5]], np.float32))), node("Constant", [], ["f"], value_float=2.0),
                 node("Constant", [], ["fs"], value_floats=[1.0, 3.0])]
    nodes = constants + [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "c"], ["q"]), node("Mul", ["q", "f"], ["r"]), node("Mul", ["r", "fs"], ["y"])]
    m = model(nodes, {"w": W})
    trainer = evener.Trainer(runtime, m, "mse", optimizer="adamw", learning_rate=0.1)
    for _ in range(3):
        trainer.step({"x": X}, np.zeros((4, 2), np.float32))
    learns, stays = described(trainer)
    assert set(learns) == {"w"} and {"c", "fs"} <= set(stays)
    trainer.finish(tmp_path / "m.onnx")
    made = onnx.load(tmp_path / "m.onnx").graph
    found = {n.output[0]: numpy_helper.to_array(a.t) for n in made.node for a in n.attribute if n.op_type == "Constant"} | {t.name: numpy_helper.to_array(t) for t in made.initializer}
    assert found["c"].tolist() == [[0.5, 1.5]] and found["f"].tolist() == 2 and found["fs"].tolist() == [1, 3]
    with pytest.raises(evener.Error, match='"c".*Constant'):
        evener.Trainer(runtime, m, "mse", trainable=["w", "c"])


def test_constants_in_branches_do_not_learn(runtime):
    then = helper.make_graph([node("Constant", [], ["t"], value_floats=[1.0, 2.0]), node("Mul", ["p", "t"], ["a"])], "then", [], [helper.make_tensor_value_info("a", F, None)])
    other = helper.make_graph([node("Mul", ["p", "scale"], ["c"])], "else", [], [helper.make_tensor_value_info("c", F, None)])
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True))), node("If", ["flag"], ["y"], then_branch=then, else_branch=other)]
    m = model(nodes, {"w": W, "scale": np.array([1, 2], np.float32)}, inputs=[("x", F, [None, 3]), ("flag", TensorProto.BOOL, [])])
    learns, _ = described(evener.Trainer(runtime, m, "mse"))
    assert set(learns) == {"w", "scale"}


def test_what_is_not_finite_stays_and_training_goes_on(runtime):
    mask = np.array([0, 0, -np.inf], np.float32)
    m = model([node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "mask"], ["y"])], {"w": floats(3, 3), "mask": mask})
    trainer = evener.Trainer(runtime, m, optimizer="adamw", learning_rate=0.1)
    losses = [trainer.step({"x": X}, np.array([0, 1, 0, 1])) for _ in range(5)]
    assert not any(step.skipped for step in losses) and losses[-1].loss < losses[0].loss
    learns, stays = described(trainer)
    assert set(learns) == {"w"} and "not finite" in stays["mask"]
    assert set(described(evener.Trainer(runtime, m, trainable=["*"]))[0]) == {"w"}
    with pytest.raises(evener.Error, match='"mask".*not finite'):
        evener.Trainer(runtime, m, trainable=["w", "mask"])


def test_masks_and_epsilons_stay_unless_they_are_named(runtime):
    nodes = [node("MatMul", ["x", "q"], ["s"]), node("Add", ["s", "mask"], ["m"]), node("Softmax", ["m"], ["a"]), node("MatMul", ["a", "v"], ["z"]),
             node("Mul", ["z", "z"], ["zz"]), node("ReduceMean", ["zz", "axes"], ["mean"]), node("Add", ["mean", "eps"], ["e"]), node("Sqrt", ["e"], ["root"]), node("Div", ["z", "root"], ["y"])]
    weights = {"q": floats(3, 3), "mask": np.array([[0, -1e9, 0]], np.float32), "v": floats(3, 2), "axes": np.array([-1]), "eps": np.float32(1e-5)}
    learns, stays = described(evener.Trainer(runtime, model(nodes, weights), "mse"))
    assert set(learns) == {"q", "v"} and "mask" in stays["mask"] and "epsilon" in stays["eps"]
    assert "eps" in described(evener.Trainer(runtime, model(nodes, weights), "mse", trainable=["q", "v", "eps"]))[0]


def test_what_looks_like_a_buffer_is_noted(runtime):
    hidden = 4
    nodes = [node("MatMul", ["x", "qk"], ["s"]), node("Add", ["s", "bias"], ["m"]), node("Softmax", ["m"], ["a"]), node("MatMul", ["a", "v"], ["z"]),
             node("Mul", ["x", "inv_freq"], ["angles"]), node("Sin", ["angles"], ["sin"]), node("Concat", ["z", "sin"], ["cat"], axis=1), node("Unsqueeze", ["cat", "axes"], ["seq"]),
             node("LSTM", ["seq", "lw", "lr", "", "", "h0", "c0"], ["", "last"], hidden_size=hidden), node("Squeeze", ["last", "axes"], ["h"]), node("Pow", ["h", "two"], ["sq"]),
             node("Mul", ["sq", "tril"], ["t"]), node("Mul", ["t", "gain"], ["y"])]
    weights = {"qk": floats(3, 3), "bias": floats(1, 3, seed=4), "v": floats(3, 3, seed=5), "inv_freq": np.array([1, 0.1, 0.01], np.float32), "axes": np.array([0]), "lw": floats(1, 16, 6),
               "lr": floats(1, 16, 4), "h0": np.zeros((1, 4, hidden), np.float32), "c0": np.zeros((1, 4, hidden), np.float32), "two": np.array([2], np.float32),
               "tril": np.array([1, 0, 1, 1], np.float32), "gain": np.float32(1.5)}
    learns, stays = described(evener.Trainer(runtime, model(nodes, weights), "mse"))
    assert {name for name, note in learns.items() if "buffer" in note} == {"bias", "inv_freq", "h0", "c0", "tril", "gain"}
    assert "scores" in learns["bias"] and "frequencies" in learns["inv_freq"] and "first state" in learns["h0"] and "exponent" in stays["two"] and "0 and 1" in learns["tril"]
    assert "LSTM" in evener.Trainer(runtime, model(nodes, weights), "mse").describe()


OPTIONS_TOO = {
    "Clip": [node("Clip", ["p", "", "n"], ["c"]), node("Mul", ["c", "n"], ["y"])],
    "Greater": [node("Greater", ["p", "n"], ["c"]), node("Where", ["c", "p", "n"], ["y"])],
    "Equal": [node("Equal", ["p", "n"], ["c"]), node("Where", ["c", "n", "p"], ["y"])],
    "Dropout": [node("Dropout", ["p", "n"], ["c"]), node("Mul", ["c", "n"], ["y"])],
    "Pad": [node("Pad", ["p", "pads", "n"], ["c"]), node("Slice", ["c", "from", "to", "from"], ["d"]), node("Mul", ["d", "n"], ["y"])],
}


@pytest.mark.parametrize("op", OPTIONS_TOO)
def test_an_option_that_is_a_factor_too_stays_unless_it_is_named(op, runtime):
    weights = {"w": W, "n": np.float32(0.5)} | ({"pads": np.zeros(4, np.int64), "from": np.array([0]), "to": np.array([4])} if op == "Pad" else {})
    m = model([node("MatMul", ["x", "w"], ["p"]), *OPTIONS_TOO[op]], weights)
    for trainable in (None, ["*"]):
        learns, stays = described(evener.Trainer(runtime, m, "mse", trainable=trainable))
        assert set(learns) == {"w"} and f"option of {op}" in stays["n"]
    learns, _ = described(evener.Trainer(runtime, m, "mse", trainable=["w", "n"]))
    assert f"option of {op}" in learns["n"]


def test_a_weight_whose_type_alone_is_read_learns(runtime):
    m = model([node("MatMul", ["x", "w"], ["p"]), node("CastLike", ["p", "s"], ["c"]), node("Mul", ["c", "s"], ["y"])], {"w": W, "s": floats(2, seed=5)})
    assert set(described(evener.Trainer(runtime, m, "mse"))[0]) == {"w", "s"}


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)], ids=str)
def test_an_exponent_of_one_element_stays_unless_it_is_named(shape, runtime):
    m = model([node("MatMul", ["x", "w"], ["p"]), node("Pow", ["p", "two"], ["y"])], {"w": W, "two": np.full(shape, 2, np.float32)})
    trainer = evener.Trainer(runtime, m, "mse", learning_rate=0.01)
    assert not any(trainer.step({"x": X}, np.zeros((4, 2), np.float32)).skipped for _ in range(3))
    learns, stays = described(trainer)
    assert set(learns) == {"w"} and "exponent" in stays["two"]
    assert "exponent" in described(evener.Trainer(runtime, m, "mse", trainable=["w", "two"]))[0]["two"]


def exported_by_torch(nodes, weights, kinds, folded):
    """`kinds`: by name, those of torch.export; `folded`: by the name of an initializer, the names of what constant folding made it of."""
    m = onnx.load_from_string(model(nodes, weights))
    for name in weights:
        info = m.graph.value_info.add(name=name)
        if name in kinds:
            info.metadata_props.add(key="pkg.torch.export.graph_signature.InputSpec.kind", value=kinds[name])
        if name in folded:
            info.metadata_props.add(key="pkg.onnxscript.optimizer.folded_from", value=str(folded[name]))
    listed = "".join(f"{kind[0].lower()}_{name}: {kind} target='{name}'\n" for name, kind in kinds.items())
    m.graph.metadata_props.add(key="pkg.torch.export.ExportedProgram.graph_signature", value="\n# inputs\n" + listed + "x: USER_INPUT\n\n# outputs\ny: USER_OUTPUT\n")
    return m.SerializeToString()


def test_what_a_model_says_to_be_parameters_learns_and_nothing_else(runtime, tmp_path):
    nodes = [node("MatMul", ["x", "val_1"], ["p"]), node("Mul", ["p", "scale"], ["q"]), node("MatMul", ["q", "val_2"], ["r"]), node("Pow", ["r", "power"], ["s"]), node("Mul", ["s", "val_3"], ["t"]),
             node("Add", ["t", "epsilon"], ["u"]), node("Sqrt", ["u"], ["y"])]
    weights = {"val_1": floats(3, 3), "scale": floats(3, seed=5), "val_2": floats(3, 2, seed=6), "power": np.float32(2), "val_3": np.float32(0.5), "epsilon": np.array([1e-4], np.float32)}
    kinds = {"lost.weight": "PARAMETER", "power": "PARAMETER", "epsilon": "PARAMETER", "scale": "BUFFER", "k": "BUFFER"}
    m = exported_by_torch(nodes, weights, kinds, {"val_1": ["lost.weight"], "val_2": ["k", "val_0"]})
    for trained in (m, tmp_path / "trained.onnx"):  # the finished model says it too
        trainer = evener.Trainer(runtime, trained, "mse", learning_rate=0.0)
        learns, stays = described(trainer)
        assert learns == {"val_1": "", "power": "", "epsilon": ""} and all("no parameter" in stays[name] for name in ("scale", "val_2", "val_3"))
        trainer.finish(tmp_path / "trained.onnx")
    assert set(described(evener.Trainer(runtime, m, "mse", trainable=["*"]))[0]) == set(learns)
    assert set(described(evener.Trainer(runtime, m, "mse", trainable=["val_1", "scale"]))[0]) == {"val_1", "scale"}
    onnx.checker.check_model(tmp_path / "trained.onnx")


def test_numbers_and_constants_of_normalizations_are_noted(runtime):
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["q"]), node("LayerNormalization", ["q", "ones", "zeros"], ["n"]), node("Mul", ["n", "scale"], ["y"])]
    weights = {"w": floats(3, 3), "b": np.array([0.5], np.float32), "ones": np.ones(3, np.float32), "zeros": np.zeros(3, np.float32), "scale": np.array([0.75], np.float32)}
    learns, _ = described(evener.Trainer(runtime, model(nodes, weights), "mse"))
    assert {name for name, note in learns.items() if "buffer" in note} == {"ones", "zeros", "scale"} and set(learns) == set(weights)
    assert "0.75" in learns["scale"] and "normalization" in learns["ones"] and "normalization" in learns["zeros"]


def test_nodes_before_the_loss_that_draw_random_numbers_are_noted(runtime):
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Shape", ["p"], ["n"]), node("ConstantOfShape", ["n"], ["zeros"]), node("RandomUniformLike", ["zeros"], ["r"], name="mask"),
             node("Less", ["r", "half"], ["b"]), node("Cast", ["b"], ["f"], to=F), node("Mul", ["p", "f"], ["d"]), node("Dropout", ["d"], ["y"], name="dropout"),
             node("RandomNormalLike", ["y"], ["unread"], name="elsewhere")]
    m = model(nodes, {"w": W, "half": np.float32(0.5)}, outputs=[("y", F, None), ("unread", F, None)])
    notes = evener.Trainer(runtime, m, "mse", output="y").describe("dict")["notes"]
    assert [note for note in notes if "random" in note] == ["RandomUniformLike node 'mask' draws random numbers in evaluations and in the finished model too"]


def test_a_parameter_of_rank_0_learns(runtime, tmp_path):
    m = model([node("MatMul", ["x", "w"], ["p"]), node("Mul", ["p", "scale"], ["y"])], {"w": W, "scale": np.float32(2)})
    trainer = evener.Trainer(runtime, m, "mse", learning_rate=0.1)
    labels = np.zeros((4, 2), np.float32)
    trainer.step({"x": X}, labels)
    p = X.astype(np.float64) @ W
    assert float(trainer.parameters["scale"]) == pytest.approx(2 - 0.1 * float((2 * 2 * p * p).mean()), rel=1e-5)
    trainer.save(tmp_path / "s")
    value = trainer.parameters["scale"]
    trainer.step({"x": X}, labels)
    trainer.restore(tmp_path / "s")
    assert trainer.parameters["scale"] == value and trainer.parameters["scale"].shape == ()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int4", "uint4", "int2", "uint2", "float8_e4m3fn", "float8_e5m2"])
def test_weights_of_other_types_are_listed(dtype, runtime):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    nodes = [node("Cast", ["half"], ["wide"], to=F), node("MatMul", ["x", "wide"], ["p"]), node("DequantizeLinear", ["codes", "scale", "zero"], ["d"]), node("Add", ["p", "d"], ["q"]), node("Add", ["q", "b"], ["y"])]
    weights = {"half": W.astype(np.float16), "b": B, "codes": np.array([0, 1]).astype(kind), "scale": np.float32(0.1), "zero": np.zeros((), kind), "lost": floats(2, seed=9)}
    learns, stays = described(evener.Trainer(runtime, model(nodes, weights), "mse"))
    assert set(learns) == {"b"} and "DequantizeLinear" in stays["scale"]
    assert stays["half"] == "it is float16: only float32 learns" and stays["codes"] == f"it is {dtype.replace('_', '')}: only float32 learns"


# -------------------------------------------------------------------------------------- derivatives that end in steps --

def before_the_product(*nodes):
    """w goes through the nodes, the last of which makes `d`."""
    return [*nodes, node("MatMul", ["x", "d"], ["p"]), node("Add", ["p", "b"], ["y"])]


QUANTIZE = {"s": np.float32(0.1), "z": np.int8(0)}
STEPWISE = {
    "QuantizeLinear": (before_the_product(node("QuantizeLinear", ["w", "s", "z"], ["q"], name="cut"), node("DequantizeLinear", ["q", "s", "z"], ["d"])), QUANTIZE),
    "DynamicQuantizeLinear": (before_the_product(node("DynamicQuantizeLinear", ["w"], ["q", "qs", "qz"], name="cut"), node("DequantizeLinear", ["q", "qs", "qz"], ["d"])), {}),
    "Round": (before_the_product(node("Div", ["w", "s"], ["u"]), node("Round", ["u"], ["r"], name="cut"), node("Mul", ["r", "s"], ["d"])), {"s": np.full(2, 0.1, np.float32)}),
    **{op: (before_the_product(node(op, ["w"], ["d"], name="cut")), {}) for op in ("Sign", "Floor", "Ceil", "Hardmax")},
    "Cast": (before_the_product(node("Cast", ["w"], ["q"], to=INT, name="cut"), node("Cast", ["q"], ["d"], to=F)), {}),
    "CastLike": (before_the_product(node("CastLike", ["w", "int"], ["q"], name="cut"), node("CastLike", ["q", "b"], ["d"])), {"int": np.int32(1)}),
    "Greater": (before_the_product(node("Greater", ["w", "zero"], ["q"], name="cut"), node("Where", ["q", "one", "minus"], ["d"])),
                {"zero": np.float32(0), "one": np.float32(1), "minus": np.float32(-1)}),
    "ArgMax": (before_the_product(node("ArgMax", ["w"], ["q"], axis=1, keepdims=0, name="cut"), node("Gather", ["table", "q"], ["d"])), {"table": floats(2, 2, seed=6)}),
    "OneHot": (before_the_product(node("OneHot", ["w", "depth", "values"], ["q"], name="cut"), node("Cast", ["q"], ["qf"], to=F), node("ReduceSum", ["qf", "last"], ["d"], keepdims=0)),
               {"depth": np.int64(4), "values": np.array([0, 1]), "last": np.array([-1])}),
    "TopK": (before_the_product(node("TopK", ["w", "k"], ["most", "q"], name="cut"), node("Cast", ["q"], ["d"], to=F)), {"k": np.array([2])}),
}


@pytest.mark.parametrize("op", STEPWISE)
def test_a_parameter_that_only_moves_the_loss_in_steps_is_refused(op, runtime):
    nodes, more = STEPWISE[op]
    m = model(nodes, {"w": W, "b": B, **more})
    frozen = ["zero", "one", "minus"] if op == "Greater" else []
    with pytest.raises(evener.Error, match=f'"w".*{op} node \'cut\'') as refused:
        evener.Trainer(runtime, m, "mse", frozen=frozen)
    assert refused.value.status.name == "UNSUPPORTED" and refused.value.node == "cut"
    trainer = evener.Trainer(runtime, m, "mse", frozen=["w", *frozen])
    assert not trainer.step({"x": X}, np.zeros((4, 2), np.float32)).skipped


def test_a_parameter_before_the_label_of_a_classifier_is_refused(runtime):
    tree = dict(nodes_treeids=[0] * 3, nodes_nodeids=[0, 1, 2], nodes_featureids=[0] * 3, nodes_values=[0.0] * 3, nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids=[1, 0, 0],
                nodes_falsenodeids=[2, 0, 0], class_treeids=[0, 0], class_nodeids=[1, 2], class_ids=[0, 1], class_weights=[1.0, 1.0], classlabels_int64s=[0, 1])
    nodes = before_the_product(node("TreeEnsembleClassifier", ["w"], ["q", "scores"], name="cut", domain="ai.onnx.ml", **tree), node("Cast", ["q"], ["qf"], to=F),
                               node("Unsqueeze", ["qf", "axis"], ["d"]))
    with pytest.raises(evener.Error, match='"w".*TreeEnsembleClassifier node \'cut\''):
        evener.Trainer(runtime, model(nodes, {"w": W, "b": B, "axis": np.array([1])}, domains=("ai.onnx.ml",)), "mse")


def test_a_quantized_activation_is_refused(runtime):
    nodes = [node("MatMul", ["x", "w1"], ["h"]), node("QuantizeLinear", ["h", "s", "z"], ["q"], name="cut"), node("DequantizeLinear", ["q", "s", "z"], ["d"]), node("MatMul", ["d", "w2"], ["y"])]
    m = model(nodes, {"w1": floats(3, 3), "w2": W, **QUANTIZE})
    with pytest.raises(evener.Error, match='"w1".*QuantizeLinear.*cut'):
        evener.Trainer(runtime, m, "mse")
    assert set(described(evener.Trainer(runtime, m, "mse", trainable=["w2"]))[0]) == {"w2"}


@pytest.mark.parametrize("kind", ["If", "Loop", "Scan"])
def test_steps_within_bodies_are_refused(kind, runtime):
    info = helper.make_tensor_value_info
    inner = [node("Round", ["w"], ["r"], name="cut"), node("Mul", ["v", "r"], ["o"])]
    if kind == "If":
        branches = [helper.make_graph([node("Round", ["w"], [f"r{i}"], name=f"cut{i}"), node("Mul", ["x", f"r{i}"], [f"o{i}"])], "b", [], [info(f"o{i}", F, None)]) for i in range(2)]
        nodes = [node("If", ["flag"], ["m"], then_branch=branches[0], else_branch=branches[1])]
    elif kind == "Loop":
        body = helper.make_graph([*inner, node("Identity", ["c"], ["c2"])], "b", [info("i", INT, []), info("c", TensorProto.BOOL, []), info("v", F, [None, 3])],
                                 [info("c2", TensorProto.BOOL, []), info("o", F, [None, 3])])
        nodes = [node("Loop", ["n", "", "x"], ["m"], body=body)]
    else:
        body = helper.make_graph([*inner, node("Identity", ["o"], ["o2"])], "b", [info("v", F, [3]), info("row", F, [3])], [info("o", F, [3]), info("o2", F, [3])])
        nodes = [node("Scan", ["start", "x"], ["", "m"], body=body, num_scan_inputs=1)]
    m = model([*nodes, node("MatMul", ["m", "u"], ["y"])], {"w": floats(3), "u": W, "n": np.int64(2), **({"start": np.ones(3, np.float32)} if kind == "Scan" else {})},
              inputs=[("x", F, [None, 3])] + ([("flag", TensorProto.BOOL, [])] if kind == "If" else []))
    with pytest.raises(evener.Error, match='"w".*Round'):
        evener.Trainer(runtime, m, "mse")
    assert set(described(evener.Trainer(runtime, m, "mse", frozen=["w"]))[0]) == ({"u", "start"} if kind == "Scan" else {"u"})


def test_a_way_through_many_carried_values_of_a_loop_is_found(runtime):
    """Each iteration hands 20 values on to their neighbours; the loss reads the last one, `w` comes in by the first."""
    info, count = helper.make_tensor_value_info, 20
    inputs, made = [f"v{i}" for i in range(count)], [f"o{i}" for i in range(count)]
    body = helper.make_graph([node("Identity", ["c"], ["c2"]), node("Identity", ["v0"], ["o0"]), *(node("Identity", [f"v{i - 1}"], [f"o{i}"]) for i in range(1, count))], "b",
                             [info("i", INT, []), info("c", TensorProto.BOOL, []), *(info(v, F, [3, 2]) for v in inputs)], [info("c2", TensorProto.BOOL, []), *(info(o, F, [3, 2]) for o in made)])
    nodes = [node("Loop", ["n", "", "w", *["zeros"] * (count - 1)], [f"l{i}" for i in range(count)], body=body), node("MatMul", ["x", f"l{count - 1}"], ["p"]), node("Add", ["p", "b"], ["y"])]
    trainer = evener.Trainer(runtime, model(nodes, {"w": W, "b": B, "zeros": np.zeros((3, 2), np.float32), "n": np.int64(count)}), "mse", frozen=["zeros"])
    assert set(described(trainer)[0]) == {"w", "b"}
    trainer.step({"x": X}, np.zeros((4, 2), np.float32))
    assert np.abs(trainer.gradients["w"]).max() > 0


def test_a_part_of_the_ways_may_end_in_steps(runtime):
    nodes = [node("Round", ["w"], ["r"], name="cut"), node("Add", ["w", "r"], ["d"]), node("MatMul", ["x", "d"], ["y"])]
    learns, _ = described(evener.Trainer(runtime, model(nodes, {"w": W}), "mse"))
    assert "Round node 'cut'" in learns["w"]


def test_sizes_and_thresholds_are_no_reason_to_refuse(runtime):
    nodes = [node("Shape", ["x"], ["n"]), node("Cast", ["n"], ["nf"], to=F), node("Mul", ["nf", "ones"], ["m"]), node("Floor", ["m"], ["fl"]), node("Cast", ["fl"], ["sizes"], to=INT),
             node("Reshape", ["x", "sizes"], ["same"]), node("Greater", ["same", "limit"], ["big"]), node("Where", ["big", "same", "low"], ["h"]), node("MatMul", ["h", "w"], ["y"])]
    weights = {"ones": np.array([1, 1], np.float32), "limit": np.float32(0.2), "low": np.array([0.5], np.float32), "w": W}
    learns, stays = described(evener.Trainer(runtime, model(nodes, weights), "mse"))
    assert set(learns) == {"w", "low"} and {"ones", "limit"} <= set(stays)


# ------------------------------------------------------------------------------------------------- labels --

@pytest.mark.parametrize("loss, output, labels", [
    *((loss, [4, 1], shape) for loss in ("mse", "l1", "bce_with_logits") for shape in ([4], [4, 4], [4, 1, 1], [1, 1], [])),
    ("mse", [4, 2], [4, 1]), ("mse", [4, 2], [4]), ("mse", [4, 2], [4, 3]),
    ("softmax_cross_entropy", [4, 2], [4, 1]), ("softmax_cross_entropy", [4, 2], [4, 2]), ("softmax_cross_entropy", [4, 2], []),
    ("probabilities", [4, 2], [4, 1]), ("probabilities", [4, 2], [4]), ("probabilities", [4, 2], [4, 3]),
])
def test_labels_of_another_shape_are_refused(loss, output, labels, device, runtime):
    m = model([node("MatMul", ["x", "w"], ["y"])], {"w": floats(3, output[1])})
    trainer = evener.Trainer(runtime, m, loss if loss != "probabilities" else "softmax_cross_entropy", device=device)
    before = trainer.parameters["w"]
    wrong = np.zeros(labels, np.int64 if loss == "softmax_cross_entropy" else np.float32)
    right = output[:1] if loss == "softmax_cross_entropy" else output
    for call in (trainer.step, trainer.evaluate):
        with pytest.raises(evener.Error) as refused:
            call({"x": X}, wrong)
        assert refused.value.status.name == "INVALID_ARGUMENT"
        if labels[:1] == [4] or not labels:
            assert str(labels).replace(" ", "") in str(refused.value) and str(right).replace(" ", "") in str(refused.value)
    assert (trainer.parameters["w"] == before).all()
    assert not trainer.step({"x": X}, np.zeros(right, wrong.dtype)).skipped
    trainer.evaluate({"x": X}, np.zeros(right, wrong.dtype))


def test_labels_of_pictures(runtime):
    m = model([node("Conv", ["x", "w"], ["y"])], {"w": floats(3, 2, 1, 1)}, inputs=[("x", F, [None, 2, None, None])])
    trainer = evener.Trainer(runtime, m)
    x = floats(2, 2, 4, 5)
    trainer.step({"x": x}, np.zeros((2, 4, 5), np.int64))
    for shape in ((2, 5, 4), (2, 4), (2, 1, 4, 5)):
        with pytest.raises(evener.Error, match=r"\[2,4,5\]"):
            trainer.step({"x": x}, np.zeros(shape, np.int64))


def test_labels_are_checked_with_replicas(runtime):
    m = model([node("MatMul", ["x", "w"], ["y"])], {"w": floats(3, 1)})
    trainer = evener.Trainer(runtime, m, "mse", replicas=("cpu", "cpu"))
    trainer.step({"x": X}, np.zeros((4, 1), np.float32))
    for shape in ((4,), (4, 3)):
        with pytest.raises(evener.Error, match="labels have the shape"):
            trainer.step({"x": X}, np.zeros(shape, np.float32))


@pytest.mark.parametrize("batch", [2, 4])
def test_shapes_of_a_batch_are_checked_as_a_whole_with_replicas(batch, runtime):
    """Each half has a shape that would do: one row, or the two rows of an output that has two of any batch."""
    rows = [node("MatMul", ["x", "w"], ["p"]), node("ReduceSum", ["p", "axes"], ["l"], keepdims=0)]
    one_number_a_row = model(rows, {"w": W, "axes": np.array([1])}, outputs=[("l", F, [None])])
    constant = [node("ReduceMean", ["x"], ["m"], axes=[0]), node("MatMul", ["m", "w"], ["p"]), node("Expand", ["p", "two"], ["y"])]
    two_rows = model(constant, {"w": W, "two": np.array([batch // 2, 2])}, opset=17)
    for replicas in ((), ("cpu", "cpu")):
        trainer = evener.Trainer(runtime, one_number_a_row, "output", replicas=replicas)
        before = trainer.parameters["w"]
        for _ in range(2):
            with pytest.raises(evener.Error, match=rf"\[{batch}\], expected one element"):
                trainer.step({"x": X[:batch]})
        assert (trainer.parameters["w"] == before).all()
        trainer.step({"x": X[:1]})
        trainer = evener.Trainer(runtime, two_rows, "mse", replicas=replicas)
        for _ in range(2):
            with pytest.raises(evener.Error, match=rf"\[{batch},2\], expected \[{batch // 2},2\]"):
                trainer.step({"x": X[:batch]}, np.zeros((batch, 2), np.float32))
        mean = model([node("MatMul", ["x", "w"], ["p"]), node("ReduceMean", ["p"], ["l"], keepdims=1)], {"w": W}, outputs=[("l", F, [1, 1])])
        assert np.isfinite(evener.Trainer(runtime, mean, "output", replicas=replicas).step({"x": X[:batch]}).loss)


def test_an_output_that_is_the_loss_has_one_element(runtime):
    squared = [node("MatMul", ["x", "w"], ["p"]), node("Mul", ["p", "p"], ["y"])]
    with pytest.raises(evener.Error, match=r"\[.*2\].*one element"):
        evener.Trainer(runtime, model(squared, {"w": W}, outputs=[("y", F, [None, 2])]), "output")
    rows = [*squared, node("ReduceSum", ["y", "axes"], ["l"], keepdims=0)]
    trainer = evener.Trainer(runtime, model(rows, {"w": W, "axes": np.array([1])}, outputs=[("l", F, [None])]), "output")
    for call in (trainer.step, trainer.evaluate):
        with pytest.raises(evener.Error, match=r"\[4\], expected one element"):
            call({"x": X})
    trainer.step({"x": X[:1]})
    kept = [*squared, node("ReduceMean", ["y"], ["l"])]
    trainer = evener.Trainer(runtime, model(kept, {"w": W}, outputs=[("l", F, None)]), "output", learning_rate=0.1)
    assert trainer.step({"x": X}).loss > trainer.step({"x": X}).loss


# ------------------------------------------------------------------------------- steps that would not be finite --

@pytest.mark.parametrize("options, batch", [
    (dict(optimizer="sgd", learning_rate=1e30), 1e18), (dict(optimizer="sgd", momentum=1e29, learning_rate=1e-3), 1.0), (dict(optimizer="adam", learning_rate=1e-3), 1e25),
    (dict(optimizer="adagrad", learning_rate=1e29, weight_decay=1e20), 1.0), (dict(optimizer="adamw", weight_decay=1e25, learning_rate=1e20), 1.0), (dict(optimizer="rmsprop"), 1e25),
], ids=str)
def test_a_step_that_would_not_be_finite_is_skipped(options, batch, runtime, tmp_path):
    m = model([node("MatMul", ["x", "w"], ["y"])], {"w": W * 1e-20 if batch > 1e20 else W, "v": W})
    trainer = evener.Trainer(runtime, m, "l1", **options)
    steps, good = [], 0
    for _ in range(6):
        before = trainer.parameters["w"]
        steps.append(trainer.step({"x": X * np.float32(batch)}, np.full((4, 2), 3.0, np.float32)))
        after = trainer.parameters["w"]
        assert np.isfinite(after).all()
        if steps[-1].skipped:
            assert (after == before).all() and steps[-1].learning_rate == 0
    assert steps[-1].skipped and '"w" not finite' in trainer.describe()
    trainer.step({"x": X * np.float32(1e-10)}, np.full((4, 2), 3.0, np.float32))


def test_the_gradient_that_is_not_finite_is_named(runtime):
    m = model([node("Sqrt", ["r"], ["root"]), node("MatMul", ["x", "w"], ["p"]), node("Mul", ["p", "root"], ["y"])], {"w": W, "r": np.zeros(2, np.float32)})
    trainer = evener.Trainer(runtime, m, "mse")
    assert trainer.step({"x": X}, np.ones((4, 2), np.float32)).skipped
    assert '"r" is not finite' in trainer.describe()


def test_statistics_that_are_not_finite_are_not_taken(runtime, tmp_path):
    nodes = [node("BatchNormalization", ["x", "s", "t", "m", "v"], ["n"]), node("MatMul", ["n", "w"], ["y"])]
    weights = {"s": np.ones(3, np.float32), "t": np.zeros(3, np.float32), "m": np.zeros(3, np.float32), "v": np.ones(3, np.float32), "w": W}
    for accumulate in (1, 2):
        trainer = evener.Trainer(runtime, model(nodes, weights), "mse", accumulate=accumulate)
        huge = trainer.step({"x": X * np.float32(1e25)}, np.zeros((4, 2), np.float32))
        assert huge.skipped
        trainer.step({"x": X}, np.zeros((4, 2), np.float32))
        trainer.finish(tmp_path / "m.onnx")
        assert all(np.isfinite(numpy_helper.to_array(t)).all() for t in onnx.load(tmp_path / "m.onnx").graph.initializer)


def test_centered_rmsprop_survives_a_constant_gradient(runtime):
    m = model([node("MatMul", ["x", "w"], ["y"])], {"w": W})
    trainer = evener.Trainer(runtime, m, "l1", optimizer="rmsprop", centered=True, alpha=0.5, learning_rate=1e-4)
    for _ in range(60):
        assert not trainer.step({"x": X}, np.full((4, 2), 1e6, np.float32)).skipped


# ------------------------------------------------------------------------------------- losses that are operators --

@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("op", ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
@pytest.mark.parametrize("ignored", [None, 1])
def test_losses_with_weights_may_be_in_the_model(op, reduction, ignored, runtime):
    classes, c = np.array([0, 1, 2, 1]), np.array([0.5, 2, 1.5], np.float32)
    ending = [node("Mul", ["loss", "loss"], ["square"]), node("ReduceSum", ["square"], ["l"], keepdims=0)] if reduction == "none" else [node("Identity", ["loss"], ["l"])]
    nodes = [node("MatMul", ["x", "w"], ["p"]), node(op, ["p", "classes", "c"], ["loss"], reduction=reduction, **({} if ignored is None else {"ignore_index": ignored})), *ending]
    w = floats(3, 3)
    m = model(nodes, {"w": w, "classes": classes, "c": c}, outputs=[("l", F, None)])
    trainer = evener.Trainer(runtime, m, "output")
    learns, stays = described(trainer)
    assert set(learns) == {"w"} and op in stays["c"]
    step = trainer.step({"x": X})

    def loss(weight):
        p = X.astype(np.float64) @ weight
        if op == "SoftmaxCrossEntropyLoss":
            p = p - np.log(np.exp(p).sum(1, keepdims=True))
        share = c.astype(np.float64)[classes] * (classes != ignored)
        rows = -p[np.arange(4), classes] * share
        return {"sum": rows.sum(), "mean": rows.sum() / share.sum(), "none": (rows ** 2).sum()}[reduction]

    assert step.loss == pytest.approx(loss(w.astype(np.float64)), rel=1e-5)
    slopes = np.zeros((3, 3))
    for at in np.ndindex(3, 3):
        d = np.zeros((3, 3))
        d[at] = 1e-5
        slopes[at] = (loss(w + d) - loss(w - d)) / 2e-5
    np.testing.assert_allclose(trainer.gradients["w"], slopes, rtol=1e-4, atol=1e-5)


def test_an_input_with_a_default_stays_one_unless_it_learns(runtime, tmp_path):
    nodes = [node("Mul", ["x", "scale"], ["s"]), node("MatMul", ["s", "w"], ["y"])]
    proto = onnx.load_from_string(model(nodes, {"scale": np.float32([2]), "w": W}))
    proto.graph.input.extend([helper.make_tensor_value_info("scale", F, [1]), helper.make_tensor_value_info("w", F, [3, 2])])
    trainer = evener.Trainer(runtime, proto.SerializeToString(), frozen=["scale"])
    with pytest.raises(evener.Error, match='input "scale" has a default'):
        trainer.step({"x": X, "scale": np.float32([3])}, np.arange(4) % 2)
    trainer.step({"x": X}, np.arange(4) % 2)
    trainer.finish(tmp_path / "trained.onnx")
    session = runtime.session(tmp_path / "trained.onnx")
    assert [v.name for v in session.inputs] == ["x"] and [v.name for v in session.defaults] == ["scale"]
    (plain,), (scaled,) = session.run({"x": X}).values(), session.run({"x": X, "scale": np.float32([4])}).values()
    np.testing.assert_allclose(scaled, plain * 2, rtol=1e-5)


# ------------------------------------------------------------------------------------- inputs and constants as they are --

def test_an_input_and_a_constant_may_be_outputs_too(runtime):
    """They keep their shapes, by which rules of differentiation go."""
    kept = floats(2, 2)
    data = model([node("MatMul", ["x", "w"], ["p"]), node("MatMul", ["p", "kept"], ["y"])], {"w": W, "kept": kept},
                 outputs=(("y", F, [None, 2]), ("x", F, [None, 3]), ("kept", F, [2, 2])))
    trainer = evener.Trainer(runtime, data, loss="mse", frozen=["kept"], learning_rate=0.1)
    labels = floats(4, 2)
    loss = trainer.step({"x": X}, labels).loss
    assert loss == pytest.approx(np.mean((X @ W @ kept - labels) ** 2), rel=1e-4)
    assert trainer.step({"x": X}, labels).loss < loss


@pytest.mark.parametrize("external", [False, True])
def test_a_large_table_of_a_body_is_read_from_its_file(runtime, tmp_path, external):
    table = np.arange(1, 20001, dtype=np.int64)
    body = helper.make_graph([node("Gather", ["table", "i"], ["n"]), node("Cast", ["n"], ["f"], to=F), node("Mul", ["v", "f"], ["v_out"]), node("Identity", ["go"], ["more"])],
                             "body", [helper.make_tensor_value_info(*i) for i in (("i", INT, []), ("go", TensorProto.BOOL, []), ("v", F, None))],
                             [helper.make_tensor_value_info(*o) for o in (("more", TensorProto.BOOL, []), ("v_out", F, None))])
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Loop", ["turns", "", "p"], ["y"], body=body)]
    path = tmp_path / "model.onnx"
    onnx.save(onnx.load_from_string(model(nodes, {"w": W, "table": table, "turns": np.int64(3)})), path, save_as_external_data=external, size_threshold=1024)
    trainer = evener.Trainer(runtime, path, loss="mse", learning_rate=0.1)
    labels = floats(4, 2)
    assert trainer.step({"x": X}, labels).loss == pytest.approx(np.mean((X @ W * 1 * 2 * 3 - labels) ** 2), rel=1e-4)
