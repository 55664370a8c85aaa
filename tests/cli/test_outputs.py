"""Row E04 of the list of hostile cases for the command: an output that cannot be written leaves the old file and nothing else."""

import os
import resource
import signal
import stat
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

COMMAND = os.environ.get("EVENER_COMMAND", "")
if not COMMAND:
    pytest.skip("EVENER_COMMAND is not set", allow_module_level=True)


@pytest.fixture
def model(tmp_path):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8000]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    onnx.save(made, tmp_path / "relu.onnx")
    return tmp_path / "relu.onnx"


def run(model, folder, file_limit=None):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        if file_limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))

    return subprocess.run([COMMAND, "run", str(model), "--output-dir", str(folder)], capture_output=True, text=True, timeout=300,
                          preexec_fn=limit, restore_signals=False)


@pytest.mark.parametrize("limit", [0, 1, 100, 128, 4096, 32127])
def test_e04_a_full_disk_leaves_the_old_output_and_no_temporary_file(model, tmp_path, limit):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "y.npy").write_bytes(b"old")
    result = run(model, folder, limit)
    assert result.returncode == 1
    assert "y.npy: cannot be written: File too large" in result.stderr
    assert (folder / "y.npy").read_bytes() == b"old"
    assert os.listdir(folder) == ["y.npy"]


def test_a_target_that_is_no_file_stays_what_it_is(model, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    result = subprocess.run([COMMAND, "trace", str(model), "-o", str(tmp_path / "pipe")], capture_output=True, text=True, timeout=300)
    assert result.returncode == 1 and "pipe: cannot be written: it is not a regular file" in result.stderr, result.stderr
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_e04_a_new_output_replaces_the_old_one_with_the_usual_mode(model, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "y.npy").write_bytes(b"old")
    assert run(model, folder, 32128).returncode == 0  # 128 bytes of header, 32,000 of data
    assert np.load(folder / "y.npy").shape == (8000,)
    assert os.listdir(folder) == ["y.npy"]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((folder / "y.npy").stat().st_mode) == 0o666 & ~mask


def test_e04_a_folder_in_place_of_the_output_is_a_failure(model, tmp_path):
    (tmp_path / "out" / "y.npy").mkdir(parents=True)
    result = run(model, tmp_path / "out")
    assert result.returncode == 1
    assert "y.npy: cannot be written" in result.stderr
    assert os.listdir(tmp_path / "out") == ["y.npy"]
