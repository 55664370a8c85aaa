"""The scripts in Python: what bench/compare.py takes for a wrong output, the pages made, the noise that fills skeletons."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy
import onnx
import pytest
from onnx import helper, numpy_helper

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "bench"), str(REPOSITORY / "bench" / "models"), str(REPOSITORY / "scripts")]

import compare  # noqa: E402
import draw_trace  # noqa: E402
import engines  # noqa: E402
import isa  # noqa: E402
import models_table  # noqa: E402
import report  # noqa: E402
import skeleton  # noqa: E402
import zoo  # noqa: E402

RIGHT = numpy.array([1.0, -2.0, 4.0], "float32")


class Turns:
    """A worker that had its turns."""

    def __init__(self, name, *seconds):
        self.name, self.rounds = name, [{"seconds": time, "memory": 0, "bound": None} for time in seconds]


@pytest.mark.parametrize("fastest, time, ratio", [(False, 4.0, 1.5), (True, 3.0, 3.0)])
def test_a_row_has_the_median_of_the_turns_or_the_fastest(fastest, time, ratio):
    mine, theirs = Turns("evener_opencl", 4.0, 3.0, 9.0), Turns("ort", 4.0, 2.0, 1.0)
    row = compare.row_of(mine, theirs, [{"load": 1.0, "first": 1.0}], "", fastest)
    assert (row.median, row.ratio) == (time, ratio)


def test_an_output_within_the_tolerance_is_right():
    assert compare.difference(RIGHT * numpy.float32(1.0005), RIGHT) == ""
    assert compare.difference(RIGHT + numpy.float32(3e-4), RIGHT) == ""


@pytest.mark.parametrize("wrong", [RIGHT * numpy.float32(1.01), RIGHT + numpy.float32(0.01), RIGHT[:2], RIGHT.astype("float64"),
                                   numpy.array([1, numpy.nan, 4], "float32"), numpy.array([1, numpy.inf, 4], "float32")])
def test_an_output_beyond_the_tolerance_is_wrong(wrong):
    assert compare.difference(wrong, RIGHT)


def test_nan_and_infinity_are_right_only_where_they_are_expected():
    special = numpy.array([1, numpy.nan, numpy.inf, 3], "float32")
    assert compare.difference(special.copy(), special) == ""
    assert compare.difference(numpy.array([1, numpy.nan, -numpy.inf, 3], "float32"), special)


def test_constant_expectations_prove_nothing():
    assert "nothing" in compare.difference(numpy.zeros(4, "float32"), numpy.zeros(4, "float32"))
    assert compare.difference(numpy.full(4, numpy.nan), numpy.full(4, numpy.nan))


def small_model():
    """Two weights: one that a skeleton keeps, one that it drops."""
    generator = numpy.random.default_rng(4)
    weights = [numpy_helper.from_array(generator.standard_normal((64, 64)).astype("float32"), "large"),
               numpy_helper.from_array(generator.standard_normal((4, 4)).astype("float32"), "small")]
    nodes = [helper.make_node("MatMul", ["x", "large"], ["y"])]
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 64]) for name in ("x", "y")]
    return helper.make_model(helper.make_graph(nodes, "small", values[:1], values[1:], weights))


def test_a_filled_skeleton_has_the_moments_of_the_original_and_is_the_same_each_time():
    original = {tensor.name: numpy_helper.to_array(tensor) for tensor in small_model().graph.initializer}
    stripped = small_model()
    skeleton.strip(stripped)
    assert len(stripped.SerializeToString()) < len(small_model().SerializeToString()) / 4
    filled = []
    for _ in range(2):
        model = onnx.ModelProto.FromString(stripped.SerializeToString())
        skeleton.fill(model)
        onnx.checker.check_model(model)
        filled.append({tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer})
    large = filled[0]["large"]
    assert large.tobytes() == filled[1]["large"].tobytes() != original["large"].tobytes()
    assert abs(large.mean() - original["large"].mean()) < 0.1 and abs(large.std() - original["large"].std()) < 0.1
    assert filled[0]["small"].tobytes() == original["small"].tobytes()


def test_a_model_that_is_no_skeleton_is_refused():
    with pytest.raises(SystemExit, match="no skeleton"):
        skeleton.fill(small_model())


def test_the_layers_are_kept():
    done = subprocess.run([sys.executable, REPOSITORY / "scripts" / "check_layers.py", REPOSITORY], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("file, text, said", [
    ("src/core/extra.h", '#include "device/kernel.h"\n', "src/core/extra.h:1: core must not include device/kernel.h"),
    ("src/core/README.md", "May include: `base`, `device`.\n", "src/core/README.md: one line must be: May include: `base`."),
    ("src/core/README.md", "May include: `base`.\n" + "More.\n" * 15, "src/core/README.md has 16 lines, more than 15"),
    ("src/core/README.md", None, "src/core/README.md is missing"),
    ("src/base/os/README.md", None, "src/base/os/README.md is missing"),
    ("src/runtime/run/more.h", '#include "runtime/loaded/packed.h"\n',
     "src/runtime/run/README.md: at most 15 lines, of which one must be: Includes of its neighbours: `loaded`, `lower`, `objects`."),
    ("src/runtime/split/more.h", '#include "runtime/batch/batcher.h"\n',
     "src/runtime/split/README.md: at most 15 lines, of which one must be: Includes of its neighbours: "
     "`batch`, `cost`, `loaded`, `lower`, `placement`, `request`, `rows`, `run`, `session`.\n"
     "src/runtime/split/more.h:1: runtime/split must not include from runtime/batch, a later room"),
])
def test_broken_layers_are_told(tmp_path, file, text, said):
    shutil.copytree(REPOSITORY / "src", tmp_path / "src")
    if text is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(text)
    done = subprocess.run([sys.executable, REPOSITORY / "scripts" / "check_layers.py", tmp_path], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, said + "\n")


def test_unknown_sets_are_refused_by_fetch_models():
    done = subprocess.run([sys.executable, REPOSITORY / "scripts" / "fetch_models.py", "nothing"], capture_output=True, text=True)
    assert done.returncode == 2 and "there are: ocr photo digits more" in done.stderr


def report_of(failure):
    class Known:
        title, tolerance, cosine, is_peer, subnormals = "Some Engine", (1e-3, 1e-4), None, True, ("are 0", "are kept")

        @staticmethod
        def versions():
            return "some 1.0"

    made = report.Report({"some": Known, "other": Known}, ["some"], {"other": "no package other"}, 3, 0.5)
    made.add(2, "net", [report.Row("some", failure, 0.0125, 1.0, 0.5, 0.02, 3 << 20)])
    return made


def test_the_page_has_times_versions_and_what_is_missing():
    text = report_of("").markdown()
    assert "| net | 12.50 (1.00) |" in text and "| net | 500 / 20.0 / 3 |" in text
    assert "some 1.0" in text and "not compared: no package other" in text and "## 2 threads" in text
    assert "Failures" not in text


def test_a_page_says_which_commit_made_it_and_on_which_machine():
    found = re.search(r"<!-- measured at ([0-9a-f]+|unknown), (\d{4}-\d\d-\d\d), (.+) -->\n\nMeasured at commit \1", report_of("").markdown())
    assert found and found[3] in report.machine()


PAGES = sorted((REPOSITORY / "docs").glob("benchmarks-*.md")) + [REPOSITORY / "docs" / "models.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_page_that_was_measured_says_where_it_comes_from(page):
    assert re.search(r"^<!-- measured at [0-9a-f]{7,}, \d{4}-\d\d-\d\d, .+ -->$", page.read_text()[:400], re.M)


def test_a_page_says_what_becomes_of_subnormal_numbers_and_what_evener_was_configured_with(monkeypatch, tmp_path):
    names = [engine.name for engine in compare.DEFAULT_ENGINES]
    monkeypatch.delenv("EVENER_COMPARE_CONFIG", raising=False)
    flushed, kept = (report.Report(compare.ENGINES, names, {}, 5, 0.5, keep=keep) for keep in (False, True))
    for made in (flushed, kept):
        made.add(1, "net", [report.Row(name, "", 0.01, 1.0, 0.5, 0.02, rounds=[0.01], is_peer=compare.ENGINES[name].is_peer) for name in names])
    text = report.page([flushed, kept])
    assert "set_denormal_as_zero" in text and "EVENER_COMPARE_CONFIG` is not set" in text
    assert text.index("## 1 thread\n") < text.index("numerics: strict") < text.index("## 1 thread, subnormal numbers kept")
    (tmp_path / "mine.yaml").write_text("session: {precision: bf16}\n")
    monkeypatch.setenv("EVENER_COMPARE_CONFIG", str(tmp_path / "mine.yaml"))
    assert "```yaml\nsession: {precision: bf16}\n```" in flushed.markdown() and str(tmp_path) not in flushed.markdown()


def test_a_page_has_at_least_five_rounds(tmp_path):
    for script in ("compare.py", "models_table.py"):
        done = subprocess.run([sys.executable, REPOSITORY / "bench" / script, "--rounds", "4", "--markdown", tmp_path / "page.md"],
                              capture_output=True, text=True)
        assert done.returncode == 2 and "at least 5 rounds" in done.stderr


def test_all_trained_models_are_compared_with_the_inputs_of_their_tests():
    assert list(compare.trained()) == [model.name for model in zoo.TRAINED]
    assert not set(compare.trained()) & set(compare.MODELS)


def test_how_the_threads_of_an_engine_wait_is_left_to_it(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    monkeypatch.setenv(engines.KEEP, "1")
    for keep in (False, True):
        environment = compare.worker_environment("ncnn", 2, isa.Unlimited(), keep)
        assert "OMP_WAIT_POLICY" not in environment and (engines.KEEP in environment) == keep


# The first session of a process decides what ONNX Runtime does.
PRODUCT = """
import sys, numpy, onnx
sys.path.insert(0, sys.argv[1])
import engines
from onnx import helper
values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in "xy"]
model = helper.make_model(helper.make_graph([helper.make_node("Mul", ["x", "x"], ["y"])], "product", values[:1], values[1:]), ir_version=8,
                          opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
engine = engines.ENGINES[sys.argv[2]]()
feeds = {"x": numpy.full(4, 1e-20, "float32")}
engine.prepare(model, feeds, None)
engine.load(model, 1, feeds)
print((engine.run(feeds)[0].view("int32") != 0).all())
"""


@pytest.mark.parametrize("name", ["ort", "evener"])
def test_engines_keep_subnormal_numbers_where_they_shall(name):
    command = [sys.executable, "-c", PRODUCT, REPOSITORY / "bench", name]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, **{engines.KEEP: "1"}))
    assert done.stdout.strip() == "True", done.stderr


def test_a_page_of_a_lower_precision_has_cosines_to_the_reference():
    names = [engine.name for engine in compare.BFLOAT16_ENGINES]
    made = report.Report(compare.ENGINES, names, {}, 3, 0.5)
    rows = [report.Row(name, "", median, 1.0, 0.5, 0.02, 3 << 20, rounds=[median], is_peer=compare.ENGINES[name].is_peer)
            for name, median in zip(names, (0.05, 0.01, 0.02))]
    rows[1].cosine, rows[2].cosine = 0.99998, 0.9999
    made.add(1, "net", rows)
    assert made.partner() == "evener_bf16" and not made.is_int8()
    assert "| net | OpenVINO, default precision | 0.50 |" in made.against_best(1)
    assert "0.999 and more" in made.cosines(1) and "| net | 0.999980 | 0.999900 |" in made.cosines(1)
    assert report_of("").cosines(2) == ""


def test_quantized_models_and_a_lower_precision_are_not_compared_at_once():
    done = subprocess.run([sys.executable, REPOSITORY / "bench" / "compare.py", "--int8", "--precision", "bf16"], capture_output=True, text=True)
    assert done.returncode == 1 and "exclude each other" in done.stderr


def test_the_best_of_the_others_is_what_a_ratio_is_to():
    rows = [report.Row(name, "", median, rounds=[median, 2 * median]) for name, median in (("a", 4.0), ("mine", 1.0), ("b", 2.0))]
    assert report.ratio_to_best(rows, "mine") == ("b", 0.5)
    rows[2].failure = "differs"
    assert report.ratio_to_best(rows, "mine") == ("a", 0.25)
    assert report.ratio_to_best(rows[1:], "mine") is None


def test_a_share_of_the_peak_counts_two_operations_to_a_multiply_add():
    yardstick = report.Yardstick(3_000_000, [{"flops": 1e9, "read_bytes": 1e9}, {"flops": 2e9, "read_bytes": 1e9}])
    assert yardstick.share(report.Row("some", "", 0.008)) == 0.5
    assert report.Yardstick(0, yardstick.peaks).share(report.Row("some", "", 0.008)) is None


def test_the_page_names_failures():
    made = report_of("output 0 differs by 3")
    assert len(made.failures()) == 1
    assert "| net | failed |" in made.markdown() and "net, Some Engine, 2 threads: output 0 differs by 3" in made.markdown()


def test_the_page_names_no_places_on_this_machine():
    arguments = ["--threads", "1,2", "--models", "/a", "--cache=/b", "--markdown", "/c", "--rounds", "3", "net"]
    assert report.shown_arguments(arguments) == "--threads 1,2 --rounds 3 net"


def test_an_engine_may_answer_in_other_shapes_when_it_says_so(tmp_path):
    numpy.savez(tmp_path / "ort.first.npz", RIGHT.reshape(1, 3))
    for name in ("ncnn", "openvino"):
        for which in ("first", "last"):
            numpy.savez(tmp_path / f"{name}.{which}.npz", RIGHT)
    assert compare.compare_outputs(tmp_path, "ncnn", "ort") == ""
    assert "not float32[1, 3]" in compare.compare_outputs(tmp_path, "openvino", "ort")


def test_converted_models_are_made_once_and_again_for_other_shapes(tmp_path):
    model = tmp_path / "net.onnx"
    model.write_bytes(b"bytes")
    made = []

    def convert(folder):
        made.append(folder)
        (folder / "model.x").write_text("converted")

    def stem(shape):
        return engines.converted(model, {"x": numpy.zeros(shape, "float32")}, tmp_path / "cache", "tool 1", [".x"], convert)

    first = stem((1, 2))
    assert stem((1, 2)) == first and len(made) == 1
    assert stem((1, 3)) != first and len(made) == 2
    assert pathlib.Path(f"{first}.x").read_text() == "converted"


def test_the_versions_to_compare_with_are_those_of_the_tests():
    def pins(name):
        return dict(line.split("==") for line in (REPOSITORY / "scripts" / name).read_text().splitlines() if "==" in line)

    bench, tests = pins("requirements-bench.txt"), pins("requirements.txt")
    assert {name: bench[name] for name in tests if name in bench} == {name: version for name, version in tests.items() if name in bench}
    assert {package for engine in engines.ENGINES.values() for package in engine.packages} <= set(bench)


def test_the_page_of_models_lists_each_once_and_all_are_right():
    rows = [line.split(" | ") for line in (REPOSITORY / "docs" / "models.md").read_text().splitlines() if line.startswith("| ")]
    rows = [row for row in rows if row[0] != "| model"]
    assert [row[0].lstrip("| ") for row in rows] == [model.name for model in zoo.TRAINED + zoo.NOISE]
    assert all(row[6].startswith("yes") for row in rows)


def test_a_row_of_the_page_of_models_tells_of_failures():
    row = models_table.Row("net", "package 1", 3, "x 1x2", 1e-5, 1e-6, 1e-3, "", 2e-3, 4e-3, 0.5, "whole")
    assert row.line() == "| net | package 1 | 3 | x 1x2 | 1.0e-05 | 1.0e-06 | yes | 2 | 4 | 0.50 | whole |"
    row.failure = models_table.why_wrong([RIGHT + 1], [RIGHT], 1e-3)
    assert "FAILED: output 0 differs by 1" in row.line() and "| no |" in row.line()
    assert models_table.why_wrong([], [RIGHT], 1e-3) == "0 outputs, not 1"


def test_errors_are_the_largest_of_all_outputs():
    absolute, relative = models_table.errors([RIGHT + numpy.float32(0.5), RIGHT * 0], [RIGHT, RIGHT * numpy.float32(0.01)])
    assert absolute == 0.5 and relative == 1.0


def test_inputs_of_the_same_dims_are_named_together():
    many = {f"past{index}": numpy.zeros((1, 6)) for index in range(5)}
    text = models_table.inputs_text({"ids": numpy.zeros((1, 2)), "rate": numpy.array(1), **many})
    assert text == "ids 1x2; rate scalar; past0 and 4 more 1x6"


def test_computed_weights_are_filled_by_what_uses_them():
    nodes = [helper.make_node("ConstantOfShape", [f"{name}_shape"], [name]) for name in ("w", "b")]
    nodes.append(helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1))
    dims = {"w": (50, 200), "b": (50,)}
    shapes = [numpy_helper.from_array(numpy.array(shape, "int64"), f"{name}_shape") for name, shape in dims.items()]
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("x", "y")]
    model = helper.make_model(helper.make_graph(nodes, "computed", values[:1], values[1:], shapes))
    skeleton.fill_computed(model)
    assert [node.op_type for node in model.graph.node] == ["Gemm"]
    filled = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert filled["w"].shape == (50, 200) and abs(filled["w"].std() - 0.1) < 0.01  # the root of 2 by 200 products
    assert filled["b"].shape == (50,) and 0 < numpy.abs(filled["b"]).max() < 0.05


def trace_of(runs):
    """Runs of 100 us, each with one kernel in its second half."""
    events = [{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "cpu"}},
              {"ph": "C", "name": "memory cpu", "cat": "memory", "pid": 1, "tid": 0, "ts": 0, "args": {"current_bytes": 7, "arena_bytes": 1}}]
    for i in range(runs):
        events += [{"ph": "X", "name": "run", "cat": "run", "pid": 1, "tid": 1, "ts": 1000 * i, "dur": 100, "args": {}},
                   {"ph": "X", "name": f"<conv {i}>", "cat": "kernel", "pid": 1, "tid": 1, "ts": 1000 * i + 50, "dur": 50, "args": {}}]
    return {"traceEvents": events}


def test_a_drawn_trace_has_one_run_to_scale():
    picture = draw_trace.draw(trace_of(3), 1)
    assert "&lt;conv 1&gt;, 50.0 us" in picture and "conv 0" not in picture and "conv 2" not in picture
    whole, half = (float(line.split('width="')[1].split('"')[0]) for line in picture.splitlines() if "<title>" in line)
    assert half == pytest.approx(whole / 2, abs=0.02)
    assert draw_trace.draw(trace_of(3)) == draw_trace.draw(trace_of(3), 2)


@pytest.mark.parametrize("runs, number", [(0, -1), (2, 2)])
def test_a_run_that_is_not_there_cannot_be_drawn(runs, number):
    with pytest.raises(SystemExit, match="run"):
        draw_trace.draw(trace_of(runs), number)
