"""Mixed precision: loss scaling against torch.amp.GradScaler (reference.json, by make_reference.py), and losses of lower precisions."""
import json
import os
import pathlib

import evener
import nets
import numpy as np
import pytest

REFERENCE = json.loads(pathlib.Path(__file__).with_name("reference.json").read_text())
MODEL = nets.mlp()[0].SerializeToString()


@pytest.fixture(scope="module")
def runtime():
    with evener.Runtime(threads=2) as made:
        yield made


def test_the_loss_scale_goes_the_way_of_gradscaler(runtime):
    expected = REFERENCE["loss_scales"]
    trainer = evener.Trainer(runtime, MODEL, learning_rate=1e-3, precision="float16")
    scales, skipped = [], []
    for step, (inputs, labels) in enumerate(nets.planted(expected["planted"], expected["steps"])):
        got = trainer.step(inputs, labels)
        if not scales or scales[-1][0] != got.loss_scale:
            scales.append([got.loss_scale, step])
        if got.skipped:
            skipped.append(step)
    assert (scales, skipped) == (expected["scales"], expected["skipped"])
    assert trainer.describe("dict")["skipped"] == len(skipped) == len(expected["planted"])
    assert trainer.describe("dict")["loss_scale"] == scales[-1][0]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_constant_scale_that_is_a_power_of_two_changes_no_bit(precision, runtime):
    """Gradients, norms, what is clipped and what is accumulated, in which all is multiplied by it and divided again."""
    options = dict(learning_rate=0.05, momentum=0.9, clip_norm=0.5, clip_value=0.1, accumulate=2, precision=precision)
    plain, scaled = evener.Trainer(runtime, MODEL, **options), evener.Trainer(runtime, MODEL, loss_scale=2.0 ** 10, **options)
    for inputs, labels in nets.batches("mlp", 6):
        a, b = plain.step(inputs, labels), scaled.step(inputs, labels)
        assert (a.loss, a.gradient_norm, a.learning_rate, a.loss_scale, b.loss_scale) == (b.loss, b.gradient_norm, b.learning_rate, 1, 1024)
        for gradients in zip(plain.gradients.values(), scaled.gradients.values()):
            np.testing.assert_array_equal(*gradients)
    for name, value in plain.parameters.items():
        np.testing.assert_array_equal(value, scaled.parameters[name])


@pytest.mark.parametrize("loss_scale", [None, 2.0 ** 29, 1e9])
def test_gradients_are_clipped_by_their_norm_without_the_scale(loss_scale, runtime):
    """As torch.nn.utils.clip_grad_norm_ behind GradScaler.unscale_. The squares of the scaled gradients are larger than any float32."""
    inputs, _ = next(nets.batches("mlp"))
    labels = np.full((4, 5), 1e14, np.float32)
    trainer = evener.Trainer(runtime, MODEL, "mse", learning_rate=0.5, clip_norm=0.25, loss_scale=loss_scale)
    before = trainer.parameters
    step = trainer.step(inputs, labels)
    norm = np.sqrt(sum((value.astype(np.float64) ** 2).sum() for value in trainer.gradients.values()))
    assert not step.skipped and 1e13 < norm and step.gradient_norm == pytest.approx(norm, rel=1e-5)
    moved = np.sqrt(sum(((value.astype(np.float64) - before[name]) ** 2).sum() for name, value in trainer.parameters.items()))
    assert moved == pytest.approx(0.5 * 0.25, rel=1e-3)


def test_a_skipped_step_changes_nothing(runtime):
    trainer = evener.Trainer(runtime, MODEL, optimizer="adam", precision="float16")
    batches = list(nets.planted([1], 2))
    trainer.step(*batches[0])
    before = trainer.parameters
    step = trainer.step(*batches[1])
    assert step.skipped and step.loss_scale == 65536 and step.step == 1
    assert all((trainer.parameters[name] == before[name]).all() for name in before)


@pytest.mark.parametrize("saved_after", [4, 5])
def test_loss_scaling_goes_on_from_a_checkpoint_with_the_same_bits(saved_after, runtime, tmp_path):
    options = dict(optimizer="adamw", precision="float16", accumulate=2)
    batches = list(nets.planted([1, 6], 10))
    whole = evener.Trainer(runtime, MODEL, **options)
    expected = []
    for at, batch in enumerate(batches):
        if at == saved_after:
            whole.save(tmp_path / "state.safetensors")
        expected.append(whole.step(*batch))
    later = evener.Trainer(runtime, MODEL, **options)
    later.restore(tmp_path / "state.safetensors")
    for batch, want in zip(batches[saved_after:], expected[saved_after:]):
        got = later.step(*batch)
        assert (got.loss_scale, got.skipped, got.gradient_norm) == (want.loss_scale, want.skipped, want.gradient_norm)
    for name, value in whole.parameters.items():
        np.testing.assert_array_equal(value, later.parameters[name])
    constant = evener.Trainer(runtime, MODEL, optimizer="adamw", precision="float16", accumulate=2, loss_scale=8.0)
    constant.restore(tmp_path / "state.safetensors")
    assert constant.describe("dict")["loss_scale"] == 8


@pytest.mark.parametrize("saved, other, scale, steps", [
    (dict(precision="float16"), dict(), 1, 1), (dict(), dict(precision="float16"), 65536, 1), (dict(loss_scale=4.0), dict(loss_scale=8.0), 8, 1),
    (dict(accumulate=4), dict(), 1, 1), (dict(), dict(accumulate=4), 1, 4), (dict(accumulate=4), dict(accumulate=8), 1, 5), (dict(accumulate=4), dict(accumulate=3), 1, 3),
    (dict(accumulate=4, loss_scale=4.0), dict(accumulate=4), 1, 4), (dict(accumulate=4, precision="float16"), dict(accumulate=4, precision="bfloat16"), 1, 4),
], ids=str)
def test_a_checkpoint_is_taken_under_other_options(saved, other, scale, steps, runtime, tmp_path):
    """A dynamic scale and accumulated gradients start afresh unless both trainers have them. `steps` is how many the next update takes."""
    batches = list(nets.batches("mlp", 7))
    before, after = evener.Trainer(runtime, MODEL, **saved), evener.Trainer(runtime, MODEL, **other)
    for batch in batches:
        assert not before.step(*batch).skipped
    before.save(tmp_path / "state.safetensors")
    after.restore(tmp_path / "state.safetensors")
    for name, value in before.parameters.items():
        np.testing.assert_array_equal(value, after.parameters[name])
    assert after.describe("dict")["loss_scale"] == scale
    assert [after.step(*batch).learning_rate > 0 for batch in batches[:steps]] == [False] * (steps - 1) + [True]


def test_numbers_that_are_no_scale_are_refused(runtime):
    for scale in (-1.0, float("nan"), float("inf"), 1e10):
        with pytest.raises(evener.Error, match="loss_scale"):
            evener.Trainer(runtime, MODEL, loss_scale=scale)


def losses(runtime, name, precision, steps=20):
    trainer = evener.Trainer(runtime, nets.NETS[name]()[0].SerializeToString(), learning_rate=1e-3, momentum=0.9, precision=precision)
    return [trainer.step(inputs, labels).loss for inputs, labels in nets.batches(name, steps)]


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["mlp", "simple_cnn"])
def test_losses_follow_those_of_float32(name, precision, runtime):
    """20 steps, each within a twentieth of the first loss."""
    expected, got = losses(runtime, name, "float32"), losses(runtime, name, precision)
    assert max(abs(a - b) for a, b in zip(expected, got)) <= 0.05 * expected[0], (expected, got)
    assert precision != "float16" or got != expected  # operands are rounded on every CPU


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["simple_cnn", "attention"])
def test_bits_do_not_depend_on_the_number_of_threads(name, precision):
    seen = []
    for threads in (1, 2, 5):
        with evener.Runtime(threads=threads) as runtime:
            trainer = evener.Trainer(runtime, nets.NETS[name]()[0].SerializeToString(), optimizer="adam", precision=precision)
            for inputs, labels in nets.batches(name, 3):
                trainer.step(inputs, labels)
            seen.append(trainer.parameters)
    for other in seen[1:]:
        assert all((other[key] == seen[0][key]).all() for key in seen[0])


def test_gradients_that_overflow_float16_halve_the_scale_until_they_do_not(runtime):
    """Those of the output are 300 and more, of which 65504 / 300 is the largest multiple that float16 has."""
    inputs, _ = next(nets.batches("mlp"))
    labels = np.full((4, 5), 3000, np.float32)
    trainer = evener.Trainer(runtime, MODEL, "mse", learning_rate=1e-9, precision="float16")
    steps = [trainer.step(inputs, labels) for _ in range(25)]
    skipped = sum(step.skipped for step in steps)
    assert 9 <= skipped < 20
    assert [step.skipped for step in steps] == [True] * skipped + [False] * (25 - skipped)
    assert [step.loss_scale for step in steps] == [65536 * 0.5 ** min(i, skipped) for i in range(25)]
    assert steps[-1].loss < steps[skipped].loss
    wide = evener.Trainer(runtime, MODEL, "mse", learning_rate=1e-9, precision="float32", loss_scale=65536.0)
    assert not wide.step(inputs, labels).skipped


@pytest.mark.parametrize("devices", [{}, {"device": "opencl,cpu"}, {"replicas": ("cpu", "opencl,cpu")}])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_describe_says_which_device_does_not_round(precision, devices):
    with evener.Runtime(threads=1) as runtime:
        names = {"cpu", "opencl"} if devices else {"cpu"}
        try:
            found = {name: runtime.device(name) for name in names}
        except evener.Error:
            assert not os.environ.get("EVN_REQUIRE_OPENCL")
            pytest.skip("this machine has no OpenCL device")
        trainer = evener.Trainer(runtime, MODEL, precision=precision, **devices)
        lacking = {name for name, device in found.items() if precision == "bfloat16" and (name == "opencl" or "bf16" not in device.features)
                   or precision == "float16" and name == "opencl" and "fp16" not in device.features}
        notes = [note for note in trainer.describe("dict")["notes"] if "it trains in float32" in note]
        assert len(notes) == len(lacking)
        assert all(any(note.startswith(f"device {found[name].name} has no ") for note in notes) for name in lacking)
        assert all(f"note: {note}\n" in trainer.describe() for note in notes)


def test_replicas_scale_the_loss_as_one_device_does():
    """Whose gradients are of the same scale, and skip a step together."""
    batches = list(nets.planted([1, 3], 6))
    with evener.Runtime(threads=2) as runtime:
        whole, split = (evener.Trainer(runtime, MODEL, learning_rate=0.01, precision="float16", replicas=replicas) for replicas in ((), ("cpu", "cpu")))
        for batch in batches:
            a, b = whole.step(*batch), split.step(*batch)
            assert (a.loss_scale, a.skipped) == (b.loss_scale, b.skipped)
            assert a.skipped or b.loss == pytest.approx(a.loss, rel=1e-3)
        for name, value in whole.parameters.items():
            np.testing.assert_allclose(split.parameters[name], value, rtol=1e-2, atol=1e-3)
