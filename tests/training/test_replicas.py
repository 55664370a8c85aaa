"""Replicas: several devices that share each batch of a trainer."""
import os

import evener
import nets
import numpy as np
import onnx
import pytest
from onnx import numpy_helper


@pytest.mark.parametrize("devices", [("cpu", "cpu"), ("opencl,cpu", "cpu", "cpu")])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_replicas_share_each_batch(devices, accumulate):
    """The gradient of a batch is that of its parts, by how many rows each has: of a network without normalization by the batch. Batches of a few rows leave some replicas
    without any."""
    with evener.Runtime(threads=2) as runtime:
        try:
            if "opencl,cpu" in devices:
                runtime.device("opencl")
        except evener.Error:
            assert not os.environ.get("EVN_REQUIRE_OPENCL")
            pytest.skip("this machine has no OpenCL device")
        model = nets.NETS["mlp"]()[0].SerializeToString()
        options = {"optimizer": "sgd", "learning_rate": 0.05, "momentum": 0.9, "accumulate": accumulate}
        split, whole = evener.Trainer(runtime, model, replicas=devices, **options), evener.Trainer(runtime, model, **options)
        random = np.random.default_rng(3)
        for rows in (12, 12, 12, 12, 7, 2, 1, 12):
            x, y = random.standard_normal((rows, 20), dtype=np.float32), random.integers(0, 5, rows)
            assert split.step({"x": x}, y).loss == pytest.approx(whole.step({"x": x}, y).loss, rel=1e-5)
        for name, value in whole.parameters.items():
            np.testing.assert_allclose(split.parameters[name], value, rtol=1e-4, atol=1e-6)
        before = split.parameters
        with pytest.raises(evener.Error, match="label|class|indices|out of"):
            split.step({"x": x}, np.full(rows, 99))
        for name, value in split.parameters.items():
            assert (value == before[name]).all()


def test_replicas_normalize_by_their_rows_and_share_the_statistics(tmp_path):
    """The first batch is halved. Each half normalizes by itself, and the statistics are the mean of what both halves give."""
    model = nets.NETS["residual"]()[0].SerializeToString()
    inputs, labels = next(iter(nets.batches("residual")))
    half = len(labels) // 2

    def trained(rows, **options):
        trainer = evener.Trainer(runtime, model, learning_rate=1e-2, **options)
        loss = trainer.step({"x": inputs["x"][rows]}, labels[rows]).loss
        trainer.finish(tmp_path / "trained.onnx")
        return loss, {t.name: numpy_helper.to_array(t) for t in onnx.load(tmp_path / "trained.onnx").graph.initializer}

    with evener.Runtime(threads=2) as runtime:
        loss, values = trained(slice(None), replicas=("cpu", "cpu"))
        halves = [trained(slice(0, half)), trained(slice(half, None))]
    assert loss == pytest.approx(np.mean([h[0] for h in halves]), rel=1e-5)
    statistics = [name for name in values if name.endswith((".mean", ".var"))]
    assert len(statistics) == 10
    for name in statistics:
        np.testing.assert_allclose(values[name], np.mean([h[1][name] for h in halves], axis=0), rtol=1e-5, atol=1e-6, err_msg=name)


def test_replicas_and_device_are_not_both_given():
    with evener.Runtime(threads=1) as runtime:
        model = nets.NETS["mlp"]()[0].SerializeToString()
        with pytest.raises(evener.Error, match="both given"):
            evener.Trainer(runtime, model, replicas=("cpu", "cpu"), device="cpu")
        with pytest.raises(evener.Error, match="no_such_device|no device"):
            evener.Trainer(runtime, model, replicas=("cpu", "no_such_device"))
