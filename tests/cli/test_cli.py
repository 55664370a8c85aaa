"""The evener command: its results against onnxruntime, its exit codes, its messages.

The command is taken from the environment variable EVENER_COMMAND.
"""
import json
import os
import pathlib
import re
import subprocess
import xml.etree.ElementTree

import numpy as np
import onnx
import pytest
from command import COMMAND, CONFIG, DEVICE, FAILURE, MODEL, OK, USAGE, assert_close, evener, reference, save, value
from onnx import helper, numpy_helper

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "config" / "examples"
COMMANDS = ["devices", "inspect", "run", "bench", "trace", "explain", "quantize", "calibrate", "tune", "programs", "check-config", "version"]

if not COMMAND:
    pytest.skip("EVENER_COMMAND is not set", allow_module_level=True)


# ------------------------------------------------------------------------------------------------------------ help --


def test_version_is_the_librarys():
    assert evener("version")[0].split()[0] == "evener"
    assert evener("version") == evener("--version")


def test_help_names_every_command_and_exit_code():
    text = evener("--help")[0]
    for name in COMMANDS:
        assert f"  {name}" in text
    for code in range(6):
        assert f"  {code}  " in text
    assert evener("help") == evener("-h") == evener("--help")


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help(name):
    text = evener(name, "--help")[0]
    assert text.startswith(f"usage: evener {name}")
    assert evener("help", name)[0] == text
    assert max(map(len, text.splitlines())) <= 132


@pytest.mark.parametrize("words", [
    (), ("nonsense",), ("run",), ("run", "a", "b"), ("run", "a", "--nonsense"), ("run", "a", "--config"), ("version", "x"),
    ("run", "a", "--threads", "x"), ("run", "a", "--threads", "-1"), ("run", "a", "--threads=1025"), ("inspect", "a", "--json=1"),
    ("run", "a", "--repeat", "0"), ("run", "a", "--config", "x", "--config", "y"), ("help", "nonsense"),
])
def test_wrong_command_lines_end_with_2_and_print_to_stderr_only(words):
    out, err = evener(*words, code=USAGE)
    assert out == "" and err


# ------------------------------------------------------------------------------------------------------------- run --


def test_run_gives_what_onnxruntime_gives(conv, tmp_path):
    x = np.random.default_rng(2).standard_normal((1, 3, 8, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    out, _ = evener("run", conv, "--input", f"x={tmp_path / 'x.npy'}", "--output-dir", tmp_path / "new" / "out", "--threads", 1)
    got = np.load(tmp_path / "new" / "out" / "y.npy")
    assert_close(got, reference(conv, {"x": x})[0])
    assert "input x: float32 [1,3,8,8], from " in out
    assert "output y: float32 [1,4,8,8], min " in out and "time: first run " in out


def test_printed_summary_is_that_of_the_values(conv, tmp_path):
    out, _ = evener("run", conv, "--output-dir", tmp_path)
    line = next(line for line in out.splitlines() if line.startswith("output y"))
    numbers = {part.split()[0]: float(part.split()[1]) for part in line.split("], ")[1].split(", ")}
    y = np.load(tmp_path / "y.npy").astype(np.float64)
    assert numbers == pytest.approx({"min": y.min(), "mean": y.mean(), "max": y.max()}, rel=1e-4)


def test_missing_inputs_get_the_same_pattern_each_time(conv, tmp_path):
    first, _ = evener("run", conv, "--output-dir", tmp_path / "a")
    second, _ = evener("run", conv, "--output-dir", tmp_path / "b")
    assert "input x: float32 [1,3,8,8], filled with a fixed pseudo-random pattern in [0, 1)" in first
    a, b = np.load(tmp_path / "a" / "y.npy"), np.load(tmp_path / "b" / "y.npy")
    assert np.array_equal(a, b) and a.min() != a.max()


def test_pattern_differs_by_input_and_lies_in_its_range(add, tmp_path):
    evener("run", add, "--shape", "a=1000,3", "--shape=b=1000,3", "--output-dir", tmp_path)
    total = np.load(tmp_path / "out_sum_0.npy")
    product = np.load(tmp_path / "out_sum_0-2.npy")
    assert total.shape == (1000, 3) and 0.9 < total.mean() < 1.1 and total.min() >= 0 and total.max() < 2
    assert not np.allclose(product, (total / 2) ** 2)


def test_unknown_dimensions_must_be_given(add):
    _, err = evener("run", add, code=USAGE)
    assert "input a is float32 [n,3]" in err and "--shape a=" in err


@pytest.mark.parametrize("shape", ["a=1,x", "a=", "a", "=1", "a=1,,2", "a=-1,3", "a=1,2,3,4,5,6,7,8,9",
                                   "a=99999999999999999999", "zz=1,3"])
def test_wrong_shapes_are_usage_errors(add, shape):
    evener("run", add, "--shape", shape, "--shape", "b=1,3", code=USAGE)


def test_shapes_that_do_not_fit_the_model_are_refused_by_name(add):
    _, err = evener("run", add, "--shape", "a=2,4", "--shape", "b=2,3", code=FAILURE)
    assert "a" in err and "EVN_ERROR_INVALID_ARGUMENT" in err


def test_an_unknown_input_lists_those_there_are(add, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(3, np.float32))
    _, err = evener("run", add, "--input", f"c={tmp_path / 'x.npy'}", code=USAGE)
    assert "a" in err and "b" in err and "EVN_ERROR_INVALID_ARGUMENT" in err


def test_repeat_prints_the_times_of_all_runs(conv):
    out, _ = evener("run", conv, "--repeat", 5)
    assert "time: first run " in out and "4 more: median " in out


def test_output_folder_that_cannot_be_made_is_a_failure(conv, tmp_path):
    (tmp_path / "file").write_text("")
    evener("run", conv, "--output-dir", tmp_path / "file", code=FAILURE)


# ------------------------------------------------------------------------------------------------- bench and trace --


def test_bench_prints_times_and_memory(conv):
    out, err = evener("bench", conv, "--runs", 3, "--threads", 1)
    assert "load: model " in out and "3 more: median " in out and "p90 " in out and "memory of cpu: " in out
    assert "memory of the session: " in out
    assert err == ""  # no progress where stderr is no terminal


def test_bench_gives_json(conv):
    result = json.loads(evener("bench", conv, "--runs", 4, "--json")[0])
    assert result["runs"] == 4 and 0 < result["min_ms"] <= result["median_ms"] <= result["p90_ms"]
    assert result["memory"]["cpu"]["peak_bytes"] >= result["memory"]["cpu"]["current_bytes"] > 0
    kept = result["session_memory"]
    assert kept["peak_arena_bytes"] >= kept["arena_bytes"] >= kept["idle_arena_bytes"] > 0 and kept["plan_bytes"] > 0
    assert "traceEvents" in json.loads(evener("bench", conv, "--runs", 1, "--json", "--layers")[0])["trace"]


def test_bench_layers_lists_each_node(conv):
    out, _ = evener("bench", conv, "--runs", 1, "--layers")
    assert "GFLOPS" in out and "conv_1" in out and "sub_1" in out


def test_trace_holds_each_kernel_of_each_run(conv, tmp_path):
    out, _ = evener("trace", conv, "--runs", 2, "-o", tmp_path / "trace.json", "--threads", 1)
    assert out.startswith("2 runs, median ") and "conv_1" in out
    trace = json.loads((tmp_path / "trace.json").read_text())
    events = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    nodes = [node["name"] for node in json.loads(evener("explain", conv, "--json")[0])["nodes"]]
    assert sorted(event["name"] for event in events) == sorted(2 * nodes)
    for event in events:
        assert event["ph"] == "X" and event["dur"] >= 0 and event["args"]["bytes"] > 0 and "->" in event["args"]["shapes"]
    runs = [event for event in trace["traceEvents"] if event.get("cat") == "run"]
    assert len(runs) == 2
    for event in events:
        assert any(run["ts"] <= event["ts"] and event["ts"] + event["dur"] <= run["ts"] + run["dur"] + 0.01 for run in runs)
    assert json.loads(evener("trace", conv)[0])["otherData"]["dropped_events"] == 0


def test_trace_counts_what_there_was_no_room_for(conv):
    assert json.loads(evener("trace", conv, "--events", 2)[0])["otherData"]["dropped_events"] > 0


def test_trace_of_an_opencl_device_has_the_devices_times(conv):
    if "opencl:0" not in evener("devices", "--json")[0] and os.environ.get("EVN_REQUIRE_OPENCL") != "1":
        pytest.skip("no OpenCL device")
    trace = json.loads(evener("trace", conv, "--runs", 2, "--device", "opencl:0")[0])["traceEvents"]
    steps = [event for event in trace if event.get("cat") in ("kernel", "copy")]
    assert {event["args"]["clock"] for event in steps} == {"device"} and any(event["cat"] == "copy" for event in steps)
    assert len([event for event in trace if event.get("cat") == "enqueue"]) == len(steps)
    steps.sort(key=lambda event: event["ts"])
    for before, after in zip(steps, steps[1:]):
        assert before["ts"] + before["dur"] <= after["ts"] + 1  # in the queue's order, but for rounding


def test_trace_that_cannot_be_written_is_a_failure(conv, tmp_path):
    evener("trace", conv, "-o", tmp_path / "absent" / "trace.json", code=FAILURE)


# ----------------------------------------------------------------------------------------------- inspect and explain --


def test_inspect_names_inputs_outputs_and_operators(conv):
    text = evener("inspect", conv)[0]
    assert "Conv" in text and "x" in text and "y" in text
    assert json.loads(evener("inspect", conv, "--json")[0])["loads"] is True


def test_inspect_estimates_for_given_shapes(tmp_path):
    weight = numpy_helper.from_array(np.zeros((3, 5), np.float32), "w")
    path = save(tmp_path / "product.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", ["n", 3])],
                [value("y", ["n", 5])], [weight])
    assert not json.loads(evener("inspect", path, "--json")[0])["estimate"]["complete"]
    for shape in ("x=7,3", "x=7x3"):
        found = json.loads(evener("inspect", path, "--json", "--shape", shape)[0])["estimate"]
        assert found["complete"] and found["multiply_adds"] == 7 * 3 * 5 and found["input_bytes"] == 7 * 3 * 4
    _, err = evener("inspect", path, "--shape", "x=7,4", code=MODEL)
    assert "cannot have the shape [7,4]" in err
    evener("inspect", path, "--shape", "x=7;3", code=USAGE)


def test_inspect_says_where_a_model_needs_what_there_is_not(tmp_path):
    nodes = [helper.make_node("Imagined", ["x"], ["i"], name="first", domain="some.where"),
             helper.make_node("Imagined", ["i"], ["y"], name="second", domain="some.where")]
    graph = helper.make_graph(nodes, "g", [value("x", [3])], [value("y", [3])])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("some.where", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "imagined.onnx")
    text = evener("inspect", tmp_path / "imagined.onnx")[0]
    assert "some.where::Imagined (opset 1), 2 nodes" in text and "first" in text and "second" in text
    assert "it does not load: EVN_ERROR_UNSUPPORTED" in text


def test_explain_gives_each_node_a_device_and_a_reason(conv):
    assert "conv_1" in evener("explain", conv)[0]
    explained = json.loads(evener("explain", conv, "--json")[0])
    assert explained["nodes"]
    for node in explained["nodes"]:
        assert node["device"] == "cpu" and node["reason"]


def test_explain_draws_the_graph(conv):
    dot = evener("explain", conv, "--dot")[0]
    assert dot.startswith("digraph ") and dot.count(" -> ") >= 4 and dot.count("{") == dot.count("}")
    svg = xml.etree.ElementTree.fromstring(evener("explain", conv, "--svg")[0])
    texts = [element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"x", "y", "input", "output"} <= set(texts) and any("conv_1" in text for text in texts)


def test_pictures_survive_hostile_names(tmp_path):
    name = 'a"b<c>&\\\x01]]>'
    model = save(tmp_path / "h.onnx", [helper.make_node("Relu", ["x"], ["y"], name=name)], [value("x", [2])], [value("y", [2])])
    svg = xml.etree.ElementTree.fromstring(evener("explain", model, "--svg")[0])
    assert any('a"b<c>&' in (element.text or "") for element in svg.iter())
    assert '\\"b<c>' in evener("explain", model, "--dot")[0]


def test_only_one_format_of_explain_is_taken(conv):
    evener("explain", conv, "--dot", "--json", code=USAGE)


def test_explain_follows_the_rules_of_the_configuration(add, tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text("devices:\n  host: {type: cpu, threads: 1}\nplacement:\n  rules:\n    - {match: {op: Add}, device: host}\n")
    out, _ = evener("explain", add, "--config", config, "--json", "--shape", "a=2,3", "--shape", "b=2,3")
    nodes = {node["op"]: node for node in json.loads(out)["nodes"]}
    assert nodes["Add"]["device"] == "host" and nodes["Add"]["rule_line"] == 5
    assert nodes["Mul"]["rule_line"] != 5


def test_an_instruction_set_that_is_none_is_refused_with_those_there_are(conv):
    listed, _ = evener("devices", environment={"EVN_CPU_ISA": "baseline"})
    assert "driver:   baseline" in listed
    _, errors = evener("devices", environment={"EVN_CPU_ISA": "avx_vnni"}, code=FAILURE)
    assert 'EVN_CPU_ISA: there is no instruction set "avx_vnni"; there are: baseline' in errors
    _, errors = evener("run", conv, environment={"EVN_CPU_ISA": "avx_vnni"}, code=FAILURE)
    assert "EVN_CPU_ISA" in errors


def test_explain_says_why_a_precision_is_what_it_is(conv):
    nodes = json.loads(evener("explain", conv, "--precision", "fp16", "--json", environment={"EVN_CPU_ISA": "baseline"})[0])["nodes"]
    assert all(n["precision"] == "fp32" and "this CPU has no AVX512-FP16" in n["precision_reason"] for n in nodes)
    text, _ = evener("explain", conv, "--precision", "bf16", "--keep-fp32", "type:Conv")
    assert 'fp32: keep_fp32 "type:Conv"' in text
    assert "fp32" not in evener("explain", conv)[0]
    _, errors = evener("run", conv, "--precision", "int8", code=USAGE)
    assert "fp32, bf16, fp16 or auto" in errors


def test_explain_says_which_library_multiplies(conv):
    nodes = json.loads(evener("explain", conv, "--products", "openblas", "--json")[0])["nodes"]
    reasons = {n["op"]: n["products_reason"] for n in nodes}
    assert reasons["Conv"] == "the session's options; openblas: it multiplies for MatMul and Gemm alone"
    assert "      products own: the session's options; openblas: it" in evener("explain", conv, "--products", "openblas")[0]
    assert "products" not in evener("explain", conv)[0]
    _, errors = evener("run", conv, "--products", "mkl", code=USAGE)
    assert "own, openblas, clblast, auto or measured" in errors
    assert '"cosine"' in evener("compare", conv, "--products", "own", "--json")[0]


def test_a_session_may_be_small_and_bench_tells_what_the_pool_keeps(conv):
    plan = json.loads(evener("explain", conv, "--memory", "small", "--json")[0])["memory_plan"]
    assert plan["plan"] == "small" and not plan["drops_weights"]
    assert json.loads(evener("explain", conv, "--json")[0])["memory_plan"] == {"plan": "fast", "spared": "", "drops_weights": False}
    _, errors = evener("run", conv, "--memory", "tiny", code=USAGE)
    assert "fast or small" in errors
    cpu = json.loads(evener("bench", conv, "--memory", "small", "--runs", "1", "--json")[0])["memory"]["cpu"]
    assert cpu["reserved_bytes"] == cpu["current_bytes"] + cpu["cached_bytes"] + cpu["unused_bytes"]
    assert cpu["largest_free_block_bytes"] <= cpu["cached_bytes"] and 0 <= cpu["fragmentation"] < 1
    assert cpu["weights_dropped_bytes"] == cpu["weights_restored_bytes"] == 0
    assert re.search(r"cached in \d+ blocks, the largest \d+ \(fragmentation", evener("bench", conv, "--runs", "1")[0])


def test_a_rule_that_requires_a_library_names_file_line_node_and_device(conv, tmp_path):
    config = tmp_path / "products.yaml"
    config.write_text("placement:\n  rules:\n    - {match: {op: Conv}, products: openblas}\n")
    _, errors = evener("explain", conv, "--config", config, code=MODEL)
    assert f"{config}:3: the rule requires products: openblas, which device cpu cannot have for Conv: it multiplies for" in errors
    config.write_text("placement:\n  rules:\n    - {match: {op: Conv}, products: openblas, policy: prefer}\n")
    text, _ = evener("explain", conv, "--config", config)
    assert "products own: rule at line 3; openblas: it multiplies for MatMul and Gemm alone" in text


def test_explain_says_which_numerics_nodes_have(conv):
    nodes = json.loads(evener("explain", conv, "--numerics", "strict", "--json")[0])["nodes"]
    assert all((n["numerics"], n["numerics_reason"]) == ("strict", "the session's options") for n in nodes)
    assert "      strict: the session's options" in evener("explain", conv, "--numerics", "strict")[0]
    _, errors = evener("run", conv, "--numerics", "exact", code=USAGE)
    assert "fast or strict" in errors
    assert '"cosine"' in evener("compare", conv, "--numerics", "strict", "--json")[0]


def test_passes_are_listed_and_left_out_by_name(tmp_path):
    weight = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("Concat", ["r", "x"], ["y"], axis=1)]
    conv = save(tmp_path / "conv.onnx", nodes, [value("x", [1, 3, 8, 8])], [value("y", [1, 7, 8, 8])], [weight])

    def passes_of(*options):
        return {name for node in json.loads(evener("explain", conv, "--shape", "x=1,3,8,8", *options, "--json")[0])["nodes"]
                for name in node["passes"]}

    assert {"fuse_epilogue", "channel_views"} <= passes_of()
    listed = json.loads(evener("passes", "--json")[0])
    assert {row["when"] for row in listed} == {"load", "session"} and all(row["summary"] for row in listed)
    text, _ = evener("passes")
    assert all(row["name"] in text for row in listed)
    for row in listed:
        options = ["--disable-pass", row["name"]] if row["when"] == "session" else ["--config", tmp_path / "passes.yaml"]
        (tmp_path / "passes.yaml").write_text(f"passes: {{disable: {row['name']}}}\n")
        assert row["name"] not in passes_of(*options)
    _, errors = evener("run", conv, "--disable-pass", "fuse_gelu", code=FAILURE)
    assert "when the model is loaded" in errors
    (tmp_path / "passes.yaml").write_text("version: 1\npasses:\n  disable: [cascade, fuse_gleu]\n")
    _, errors = evener("check-config", tmp_path / "passes.yaml", code=CONFIG)
    assert 'passes.yaml:3: there is no pass "fuse_gleu" (evener passes lists them); there are fuse_gelu, ' in errors


def test_calibrate_measures_and_explain_predicts(add, tmp_path, monkeypatch):
    monkeypatch.setenv("EVN_CACHE_DIR", str(tmp_path / "costs"))
    assert all(n["predicted_ns"] is None for n in json.loads(evener("explain", add, "--json")[0])["nodes"])
    rows = json.loads(evener("calibrate", add, "--json")[0])["devices"]
    assert [row["device"] for row in rows] == ["cpu"] and rows[0]["run_ns"] > 0 and rows[0]["refused"] == ""
    explained = json.loads(evener("explain", add, "--json")[0])
    assert any(n["predicted_ns"] is not None for n in explained["nodes"]) and explained["predicted_ns"] > 0
    text, _ = evener("calibrate")
    assert text.startswith("cpu: ") and "steps" in text
    evener("calibrate", tmp_path / "missing.onnx", code=MODEL)


def test_tune_measures_what_later_runs_use(tmp_path, monkeypatch):
    if "opencl:0" not in evener("devices", "--json")[0] and os.environ.get("EVN_REQUIRE_OPENCL") != "1":
        pytest.skip("no OpenCL device")
    monkeypatch.setenv("EVN_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    weight = numpy_helper.from_array(np.ones((64, 40), np.float32), "w")
    product = save(tmp_path / "product.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", [20, 64])], [value("y", [20, 40])], [weight])
    config = tmp_path / "tune.yaml"
    config.write_text("devices: {gpu: {type: opencl, kernels: gpu, tuning: measure}}\nplacement: {default: [gpu, cpu]}\n")
    kernels = json.loads(evener("tune", product, "--config", config, "--json")[0])["kernels"]
    assert [(k["family"], k["m"], k["n"], k["k"]) for k in kernels] == [("tiled product", 20, 40, 64)]
    assert 0 < kernels[0]["ns"] <= kernels[0]["default_ns"] and kernels[0]["kernel"].startswith("product_")
    assert any(p.name.startswith("opencl-tuning") for p in (tmp_path / "cache").iterdir())
    text, _ = evener("tune", product, "--config", config)
    assert text.startswith("nothing to measure"), "what is known is not measured again"
    evener("tune", product, "--config", config, "--device", "opencl:0", code=USAGE)
    evener("tune", product, "--device", "cpu", code=USAGE)
    evener("tune", product, "--device", "opencl:250", code=DEVICE)


def test_programs_says_what_is_missing(tmp_path):
    assert "-o is missing" in evener("programs", code=USAGE)[1]
    assert "cpu is no OpenCL device" in evener("programs", "--device", "cpu", "-o", tmp_path / "programs", code=FAILURE)[1]
    assert "nonsense" in evener("programs", "--device", "nonsense", "-o", tmp_path / "programs", code=DEVICE)[1]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("example", sorted(p.name for p in EXAMPLES.glob("*.yaml")))
def test_examples_of_configurations_run(example, tmp_path, monkeypatch):
    """Each file of config/examples runs a model, or says which device this machine lacks."""
    monkeypatch.setenv("EVN_CACHE_DIR", str(tmp_path / "costs"))
    monkeypatch.setenv("POCL_DEVICES", "pthread pthread")
    weight = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Softmax", ["c"], ["y"])]
    conv = save(tmp_path / "conv.onnx", nodes, [value("x", ["n", 3, 8, 8])], [value("y", ["n", 4, 8, 8])], [weight])
    config = tmp_path / example  # what it writes lies beside it
    config.write_text((EXAMPLES / example).read_text())
    result = subprocess.run([COMMAND, "run", conv, "--config", config, "--shape", "x=2,3,8,8"], capture_output=True, text=True,
                            timeout=120)
    lacks_opencl = result.returncode == DEVICE and "OpenCL" in result.stderr
    assert result.returncode == OK or lacks_opencl, result.stderr


def test_rules_match_the_models_file_name(add, tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text("placement:\n  rules:\n    - {match: {model: \"*dd.onnx\"}, device: cpu}\n"
                      "    - {device: cpu, policy: prefer}\n")
    nodes = json.loads(evener("explain", add, "--config", config, "--json")[0])["nodes"]
    assert {n["rule_line"] for n in nodes} == {3}
    other = add.rename(tmp_path / "other.onnx")
    nodes = json.loads(evener("explain", other, "--config", config, "--json")[0])["nodes"]
    assert {n["rule_line"] for n in nodes} == {4}


# ------------------------------------------------------------------------------------------------- devices and errors --


def test_devices_lists_the_cpu():
    assert "cpu" in evener("devices")[0].lower()
    json.loads(evener("devices", "--json")[0])


def test_devices_says_what_each_has_and_what_tells_it_apart():
    listed = [device for backend in json.loads(evener("devices", "--json")[0])["backends"] for device in backend["devices"]]
    assert len({device["identity"] for device in listed}) == len(listed)
    for device in listed:
        assert device["identity"] and 0 < device["largest_allocation_bytes"] <= device["memory_bytes"]
        assert set(device["features"]) <= {"fp16", "bf16", "int8_dot", "unified_memory", "subgroups"}
    assert "unified_memory" in listed[0]["features"] and listed[0]["identity"].startswith("host, ")
    text = evener("devices")[0]
    assert f"  identity: {listed[0]['identity']}\n" in text and "  has:      " in text
    plain = json.loads(evener("devices", "--json", environment={"EVN_CPU_ISA": "baseline"})[0])["backends"][0]["devices"][0]
    assert plain["features"] == ["unified_memory"]


def test_check_config_accepts_a_right_file():
    assert "right" in evener("check-config", EXAMPLES / "cpu-only.yaml")[0]
    assert "right" in evener("check-config", EXAMPLES / "limits.yaml")[0]


def test_the_version_of_a_yaml_directive_is_read(tmp_path):
    (tmp_path / "a.yaml").write_text("%YAML 1.2\n---\nversion: 1\n")
    evener("check-config", tmp_path / "a.yaml")
    (tmp_path / "b.yaml").write_text("%YAML 7.0\n---\nversion: 1\n")
    _, errors = evener("check-config", tmp_path / "b.yaml", code=CONFIG)
    assert "not valid YAML: YAML major version" in errors


def test_check_config_says_where_a_file_is_wrong(tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text("devices:\n  cpu: {type: cpu, thread: 2}\n")
    _, err = evener("check-config", config, code=CONFIG)
    assert f'{config}:2:20: unknown key "thread"; did you mean "threads"?' in err
    evener("check-config", tmp_path / "absent.yaml", code=CONFIG)
    evener("check-config", tmp_path, code=CONFIG)


def test_check_config_tells_an_absent_device_from_a_wrong_file(tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text("devices:\n  npu: {type: opencl, match: {vendor: \"No Such Vendor\"}}\n")
    _, err = evener("check-config", config, code=DEVICE)
    assert "the file is right" in err and "npu" in err and "EVN_ERROR_DEVICE_UNAVAILABLE" in err
    absent = config.read_text()
    config.write_text(absent + "placement: {rules: [{match: {op: Frobnicate}, device: npu}]}\n")
    assert 'there is no operator "Frobnicate"' in evener("check-config", config, code=CONFIG)[1]
    config.write_text(absent)
    config.write_text(config.read_text().replace("}}", "}, optional: true}"))
    out, err = evener("check-config", config)
    assert "right" in out and "warning" in err and "npu" in err


def test_check_config_loads_makes_and_warms_the_models(conv, add, tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text("models:\n  first: {path: conv.onnx, warm: [{x: [1, 3, 8, 8]}]}\n"
                      "  second: {path: ./add.onnx, device: cpu, warm: [{a: [2, 3], b: [2, 3]}]}\n")
    assert "ready" not in evener("check-config", config)[0]
    out, _ = evener("check-config", "--load", config)
    lines = out.splitlines()
    for name, nodes in (("first: conv.onnx", 2), ("second: add.onnx, on cpu", 2)):
        at = lines.index(name)
        assert lines[at + 1].startswith("  ready after ") and lines[at + 1].endswith(" ms")
        assert lines[at + 2].startswith("  placement: ") and lines[at + 2].endswith(" nodes on cpu")
        assert lines[at + 3].startswith("  cpu: arena ")
    assert int(re.search(r"arena (\d+) bytes", lines[lines.index("first: conv.onnx") + 3]).group(1)) > 0
    (tmp_path / "elsewhere").mkdir()
    run = subprocess.run([COMMAND, "check-config", "--load", str(config)], cwd=tmp_path / "elsewhere", capture_output=True, text=True)
    assert run.returncode == OK, run.stderr


def test_check_config_refuses_operators_that_there_are_not(tmp_path):
    config = tmp_path / "c.yaml"
    for rule, message in (("{op: conv2d}", 'there is no operator "conv2d"; did you mean "Conv"?'),
                          ("{op: [Conv, softmax]}", 'there is no operator "softmax"; did you mean "Softmax"?'),
                          ('{op: "ai.onnx::MaxPol"}', 'there is no operator "ai.onnx::MaxPol"; did you mean "ai.onnx::MaxPool"?'),
                          ("{op: Frobnicate}", 'there is no operator "Frobnicate"')):
        config.write_text(f"placement:\n  rules:\n    - {{match: {rule}, device: cpu}}\n")
        _, err = evener("check-config", config, code=CONFIG)
        assert f"{config}:3: {message}" in err
    config.write_text("placement:\n  rules:\n    - {match: {op: [Frobnicate, Conv, Gronk]}, device: cpu}\n"
                      "    - {match: {op: Zyzzyva}, device: cpu}\nsession: {keep_fp32: ['type:Quux', 'type:Gemm']}\n")
    _, err = evener("check-config", config, code=CONFIG)
    for line, name in ((":3", "Frobnicate"), (":3", "Gronk"), (":4", "Zyzzyva"), (": session.keep_fp32", "Quux")):
        assert f'{config}{line}: there is no operator "{name}"' in err
    assert err.count("there is no operator") == 4
    config.write_text("session: {keep_fp32: ['type:Gem']}\n")
    assert 'there is no operator "Gem"; did you mean "Gemm"?' in evener("check-config", config, code=CONFIG)[1]
    every = {(schema.domain or "ai.onnx", schema.name) for schema in onnx.defs.get_all_schemas_with_history()}
    names = [name for _, name in every] + [f"{domain}::{name}" for domain, name in every]
    config.write_text(f"placement: {{rules: [{{match: {{op: {json.dumps(names)}}}, device: cpu}}]}}\n")
    assert "right" in evener("check-config", config)[0]
    config.write_text('placement: {rules: [{match: {op: ["com.microsoft::FusedMatMul", "my.domain::Frobnicate", Conv]}, device: cpu}]}\n')
    assert "right" in evener("check-config", config)[0]


def test_check_config_refuses_rules_that_match_no_node_of_any_model_that_they_fit(conv, add, tmp_path):
    config = tmp_path / "c.yaml"
    models = "models:\n  first: {path: conv.onnx}\n  second: {path: add.onnx}\n"
    rule = "placement:\n  rules:\n    - {match: %s, device: cpu}\n" + models
    for match in ("{op: Conv}", "{name: 'add_*'}", "{name: 'relu_1'}", "{name: nosuch, model: third*}", "{op: Mul, model: add*}"):
        config.write_text(rule % match)
        out, err = evener("check-config", "--load", config)
        assert "ready" in out and "matches no node" not in err
    for match in ("{name: 'nosuch/*'}", "{op: Softmax}", "{op: Conv, model: add*}"):
        config.write_text(rule % match)
        assert "right" in evener("check-config", config)[0]
        _, err = evener("check-config", "--load", config, code=CONFIG)
        assert "the rule at line 3" in err and "matches no node" in err
    config.write_text("session: {keep_fp32: ['conv*', 'nosuch*']}\n" + models)
    _, err = evener("check-config", "--load", config, code=CONFIG)
    assert 'keep_fp32 "nosuch*"' in err and "conv*" not in err


def test_explain_and_the_log_name_what_matches_nothing(conv, tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text("placement:\n  rules:\n    - {match: {name: nosuch/*}, device: cpu}\n    - {match: {op: Conv}, device: cpu}\n"
                      "    - {match: {name: nosuch, model: other*}, device: cpu}\n")
    out, err = evener("explain", conv, "--config", config, "--keep-fp32", "relu*", "--keep-fp32", "type:Gemm")
    for text in (out, err):
        assert text.count("matches no node") == 2
        assert "the rule at line 3 (name nosuch/*) matches no node" in text and 'keep_fp32 "type:Gemm" matches no node' in text
    selections = json.loads(evener("explain", conv, "--config", config, "--json")[0])["selections"]
    assert [(s["line"], s["matched"]) for s in selections] == [(3, False), (4, True)]
    _, err = evener("explain", conv, "--keep-fp32", "type:Gem", code=FAILURE)
    assert 'keep_fp32: there is no operator "Gem"; did you mean "Gemm"?' in err


def test_check_config_names_the_model_that_is_wrong(conv, tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text("models:\n  good: {path: conv.onnx}\n  bad: {path: absent.onnx}\n")
    assert "right" in evener("check-config", config)[0]
    out, err = evener("check-config", "--load", config, code=MODEL)
    assert "good: conv.onnx" in out and f'{config}:3: model "bad": cannot open' in err
    (tmp_path / "absent.onnx").write_bytes(b"\xff" * 10)
    assert 'model "bad"' in evener("check-config", "--load", config, code=MODEL)[1]
    config.write_text("models:\n  bad:\n    path: conv.onnx\n    warm: [{z: [1]}]\n")
    _, err = evener("check-config", "--load", config, code=CONFIG)
    assert f'{config}:4: model "bad", warm run 0: there is no input "z"; there are: x' in err
    config.write_text("models:\n  bad: {path: ../conv.onnx}\n")
    assert "leaves the folder" in evener("check-config", "--load", config, code=CONFIG)[1]
    config.write_text("version: 1\n")
    assert "names no models" in evener("check-config", "--load", config)[0]


def test_exit_codes_tell_what_is_wrong(conv, tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"\xff" * 10)
    bad = tmp_path / "bad.yaml"
    bad.write_text("nonsense: 1\n")
    evener("run", tmp_path / "bad.onnx", code=MODEL)
    evener("inspect", tmp_path / "absent.onnx", code=MODEL)
    evener("run", conv, "--config", bad, code=CONFIG)
    evener("run", conv, "--device", "npu7", code=DEVICE)
    limited = tmp_path / "limited.yaml"
    limited.write_text("limits: {model_bytes: 10}\n")
    _, err = evener("run", conv, "--config", limited, code=MODEL)
    assert "EVN_ERROR_LIMIT" in err


def test_errors_name_the_node(tmp_path):
    model = tmp_path / "m.onnx"
    node = helper.make_node("NoSuchOperator", ["x"], ["y"], name="strange_1")
    graph = helper.make_graph([node], "g", [value("x", [1])], [value("y", [1])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    _, err = evener("run", model, code=MODEL)
    assert "NoSuchOperator" in err and "node: strange_1" in err


def test_a_cache_file_is_written_and_used(tmp_path, conv):
    cache = tmp_path / "conv.evc"
    plain, _ = evener("run", conv, "--output-dir", tmp_path / "plain")
    for words in ([], [], ["--map-cache"]):
        evener("run", conv, "--cache", cache, "--output-dir", tmp_path / "cached", *words)
        assert (tmp_path / "cached/y.npy").read_bytes() == (tmp_path / "plain/y.npy").read_bytes()
        assert cache.exists()
    evener("bench", conv, "--cache", tmp_path / "folder/", "--runs", "1")
    evener("run", conv, "--map-cache", code=USAGE)
    cache.write_bytes(b"no cache file")
    _, errors = evener("run", conv, "--cache", cache)
    assert "is not used: it is damaged" in errors
    assert evener("run", conv, "--cache", cache)[1] == ""
