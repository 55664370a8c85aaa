"""Training on an OpenCL device: as on the CPU, and as PyTorch."""
import os
import subprocess
import sys

import evener
import nets
import numpy as np
import onnx
import pytest
from reference import check_gradients, weights


@pytest.mark.parametrize("name", nets.NETS)
def test_gradients_of_an_opencl_device_are_those_of_pytorch(name, opencl, tmp_path):
    check_gradients(name, opencl, tmp_path, "opencl")


def test_the_first_trainer_of_a_process_may_be_for_an_opencl_device(opencl):
    """The constants that the module makes are numbered with those of the model, by which copies of them are found on a device."""
    program = """
import evener, nets, numpy
with evener.Runtime(threads=2) as runtime:
    inputs, labels = next(nets.batches("recurrent"))
    there, here = (evener.Trainer(runtime, nets.NETS["recurrent"]()[0].SerializeToString(), device=device) for device in ("opencl", "cpu"))
    assert all(not trainer.step(inputs, labels).skipped for trainer in (there, here))
    for name, value in here.gradients.items():
        assert numpy.abs(there.gradients[name] - value).max() <= 1e-4 * numpy.abs(value).max(), name
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("device", ["opencl", "opencl,cpu"])
@pytest.mark.parametrize("name", nets.NETS)
def test_an_opencl_device_follows_the_cpu(name, device, opencl):
    """With "opencl" alone all nodes run there. The losses of ten steps are within 1e-4 of the CPU's; what it makes a second time has the same bits."""
    model = nets.NETS[name]()[0].SerializeToString()
    first, second, here = (evener.Trainer(opencl, model, learning_rate=1e-2, momentum=0.9, device=d) for d in (device, device, "cpu"))
    for inputs, labels in nets.batches(name, 10):
        loss = first.step(inputs, labels).loss
        assert loss == second.step(inputs, labels).loss
        assert loss == pytest.approx(here.step(inputs, labels).loss, rel=1e-4)
    ours, theirs = first.evaluate(inputs, labels), here.evaluate(inputs, labels)
    assert ours.loss == pytest.approx(theirs.loss, rel=1e-4) and (ours.correct, ours.count) == (theirs.correct, theirs.count)
    again = second.parameters
    assert all((value == again[key]).all() for key, value in first.parameters.items())


def resized():
    """A U-Net whose way up is by Resize: to the nearest element, linearly, and by cubic weights."""
    b = nets.Builder(11)
    x = b.op("Relu", b.conv("x", "down0", (6, 3, 3, 3), pads=[1] * 4))
    y = b.op("Relu", b.conv(b.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), "down1", (6, 6, 3, 3), pads=[1] * 4))
    z = b.op("Relu", b.conv(b.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2]), "down2", (6, 6, 3, 3), pads=[1] * 4))
    b.weights["twice"] = np.array([1, 1, 2, 2], np.float32)
    y = b.op("Add", y, b.op("Resize", z, "", "twice", mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"))
    x = b.op("Concat", x, b.op("Resize", b.conv(y, "up1", (4, 6, 3, 3), pads=[1] * 4), "", "twice", mode="linear"), axis=1)
    b.weights["less"] = np.array([1, 1, 0.75, 0.5], np.float32)
    x = b.op("Resize", b.op("Relu", b.conv(x, "up0", (6, 10, 3, 3), pads=[1] * 4)), "", "less", mode="cubic", antialias=1)
    model = b.model(b.linear(b.op("Flatten", x), "head", 6 * 12 * 8, 5), nets.COLOR, [5])
    model.opset_import[0].version = 19
    return model, {"x": np.random.default_rng(2).standard_normal((4, 3, 16, 16)).astype(np.float32)}


def attended():
    """Attention as one operator, of 4 heads and 2 of keys, over embeddings; what is added to the scores learns too."""
    b = nets.Builder(12)
    x = b.op("Gather", b.weight("table", 11, 16, scale=0.5), "ids")
    q, k, v = (b.op("MatMul", x, b.weight(name + ".w", 16, columns)) for name, columns in (("q", 16), ("k", 8), ("v", 8)))
    y = b.op("Attention", q, k, v, b.weight("bias", 4, 1, 7, scale=0.3), q_num_heads=4, kv_num_heads=2, is_causal=1, softcap=4.0)
    x = b.op("Add", x, b.op("MatMul", y, b.weight("out.w", 16, 16)))
    model = b.model(b.linear(b.op("Flatten", x), "head", 7 * 16, 5), [("ids", onnx.TensorProto.INT64, [7])], [5])
    model.opset_import[0].version = 23
    return model, {"ids": np.random.default_rng(2).integers(0, 11, (4, 7))}


@pytest.mark.parametrize("net, device", [(resized, "opencl"), (resized, "opencl,cpu"), (attended, "opencl"), (attended, "opencl,cpu")])
def test_gradients_of_an_opencl_device_are_those_of_the_cpu(net, device, opencl):
    """Of each parameter within 1e-4 of the largest; what is made a second time has the same bits."""
    model, inputs = net()
    first, second, here = (evener.Trainer(opencl, model.SerializeToString(), learning_rate=1e-2, device=d) for d in (device, device, "cpu"))
    for _ in range(2):
        losses = [trainer.step(inputs, np.arange(4)).loss for trainer in (first, second, here)]
        assert losses[0] == losses[1] == pytest.approx(losses[2], rel=1e-5)
        found, again = first.gradients, second.gradients
        for name, value in here.gradients.items():
            assert np.abs(value).max() > 0 and np.abs(found[name] - value).max() <= 1e-4 * np.abs(value).max(), name
            assert (found[name] == again[name]).all()


@pytest.mark.parametrize("options", [
    dict(optimizer="adam"), dict(optimizer="adamw", weight_decay=0.1, clip_norm=0.5), dict(optimizer="adagrad", clip_value=0.01), dict(optimizer="rmsprop", momentum=0.9, centered=True),
    dict(momentum=0.9, nesterov=True), dict(accumulate=3, momentum=0.9), dict(groups=[("fc1.*", 0.1, 0.0)]),
], ids=str)
def test_an_opencl_device_moves_parameters_as_the_cpu_does(options, opencl):
    """Within 1e-4 of the largest after six steps."""
    there, here = (evener.Trainer(opencl, nets.mlp()[0].SerializeToString(), learning_rate=1e-2, device=device, **options) for device in ("opencl", "cpu"))
    for inputs, labels in nets.batches("mlp", 6):
        a, b = there.step(inputs, labels), here.step(inputs, labels)
        assert a.gradient_norm == pytest.approx(b.gradient_norm, rel=1e-4) and (a.step, a.skipped) == (b.step, b.skipped)
    expected = here.parameters
    for key, value in there.parameters.items():
        np.testing.assert_allclose(value, expected[key], rtol=0, atol=1e-4 * np.abs(expected[key]).max())


@pytest.mark.parametrize("loss", ["mse", "l1", "bce_with_logits", "softmax_cross_entropy"])
def test_an_opencl_device_takes_losses_of_numbers(loss, opencl):
    model = nets.mlp()[0].SerializeToString()
    x = np.random.default_rng(1).standard_normal((6, 20)).astype(np.float32)
    z = np.random.default_rng(2).random((6, 5)).astype(np.float32)
    there, here = (evener.Trainer(opencl, model, loss, learning_rate=0.05, device=device) for device in ("opencl", "cpu"))
    for _ in range(5):
        assert there.step({"x": x}, z).loss == pytest.approx(here.step({"x": x}, z).loss, rel=1e-4)
    assert there.evaluate({"x": x}, z).loss == pytest.approx(here.evaluate({"x": x}, z).loss, rel=1e-4)


@pytest.mark.parametrize("ratio", [0.5, 0.1])
def test_an_opencl_device_drops_what_the_cpu_drops(ratio, opencl):
    b = nets.Builder(10)
    x = b.op("Dropout", b.op("Relu", b.linear("x", "fc1", 20, 64)), b.op("Constant", value_float=ratio))
    model = b.model(b.linear(x, "fc2", 64, 5), [("x", onnx.TensorProto.FLOAT, [20])], [5]).SerializeToString()
    inputs, labels = next(nets.batches("mlp"))
    there, here, other = (evener.Trainer(opencl, model, learning_rate=1e-2, seed=seed, device=device) for seed, device in ((1, "opencl"), (1, "cpu"), (2, "opencl")))
    losses = [there.step(inputs, labels).loss for _ in range(4)]
    assert losses == pytest.approx([here.step(inputs, labels).loss for _ in range(4)], rel=1e-4)
    assert other.step(inputs, labels).loss != losses[0] and there.evaluate(inputs, labels).loss == pytest.approx(here.evaluate(inputs, labels).loss, rel=1e-4)


@pytest.mark.parametrize("loss", ["class", "infinity"])
def test_a_step_of_an_opencl_device_without_a_finite_loss_changes_nothing(loss, opencl):
    """A label that is no class is an error of the CPU's, which a kernel on a device cannot report: the loss is NaN, and the step is skipped."""
    trainer = evener.Trainer(opencl, nets.residual()[0].SerializeToString(), momentum=0.9, device="opencl")
    inputs, labels = next(nets.batches("residual"))
    trainer.step(inputs, labels)
    before = trainer.parameters
    bad = (inputs, np.full_like(labels, 6)) if loss == "class" else ({"x": np.full_like(inputs["x"], np.inf)}, labels)
    step = trainer.step(*bad)
    assert step.skipped and not np.isfinite(step.loss)
    assert all((value == before[key]).all() for key, value in trainer.parameters.items())
    assert not trainer.step(inputs, labels).skipped


def test_a_checkpoint_goes_from_one_device_to_another(opencl, tmp_path):
    model = nets.residual()[0].SerializeToString()
    there, here = (evener.Trainer(opencl, model, optimizer="adam", device=device) for device in ("opencl", "cpu"))
    batches = list(nets.batches("residual", 4))
    for inputs, labels in batches[:2]:
        there.step(inputs, labels)
    there.save(tmp_path / "a.safetensors")
    here.restore(tmp_path / "a.safetensors")
    assert all((value == there.parameters[key]).all() for key, value in here.parameters.items())
    here.save(tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    expected = [there.step(inputs, labels).loss for inputs, labels in batches[2:]]
    there.restore(tmp_path / "b.safetensors")
    assert [there.step(inputs, labels).loss for inputs, labels in batches[2:]] == expected
    there.finish(tmp_path / "trained.onnx")
    trained = weights(tmp_path / "trained.onnx")
    assert all((value == trained[key]).all() for key, value in there.parameters.items())
