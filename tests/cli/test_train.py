"""evener train: what it learns, how it goes on from checkpoints, what it writes, and how wrong files and options end.

The command is taken from the environment variable EVENER_COMMAND.
"""
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import xml.etree.ElementTree
import zipfile

import numpy as np
import onnx
import onnxruntime
import pytest
from command import COMMAND, CONFIG, DEVICE, FAILURE, MODEL, OK, USAGE, evener
from onnx import numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/training"), str(ROOT / "examples/python")]
import nets  # noqa: E402
import train_digits  # noqa: E402

if not COMMAND:
    pytest.skip("EVENER_COMMAND is not set", allow_module_level=True)
DIGITS = pathlib.Path(os.environ.get("EVENER_MODELS", ROOT / "build/models")) / "digits.csv.gz"
MINUTES = pytest.mark.skipif(bool(os.environ.get("EVN_SANITIZER_PRELOAD")), reason="what takes seconds takes minutes with the sanitizers: the release build runs it")


def train(*words, code=OK):
    return evener("train", "model.onnx", *words, code=code)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """model.onnx (5 classes of 20 numbers), train.npz and val.npz, in the current folder."""
    monkeypatch.chdir(tmp_path)
    onnx.save(nets.mlp()[0], "model.onnx")
    random = np.random.default_rng(5)
    directions = random.standard_normal((20, 5))
    for name, count in (("train.npz", 230), ("val.npz", 70)):
        x = random.standard_normal((count, 20)).astype(np.float32)
        np.savez(name, x=x, labels=(x @ directions).argmax(1))
    return tmp_path


def weights(path):
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


def accuracy(path, data):
    arrays = np.load(data)
    outputs, = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": arrays["x"]})
    return (outputs.argmax(1) == arrays["labels"]).mean()


@MINUTES
@pytest.mark.skipif(not DIGITS.exists(), reason="the digits are not fetched")
def test_a_network_learns_digits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = train_digits.pictures(DIGITS)
    order = np.random.default_rng(0).permutation(len(x))
    for name, part in (("train.npz", order[360:]), ("val.npz", order[:360])):
        np.savez(name, x=x[part], digits=y[part].astype("uint8"), labels=y[part])
    onnx.save(nets.simple_cnn()[0], "model.onnx")
    out, err = train("--data", "train.npz", "--validate", "val.npz", "--labels", "digits", "--epochs", 3, "--batch", 64, "--optimizer", "adamw", "--schedule", "cosine",
                     "--warmup", 5, "--weight-decay", 0.01, "--clip-norm", 5, "--seed", 3, "--threads", 2, "-o", "trained.onnx", "--report", "report.json",
                     "--picture", "training.svg")
    assert err == ""
    lines = out.splitlines()
    said = [float(re.search(r"^epoch \d/3: loss [\d.]+, learning rate \S+, validation loss [\d.]+, accuracy ([\d.]+)%, [\d,]+ samples/s$", line)[1]) for line in lines[:3]]
    assert lines[3].startswith("trained by softmax_cross_entropy, adamw, cosine rate: 69 batches (0 skipped) in ")
    assert said[-1] > 90
    report = json.loads(pathlib.Path("report.json").read_text())
    assert [epoch["epoch"] for epoch in report["epochs"]] == [1, 2, 3] and report["schedule_steps"] == 64 and len(report["curve"]) == 69
    assert report["trainer"]["steps"] == report["trainer"]["batches"] == 69 and not report["interrupted"]
    assert report["epochs"][-1]["accuracy"] == pytest.approx(accuracy("trained.onnx", "val.npz"), abs=1e-9) == pytest.approx(said[-1] / 100, abs=1e-4)
    assert report["epochs"][-1]["loss"] < report["epochs"][0]["loss"] / 2
    assert report["curve"][4]["learning_rate"] == pytest.approx(1e-3) and report["curve"][-1]["learning_rate"] < 1e-5
    picture = xml.etree.ElementTree.parse("training.svg")
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}polyline"))) == 4


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_the_number_of_threads_changes_nothing(folder, threads):
    words = ("--data", "train.npz", "--epochs", 2, "--optimizer", "adam")
    train(*words, "--threads", 3, "-o", "expected.onnx")
    train(*words, "--threads", threads, "-o", "trained.onnx")
    assert pathlib.Path("trained.onnx").read_bytes() == pathlib.Path("expected.onnx").read_bytes()
    train(*words, "--seed", 1, "-o", "other.onnx")
    assert pathlib.Path("other.onnx").read_bytes() != pathlib.Path("expected.onnx").read_bytes()


def test_zero_is_a_value(folder):
    """A rate of 0 moves nothing, and a decay of 0 is not AdamW's default."""
    def weights(*words):
        train("--data", "train.npz", "--epochs", 1, "--optimizer", "adamw", *words, "-o", "trained.onnx")
        return [onnx.numpy_helper.to_array(i).tobytes() for i in onnx.load("trained.onnx").graph.initializer]

    at_first = [onnx.numpy_helper.to_array(i).tobytes() for i in onnx.load("model.onnx").graph.initializer]
    assert weights("--learning-rate", 0) == at_first != weights()
    assert weights("--weight-decay", 0.01) == weights() != weights("--weight-decay", 0)


RUNS = [("--optimizer", "sgd", "--momentum", "0.9", "--nesterov", "--schedule", "cosine", "--accumulate", "3", "--learning-rate", "0.01"),
        ("--optimizer", "adamw", "--schedule", "plateau", "--patience", "1", "--validate", "val.npz", "--every", "100")]


@pytest.mark.parametrize("words", RUNS, ids=["sgd", "adamw"])
def test_a_training_that_was_interrupted_goes_on_with_the_same_bits(folder, words):
    words = ("--data", "train.npz", "--epochs", "60", "--batch", "4", "--threads", "1", *words)
    train(*words, "--checkpoint", "of_expected", "-o", "expected.onnx", "--report", "expected.json")
    resume, before = (), 0
    for pause in (0, 0.003, 0.007, 0.011):  # somewhere in an epoch
        process = subprocess.Popen([COMMAND, "train", "model.onnx", *words, *resume, "--checkpoint", "state", "-o", "trained.onnx", "--report", "report.json"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert re.match(r"epoch \d+/60: ", process.stdout.readline())
        time.sleep(pause)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=100)
        batch = int(re.search(r"^evener: interrupted after batch (\d+); this goes on: --resume state$", err)[1])
        assert process.returncode == FAILURE and before < batch < 60 * 58 and "trained by" in out
        assert json.loads(pathlib.Path("report.json").read_text())["interrupted"] and not pathlib.Path("trained.onnx").exists()
        resume, before = ("--resume", "state"), batch
    train(*words, "--checkpoint", "state", "--resume", "state", "-o", "trained.onnx", "--report", "report.json")
    assert pathlib.Path("trained.onnx").read_bytes() == pathlib.Path("expected.onnx").read_bytes()
    expected, report = (json.loads(pathlib.Path(name).read_text()) for name in ("expected.json", "report.json"))
    assert len(report["epochs"]) > 1
    for one, other in zip(reversed(expected["epochs"]), reversed(report["epochs"][1:])):
        assert {**one, "seconds": 0, "samples_per_second": 0} == {**other, "seconds": 0, "samples_per_second": 0}
    _, err = train(*words, "--checkpoint", "state", "--resume", "state", "-o", "trained.onnx", code=FAILURE)
    assert err == f"evener: state has learned from {60 * 58} batches already: --epochs 60 has no more than these\n"
    train(*words[:3], "61", *words[4:], "--checkpoint", "state", "--resume", "state", "-o", "trained.onnx")


def test_a_checkpoint_of_another_model_is_named(folder):
    train("--data", "train.npz", "-o", "trained.onnx", "--checkpoint", "state")
    onnx.save(nets.residual()[0], "model.onnx")
    arrays = {"x": np.zeros((4, 3, 16, 16), "float32"), "labels": np.zeros(4, "int64")}
    np.savez("train.npz", **arrays)
    _, err = train("--data", "train.npz", "--resume", "state", "-o", "other.onnx", code=FAILURE)
    assert err.startswith("evener: state: checkpoint '") and "has no tensor \"" in err
    _, err = train("--data", "train.npz", "--resume", "nobody", "-o", "other.onnx", code=FAILURE)
    assert err.startswith("evener: nobody: ")


def test_parameters_stay_that_are_frozen(folder):
    before = weights("model.onnx")
    train("--data", "train.npz", "-o", "trained.onnx", "--freeze", "fc1.*", "--freeze", "*.b", "--report", "report.json")
    changed = {name for name, value in weights("trained.onnx").items() if not np.array_equal(value, before[name])}
    assert changed == {"fc2.w", "fc3.w"}
    train("--data", "train.npz", "-o", "trained.onnx", "--trainable", "fc3.*", "--report", "report.json")
    report = json.loads(pathlib.Path("report.json").read_text())
    assert [p["name"] for p in report["trainer"]["parameters"]] == ["fc3.b", "fc3.w"]


def test_losses_of_numbers(folder):
    random = np.random.default_rng(1)
    x = random.standard_normal((100, 20)).astype("float32")
    np.savez("train.npz", x=x, y=np.tanh(x[:, :5]))
    np.savez("val.npz", x=x[:7], y=np.tanh(x[:7, :5]))
    for loss in ("mse", "l1"):
        out, _ = train("--data", "train.npz", "--validate", "val.npz", "--labels", "y", "--loss", loss, "--epochs", 2, "-o", "trained.onnx")
        assert "validation loss" in out and "accuracy" not in out
    np.savez("train.npz", x=x, labels=(x[:, :5] > 0).astype("float32"))
    out, _ = train("--data", "train.npz", "--validate", "train.npz", "--loss", "bce_with_logits", "-o", "trained.onnx")
    assert "accuracy" in out


def test_json_is_on_stdout_and_progress_on_stderr(folder):
    out, err = train("--data", "train.npz", "--validate", "val.npz", "--epochs", 2, "--json", "-o", "trained.onnx", "--report", "report.json")
    assert json.loads(out) == json.loads(pathlib.Path("report.json").read_text())
    assert [line.split(":")[0] for line in err.splitlines()] == ["epoch 1/2", "epoch 2/2"]


def test_a_terminal_has_a_live_line(folder):
    ours, theirs = pty.openpty()
    done = subprocess.Popen([COMMAND, "train", "model.onnx", "--data", "train.npz", "-o", "trained.onnx"], stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    assert done.wait(timeout=100) == OK
    done.stdout.close()
    assert re.search(rb"\r\x1b\[Kepoch 1/1, batch 1/8: loss [\d.]+, learning rate 0.001, \d+ samples/s", seen) and seen.endswith(b"\r\x1b[K")


def test_skipped_steps_are_said(folder):
    model = onnx.load("model.onnx")
    for t in model.graph.initializer:
        if t.name == "fc3.w":
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t) * np.float32("nan"), t.name))
    onnx.save(model, "model.onnx")
    out, _ = train("--data", "train.npz", "-o", "trained.onnx", "--report", "report.json")
    assert "8 steps skipped: the loss or a gradient is not finite" in out
    report = json.loads(pathlib.Path("report.json").read_text())
    assert report["epochs"][0]["loss"] is None and report["curve"] == []


BUILD = pathlib.Path(os.environ.get("EVENER_LIBRARY", "")).parent
# What MPI leaks at its end lies in libraries that are gone by then, and is taken for the library's.
LEAKS = {"mpi": pytest.mark.skipif(bool(os.environ.get("EVN_SANITIZER_PRELOAD")), reason="MPI leaks memory of its own: the release build runs it")}
ENGINES = [pytest.param(name, marks=[*filter(None, [LEAKS.get(name)]), pytest.mark.skipif(not (BUILD / f"libevener_{name}.so").exists() or (name == "mpi" and shutil.which("mpirun") is None),
                                                       reason=f"libevener_{name}.so or its launcher is not there")]) for name in ("gloo", "mpi")]


@pytest.mark.parametrize("engine", ENGINES)
def test_several_processes_train_one_model(folder, engine):
    """Two ranks have the losses of one, and rank 0 alone writes."""
    words = ("--data", "train.npz", "--validate", "val.npz", "--epochs", "3", "--batch", "9", "--threads", "1", "--checkpoint", "state")
    train(*words, "-o", "alone.onnx", "--report", "alone.json")
    command = [COMMAND, "train", "model.onnx", *words, "--collective", engine, "-o", "trained.onnx", "--report", "report.json"]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    if engine == "mpi":
        commands = [["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "btl_vader_single_copy_mechanism", "none", "-np", "2", *command]]
    else:
        os.mkdir("store")
        commands = [[*command, "--store", "store", "--ranks", "2", "--rank", str(rank)] for rank in range(2)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) for command in commands]
    outs = [child.communicate(timeout=100) for child in children]
    assert [child.returncode for child in children] == [OK] * len(children), outs
    assert sum(out.count("epoch 3/3: ") for out, _ in outs) == 1
    alone, report = (json.loads(pathlib.Path(name).read_text()) for name in ("alone.json", "report.json"))
    assert report["ranks"] == report["trainer"]["rank_count"] == 2
    for one, two in zip(alone["epochs"], report["epochs"], strict=True):
        assert one["samples"] == two["samples"] == 230
        for key in ("loss", "validation_loss", "accuracy"):
            assert one[key] == pytest.approx(two[key], rel=1e-4)


def test_a_loss_below_0_stays_in_its_picture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    b = nets.Builder(1)
    squares = b.op("ReduceMean", b.op("Mul", *2 * [b.linear("x", "fc", 4, 1)]), keepdims=0)
    model = b.model(b.op("Sub", squares, b.op("Constant", value_float=7.0)), [("x", onnx.TensorProto.FLOAT, [4])], [1])
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, "model.onnx")
    np.savez("train.npz", x=np.random.default_rng(1).standard_normal((64, 4), dtype=np.float32))
    train("--data", "train.npz", "--loss", "output", "--batch", "8", "-o", "trained.onnx", "--picture", "training.svg")
    picture = xml.etree.ElementTree.parse("training.svg").getroot()
    lines = list(picture.iter("{http://www.w3.org/2000/svg}polyline"))
    places = [tuple(map(float, place.split(","))) for line in lines for place in line.get("points").split()]
    assert len(places) >= 16 and all(0 <= y <= float(picture.get("viewBox").split()[3]) for _, y in places)
    texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "-5" in texts or "-6" in texts, texts


# ------------------------------------------------------------------------------------------------------- archives

def sparse_npz(path, arrays):
    """An archive of zeros that takes no room on the disk: {name: (dtype, shape)}; with sizes and places of 64 bits."""
    directory = b""
    with open(path, "wb") as file:
        for name, (dtype, shape) in arrays.items():
            header = ("{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n" % (np.dtype(dtype).str, shape)).encode()
            head = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
            size = len(head) + int(np.prod(shape)) * np.dtype(dtype).itemsize
            key, begin = (name + ".npy").encode(), file.tell()
            file.write(b"PK\x03\x04" + struct.pack("<5H3I2H", 45, 0, 0, 0, 0, 0, 0xFFFFFFFF, 0xFFFFFFFF, len(key), 20) + key + struct.pack("<2H2Q", 1, 16, size, size) + head)
            file.seek(begin + 30 + len(key) + 20 + size)
            directory += (b"PK\x01\x02" + struct.pack("<6H3I5H2I", 45, 45, 0, 0, 0, 0, 0, 0xFFFFFFFF, 0xFFFFFFFF, len(key), 28, 0, 0, 0, 0, 0xFFFFFFFF) + key +
                          struct.pack("<2H3Q", 1, 24, size, size, begin))
        at = file.tell()
        file.write(directory + b"PK\x06\x06" + struct.pack("<Q2H2I4Q", 44, 45, 45, 0, 0, len(arrays), len(arrays), len(directory), at) +
                   b"PK\x06\x07" + struct.pack("<IQI", 0, at + len(directory), 1) + b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0))


@MINUTES
def test_archives_above_4_gib_are_read_by_rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wide = 1 << 16
    b = nets.Builder(1)
    y = b.linear(b.op("ReduceMean", "x", axes=[1], keepdims=1), "fc", 1, 3)
    onnx.save(b.model(y, [("x", onnx.TensorProto.FLOAT, [wide])], [3]), "model.onnx")
    sparse_npz("train.npz", {"unused": ("uint8", (5 << 30,)), "x": ("<f4", (3000, wide)), "labels": ("uint8", (3000,))})
    with zipfile.ZipFile("train.npz") as archive:  # which is right, but for its checksums
        assert [(entry.filename, entry.file_size >> 20) for entry in archive.infolist()] == [("unused.npy", 5 << 10), ("x.npy", 750), ("labels.npy", 0)]
    process = subprocess.Popen([COMMAND, "train", "model.onnx", "--data", "train.npz", "--threads", "1", "-o", "trained.onnx"], stdout=subprocess.PIPE)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.stdout.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == OK and b"epoch 1/1: loss " in out
    assert usage.ru_maxrss * 1024 < 3000 * wide * 4 // 2  # of 786 MB


def cut(path):
    data = pathlib.Path(path).read_bytes()
    pathlib.Path(path).write_bytes(data[:len(data) // 2])


X, Y = np.random.default_rng(2).standard_normal((40, 20)).astype("float32"), np.arange(40) % 5


def broken(array, place, value):
    array = array.copy()
    array[place] = value
    return array


BAD = {
    "cut": (lambda: (np.savez("bad.npz", x=X, labels=Y), cut("bad.npz")), "bad.npz: not a .npz archive"),
    "no archive": (lambda: pathlib.Path("bad.npz").write_text("hello"), "bad.npz: not a .npz archive"),
    "no file": (lambda: None, "bad.npz: no such file, or not a regular file"),
    "strings": (lambda: np.savez("bad.npz", x=X.astype(str), labels=Y), "bad.npz(x.npy): it has strings or raw bytes, which no model learns from"),
    "no input": (lambda: np.savez("bad.npz", y=X, labels=Y), 'bad.npz: there is no key "x" for the model\'s input of this name; there are: y, labels'),
    "no labels": (lambda: np.savez("bad.npz", x=X, y=Y), 'bad.npz: there is no key "labels" for the labels (--labels); there are: x, y'),
    "dtype": (lambda: np.savez("bad.npz", x=X.astype("float64"), labels=Y), "bad.npz(x.npy) is float64, the model's input is float32"),
    "dtype of labels": (lambda: np.savez("bad.npz", x=X, labels=Y.astype("float64")),
                        "bad.npz(labels.npy) is float64, this loss takes labels that are classes (whole numbers) or float32 probabilities"),
    "dims": (lambda: np.savez("bad.npz", x=X[:, 1:], labels=Y), "bad.npz(x.npy) has the dims [40,19], the model's input has [N,20]"),
    "rank": (lambda: np.savez("bad.npz", x=X[:, :, None], labels=Y), "bad.npz(x.npy) has the dims [40,20,1], the model's input has [N,20]"),
    "scalar": (lambda: np.savez("bad.npz", x=X, labels=np.int64(1)), "bad.npz(labels.npy): it has no dim of samples"),
    "numbers of samples": (lambda: np.savez("bad.npz", x=X, labels=Y[1:]), "bad.npz(labels.npy) has 39 samples, bad.npz(x.npy) has 40"),
    "no samples": (lambda: np.savez("bad.npz", x=X[:0], labels=Y[:0]), "bad.npz has no samples"),
    "class": (lambda: np.savez("bad.npz", x=X, labels=broken(Y, 7, 5)),
              "bad.npz(labels.npy): sample 7 has the class 5; the model has 5 classes, from 0 on (INVALID_ARGUMENT)"),
    "negative class": (lambda: np.savez("bad.npz", x=X, labels=broken(Y, 39, -1).astype("int8")),
                       "bad.npz(labels.npy): sample 39 has the class -1; the model has 5 classes, from 0 on (INVALID_ARGUMENT)"),
    "huge class": (lambda: np.savez("bad.npz", x=X, labels=broken(Y.astype("uint64"), 3, 2**64 - 1)),
                   "bad.npz(labels.npy): sample 3 has the class -1; the model has 5 classes, from 0 on (INVALID_ARGUMENT)"),
    "NaN": (lambda: np.savez("bad.npz", x=broken(X, (11, 3), np.nan), labels=Y), "bad.npz(x.npy): sample 11 has a value that is not finite (NaN or infinity) (INVALID_ARGUMENT)"),
    "infinity": (lambda: np.savez("bad.npz", x=broken(X, (11, 3), -np.inf), labels=Y),
                 "bad.npz(x.npy): sample 11 has a value that is not finite (NaN or infinity) (INVALID_ARGUMENT)"),
}


def test_archives_in_any_form_teach_the_same(folder):
    with np.load("train.npz") as archive:
        data = dict(archive)
    train("--data", "train.npz", "--epochs", 2, "-o", "expected.onnx")
    others = {name: np.asfortranarray(array.astype(array.dtype.newbyteorder(">"))) for name, array in data.items()}
    for save in (np.savez, np.savez_compressed):
        for arrays in (data, others):
            save("other.npz", **arrays)
            train("--data", "other.npz", "--epochs", 2, "-o", "trained.onnx")
            assert pathlib.Path("trained.onnx").read_bytes() == pathlib.Path("expected.onnx").read_bytes()


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("option", ["--data", "--validate"])
def test_bad_archives_are_named(folder, case, option):
    make, want = BAD[case]
    make()
    files = {"--data": "train.npz", "--validate": "val.npz", option: "bad.npz"}
    _, err = train(*(word for pair in files.items() for word in pair), "-o", "trained.onnx", code=FAILURE)
    assert err.replace("EVN_ERROR_", "") == f"evener: {want}\n"
    assert not pathlib.Path("trained.onnx").exists()


def test_every_cut_of_an_archive_is_refused(folder):
    """A status each, and no crash."""
    np.savez("small.npz", x=X[:2], labels=Y[:2])
    data = pathlib.Path("small.npz").read_bytes()
    for size in range(0, len(data), 13):
        pathlib.Path("bad.npz").write_bytes(data[:size])
        _, err = train("--data", "bad.npz", "-o", "trained.onnx", code=FAILURE)
        assert "bad.npz" in err
    for at in range(len(data) - 200, len(data)):  # the directory, and what points to it
        pathlib.Path("bad.npz").write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1:])
        done = subprocess.run([COMMAND, "train", "model.onnx", "--data", "bad.npz", "-o", "trained.onnx"], capture_output=True, text=True,
                              errors="replace")
        assert done.returncode in (OK, FAILURE) and (done.returncode == OK or "bad.npz" in done.stderr), (at, done.stderr)


def test_a_file_that_is_cut_off_meanwhile_is_a_failure(folder):
    """The archive loses its end when the first epoch is over."""
    arrays = np.load("train.npz")
    np.savez("train.npz", x=np.repeat(arrays["x"], 20, 0), labels=np.repeat(arrays["labels"], 20))
    process = subprocess.Popen([COMMAND, "train", "model.onnx", "--data", "train.npz", "--epochs", "500", "--threads", "1", "-o", "trained.onnx"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.readline()
    os.truncate("train.npz", 1000)
    _, err = process.communicate(timeout=100)
    assert process.returncode == FAILURE
    # The end may go between the reads of a batch's samples and of its labels.
    assert re.fullmatch(r"evener: train\.npz\((x|labels)\.npy\): samples from \d+ on cannot be read: the file has been cut off meanwhile, or its disk fails \(EVN_ERROR_IO\)\n", err)


# -------------------------------------------------------------------------------------------------------- options

WRONG = [
    ("--loss", "hinge", "--loss is softmax_cross_entropy, bce_with_logits, mse, l1 or output, not \"hinge\""),
    ("--optimizer", "lion", "--optimizer is sgd, adam, adamw, adagrad or rmsprop"),
    ("--schedule", "never", "--schedule is constant, step, exponential, cosine or plateau"),
    ("--schedule", "plateau", "--schedule plateau goes by the loss of --validate"),
    ("--epochs", "0", "--epochs is a number from 1"), ("--epochs", "1.5", "--epochs is a whole number"), ("--batch", "0", "--batch must be a whole number from 1"),
    ("--learning-rate", "-1", "--learning-rate is a number from 0"), ("--learning-rate", "x", "--learning-rate is a number"), ("--momentum", "nan", "--momentum is a number"),
    ("--memory-limit", "12Q", "--memory-limit is bytes, as in 512M or 2G"), ("--memory-limit", "", "--memory-limit is bytes"), ("--prune", "1", "--prune is a number from 0 to 0.99"),
    ("--every", "10", "--every needs --checkpoint"), ("--precision", "auto", "--precision of train is fp32, bf16 or fp16"), ("--rank", "1", "--rank needs --collective"),
    ("--collective", "tcp", "--collective is mpi or gloo"), ("--collective", "gloo", "--collective needs --ranks and --rank"), ("--validate", "val.csv", "--validate takes a file"),
    ("--no-such", "1", "train has no option --no-such"),
]


@pytest.mark.parametrize("option, value, want", WRONG)
def test_wrong_options_are_refused(folder, option, value, want):
    _, err = train("--data", "train.npz", "-o", "trained.onnx", option, value, code=USAGE)
    assert want in err and not pathlib.Path("trained.onnx").exists()


def test_what_is_missing_is_said(folder):
    _, err = train("--data", "train.npz", "-o", "trained.onnx", "--collective", "gloo", "--store", ".", "--ranks", "2", code=USAGE)
    assert "--ranks needs --rank" in err
    _, err = train("--data", "train.npz", code=USAGE)
    assert "train needs -o FILE" in err
    _, err = train("-o", "trained.onnx", code=USAGE)
    assert "train needs --data FILE.npz" in err


def test_exit_codes_are_those_of_the_other_commands(folder):
    evener("train", "nobody.onnx", "--data", "train.npz", "-o", "trained.onnx", code=MODEL)
    train("--data", "train.npz", "-o", "trained.onnx", "--config", "nobody.yaml", code=CONFIG)
    train("--data", "train.npz", "-o", "trained.onnx", "--device", "opencl:99", code=DEVICE)
    _, err = train("--data", "train.npz", "-o", "trained.onnx", "--freeze", "nobody", code=MODEL)
    assert "nobody" in err
    _, err = train("--data", "train.npz", "-o", "no/such/folder/trained.onnx", code=FAILURE)
    assert "no/such/folder" in err
