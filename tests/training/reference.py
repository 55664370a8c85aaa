"""What training is compared with: PyTorch's numbers (reference.json, by make_reference.py)."""
import json
import pathlib

import evener
import nets
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

REFERENCE = json.loads(pathlib.Path(__file__).with_name("reference.json").read_text())


def weights(path):
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


def check_gradients(name, runtime, tmp_path, device):
    """max |a - b| / max |b| of each parameter is at most 1e-4, in float32 against PyTorch's float64."""
    model, _ = nets.NETS[name]()
    expected = REFERENCE["nets"][name]
    trainer = evener.Trainer(runtime, model.SerializeToString(), learning_rate=0.01, device=device)
    inputs, labels = next(nets.batches(name))
    step = trainer.step(inputs, labels)
    assert not step.skipped and step.loss == pytest.approx(expected["loss"], rel=1e-5)
    gradients = trainer.gradients
    assert gradients.keys() == expected["gradients"].keys()
    rounding = 1e-7 * max(want["largest"] for want in expected["gradients"].values())  # a bias of keys, for example, has the gradient 0
    for parameter, want in expected["gradients"].items():
        difference = np.abs(nets.sample(gradients[parameter]) - want["sample"]).max()
        assert difference <= 1e-4 * want["largest"] + rounding, (parameter, difference, want["largest"])
    trainer.finish(tmp_path / "trained.onnx")
    trained = weights(tmp_path / "trained.onnx")
    for statistic, want in expected["statistics"].items():
        np.testing.assert_allclose(nets.sample(trained[statistic]), want, rtol=1e-4, atol=1e-5)
