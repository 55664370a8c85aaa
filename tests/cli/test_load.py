"""`evener bench` with many clients, rates and mixes. No time is asserted: what is counted, what files hold, what messages say.

The command is taken from the environment variable EVENER_COMMAND.
"""
import json
import os
import signal
import subprocess
import time
import xml.etree.ElementTree

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

COMMAND = os.environ.get("EVENER_COMMAND", "")
OK, FAILURE, USAGE, CONFIG, MODEL, DEVICE = range(6)
SVG = "{http://www.w3.org/2000/svg}"

if not COMMAND:
    pytest.skip("EVENER_COMMAND is not set", allow_module_level=True)


def evener(*words, code=OK, cwd=None):
    """Runs the command and returns (stdout, stderr)."""
    result = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True, timeout=300, cwd=cwd)
    assert result.returncode == code, f"{words}: {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout, result.stderr


def save(path, width):
    weight = numpy_helper.from_array(np.random.default_rng(1).standard_normal((width, width)).astype(np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["c"]), helper.make_node("Relu", ["c"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", width])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", width])], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)
    return path


@pytest.fixture
def model(tmp_path):
    return save(tmp_path / "small.onnx", 16)


def load(*words, code=OK):
    return json.loads(evener("bench", *words, "--threads", 1, "--json", code=code)[0])


def counted(stream):
    return sum(stream[key] for key in ("completed", "busy", "late", "cancelled", "failed", "unfinished"))


def check_stream(stream):
    latency = stream["latency_ms"]
    assert 0 <= latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["p999"] <= latency["max"]
    assert stream["completed"] > 0 and stream["per_second"] > 0 and latency["mean"] <= latency["max"]
    assert stream["failed"] == stream["unfinished"] == 0 and "first_error" not in stream


# ---------------------------------------------------------------------------------------------------------- one model --


@pytest.mark.parametrize("more", [(), ("--sync",)])
def test_clients_ask_again_until_the_time_is_over(model, more):
    result = load(model, "--shape", "x=2x16", "--clients", 4, "--duration", 0.2, *more)
    assert result["mode"] == ("run" if more else "submit") and not result["interrupted"]
    [stream] = result["streams"]
    check_stream(stream)
    assert stream["clients"] == 4 and stream["rate"] == 0 and stream["model"] == "small.onnx"
    assert {key: result["all"][key] for key in ("completed", "latency_ms")} == {key: stream[key] for key in ("completed", "latency_ms")}
    [session] = result["statistics"]["sessions"]
    by_priority = {row["priority"]: row for row in session["priorities"]}
    assert session["name"] == "small.onnx" and sorted(by_priority) == [-7, 0]
    assert by_priority[0]["completed"] == by_priority[0]["run_ns"]["count"] == stream["completed"]
    assert by_priority[-7]["completed"] == 2
    assert session["queued"] == session["running"] == 0


@pytest.mark.parametrize("more", [(), ("--clients", 2), ("--clients", 2, "--sync")])
def test_requests_come_at_a_rate_the_same_ones_each_time(model, more):
    words = (model, "--shape", "x=2x16", "--rate", 200, "--duration", 0.3, *more)
    first, second = load(*words), load(*words)
    check_stream(first["streams"][0])
    assert first["streams"][0]["rate"] == 200
    assert counted(first["all"]) == counted(second["all"])
    assert 20 < counted(first["all"]) < 120  # Poisson, with a mean of 60


def test_more_than_can_be_computed_is_counted_all_the_same(model):
    counts = {counted(load(model, "--shape", "x=64x16", "--rate", 30000, "--duration", 0.2, *more)["all"])
              for more in ((), ("--clients", 1), ("--clients", 1, "--sync"))}
    assert len(counts) == 1 and 5000 < counts.pop() < 7000


def test_deadlines_and_priorities_are_given_to_requests(model):
    result = load(model, "--shape", "x=2x16", "--clients", 2, "--duration", 0.2, "--deadline", "0.000001", "--priority", -7, code=FAILURE)
    [stream] = result["streams"]
    assert stream["late"] > 0 and stream["completed"] == 0 and stream["priority"] == -7
    [session] = result["statistics"]["sessions"]
    by_priority = {row["priority"]: row for row in session["priorities"]}
    assert by_priority[-7]["late"] == stream["late"] and by_priority[-7]["completed"] == 0
    assert by_priority[-6]["completed"] == 2  # warming up


def test_the_table_names_everything(model):
    out, err = evener("bench", model, "--shape", "x=2x16", "--clients", 4, "--duration", 0.2)
    for word in ("per s", "p50", "p99.9", "busy", "late", "cancelled", "failed", "unfinished", "small.onnx, 4 clients",
                 "session small.onnx: 0 queued, 0 running", "wait 0", "run 0", "memory of cpu"):
        assert word in out, out
    assert err == ""


def test_a_model_that_fails_is_found_out_while_warming_up(tmp_path):
    """A Gather whose indices, ones of the pattern times 9, are out of range."""
    table = numpy_helper.from_array(np.zeros((2, 2), np.float32), "t")
    nodes = [helper.make_node("Mul", ["i", "big"], ["j"]), helper.make_node("Gather", ["t", "j"], ["y"], name="lookup")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("i", TensorProto.INT64, [64])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 2])],
                              [table, numpy_helper.from_array(np.array([9], np.int64), "big")])
    bad = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    bad.ir_version = 8
    onnx.save(bad, tmp_path / "bad.onnx")
    _, err = evener("bench", tmp_path / "bad.onnx", "--clients", 2, "--duration", 0.2, code=FAILURE)
    assert "lookup" in err


@pytest.mark.parametrize("more", [(), ("--sync",)])
def test_an_interruption_ends_it_early_and_the_table_comes(model, more):
    process = subprocess.Popen([COMMAND, "bench", str(model), "--shape", "x=64x16", "--clients", "2", "--duration", "3600", "--json", *more],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    handled = False
    while not handled and process.poll() is None:  # until the handler is there: the token is made right before
        with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
            caught = next(line for line in status if line.startswith("SigCgt")).split()[1]
        handled = bool(int(caught, 16) >> (signal.SIGINT - 1) & 1)
        time.sleep(0.01)
    assert handled
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == OK, err
    assert json.loads(out)["interrupted"] is True


# -------------------------------------------------------------------------------------------------------------- mixes --


def test_a_mix_has_streams_of_several_models(tmp_path, model):
    (tmp_path / "sub").mkdir()
    save(tmp_path / "sub" / "two words.onnx", 8)
    mix = tmp_path / "mix.txt"
    mix.write_text("# a comment, then an empty line\n\n"
                   "small.onnx weight=3 shape x=1x16   # shares the clients of the command line\r\n"
                   "\t\"sub/two words.onnx\" shape x=3x8\n"
                   "small.onnx clients=2 priority=3 deadline=60s shape x=4x16\n"
                   f"{model} rate=100.5 priority=-1 shape x=4x16\n")
    result = load("--mix", mix, "--clients", 4, "--duration", 0.3)
    assert [s["model"] for s in result["streams"]] == ["small.onnx", "two words.onnx", "small.onnx", "small.onnx"]
    assert [s["clients"] for s in result["streams"]] == [4, 4, 2, 0]
    assert [s["rate"] for s in result["streams"]] == [0, 0, 0, 100.5]
    assert [s["priority"] for s in result["streams"]] == [0, 0, 3, -1]
    assert [s["weight"] for s in result["streams"]] == [3, 1, 1, 1]
    assert result["streams"][2]["deadline_ms"] == 60000
    for stream in result["streams"]:
        check_stream(stream)
    assert result["all"]["completed"] == sum(s["completed"] for s in result["streams"])
    sessions = {s["name"]: s for s in result["statistics"]["sessions"]}
    assert sorted(sessions) == ["small.onnx", "two words.onnx"]  # one for each file
    assert {row["priority"]: row["completed"] for row in sessions["small.onnx"]["priorities"]}[3] == result["streams"][2]["completed"]


def test_weights_share_requests(tmp_path, model):
    mix = tmp_path / "mix.txt"
    mix.write_text("small.onnx weight=9 shape x=1x16\nsmall.onnx weight=1 priority=1 shape x=1x16\n")
    many, few = load("--mix", mix, "--rate", 2000, "--duration", 0.5)["streams"]
    assert 4 * few["completed"] < many["completed"]


@pytest.mark.parametrize("line, message", [
    ("small.onnx weight", "\"weight\" is not KEY=VALUE"),
    ("small.onnx weight=", "weight must be a number"),
    ("small.onnx weight=0", "weight must be a number"),
    ("small.onnx weight=-1", "weight must be a number"),
    ("small.onnx weight=nan", "weight must be a number"),
    ("small.onnx weight=1e999", "weight must be a number"),
    ("small.onnx rate=1000001", "rate must be a number"),
    ("small.onnx rate=inf", "rate must be a number"),
    ("small.onnx clients=0", "clients must be a whole number"),
    ("small.onnx clients=100001", "clients must be a whole number"),
    ("small.onnx clients=2.5", "clients must be a whole number"),
    ("small.onnx clients=2 clients=3", "clients is given twice"),
    ("small.onnx priority=8", "priority must be a whole number from -7 to 7"),
    ("small.onnx deadline=50", "deadline is a time such as"),
    ("small.onnx deadline=ms", "deadline must be a number"),
    ("small.onnx deadline=5h", "deadline is a time such as"),
    ("small.onnx speed=3", "there is no key \"speed\""),
    ("small.onnx shape", "shape needs NAME=DIMS"),
    ("small.onnx shape x", "shape needs NAME=DIMS"),
    ("\"small.onnx", "a quotation mark is not closed"),
    ("\"\" clients=2", "the model's path is empty"),
    ("small.onnx \x1b[2J", "a control character"),
    ("small.onnx =3", "there is no key \"\""),
    ("small.onnx " + "k" * 5000 + "=1", "there is no key \"kkkk"),
])
def test_bad_lines_are_refused_with_their_number(tmp_path, model, line, message):
    mix = tmp_path / "mix.txt"
    mix.write_text(f"# first\nsmall.onnx shape x=1x16\n{line}\n")
    out, err = evener("bench", "--mix", mix, "--clients", 2, code=USAGE)
    assert out == "" and err.startswith(f"evener: {mix}:3: ") and message in err, err
    assert len(err) < 1000 and "\x1b" not in err


def test_files_that_are_no_mixes_are_refused(tmp_path, model):
    empty = tmp_path / "empty.txt"
    empty.write_text("\n# nothing\n")
    assert "names no model" in evener("bench", "--mix", empty, "--clients", 2, code=USAGE)[1]
    assert "cannot be read" in evener("bench", "--mix", tmp_path / "absent", "--clients", 2, code=FAILURE)[1]
    assert "cannot be read" in evener("bench", "--mix", tmp_path, "--clients", 2, code=FAILURE)[1]
    empty.write_text("#" * (1 << 20) + "\n\n")
    assert "longer than" in evener("bench", "--mix", empty, "--clients", 2, code=USAGE)[1]
    empty.write_text("small.onnx clients=1\n" * 300)
    assert ":257: more than 256" in evener("bench", "--mix", empty, code=USAGE)[1]
    empty.write_bytes(b"small.onnx \0\n")
    assert ":1: a control character, number 0" in evener("bench", "--mix", empty, "--clients", 1, code=USAGE)[1]
    empty.write_bytes(bytes(range(128, 256)) + b"\n")
    evener("bench", "--mix", empty, "--clients", 1, code=MODEL)
    empty.write_text("small.onnx clients=1 shape z=3\n")
    assert "\"z\"" in evener("bench", "--mix", empty, code=USAGE)[1]


@pytest.mark.parametrize("words", [
    ("--clients", "0"), ("--clients", "x"), ("--rate", "0"), ("--rate", "1e9"), ("--clients", "1", "--duration", "0"),
    ("--clients", "1", "--priority", "9"), ("--clients", "1", "--deadline", "-1"), ("--clients", "1", "--runs", "3"),
    ("--clients", "1", "--layers"), ("--rate", "5", "--sync"), ("--svg", "x.svg"), ("--html", "x"), ("--sync",), ("--duration", "1"),
    ("--priority", "1"), ("--deadline", "1"), ("--mix", "mix.txt"),
])
def test_options_that_do_not_go_together_are_refused(model, words):
    out, err = evener("bench", model, "--shape", "x=1x16", *words, code=USAGE)
    assert out == "" and err


def test_a_model_or_a_mix_is_needed(tmp_path, model):
    for words in ((), ("--clients", "2"), ("--runs", "2")):
        assert "needs MODEL or --mix" in evener("bench", *words, code=USAGE)[1]
    mix = tmp_path / "mix.txt"
    mix.write_text("small.onnx shape x=1x16\n")
    assert "neither clients nor a rate" in evener("bench", "--mix", mix, code=USAGE)[1]
    assert "is said in the lines" in evener("bench", "--mix", mix, "--clients", 1, "--priority", 2, code=USAGE)[1]


# ----------------------------------------------------------------------------------------------------------- pictures --


def test_pictures_are_well_formed_and_have_a_curve_for_each_stream(tmp_path):
    hostile = "<script> & \"quotes\".onnx".replace("\"", "'")
    save(tmp_path / hostile, 16)
    save(tmp_path / "large.onnx", 256)
    mix = tmp_path / "mix.txt"
    mix.write_text(f"\"{hostile}\" clients=1 shape x=1x16\nlarge.onnx clients=1 shape x=64x256\nlarge.onnx rate=50 shape x=1x256\n")
    evener("bench", "--mix", mix, "--duration", 0.3, "--svg", tmp_path / "a.svg", "--html", tmp_path / "a.html")
    for name, root_tag in (("a.svg", SVG + "svg"), ("a.html", "html")):
        assert "var(" not in (tmp_path / name).read_text()  # programs other than browsers paint what they do not know black
        root = xml.etree.ElementTree.fromstring((tmp_path / name).read_text().replace("<!DOCTYPE html>\n", ""))
        assert root.tag == root_tag
        curves = list(root.iter(SVG + "polyline"))
        assert len(curves) == 3
        assert len({curve.get("stroke") for curve in curves}) == 3
        for curve in curves:
            points = [tuple(map(float, point.split(","))) for point in curve.get("points").split()]
            assert len(points) >= 2
            assert all(76 <= x <= 836 and 44 <= y <= 404 for x, y in points)
            assert [x for x, _ in points] == sorted(x for x, _ in points)  # latencies rise with percentiles
            assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)
        texts = [text.text for text in root.iter(SVG + "text")]
        assert any(hostile in text for text in texts) and any("latency in ms" in text for text in texts)
        assert "0%" in texts and "90%" in texts and "99.9%" in texts
        assert any("prefers-color-scheme: dark" in style.text for style in root.iter(SVG + "style"))
    assert not list(root.iter("script"))


def test_a_picture_that_cannot_be_written_is_a_failure(tmp_path, model):
    _, err = evener("bench", model, "--shape", "x=1x16", "--clients", 1, "--duration", 0.1, "--svg", tmp_path / "none" / "a.svg", code=FAILURE)
    assert "a.svg" in err
