"""Models as exporters write them for training, or for one size of the batch, become the models that were meant."""
import subprocess
import sys

import evener
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import nets


@pytest.fixture(scope="module")
def runtime():
    with evener.Runtime(threads=1) as made:
        yield made


def network(opset, training, outputs=5):
    """A convolution, a normalization, a Dropout and a layer; `training`: as torch.onnx writes it with TrainingMode.TRAINING."""
    b = nets.Builder(31)
    h = b.norm(b.conv("x", "conv", (4, 2, 3, 3), pads=[1, 1, 1, 1]), "norm", 4)
    norm = b.nodes[-1]
    if training and opset >= 14:
        norm.output.extend(["norm.mean2", "norm.var2"])
        norm.attribute.append(helper.make_attribute("training_mode", 1))
    elif training:
        norm.output.extend(["norm.mean2", "norm.var2", "norm.mean3", "norm.var3"][:outputs - 1])
    h = b.op("Relu", h)
    if opset >= 12:
        b.weights["ratio"], b.weights["yes"] = np.array(0.25, np.float32), np.array(True)
        h = b.op("Dropout", h, "ratio", *(["yes"] if training else []), outputs=2 if training else 1)
    else:
        h = b.op("Dropout", h, ratio=0.25, outputs=2 if training else 1)
    h = h[0] if training else h
    model = b.model(b.linear(b.op("Flatten", h), "fc", 4 * 25, 3), [("x", TensorProto.FLOAT, [2, 5, 5])], [3])
    model.opset_import[0].version = opset
    return model


def run_ort(model, feeds):
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)


@pytest.mark.parametrize("opset", [9, 11, 12, 13, 14, 15, 17])
def test_a_training_export_trains_and_comes_back_as_an_inference_model(runtime, tmp_path, opset):
    x, labels = np.random.default_rng(1).standard_normal((6, 2, 5, 5), dtype=np.float32), np.arange(6) % 3
    exports, evaluations = [], []
    for training in (True, False):
        trainer = evener.Trainer(runtime, network(opset, training).SerializeToString(), learning_rate=0.05, momentum=0.9, seed=3)
        evaluations.append([])
        for _ in range(3):
            evaluations[-1].append(trainer.evaluate({"x": x}, labels).loss)
            trainer.step({"x": x}, labels)
        trainer.finish(tmp_path / "trained.onnx")
        exports.append(onnx.load(tmp_path / "trained.onnx"))
        evaluations[-1].append(trainer.evaluate({"x": x}, labels).loss)
    assert evaluations[0] == evaluations[1]
    trained = {i.name: numpy_helper.to_array(i) for i in exports[0].graph.initializer}
    for i in exports[1].graph.initializer:
        assert (trained[i.name] == numpy_helper.to_array(i)).all(), i.name
    assert not np.allclose(trained["norm.mean"], nets_weight(network(opset, False), "norm.mean"))
    onnx.checker.check_model(exports[0], full_check=True)
    for node in exports[0].graph.node:
        assert not any(a.name == "training_mode" and a.i for a in node.attribute)
        if node.op_type in ("BatchNormalization", "Dropout"):
            assert len([o for o in node.output if o]) == 1 and len(node.input) in (2, 5)
    logits, = run_ort(exports[0], {"x": x})
    with runtime.session(exports[0].SerializeToString()) as session:
        own, = session.run({"x": x}).values()
        assert np.allclose(np.asarray(own), logits, rtol=1e-4, atol=1e-5)
    loss = -np.log(np.exp(logits)[np.arange(6), labels] / np.exp(logits).sum(1)).mean()
    assert evaluations[0][-1] == pytest.approx(loss, rel=1e-5)


def nets_weight(model, name):
    return numpy_helper.to_array(next(i for i in model.graph.initializer if i.name == name))


def test_the_ratio_of_an_old_dropout_is_kept(runtime):
    """A node of opset 11 has its ratio as an attribute: all but a thousandth of the elements are dropped, not half."""
    b = nets.Builder(5)
    b.weights["w"] = np.ones(1000, np.float32)
    model = b.model(b.op("ReduceMean", b.op("Dropout", b.op("Mul", "x", "w"), ratio=0.999), axes=[1], keepdims=1), [("x", TensorProto.FLOAT, [1000])], [1])
    model.opset_import[0].version = 11
    trainer = evener.Trainer(runtime, model.SerializeToString(), "mse", learning_rate=0.1)
    trainer.step({"x": np.ones((1, 1000), np.float32)}, np.zeros((1, 1), np.float32))
    assert np.count_nonzero(trainer.gradients["w"]) < 20


@pytest.mark.parametrize("opset", [13, 17])
def test_frozen_norms_and_pruning_of_a_training_export(runtime, tmp_path, opset):
    x, labels = np.random.default_rng(1).standard_normal((6, 2, 5, 5), dtype=np.float32), np.arange(6) % 3
    model = network(opset, True)
    norm = next(node.name for node in model.graph.node if node.op_type == "BatchNormalization")
    trainer = evener.Trainer(runtime, model.SerializeToString(), frozen=[norm], learning_rate=0.05)
    trainer.step({"x": x}, labels)
    trainer.finish(tmp_path / "trained.onnx")
    assert (nets_weight(onnx.load(tmp_path / "trained.onnx"), "norm.mean") == nets_weight(model, "norm.mean")).all()
    trainer = evener.Trainer(runtime, model.SerializeToString(), learning_rate=0.05, prune_share=0.5)
    for _ in range(2):
        trainer.step({"x": x}, labels)
    trainer.finish(tmp_path / "pruned.onnx")
    pruned = onnx.load(tmp_path / "pruned.onnx")
    assert len(nets_weight(pruned, "norm.mean")) == 2
    assert run_ort(pruned, {"x": x})[0].shape == (6, 3)


def test_statistics_that_a_training_export_gives_are_those_of_the_model(runtime, tmp_path):
    model = network(17, True)
    model.graph.output.append(helper.make_tensor_value_info("norm.mean2", TensorProto.FLOAT, [4]))
    x, labels = np.random.default_rng(1).standard_normal((6, 2, 5, 5), dtype=np.float32), np.arange(6) % 3
    trainer = evener.Trainer(runtime, model.SerializeToString(), learning_rate=0.05)
    trainer.step({"x": x}, labels)
    trainer.finish(tmp_path / "trained.onnx")
    trained = onnx.load(tmp_path / "trained.onnx")
    assert (run_ort(trained, {"x": x})[1] == nets_weight(trained, "norm.mean")).all()


def test_a_statistic_of_the_batch_that_is_read_is_refused(runtime):
    model = network(13, True)
    model.graph.output.append(helper.make_tensor_value_info("norm.mean3", TensorProto.FLOAT, [4]))
    with pytest.raises(evener.Error, match="a statistic of the batch") as refused:
        evener.Trainer(runtime, model.SerializeToString())
    assert refused.value.node == next(node.name for node in model.graph.node if node.op_type == "BatchNormalization")


def test_norms_that_share_statistics_are_refused_by_name(runtime):
    b = nets.Builder(4)
    h = b.norm(b.linear("x", "fc", 4, 3), "norm", 3)
    first = b.nodes[-1]
    h = b.op("BatchNormalization", h, *first.input[1:])
    with pytest.raises(evener.Error, match="shares its statistics") as refused:
        evener.Trainer(runtime, b.model(h, [("x", TensorProto.FLOAT, [4])], [3]).SerializeToString())
    assert refused.value.node == h and refused.value.status.name == "UNSUPPORTED"


# ----------------------------------------------------------------------------------------------- one size of the batch


def attention(b, h, batch, length, heads, size):
    """As torch exports it: views of [batch, length, heads, size], products of [batch * heads, length, size]."""
    parts = []
    for name in "qkv":
        p = b.op("Reshape", b.op("MatMul", h, b.weight(name + ".w", heads * size, heads * size)), b.ints(name + ".s", [batch, length, heads, size]))
        p = b.op("Transpose", p, perm=[0, 2, 1, 3])
        parts.append(b.op("Reshape", p, b.ints(name + ".t", [batch * heads, length, size])))
    scores = b.op("Softmax", b.op("MatMul", parts[0], b.op("Transpose", parts[1], perm=[0, 2, 1])), axis=-1)
    out = b.op("Reshape", b.op("MatMul", scores, parts[2]), b.ints("o.s", [batch, heads, length, size]))
    return b.op("Reshape", b.op("Transpose", out, perm=[0, 2, 1, 3]), b.ints("o.t", [batch, length, heads * size]))


def fixed(kind, batch):
    """A network whose shapes say `batch`, and its input's dims."""
    b = nets.Builder(17)
    if kind == "flatten":
        h = b.op("Reshape", "x", b.ints("s", [batch, 8 * 12]))
    elif kind == "flatten_rest":
        h = b.op("Reshape", "x", b.ints("s", [batch, -1]))
    elif kind == "rows":  # each step alone, then back
        h = b.op("Reshape", "x", b.ints("s", [batch * 8, 12]))
        h = b.op("Relu", b.linear(h, "step", 12, 5))
        h = b.op("Reshape", h, b.ints("t", [batch, 40]))
        return b.model(b.linear(h, "fc", 40, 3), [("x", TensorProto.FLOAT, [8, 12])], [3])
    elif kind == "attention":
        h = b.op("Reshape", attention(b, "x", batch, 8, 3, 4), b.ints("s", [batch, -1]))
    elif kind == "class_token":
        token = b.op("Expand", b.weight("token", 1, 1, 12), b.ints("e", [batch, 1, 12]))
        h = b.op("Concat", token, "x", axis=1)
        h = b.op("Reshape", h, b.ints("s", [batch, 9 * 12]))
        return b.model(b.linear(h, "fc", 9 * 12, 3), [("x", TensorProto.FLOAT, [8, 12])], [3])
    elif kind == "tiled_token":
        token = b.op("Tile", b.weight("token", 1, 1, 12), b.ints("e", [batch, 1, 1]))
        h = b.op("Flatten", b.op("Concat", token, "x", axis=1))
        return b.model(b.linear(h, "fc", 9 * 12, 3), [("x", TensorProto.FLOAT, [8, 12])], [3])
    elif kind == "zeros":
        zeros = b.op("ConstantOfShape", b.ints("z", [batch, 1, 12]))
        h = b.op("Flatten", b.op("Concat", zeros, "x", axis=1))
        return b.model(b.linear(h, "fc", 9 * 12, 3), [("x", TensorProto.FLOAT, [8, 12])], [3])
    elif kind == "token":  # with one row of the batch no Expand is written
        b.weight("token", 1, 1, 12)
        b.weights["token"] = np.repeat(b.weights["token"], batch, 0)
        h = b.op("Reshape", b.op("Concat", "token", "x", axis=1), b.ints("s", [batch, 9 * 12]))
        return b.model(b.linear(h, "fc", 9 * 12, 3), [("x", TensorProto.FLOAT, [8, 12])], [3])
    elif kind == "resize":  # F.interpolate(size=...)
        h = b.conv(b.op("Reshape", "x", b.ints("s", [batch, 8, 3, 4])), "conv", (5, 8, 1, 1))
        h = b.op("Flatten", b.op("Resize", h, "", "", b.ints("z", [batch, 5, 6, 4]), mode="nearest"))
        return b.model(b.linear(h, "fc", 5 * 24, 3), [("x", TensorProto.FLOAT, [8, 12])], [3])
    elif kind == "crop":
        h = b.op("Flatten", b.op("CenterCropPad", "x", b.ints("z", [batch, 6]), axes=[0, 1]))
        model = b.model(b.linear(h, "fc", 6 * 12, 3), [("x", TensorProto.FLOAT, [8, 12])], [3])
        model.opset_import[0].version = 18
        return model
    elif kind == "grid":
        theta = b.op("Slice", "x", b.ints("from", [0, 0]), b.ints("to", [2, 3]), b.ints("axes", [1, 2]))
        h = b.op("Flatten", b.op("AffineGrid", theta, b.ints("z", [batch, 1, 4, 9])))
        model = b.model(b.linear(h, "fc", 72, 3), [("x", TensorProto.FLOAT, [8, 12])], [3])
        model.opset_import[0].version = 20
        return model
    elif kind in ("lstm", "lstm_last", "lstm_zeros"):  # with its first states
        if kind != "lstm_zeros":
            h0, c0 = "h0", "c0"
            b.weights["h0"] = b.weights["c0"] = np.zeros((1, batch, 5), np.float32)
        else:
            h0, c0 = (b.op("ConstantOfShape", b.ints(name, [1, batch, 5])) for name in ("h.s", "c.s"))
        bias = np.zeros((1, 8 * 5), np.float32)
        b.weights["lstm.b"] = bias
        y = b.op("LSTM", b.op("Transpose", "x", perm=[1, 0, 2]), b.weight("lstm.w", 1, 20, 12, scale=0.3), b.weight("lstm.r", 1, 20, 5, scale=0.3), "lstm.b", "",
                 h0, c0, outputs=2, hidden_size=5)
        if kind == "lstm_last":  # all states are left out
            b.nodes[-1].output[0] = ""
        h = b.op("Reshape", y[1], b.ints("s", [batch, 5]))
        return b.model(b.linear(h, "fc", 5, 3), [("x", TensorProto.FLOAT, [8, 12])], [3])
    elif kind == "sequence_first":
        h = b.op("Transpose", "x", perm=[1, 0, 2])
        h = b.op("Reshape", h, b.ints("s", [8 * batch, 12]))
        h = b.op("Reshape", b.op("Tanh", b.linear(h, "step", 12, 12)), b.ints("t", [8, batch, 12]))
        h = b.op("Reshape", b.op("Transpose", h, perm=[1, 0, 2]), b.ints("u", [batch, 96]))
    return b.model(b.linear(h, "fc", 8 * 12, 3), [("x", TensorProto.FLOAT, [8, 12])], [3])


KINDS = ["flatten", "flatten_rest", "rows", "attention", "class_token", "tiled_token", "zeros", "sequence_first", "token", "lstm", "lstm_last", "lstm_zeros", "resize", "crop", "grid"]


# A Concat of one token with a batch of 1 has no place for the batch: exporters write an Expand, as the kinds of 2 and 8 have it.
EXPORTS = [(kind, exported) for kind in KINDS for exported in (1, 2, 8) if exported > 1 or kind not in ("class_token", "tiled_token", "zeros")]


@pytest.mark.parametrize("kind, exported", EXPORTS)
def test_shapes_with_the_batch_of_the_export_take_any(runtime, tmp_path, kind, exported):
    """Trains as the same network written for the batch that it gets."""
    for batch in (3, 16):
        x = np.random.default_rng(batch).standard_normal((batch, 8, 12), dtype=np.float32)
        labels, losses = np.arange(batch) % 3, []
        for made_for in (exported, batch):
            model = fixed(kind, made_for)
            model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = made_for
            trainer = evener.Trainer(runtime, model.SerializeToString(), learning_rate=0.05, frozen=["h0", "c0"] if kind in ("lstm", "lstm_last") else [])
            losses.append([trainer.step({"x": x}, labels).loss for _ in range(3)] + [trainer.evaluate({"x": x}, labels).loss])
            trainer.finish(tmp_path / "trained.onnx")  # declared for the batch that it was exported for
            logits, = run_ort(onnx.load(tmp_path / "trained.onnx"), {"x": np.resize(x, (made_for, 8, 12))})
            assert logits.shape == (made_for, 3)
        if kind == "token" and exported != batch:  # a row of the token for each row of the batch learns otherwise
            assert losses[0][0] == losses[1][0]
        else:
            assert losses[0] == losses[1]


@pytest.mark.parametrize("written", ["constant", "joined"])
def test_shapes_with_the_batch_of_the_export_and_a_length_that_is_open(runtime, written):
    losses = []
    for made_for in (8, 3):
        b = nets.Builder(23)
        if written == "constant":
            h = b.op("Reshape", "x", b.ints("s", [made_for, -1, 3, 4]))
        else:
            length = b.op("Gather", b.op("Shape", "x"), b.ints("one", [1]))
            h = b.op("Reshape", "x", b.op("Concat", b.ints("b", [made_for]), length, b.ints("rest", [3, 4]), axis=0))
        h = b.op("ReduceMean", b.op("Transpose", h, perm=[0, 2, 1, 3]), axes=[2], keepdims=0)
        h = b.op("Reshape", b.op("Mul", h, b.weight("scale", 3, 4)), b.ints("t", [made_for, 12]))
        model = b.model(b.linear(h, "fc", 12, 3), [("x", TensorProto.FLOAT, ["T", 12])], [3])
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = made_for
        trainer = evener.Trainer(runtime, model.SerializeToString(), learning_rate=0.05)
        losses.append([])
        for length in (5, 9):
            x = np.random.default_rng(length).standard_normal((3, length, 12), dtype=np.float32)
            losses[-1] += [trainer.step({"x": x}, np.arange(3)).loss, trainer.evaluate({"x": x}, np.arange(3)).loss]
    assert losses[0] == losses[1]


def stepwise(kind, batch):
    """Works step by step with the batch within, by a layout of [length, batch, size]; the length is 8."""
    b = nets.Builder(29)
    h = b.op("Transpose", b.op("MatMul", "x", b.weight("in.w", 12, 12)), perm=[1, 0, 2])
    if kind == "softmax":
        h = b.op("Softmax", b.op("Reshape", h, b.ints("s", [8 * batch, 12])), axis=1)
    else:  # nn.MultiheadAttention
        parts = [b.op("Transpose", b.op("Reshape", b.op("MatMul", h, b.weight(name + ".w", 12, 12)), b.ints(name + ".s", [8, batch * 3, 4])), perm=[1, 0, 2]) for name in "qkv"]
        scores = b.op("Softmax", b.op("MatMul", parts[0], b.op("Transpose", parts[1], perm=[0, 2, 1])), axis=-1)
        h = b.op("Reshape", b.op("Transpose", b.op("MatMul", scores, parts[2]), perm=[1, 0, 2]), b.ints("s", [8 * batch, 12]))
    h = b.op("Reshape", h, b.ints("t", [8, batch, 12]))
    h = b.op("Flatten", b.op("Transpose", h, perm=[1, 0, 2]))
    return b.model(b.linear(h, "fc", 8 * 12, 3), [("x", TensorProto.FLOAT, [8, 12])], [3])


@pytest.mark.parametrize("kind", ["softmax", "attention"])
@pytest.mark.parametrize("exported", [1, 2, 8])
def test_rows_of_another_batch_do_not_mix(runtime, kind, exported):
    """The loss is that of the exported model, which takes the rows in parts."""
    model = stepwise(kind, exported)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = exported
    x, labels = np.random.default_rng(3).standard_normal((16, 8, 12), dtype=np.float32), np.arange(16) % 3
    logits = np.concatenate([run_ort(model, {"x": x[i:i + exported]})[0] for i in range(0, 16, exported)]).astype(np.float64)
    expected = (np.log(np.exp(logits).sum(1)) - logits[np.arange(16), labels]).mean()
    trainer = evener.Trainer(runtime, model.SerializeToString(), learning_rate=0.0)
    assert trainer.evaluate({"x": x}, labels).loss == pytest.approx(expected, rel=1e-5)
    assert trainer.step({"x": x}, labels).loss == pytest.approx(expected, rel=1e-5)


def without_batch(kind):
    """A model that was exported for one row, whose steps are in the first dim, and the name of the node that works along them."""
    b = nets.Builder(37)
    h = b.op("Reshape", b.op("Mul", "x", b.weight("scale", 12)), b.ints("s", [8, 12]))
    opset = 17
    if kind == "Softmax":
        h = b.op("Softmax", h, axis=0)
    elif kind == "old Softmax":  # of all from the first dim on
        h, opset = b.op("Softmax", h, axis=0), 12
    elif kind == "ReduceMax":
        h = b.op("ReduceMax", h, axes=[0], keepdims=1)
    elif kind == "CumSum":
        h = b.op("CumSum", h, b.ints("axis", 0))
    elif kind == "Gather":
        h = b.op("Gather", h, b.ints("first", [0]))
    elif kind == "Slice":
        h = b.op("Slice", h, b.ints("from", [1]), b.ints("to", [8]), b.ints("axes", [0]))
    elif kind == "Pad":
        h = b.op("Pad", h, b.ints("pads", [1, 0, 0, 0]))
    elif kind == "Concat":
        h = b.op("Concat", b.weight("token", 1, 12), h, axis=0)
    elif kind == "MatMul":
        h = b.op("MatMul", b.op("Transpose", h, perm=[1, 0]), h)
    elif kind == "Einsum":
        h = b.op("Einsum", h, h, equation="tc,td->cd")
    worker = h
    y = b.op("Add", "x", b.op("ReduceMean", h, keepdims=0))
    model = b.model(y, [("x", TensorProto.FLOAT, [8, 12])], [8, 12])
    model.opset_import[0].version = opset
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    return model, worker


@pytest.mark.parametrize("kind", ["Softmax", "old Softmax", "ReduceMax", "CumSum", "Gather", "Slice", "Pad", "Concat", "MatMul", "Einsum"])
def test_a_node_that_would_mix_rows_of_another_batch_is_refused_by_name(runtime, kind):
    model, worker = without_batch(kind)
    with pytest.raises(evener.Error, match=f"takes a batch of 1 alone.*{kind.split()[-1]} works along an axis") as refused:
        evener.Trainer(runtime, model.SerializeToString(), "mse")
    assert refused.value.node == worker and refused.value.status.name == "UNSUPPORTED"


@pytest.mark.parametrize("kind, exported", [("Resize", 4), ("CenterCropPad", 4), ("Slice", 4), ("Slice", 1), ("Gather", 1), ("Gather", 4)])
def test_a_node_that_takes_the_rows_of_one_batch_is_refused_by_name(runtime, kind, exported):
    """The output is a loss of one element, whose shape does not tell the number of rows. Resize and CenterCropPad make half of the rows."""
    b = nets.Builder(43)
    h = b.linear("x", "fc", 4, 3)
    if kind == "Resize":
        b.weights["scales"] = np.array([0.5, 1], np.float32)
        worker = b.op("Resize", h, "", "scales", mode="nearest")
    elif kind == "CenterCropPad":
        worker = b.op("CenterCropPad", h, b.ints("sizes", [exported // 2]), axes=[0])
    elif kind == "Slice":
        worker = b.op("Slice", h, b.ints("from", [0]), b.ints("to", [exported]), b.ints("axes", [0]))
    else:
        worker = b.op("Gather", h, b.ints("rows", list(range(exported))), axis=0)
    model = b.model(b.op("ReduceMean", b.op("Mul", worker, worker), keepdims=0), [("x", TensorProto.FLOAT, [4])], [])
    model.opset_import[0].version = 17 if kind != "CenterCropPad" else 18
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = exported
    with pytest.raises(evener.Error, match=f"takes a batch of {exported} alone.*{kind} changes the number of rows") as refused:
        evener.Trainer(runtime, model.SerializeToString(), "output")
    assert refused.value.node == worker and refused.value.status.name == "UNSUPPORTED"


def test_rows_that_would_be_in_another_order_are_refused(runtime):
    """Steps of all rows come before the next steps, and the last shape takes them for the elements of one row."""
    b = nets.Builder(41)
    h = b.op("Reshape", b.op("Transpose", "x", perm=[1, 0, 2]), b.ints("s", [8, 12]))
    h = b.op("Reshape", b.op("MatMul", h, b.weight("w", 12, 12)), b.ints("t", [1, 96]))
    model = b.model(b.op("Mul", h, b.weight("scale", 1)), [("x", TensorProto.FLOAT, [8, 12])], [96])
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    with pytest.raises(evener.Error, match="takes a batch of 1 alone") as refused:
        evener.Trainer(runtime, model.SerializeToString(), "mse")
    assert refused.value.node and refused.value.status.name == "UNSUPPORTED"


def test_a_node_that_takes_one_batch_alone_is_refused_by_name(runtime):
    b = nets.Builder(3)
    h = b.op("Add", b.linear("x", "fc", 4, 3), b.weight("each", 8, 3))  # a number of its own for each row of the batch
    model = b.model(h, [("x", TensorProto.FLOAT, [4])], [3])
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 8
    with pytest.raises(evener.Error, match="takes a batch of 8 alone") as refused:
        evener.Trainer(runtime, model.SerializeToString())
    assert refused.value.node == h and refused.value.status.name == "UNSUPPORTED"


# ------------------------------------------------------------------------------------------------------- killed saves


KILLED = """
import os, signal, sys, evener
runtime = evener.Runtime(threads=1)
trainer = evener.Trainer(runtime, sys.argv[1])
print("ready", flush=True)
while True:
    trainer.save(sys.argv[2])
"""


def test_a_save_removes_what_a_killed_one_has_left(runtime, tmp_path):
    model = nets.mlp()[0]
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    state = tmp_path / "state"
    for _ in range(8):  # until one is hit while it writes, as a rule
        process = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path / "model.onnx", state], stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"ready\n"
        while not state.exists():
            assert process.poll() is None
        process.kill()
        process.wait()
        process.stdout.close()
    (tmp_path / ".evn-1-1.tmp").write_bytes(b"of one that was killed")
    trainer = evener.Trainer(runtime, tmp_path / "model.onnx")
    trainer.restore(state)
    trainer.save(state)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "state"]
