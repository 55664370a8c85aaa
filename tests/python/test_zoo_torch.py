"""What of bench/zoo_torch.py needs no PyTorch: the list of networks, options, comparison, sums of traces, tables."""
import json
import math
import pathlib
import sys

import numpy
import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "bench")]

import zoo_torch  # noqa: E402
import zoo_torch_export  # noqa: E402
import zoo_torch_models  # noqa: E402
from table import Table  # noqa: E402


def row(name, ours, theirs, threads=1, **more):
    return {"name": name, "exporter": "script", "threads": threads, "ours": ours, "theirs": theirs, "equal": True, "error": 1e-6,
            "kernels": [], **more}


def test_networks_have_names_of_their_own_and_cover_the_tasks():
    networks = zoo_torch_models.networks()
    assert len({network.name for network in networks}) == len(networks) >= 150
    assert {"classification", "detection", "segmentation", "video", "optical flow", "audio", "encoder", "decoder",
            "encoder-decoder", "vision-language", "depth", "super-resolution", "time series", "diffusion"} <= {
                network.task for network in networks}


def test_patterns_match_with_and_without_the_library():
    networks = zoo_torch_models.networks()
    names = [network.name for network in zoo_torch_models.chosen(["resnet18", "transformers/bert*"], networks)]
    assert "torchvision/resnet18" in names and "transformers/bert" in names and "transformers/albert" not in names
    assert zoo_torch_models.chosen([], networks) == networks
    assert zoo_torch_models.chosen(["no such network"], networks) == []


def test_options():
    arguments = zoo_torch.arguments_of(["--exporter", "dynamo", "--threads", "2,4", "swin*"])
    assert (arguments.exporter, arguments.threads, arguments.names) == (["dynamo"], [2, 4], ["swin*"])
    with pytest.raises(SystemExit):
        zoo_torch.arguments_of(["--exporter", "onnx"])


def test_outputs_are_equal_within_the_tolerance_of_their_largest_magnitude():
    right = numpy.array([1000.0, 0.0, 1.0], "float32")
    assert zoo_torch.compared([right + numpy.float32(0.5)], [right]) == (True, pytest.approx(5e-4))
    assert zoo_torch.compared([right + numpy.float32([0, 3, 0])], [right])[0] is False
    assert zoo_torch.compared([right[:2]], [right]) == (False, math.inf)
    assert zoo_torch.compared([right, right], [right])[0] is False
    assert zoo_torch.compared([numpy.array([1, 2])], [numpy.array([1, 3])])[0] is False
    special = numpy.array([math.nan, math.inf, 1], "float32")
    assert zoo_torch.compared([special.copy()], [special]) == (True, 0)
    assert zoo_torch.compared([numpy.array([math.nan, 1, 1], "float32")], [special]) == (False, math.inf)


def test_a_share_of_the_elements_may_differ_where_a_network_says_so():
    right = numpy.ones(200, "float32")
    wrong = right.copy()
    wrong[0] = 0
    assert zoo_torch.compared([wrong], [right])[0] is False
    assert zoo_torch.compared([wrong], [right], may_differ=0.01)[0] is True
    wrong[:3] = 0
    assert zoo_torch.compared([wrong], [right], may_differ=0.01)[0] is False


def test_a_traces_kernels_are_summed_by_the_shortest_time_of_each_step():
    def event(name, op, duration, kernel="k", category="kernel"):
        return {"cat": category, "name": name, "dur": duration, "args": {"op": op, "kernel": kernel, "shapes": name}}

    events = [event("a", "Conv", 100), event("a", "Conv", 300), event("b", "Conv", 200), event("c", "Add", 100),
              event("x", "", 9, "", "run")]
    assert zoo_torch.kernels_of(events) == [["Conv", "k", 2, 0.3, 0.75, "b"], ["Add", "k", 1, 0.1, 0.25, "c"]]
    assert zoo_torch.kernels_of([]) == []


def test_the_summary_has_the_geometric_mean_the_share_and_the_worst():
    rows = [row("a", 1, 2), row("b", 2, 1), row("c", 1, 8, 2)]
    one, two = zoo_torch.summary(rows, 0.95)
    assert one == "1 thread: 2 files, geometric mean 1.00, 1 above 0.95 (50 %), worst b (script) with 2.00"
    assert two.startswith("2 threads: 1 files, geometric mean 0.13, 0 above 0.95")
    assert zoo_torch.summary([], 0.95) == []


def test_the_page_lists_what_is_slow_and_what_failed():
    kernels = [["Conv", "conv_nhwc", 3, 1.5, 0.6, "float32[1]"], ["Add", "", 1, 0.5, 0.2, ""]]
    rows = [row("a", 1, 2), row("b", 3, 1, kernels=kernels), row("c", 2, 1)]
    slow = zoo_torch.slow_table(rows, 0.95).text()
    assert [line.split(" | ")[0] for line in slow.splitlines()[2:]] == ["| b", "| c"]
    assert "conv_nhwc (Conv) x 3: 60 %, float32[1] | Add (Add) x 1: 20 %,  |  |" in slow
    table = Table("network")
    table.add("b")
    unexported, bad = ["d (dynamo): TypeError"], ["c (script): outputs differ"]
    page = zoo_torch.page(table, zoo_torch.slow_table(rows, 0.95), unexported, ["3 files"], bad)
    assert page.startswith("- 3 files\n\n| network |")
    assert all(f"- {line}" in page for line in unexported + bad)


def test_cells_of_a_row():
    made = {"opset": 20, "nodes": 7}
    assert zoo_torch.row_cells("a", "t", "script", made, [row("a", 1, 2, 2)], [1, 2], "") == [
        "a", "t", "script", "20", "7", "yes", "1e-06", "", "", "", "1.00", "2.00", "0.50"]
    assert "NO" in zoo_torch.row_cells("a", "t", "script", made, [row("a", 1, 2, equal=False)], [1], "")
    assert "FAILS: late" in zoo_torch.row_cells("a", "t", "script", made, [], [1], "late")


def test_kept_rows_are_the_last_of_each_number_of_threads(tmp_path):
    path = tmp_path / "rows.json"
    assert zoo_torch.kept_rows(path) == zoo_torch.kept_rows(None) == {}
    refused = {"name": "b", "exporter": "script", "refusal": "no"}
    rows = [row("a", 1, 2), row("a", 3, 4), row("a", 5, 6, 2), refused]
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    assert zoo_torch.kept_rows(path) == {("a", "script"): rows[1:3], ("b", "script"): [refused]}


def test_a_failure_is_its_last_line():
    assert zoo_torch.failure_of(0, "warning") == ""
    assert zoo_torch.failure_of(1, "Traceback\n  deep\nError: why\n\n") == "exit status 1: Error: why"
    assert zoo_torch.failure_of(-11, "") == "exit status -11: no message"


def test_an_exporters_reason_is_that_of_the_first_cause():
    try:
        try:
            raise TypeError("no such operator\nand more")
        except TypeError as cause:
            raise RuntimeError("export failed") from cause
    except RuntimeError as error:
        assert zoo_torch_export.reason_of(error) == "TypeError: no such operator"


def test_what_was_tried_is_not_exported_again(tmp_path):
    network = zoo_torch_models.chosen(["resnet18"], zoo_torch_models.networks())[0]
    stem = zoo_torch_export.stem_of(network.name, "script", tmp_path)
    assert stem.name == "torchvision.resnet18.script"
    pathlib.Path(f"{stem}.json").write_text('{"error": "known"}')
    assert zoo_torch_export.exported(network, "script", tmp_path) == {"error": "known"}
