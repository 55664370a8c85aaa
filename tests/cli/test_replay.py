"""Inputs of runs that a session records are what it was given, numpy.load reads them, and `evener run --replay` runs with them again."""
import numpy as np
import onnx
import pytest
from command import COMMAND, FAILURE, USAGE, evener
from onnx import TensorProto, helper

if not COMMAND:
    pytest.skip("EVENER_COMMAND is not set", allow_module_level=True)

# Arrays that NumPy has are recorded as they are. Of other types each element is recorded as raw bytes.
INPUTS = {
    "float32": (TensorProto.FLOAT, np.array([[1.5, -0.0, np.inf]], np.float32)),
    "float64": (TensorProto.DOUBLE, np.zeros((0, 2))),
    "int64": (TensorProto.INT64, np.array([-1, 2**40])),
    "uint8": (TensorProto.UINT8, np.arange(5, dtype=np.uint8).reshape(5, 1, 1)),
    "bool": (TensorProto.BOOL, np.array(True)),
    "float16": (TensorProto.FLOAT16, np.array([0.1], np.float16)),
    "complex64": (TensorProto.COMPLEX64, np.array([1 + 2j], np.complex64)),
    "texts": (TensorProto.STRING, np.array(["", "naïve", "日本", "𝄞 x"])),
    "bfloat16": (TensorProto.BFLOAT16, np.array([1.5, -2, 0.25], np.float32)),
    "int4": (TensorProto.INT4, np.array([-8, 7, 3], np.int8)),
}
RAW = {"bfloat16": np.array([0x3fc0, 0xc000, 0x3e80], "<u2").view("V2"), "int4": np.array([8, 7, 3], np.uint8).view("V1")}


@pytest.fixture
def model(tmp_path):
    """Copies of all inputs. Names of inputs may look like paths."""
    inputs = [helper.make_tensor_value_info("../" + name, kind, [None] * array.ndim) for name, (kind, array) in INPUTS.items()]
    outputs = [helper.make_tensor_value_info(name, kind, [None] * array.ndim) for name, (kind, array) in INPUTS.items()]
    nodes = [helper.make_node("Identity", ["../" + name], [name]) for name in INPUTS]
    made = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(made, tmp_path / "copies.onnx")
    return tmp_path / "copies.onnx"


def record(model, *options, runs=2, repeat=3):
    """Runs with a configuration that lies beside the model, and records into a folder beside it."""
    folder = model.parent
    (folder / "c.yaml").write_text(f"version: 1\nrecording: {{folder: recorded/here, runs: {runs}}}\n")
    given = []
    for name, (_, array) in INPUTS.items():
        np.save(folder / f"{name}.npy", array)
        given += ["--input", f"../{name}={folder / name}.npy"]
    return evener("run", model, "--config", folder / "c.yaml", "--repeat", repeat, *given, *options)


def test_the_latest_runs_are_kept_and_numpy_reads_them(model):
    record(model)
    files = sorted((model.parent / "recorded/here").iterdir())
    assert [f.name.rsplit("-", 1)[1] for f in files] == ["00000002.npz", "00000003.npz"]
    assert all(f.name.startswith("copies.onnx-") for f in files)
    for file in files:
        with np.load(file) as archive:
            assert set(archive.files) == {"../" + name for name in INPUTS}
            for name, (_, array) in INPUTS.items():
                want, got = RAW.get(name, array), archive["../" + name]
                assert got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes(), name


def test_a_replay_gives_the_same_outputs(model, tmp_path):
    record(model, "--output-dir", tmp_path / "first", repeat=1)
    folder = tmp_path / "recorded/here"
    (file,) = folder.iterdir()
    for what in (folder, file):
        out, _ = evener("run", model, "--replay", what, "--output-dir", tmp_path / "again", "--repeat", 2)
        assert out.count("run ") == 2 and f"run {file}\n" in out and "time: first run" in out  # the name, and its time
        for name in INPUTS:
            assert (tmp_path / "first" / f"{name}.npy").read_bytes() == (tmp_path / "again" / file.stem / f"{name}.npy").read_bytes(), name


def test_a_replay_writes_nothing_beside_its_folder(model, tmp_path):
    record(model, repeat=1)
    folder = tmp_path / "recorded/here"
    (file,) = folder.iterdir()
    for name in ("..npz", "...npz"):
        (folder / name).write_bytes(file.read_bytes())
    evener("run", model, "--replay", folder, "--output-dir", tmp_path / "outputs/here")
    assert [each.name for each in (tmp_path / "outputs").iterdir()] == ["here"]
    assert [each.name for each in (tmp_path / "outputs/here").iterdir()] == [file.stem]


def test_a_run_that_fails_does_not_keep_others_from_being_replayed(model):
    record(model, runs=3)
    first, second, third = sorted((model.parent / "recorded/here").iterdir())
    second.write_bytes(b"no archive")
    with np.load(third) as archive:
        np.savez(third, **{name: archive[name] for name in archive.files if name != "../int64"})
    out, err = evener("run", model, "--replay", first.parent, code=FAILURE)
    assert out.count("time: first run") == 1
    assert f"{second}: not a .npz archive" in err and f"{third}: it has no input ../int64" in err and "2 of the recorded runs failed" in err


def test_runs_go_on_where_nothing_can_be_recorded(model):
    (model.parent / "recorded").write_text("a file in the place of the folder")
    out, err = record(model)
    assert "time: first run" in out and err.count("no more inputs of runs are recorded in") == 1


def test_what_gives_inputs_beside_a_replay_is_refused(model):
    for words in (("--input", "x=y.npy"), ("--shape", "x=1"), ("--output", "o.npz")):
        assert f"{words[0]} is given too" in evener("run", model, "--replay", model.parent, *words, code=USAGE)[1]
    assert "there are no .npz files" in evener("run", model, "--replay", model.parent, code=FAILURE)[1]
