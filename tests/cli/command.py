"""The evener command as tests call it, small models for it, and ONNX Runtime as the judge.

The command is taken from the environment variable EVENER_COMMAND.
"""
import os
import subprocess

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

COMMAND = os.environ.get("EVENER_COMMAND", "")
OK, FAILURE, USAGE, CONFIG, MODEL, DEVICE = range(6)


def evener(*words, code=OK, environment=None):
    """Runs the command and returns (stdout, stderr)."""
    result = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True, timeout=300,
                            env={**os.environ, **(environment or {})})
    assert result.returncode == code, f"{words}: {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout, result.stderr


def save(path, nodes, inputs, outputs, initializers=()):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def value(name, dims, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, dims)


def reference(model, feeds):
    return onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(None, feeds)


def assert_close(got, expected):
    assert got.dtype == expected.dtype and got.shape == expected.shape
    assert expected.size and expected.min() != expected.max()
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
