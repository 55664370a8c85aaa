"""Training: gradients, optimizers and schedules against PyTorch (reference.json, by make_reference.py), checkpoints, and what is refused."""
import json
import os
import subprocess
import sys

import evener
import nets
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from reference import REFERENCE, check_gradients, weights


@pytest.fixture(scope="module")
def runtime():
    with evener.Runtime(threads=2) as made:
        yield made


@pytest.mark.parametrize("name", nets.NETS)
def test_gradients_are_those_of_pytorch(name, runtime, tmp_path):
    check_gradients(name, runtime, tmp_path, "cpu")


@pytest.mark.parametrize("name", REFERENCE["runs"])
def test_losses_follow_those_of_pytorch(name, runtime):
    """20 steps, each within 1e-3."""
    run = REFERENCE["runs"][name]
    options = {key: tuple(value) if isinstance(value, list) else value for key, value in run["options"].items()}
    trainer = evener.Trainer(runtime, nets.mlp()[0].SerializeToString(), **options)
    got = [trainer.step(inputs, labels).loss for inputs, labels in nets.batches("mlp", len(run["losses"]))]
    np.testing.assert_allclose(got, run["losses"], rtol=1e-3, atol=1e-3)
    assert got != [got[0]] * len(got)


def test_batches_of_a_loader_are_those_of_arrays(runtime):
    random = np.random.default_rng(3)
    x, y = random.standard_normal((23, 20)).astype(np.float32), random.integers(0, 5, 23)
    one, other = (evener.Trainer(runtime, nets.mlp()[0].SerializeToString(), learning_rate=0.01) for _ in range(2))
    loader = evener.Loader(runtime, {"x": x}, y.astype("uint8"), batch=5, shuffle=True, seed=4)
    for epoch in range(2):
        order = [(inputs["x"].numpy().copy(), labels.numpy().copy()) for inputs, labels in loader.epoch(epoch)]
        expected = [other.step({"x": inputs}, labels).loss for inputs, labels in order]
        assert [one.step(inputs, labels).loss for inputs, labels in loader.epoch(epoch)] == expected
        evaluations = [one.evaluate(inputs, labels).correct for inputs, labels in loader.epoch(epoch)]
        assert sum(evaluations) == other.evaluate({"x": x}, y).correct
    for name, value in one.parameters.items():
        np.testing.assert_array_equal(value, other.parameters[name])


def train(trainer, name, steps):
    return [trainer.step(inputs, labels).loss for inputs, labels in nets.batches(name, steps)]


@pytest.mark.parametrize("name", ["simple_cnn", "residual", "attention"])
def test_bits_do_not_depend_on_the_number_of_threads(name):
    seen = []
    for threads in (1, 2, 5):
        with evener.Runtime(threads=threads) as runtime:
            trainer = evener.Trainer(runtime, nets.NETS[name]()[0].SerializeToString(), optimizer="adam")
            train(trainer, name, 3)
            seen.append(trainer.parameters)
    for other in seen[1:]:
        assert all((other[key] == seen[0][key]).all() for key in seen[0])


def test_accumulated_steps_are_one_step_of_the_whole_batch(runtime):
    model = nets.mlp()[0].SerializeToString()
    parts = list(nets.batches("mlp", 3))
    whole = evener.Trainer(runtime, model, optimizer="adamw")
    whole.step({"x": np.concatenate([inputs["x"] for inputs, _ in parts])}, np.concatenate([labels for _, labels in parts]))
    several = evener.Trainer(runtime, model, optimizer="adamw", accumulate=3)
    steps = [several.step(inputs, labels) for inputs, labels in parts]
    assert [step.learning_rate > 0 for step in steps] == [False, False, True] and steps[2].step == 1
    for key, value in whole.parameters.items():
        np.testing.assert_allclose(several.parameters[key], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("loss, function", [
    ("mse", lambda y, z: ((y - z) ** 2).mean()), ("l1", lambda y, z: np.abs(y - z).mean()),
    ("bce_with_logits", lambda y, z: (np.maximum(y, 0) - y * z + np.log1p(np.exp(-np.abs(y)))).mean()),
    ("softmax_cross_entropy", lambda y, z: -(z * (y - np.log(np.exp(y).sum(1, keepdims=True)))).sum(1).mean()),
])
def test_losses_of_numbers(loss, function, runtime):
    model = nets.mlp()[0].SerializeToString()
    x = np.random.default_rng(1).standard_normal((6, 20)).astype(np.float32)
    z = np.random.default_rng(2).random((6, 5)).astype(np.float32)
    y = next(iter(runtime.session(model).run({"x": x}).values())).astype(np.float64)
    trainer = evener.Trainer(runtime, model, loss, learning_rate=0.05)
    assert trainer.evaluate({"x": x}, z).loss == pytest.approx(function(y, z), rel=1e-5)
    first = trainer.step({"x": x}, z).loss
    assert first == pytest.approx(function(y, z), rel=1e-5)
    for _ in range(30):
        last = trainer.step({"x": x}, z).loss
    assert last < first


def test_the_loss_may_be_an_output(runtime):
    model, _ = nets.mlp()
    graph = model.graph
    graph.node.append(helper.make_node("Mul", [graph.output[0].name, graph.output[0].name], ["squares"]))
    graph.node.append(helper.make_node("ReduceMean", ["squares"], ["energy"], keepdims=0))
    graph.output[0].CopyFrom(helper.make_tensor_value_info("energy", onnx.TensorProto.FLOAT, []))
    trainer = evener.Trainer(runtime, model.SerializeToString(), "output", learning_rate=0.01)
    inputs, _ = next(nets.batches("mlp"))
    got = [trainer.step(inputs).loss for _ in range(10)]
    assert got[-1] < got[0]
    with pytest.raises(evener.Error, match="labels"):
        trainer.step(inputs, np.zeros(4, np.int64))


def test_a_softmax_at_the_end_is_left_to_the_loss(runtime):
    model, _ = nets.mlp()
    plain = evener.Trainer(runtime, model.SerializeToString())
    model.graph.node.append(helper.make_node("Softmax", [model.graph.output[0].name], ["p"], name="last"))
    model.graph.output[0].name = "p"
    trainer = evener.Trainer(runtime, model.SerializeToString())
    inputs, labels = next(nets.batches("mlp"))
    assert trainer.step(inputs, labels).loss == plain.step(inputs, labels).loss
    assert "Softmax last" in trainer.describe()


def test_globs_and_groups_choose_what_moves(runtime):
    model = nets.mlp()[0].SerializeToString()
    before = {t.name: numpy_helper.to_array(t) for t in nets.mlp()[0].graph.initializer}
    trainer = evener.Trainer(runtime, model, trainable=["fc?.*"], frozen=["fc1.*", "*.b"], groups=[("fc3.*", 0.0, 0.0)])
    train(trainer, "mlp", 1)
    assert set(trainer.parameters) == {"fc2.w", "fc3.w"}
    assert (trainer.parameters["fc3.w"] == before["fc3.w"]).all() and not (trainer.parameters["fc2.w"] == before["fc2.w"]).all()
    assert {row["name"] for row in trainer.describe("dict")["frozen"]} == {"fc1.w", "fc1.b", "fc2.b", "fc3.b"}
    for options in (dict(trainable=["nobody"]), dict(frozen=["nobody"]), dict(groups=[("nobody", 1.0, 0.0)]), dict(frozen=["*"])):
        with pytest.raises(evener.Error, match="nobody|nothing can learn"):
            evener.Trainer(runtime, model, **options)


@pytest.mark.parametrize("frozen", [None, "n0.mean", "n0.var"])
def test_a_frozen_normalization_keeps_its_statistics(frozen, runtime, tmp_path):
    """It is named by its node, or by one of its statistics."""
    model = nets.residual()[0]
    before = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    names = [node.name for node in model.graph.node if node.op_type == "BatchNormalization"]
    trainer = evener.Trainer(runtime, model.SerializeToString(), frozen=[frozen or names[0]], learning_rate=1e-3)
    assert names[0] in {row["name"] for row in trainer.describe("dict")["frozen"]}
    train(trainer, "residual", 2)
    trainer.finish(tmp_path / "trained.onnx")
    after = weights(tmp_path / "trained.onnx")
    assert all((after[name] == before[name]).all() for name in ("n0.mean", "n0.var")) and not (after["n1.mean"] == before["n1.mean"]).all()


def test_what_is_not_finite_changes_nothing(runtime, tmp_path):
    trainer = evener.Trainer(runtime, nets.residual()[0].SerializeToString(), optimizer="adam")
    train(trainer, "residual", 1)
    trainer.finish(tmp_path / "before.onnx")
    inputs, labels = next(nets.batches("residual"))
    inputs["x"][0, 0, 0, 0] = np.nan
    step = trainer.step(inputs, labels)
    assert step.skipped and step.learning_rate == 0 and step.step == 1
    trainer.finish(tmp_path / "after.onnx")
    before, after = weights(tmp_path / "before.onnx"), weights(tmp_path / "after.onnx")
    assert all((before[name] == after[name]).all() for name in before)


def test_a_trained_model_is_the_one_that_was_trained(runtime, tmp_path):
    trainer = evener.Trainer(runtime, nets.simple_cnn()[0].SerializeToString(), learning_rate=0.01, momentum=0.9)
    inputs, labels = next(nets.batches("simple_cnn"))
    for _ in range(25):
        trainer.step(inputs, labels)
    evaluation = trainer.evaluate(inputs, labels)
    assert (evaluation.correct, evaluation.count, evaluation.accuracy) == (4, 4, 1.0)
    trainer.finish(tmp_path / "trained.onnx")
    onnx.checker.check_model(tmp_path / "trained.onnx")
    for session in (runtime.session(tmp_path / "trained.onnx"), runtime.session(trainer.finish())):
        assert (next(iter(session.run(inputs).values())).argmax(1) == labels).all()


def test_training_goes_on_from_a_checkpoint_with_the_same_bits(runtime, tmp_path):
    options = dict(optimizer="adamw", schedule="cosine", schedule_steps=9, accumulate=2)
    batches = list(nets.batches("residual", 8))
    whole = evener.Trainer(runtime, nets.residual()[0].SerializeToString(), **options)
    for at, (inputs, labels) in enumerate(batches):
        if at == 3:
            whole.save(tmp_path / "state.safetensors")
        whole.step(inputs, labels)
    later = evener.Trainer(runtime, nets.residual()[0].SerializeToString(), **options)
    later.restore(tmp_path / "state.safetensors")
    for inputs, labels in batches[3:]:
        later.step(inputs, labels)
    whole.finish(tmp_path / "a.onnx")
    later.finish(tmp_path / "b.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_broken_checkpoints_are_refused_and_change_nothing(runtime, tmp_path):
    def tiny(seed=1, wide=2):
        b = nets.Builder(seed)
        return b.model(b.linear("x", "fc", 3, wide), [("x", onnx.TensorProto.FLOAT, [3])], [wide]).SerializeToString()
    trainer = evener.Trainer(runtime, tiny(), momentum=0.9)
    path = tmp_path / "state.safetensors"
    trainer.save(path)
    before, good = trainer.parameters, path.read_bytes()
    for at in range(len(good)):  # every byte changed, every length cut off
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
        with pytest.raises(evener.Error):
            trainer.restore(path)
        path.write_bytes(good[:at])
        with pytest.raises(evener.Error):
            trainer.restore(path)
    path.write_bytes(good)
    for other in (evener.Trainer(runtime, tiny(wide=3), momentum=0.9), evener.Trainer(runtime, tiny()), evener.Trainer(runtime, tiny(), optimizer="adam")):
        with pytest.raises(evener.Error, match="checkpoint"):
            other.restore(path)
    with pytest.raises(evener.Error, match="IO"):
        trainer.restore(tmp_path / "nothing")
    assert all((trainer.parameters[name] == before[name]).all() for name in before)
    trainer.restore(path)


def make_older(path, *keys):
    """Takes keys out of the metadata of a checkpoint, as if an earlier version had written it. The checksum is that of base/hash.h."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header["__metadata__"] = {key: value for key, value in header["__metadata__"].items() if key not in keys} | {"evener.checksum": "0" * 16}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    state, parts = 0x243f6a8885a308d3, [data[end + row["data_offsets"][0]:end + row["data_offsets"][1]] for name, row in header.items() if name != "__metadata__"]
    words = [word for part in (text, *parts) for word in (len(part), *(int.from_bytes(part[at:at + 8], "little") for at in range(0, len(part), 8)))]
    for word in (*words, 0):
        state = (state ^ word) * 0x9e3779b97f4a7c15 % 2 ** 64
        state ^= state >> 29
    path.write_bytes(len(text).to_bytes(8, "little") + text.replace(b"0" * 16, f"{state:016x}".encode(), 1) + data[end:])


def test_a_checkpoint_of_another_optimizer_state_is_refused(runtime, tmp_path):
    """Also if the state has as many tensors of the same dims."""
    model, path = nets.mlp()[0].SerializeToString(), tmp_path / "state.safetensors"
    momentum, centered = (evener.Trainer(runtime, model, optimizer="rmsprop", **options) for options in (dict(momentum=0.9), dict(centered=True)))
    for saved, other in ((momentum, centered), (centered, momentum)):
        saved.save(path)
        with pytest.raises(evener.Error, match="square momentum.*square average|square average.*square momentum"):
            other.restore(path)
        saved.restore(path)
        make_older(path, "optimizer_states")
        other.restore(path)  # the file does not say what its tensors are


def test_what_does_not_fit_is_refused(runtime):
    model = nets.mlp()[0].SerializeToString()
    trainer = evener.Trainer(runtime, model)
    x = np.zeros((4, 20), np.float32)
    before = trainer.parameters
    for inputs, labels in (({"x": x}, None), ({"x": x}, np.full(4, 7)), ({"x": x}, np.full(4, -1)), ({"x": x}, np.zeros(3, np.int64)),
                           ({"x": x[:, :7]}, np.zeros(4, np.int64)), ({}, np.zeros(4, np.int64)), ({"y": x}, np.zeros(4, np.int64)),
                           ({"x": x[:0]}, np.zeros(0, np.int64)), ({"x": x.astype(np.float64)}, np.zeros(4, np.int64)),
                           ({"x": x}, np.zeros((4, 3), np.float32))):
        with pytest.raises(evener.Error):
            trainer.step(inputs, labels)
    assert all((trainer.parameters[name] == before[name]).all() for name in before)
    for options in (dict(learning_rate=float("nan")), dict(groups=[("*", float("nan"), 0)])):
        with pytest.raises(evener.Error, match="is not a number"):
            evener.Trainer(runtime, model, **options)
    for options in (dict(learning_rate=-1.0), dict(loss_scale=0), dict(schedule="cosine"), dict(nesterov=True), dict(output="none"), dict(trainable=[])):
        with pytest.raises(evener.Error):
            evener.Trainer(runtime, model, **options)
    for options in (dict(accumulate=-1), dict(accumulate=2**32 + 1), dict(patience=-3), dict(patience=2**32 - 1), dict(seed=-1), dict(memory_limit=-1), dict(rank=2**32), dict(prune_steps=-1)):
        with pytest.raises(OverflowError, match="expected 0 to"):
            evener.Trainer(runtime, model, **options)
    with pytest.raises(ValueError, match="expected seconds above 0"):
        evener.Trainer(runtime, model, timeout=0)
    trainer.close()
    with pytest.raises(evener.Error, match="INVALID_HANDLE"):
        trainer.step({"x": x}, np.zeros(4, np.int64))


def test_an_operator_without_a_rule_is_named(runtime):
    b = nets.Builder(9)
    y = b.op("Det", b.op("Reshape", b.linear("x", "fc", 4, 4), b.ints("s", [0, 2, 2])))
    model = b.model(b.op("Unsqueeze", y, b.ints("axes", [1])), [("x", onnx.TensorProto.FLOAT, [4])], [1])
    with pytest.raises(evener.Error, match="Det") as refused:
        evener.Trainer(runtime, model.SerializeToString(), "mse")
    assert refused.value.status.name == "UNSUPPORTED" and refused.value.node == y


def test_dropout_drops_by_seed(runtime):
    b = nets.Builder(10)
    x = b.op("Dropout", b.op("Relu", b.linear("x", "fc1", 20, 64)), b.op("Constant", value_float=0.5))
    model = b.model(b.linear(x, "fc2", 64, 5), [("x", onnx.TensorProto.FLOAT, [20])], [5]).SerializeToString()
    inputs, labels = next(nets.batches("mlp"))
    losses = [[trainer.step(inputs, labels).loss for _ in range(2)] for trainer in (evener.Trainer(runtime, model, learning_rate=1e-9, seed=seed) for seed in (1, 1, 2))]
    assert losses[0] == losses[1] != losses[2] and losses[0][0] != losses[0][1]


@pytest.mark.parametrize("options", [dict(), dict(accumulate=2), dict(precision="float16")], ids=str)
def test_a_step_that_fails_changes_nothing(options, runtime, tmp_path):
    """Neither what a checkpoint has nor what Dropout drops in later steps."""
    b = nets.Builder(10)
    x = b.op("Dropout", b.op("Relu", b.linear("x", "fc1", 20, 64)), b.op("Constant", value_float=0.5))
    model = b.model(b.linear(x, "fc2", 64, 5), [("x", onnx.TensorProto.FLOAT, [20])], [5]).SerializeToString()
    inputs, labels = next(nets.batches("mlp"))
    failed, good = (evener.Trainer(runtime, model, seed=3, **options) for _ in range(2))
    assert failed.step(inputs, labels).loss == good.step(inputs, labels).loss
    failed.save(tmp_path / "before.safetensors")
    with pytest.raises(evener.Error):
        failed.step(inputs, np.full_like(labels, 9))
    failed.save(tmp_path / "after.safetensors")
    assert (tmp_path / "before.safetensors").read_bytes() == (tmp_path / "after.safetensors").read_bytes()
    assert [failed.step(inputs, labels).loss for _ in range(2)] == [good.step(inputs, labels).loss for _ in range(2)]
    assert failed.describe("dict")["batches"] == 3


def test_zero_is_a_value(runtime):
    """0 is not the default of an option: it trains otherwise, and what is not given trains as torch.optim's default."""
    inputs, labels = next(nets.batches("mlp"))
    model = nets.mlp()[0].SerializeToString()

    def after(**options):
        trainer = evener.Trainer(runtime, model, **options)
        for metric in (1.0, 1.0, 1.0):
            step = trainer.step(inputs, labels)
            trainer.note_metric(metric)
        return step.learning_rate, b"".join(value.tobytes() for value in trainer.parameters.values())

    at_first = b"".join(value.tobytes() for value in evener.Trainer(runtime, model).parameters.values())
    for optimizer, defaults in {"sgd": dict(learning_rate=1e-3, weight_decay=0), "adam": dict(learning_rate=1e-3, betas=(0.9, 0.999), epsilon=1e-8, weight_decay=0),
                                "adamw": dict(learning_rate=1e-3, betas=(0.9, 0.999), epsilon=1e-8, weight_decay=0.01),
                                "adagrad": dict(learning_rate=0.01, epsilon=1e-10, weight_decay=0),
                                "rmsprop": dict(learning_rate=0.01, alpha=0.99, epsilon=1e-8, weight_decay=0)}.items():
        expected = after(optimizer=optimizer)
        assert after(optimizer=optimizer, **defaults) == expected
        assert after(optimizer=optimizer, groups=[("*", None, None)]) == expected
        assert after(optimizer=optimizer, learning_rate=0) == (0, at_first)
        assert after(optimizer=optimizer, groups=[("*", 0, None)])[1] == at_first
        if optimizer.startswith("adam"):
            assert len({after(optimizer=optimizer, betas=betas)[1] for betas in ((None, None), (0, None), (None, 0), (0, 0))}) == 4
        if optimizer == "rmsprop":
            assert after(optimizer=optimizer, alpha=0) != expected
    assert after(optimizer="adamw", weight_decay=0)[1] == after(optimizer="adamw", groups=[("*", 1, 0)])[1] != after(optimizer="adamw")[1]
    plateau = dict(schedule="plateau", learning_rate=1)
    assert after(**plateau)[0] == 1 and after(**plateau, patience=0)[0] == 0.1 and after(**plateau, patience=0, schedule_factor=0)[0] == 0


def test_options_are_numbers_of_float32(runtime):
    """A number is refused by its name if float32 would round it to one of another meaning. A number that float32 rounds to 0 is 0."""
    inputs, labels = next(nets.batches("mlp"))
    model = nets.mlp()[0].SerializeToString()
    for name, options in (("beta1", dict(optimizer="adam", betas=(0.99999999, None))), ("beta2", dict(optimizer="adamw", betas=(None, 0.99999999))),
                          ("alpha", dict(optimizer="rmsprop", alpha=0.99999999)), ("dampening", dict(momentum=0.9, dampening=0.99999999)),
                          ("clip_norm", dict(clip_norm=1e-50)), ("clip_value", dict(clip_value=1e-50)), ("momentum", dict(momentum=1e-50, nesterov=True))):
        with pytest.raises(evener.Error, match=name):
            evener.Trainer(runtime, model, **options)

    def after(**options):
        trainer = evener.Trainer(runtime, model, **options)
        for _ in range(2):
            assert not trainer.step(inputs, labels).skipped
        return b"".join(value.tobytes() for value in trainer.parameters.values())

    for optimizer in ("sgd", "rmsprop"):
        assert after(optimizer=optimizer, momentum=1e-50) == after(optimizer=optimizer)
    evener.Trainer(runtime, model, optimizer="rmsprop", alpha=1)
    trainer = evener.Trainer(runtime, model, optimizer="adam", betas=(0.99999994, 0.99999994), learning_rate=1e-3)
    before = trainer.parameters
    assert not trainer.step(inputs, labels).skipped
    after_it, gradients = trainer.parameters, trainer.gradients
    for name, gradient in gradients.items():  # the first step of Adam moves by the rate
        large = np.abs(gradient) > 1e-4
        np.testing.assert_allclose((before[name] - after_it[name])[large], 1e-3 * np.sign(gradient[large]), rtol=1e-2)


def test_the_plateau_makes_the_rate_smaller(runtime):
    trainer = evener.Trainer(runtime, nets.mlp()[0].SerializeToString(), learning_rate=0.1, schedule="plateau", patience=2, schedule_factor=0.5)
    rates = []
    for metric in (1.0, 0.9, 0.95, 0.92, 0.91, 0.5, float("nan"), 0.6, 0.6):
        trainer.note_metric(metric)
        rates.append(round(trainer.describe("dict")["learning_rate"], 6))
    assert rates == [0.1] * 4 + [0.05] * 4 + [0.025]


def test_any_metric_of_a_plateau_is_better_than_infinity(runtime, tmp_path):
    """An infinity or a NaN at first is no progress, as in torch, and the first finite metric is."""
    def rate(trainer, *metrics):
        for metric in metrics:
            trainer.note_metric(metric)
        return trainer.describe("dict")["learning_rate"]

    for first in (float("inf"), float("nan")):
        trainer, restored = (evener.Trainer(runtime, nets.mlp()[0].SerializeToString(), learning_rate=1, schedule="plateau", patience=2, schedule_factor=0.5) for _ in range(2))
        assert rate(trainer, first, first) == 1
        trainer.save(tmp_path / "state.safetensors")
        restored.restore(tmp_path / "state.safetensors")
        for each in (trainer, restored):
            assert rate(each, 3, 2, 1, 1, 1, 0.5, 0.2, 0.1) == 1
            assert rate(each, first, first, first) == 0.5


def test_the_first_error_of_a_process_may_come_from_a_kernel_of_the_module(tmp_path):
    """Each of the two has a C++ runtime of its own: an error goes from one to the other."""
    program = """
import evener, nets, numpy
with evener.Runtime(threads=2) as runtime:
    trainer = evener.Trainer(runtime, nets.mlp()[0].SerializeToString())
    try:
        trainer.step({"x": numpy.zeros((4, 20), numpy.float32)}, numpy.full(4, 7))
    except evener.Error as error:
        print(error.status.name)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
    assert done.returncode == 0 and done.stdout.strip() == "INVALID_ARGUMENT", done.stderr


def controlled():
    """An If by the sign of a sum, a Scan whose body has a weight of the graph, a Loop around it, and Attention as one operator."""
    b = nets.Builder(8)
    info, float32 = helper.make_tensor_value_info, onnx.TensorProto.FLOAT

    def branch(kind, *inputs):
        return helper.make_graph([helper.make_node(kind, list(inputs), [kind])], kind, [], [info(kind, float32, None)])

    positive = b.op("Greater", b.op("ReduceSum", "x", keepdims=0), b.op("Constant", value_float=0.0))
    x = b.op("If", positive, then_branch=branch("MatMul", "x", b.weight("then.w", 6, 6)), else_branch=branch("MatMul", "x", b.weight("else.w", 6, 6)))
    steps = b.op("Transpose", x, perm=[1, 0, 2])
    start = b.op("ReduceMean", steps, axes=[0], keepdims=0)
    cell = [helper.make_node("MatMul", ["h", b.weight("cell.w", 6, 6)], ["m"]), helper.make_node("Add", ["m", "xt"], ["a"]), helper.make_node("Tanh", ["a"], ["h2"]),
            helper.make_node("Identity", ["h2"], ["o"])]
    scan = helper.make_node("Scan", ["v", steps], ["last", "all"], num_scan_inputs=1, name="scan",
                            body=helper.make_graph(cell, "cell", [info("h", float32, None), info("xt", float32, None)], [info("h2", float32, None), info("o", float32, None)]))
    again = [scan, helper.make_node("Identity", ["go"], ["still"])]
    kinds = [info("i", onnx.TensorProto.INT64, []), info("go", onnx.TensorProto.BOOL, []), info("v", float32, ["N", 6])]
    looped, = [b.op("Loop", b.ints("twice", 2), "", start, outputs=2,
                    body=helper.make_graph(again, "again", kinds, [info("still", onnx.TensorProto.BOOL, []), info("last", float32, ["N", 6]), info("all", float32, [5, "N", 6])]))]
    stacked = b.op("Squeeze", b.op("Slice", looped[1], b.ints("one", [1]), b.ints("two", [2]), b.ints("axis", [0])), b.ints("axis0", [0]))
    y = b.op("Transpose", stacked, perm=[1, 0, 2])
    keys = b.op("MatMul", y, b.weight("keys.w", 6, 6))
    y = b.op("Attention", y, keys, y, q_num_heads=2, kv_num_heads=2, is_causal=1)
    model = b.model(b.linear(b.op("ReduceMean", y, b.ints("time", [1]), keepdims=0), "head", 6, 4), [("x", float32, [5, 6])], [4])
    model.opset_import[0].version = 23
    for node in model.graph.node:
        if node.op_type == "ReduceMean" and node.attribute[0].name == "axes":
            node.input.append(b.ints("first", [0]))
            del node.attribute[0]
    del model.graph.initializer[:]
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in b.weights.items())
    return model


def test_branches_loops_and_attention_learn(runtime):
    trainer = evener.Trainer(runtime, controlled().SerializeToString(), optimizer="adam", learning_rate=0.02)
    assert set(trainer.parameters) == {"then.w", "else.w", "cell.w", "keys.w", "head.w", "head.b"}
    x = np.random.default_rng(3).standard_normal((16, 5, 6)).astype(np.float32)
    labels = np.random.default_rng(4).integers(0, 4, 16)
    before = {name: value.copy() for name, value in trainer.parameters.items()}
    first = trainer.step({"x": abs(x)}, labels).loss
    assert trainer.gradients["then.w"].any() and not trainer.gradients["else.w"].any()
    for _ in range(150):
        last = trainer.step({"x": abs(x)}, labels).loss
    assert last < 0.5 * first
    assert all((trainer.parameters[name] == value).all() == (name == "else.w") for name, value in before.items())
    trainer.step({"x": -abs(x)}, labels)
    assert trainer.gradients["else.w"].any() and not trainer.gradients["then.w"].any()
