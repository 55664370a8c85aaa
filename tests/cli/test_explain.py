"""evener explain: assertions of a placement, and the page on which it can be looked through."""
import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest
from command import COMMAND, DEVICE, FAILURE, OK, USAGE, evener, save, value
from onnx import TensorProto, helper

if not COMMAND:
    pytest.skip("EVENER_COMMAND is not set", allow_module_level=True)

HOSTILE = '</script><b>"\'&\\\x01<!--<script>'
VOID = {"meta", "input", "br", "link", "img"}


# ------------------------------------------------------------------------------------------------------- assertions --


@pytest.mark.parametrize("assertion", ["all=cpu", "op(Conv)=cpu", "name(conv_*)=cpu", "name(s?b_1)=cpu", "op(Sub)=cpu",
                                       "name(relu_1)=cpu"])
def test_assertions_that_hold_end_with_0(conv, assertion):
    out, err = evener("explain", conv, "--assert", assertion, "--assert", "all=cpu")
    assert "conv_1" in out and err == ""


def test_assertions_that_do_not_hold_name_nodes_devices_and_reasons(conv):
    out, err = evener("explain", conv, "--assert", "op(Conv)!=cpu", "--assert", "all=cpu", "--assert", "name(*)!=cpu", code=FAILURE)
    reason = next(node["reason"] for node in json.loads(evener("explain", conv, "--json")[0])["nodes"] if node["op"] == "Conv")
    assert "conv_1" in out
    assert "evener: --assert op(Conv)!=cpu: 1 of 1 nodes contradict it\n" in err
    assert f"\n  conv_1 (Conv) is on cpu: {reason}\n" in err
    assert "all=cpu" not in err and "name(*)!=cpu: " in err


def test_devices_are_named_as_the_configuration_names_them(add, tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text("devices:\n  host: {type: cpu, threads: 1}\n")
    for device in ("host", "cpu"):
        evener("explain", add, "--config", config, "--assert", f"all={device}")
        evener("explain", add, "--config", config, "--assert", f"op(Add)!={device}", code=FAILURE)
    _, err = evener("explain", add, "--config", config, "--assert", "all=npu", code=DEVICE)
    assert 'there is no device "npu"' in err and "host" in err


def test_an_assertion_that_matches_no_node_is_an_error(conv):
    for assertion in ("op(Gemm)=cpu", "op(Gemm)!=cpu", "name(conv)=cpu", "op(conv)=cpu"):
        assert f"--assert {assertion}: no node" in evener("explain", conv, "--assert", assertion, code=FAILURE)[1]


def test_at_most_20_nodes_are_named_and_the_rest_counted(tmp_path):
    nodes = [helper.make_node("Softmax", [f"v{i}"], [f"v{i + 1}"], name=f"n{i}") for i in range(25)]
    model = save(tmp_path / "m.onnx", nodes, [value("v0", [2, 3])], [value("v25", [2, 3])])
    _, err = evener("explain", model, "--assert", "all!=cpu", code=FAILURE)
    assert "25 of 25 nodes contradict it" in err and "\n  n19 (Softmax) is on cpu" in err and "n20" not in err
    assert err.endswith("\n  and 5 more\n")


@pytest.mark.parametrize("assertion, place, wanted", [
    ("", 1, "op(NAME), name(GLOB) or all"), ("Conv=gpu", 1, "op(NAME), name(GLOB) or all"), ("op(Conv=gpu", 8, ")"),
    ("op(Conv", 8, ")"), ("op()=gpu", 4, "a name"), ("name()=gpu", 6, "a name"), ("op(Conv)", 9, "= or !="), ("all", 4, "= or !="),
    ("op(Conv)gpu", 9, "= or !="), ("alle=cpu", 4, "= or !="), ("op(Conv)x=cpu", 9, "= or !="), ("all=", 5, "the name of a device"),
    ("all!=", 6, "the name of a device"),
    ("all=my device", 7, "a character of a device's name"), ("op(Conv)==gpu", 10, "a character of a device's name")])
def test_wrong_assertions_are_usage_errors_with_the_place(conv, assertion, place, wanted):
    out, err = evener("explain", conv, "--assert", assertion, code=USAGE)
    assert out == "" and f"--assert {assertion}: {wanted} was expected at character {place};" in err


def test_names_may_have_brackets_signs_of_equality_and_control_characters(tmp_path):
    node = helper.make_node("Softmax", ["x"], ["y"], name="a)=(b\x1b[31m")
    model = save(tmp_path / "m.onnx", [node], [value("x", [2, 3])], [value("y", [2, 3])])
    evener("explain", model, "--assert", "name(a)=(b*)=cpu")
    _, err = evener("explain", model, "--assert", "name(a)=(b*)!=cpu", code=FAILURE)
    assert "a)=(b\\x1b[31m (Softmax) is on cpu" in err and "\x1b" not in err


def opencl_config(tmp_path):
    if "opencl:0" not in evener("devices", "--json")[0] and os.environ.get("EVN_REQUIRE_OPENCL") != "1":
        pytest.skip("no OpenCL device")
    config = tmp_path / "two.yaml"
    config.write_text("devices:\n  gpu: {type: opencl}\n"
                      "placement:\n  default: cpu\n  rules:\n    - {match: {op: Conv}, device: gpu}\n")
    return config


def test_assertions_tell_devices_apart(conv, tmp_path):
    config = opencl_config(tmp_path)
    evener("explain", conv, "--config", config, "--assert", "op(Conv)=gpu", "--assert", "op(Sub)!=gpu", "--assert", "op(Sub)=cpu")
    _, err = evener("explain", conv, "--config", config, "--assert", "all=gpu", code=FAILURE)
    assert "sub_1 (Sub) is on cpu: " in err and "conv_1" not in err


# --------------------------------------------------------------------------------------------------------- the page --


class Page(html.parser.HTMLParser):
    """Holds a page to what is well formed: each element ends where it should, and nothing is asked for from elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts, self.ids = [], [], {}, set()
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        for name, text in attributes:
            assert name not in ("src", "href", "srcset", "action") and not name.startswith("on"), f"{tag} {name}"
            assert not re.search(r"https?:|//|javascript:", text or ""), f"{tag} {name}={text}"
            if name == "id":
                assert text not in self.ids
                self.ids.add(text)
        if tag not in VOID:
            self.open.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1][0] == tag, f"</{tag}> in {self.open}"
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1][0] in ("script", "style"):
            kind, attributes = self.open[-1]
            self.texts.setdefault(attributes.get("id", kind), "")
            self.texts[attributes.get("id", kind)] += data


def page_of(path):
    text = pathlib.Path(path).read_text()
    assert text.startswith("<!DOCTYPE html>")
    page = Page(text)
    for part in ("script", "style"):
        assert not re.search(r"https?:|\bsrc\s*=|\bhref\s*=|@import|url\(|innerHTML|insertAdjacent|document\.write|eval\(|fetch\(|"
                             r"XMLHttpRequest|import\(", page.texts[part]), part
    assert "default-src 'none'" in text and page.tags.count("script") == 2
    # Whatever the script looks for by its id is there.
    assert set(re.findall(r'(?:getElementById|fillTable)\("([^"]+)"', page.texts["script"])) <= page.ids
    return page, json.loads(page.texts["data"])


def test_the_page_has_what_explain_says_and_what_a_run_took(conv, tmp_path):
    out, err = evener("explain", conv, "--html", tmp_path / "page.html", "--run")
    assert out == f"written to {tmp_path / 'page.html'}\n" and err == ""
    page, data = page_of(tmp_path / "page.html")
    plain = json.loads(evener("explain", conv, "--json")[0])
    assert [node["name"] for node in data["explanation"]["nodes"]] == [node["name"] for node in plain["nodes"]]
    kernels = [event for event in data["trace"]["traceEvents"] if event.get("cat") == "kernel"]
    runs = [event for event in data["trace"]["traceEvents"] if event.get("cat") == "run"]
    assert len(runs) == 2 and len(kernels) == 2 * len(plain["nodes"])
    evener("explain", conv, "--html", tmp_path / "page.html")
    assert page_of(tmp_path / "page.html")[1]["trace"] is None


def test_explain_tells_the_edges_of_the_graph(conv):
    explained = json.loads(evener("explain", conv, "--json")[0])
    nodes = {node["op"]: node for node in explained["nodes"]}
    assert explained["inputs"] == ["x"] and explained["outputs"] == ["y"]
    assert nodes["Conv"]["inputs"] == ["x"] and nodes["Sub"]["outputs"] == ["y"] and nodes["Sub"]["types"] == ["float32[1,4,8,8]"]
    assert all(node["level"] == 0 for node in nodes.values())


def wide_in_the_middle(tmp_path):
    """Concat makes the widest value of it; x [1, 1024]."""
    nodes = [helper.make_node("Softmax", ["x"], ["a"], name="first"),
             helper.make_node("Concat", ["a", "a", "a", "a"], ["b"], name="wide", axis=1),
             helper.make_node("Softmax", ["b"], ["c"], name="after"),
             helper.make_node("ReduceSum", ["c"], ["d"], name="narrow", keepdims=1),
             helper.make_node("Softmax", ["d"], ["y"], name="last")]
    return save(tmp_path / "wide.onnx", nodes, [value("x", [1, 1024])], [value("y", [1, 1])])


def test_explain_tells_which_node_makes_the_peak(tmp_path):
    model = wide_in_the_middle(tmp_path)
    explained = json.loads(evener("explain", model, "--shape", "x=1,1024", "--json")[0])
    live = {node["name"]: node["live_bytes"] for node in explained["nodes"]}
    memory = explained["memory"]["cpu"]
    assert memory["live_peak_bytes"] == max(bytes for bytes in live.values() if bytes is not None) >= 4 * 4096
    assert live[memory["live_peak_at"]] == memory["live_peak_bytes"] and memory["live_peak_at"] in ("wide", "after")
    assert live["first"] < live["after"] and live["last"] < live["after"]
    assert memory["live_peak_bytes"] <= memory["arena_bytes"] <= memory["planned_peak_bytes"] and memory["limit_bytes"] is None
    before = json.loads(evener("explain", model, "--json")[0])  # nothing has run: by what would be planned
    assert {node["name"]: node["live_bytes"] for node in before["nodes"]} == live
    text, _ = evener("explain", model)
    assert f"at most {memory['live_peak_bytes']} live, at {memory['live_peak_at']}" in text and ", no limit;" in text
    assert f"live {live['first']} bytes" in text


def test_explain_compares_the_planned_peak_with_the_limit(tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text("devices: {cpu: {type: cpu, memory_limit: 1MiB}}\n")
    model = wide_in_the_middle(tmp_path)
    memory = json.loads(evener("explain", model, "--config", config, "--json")[0])["memory"]["cpu"]
    assert memory["limit_bytes"] == 2**20
    share = 100 * memory["planned_peak_bytes"] / 2**20
    assert f"{share:.1f} % of the limit of 1048576" in evener("explain", model, "--config", config)[0]


def test_the_page_shows_memory_by_node(tmp_path):
    model = wide_in_the_middle(tmp_path)
    evener("explain", model, "--html", tmp_path / "page.html", "--run")
    page, data = page_of(tmp_path / "page.html")
    peak = data["explanation"]["memory"]["cpu"]["live_peak_at"]
    heights, table, details = run_script(tmp_path / "page.html", """[byId.live.children[1].children.map((bar) => bar.style.height),
        byId.memory.text(), (select(boxNamed(EXPLANATION.memory.cpu.live_peak_at)), byId.details.text())]""")
    assert "100%" in heights and len(heights) == len([n for n in data["explanation"]["nodes"] if n["live_bytes"] is not None])
    assert f"at {peak}" in table and "100 % of the peak" in details


def test_nodes_of_bodies_are_a_level_deeper(tmp_path):
    def body(op):
        return helper.make_graph([helper.make_node(op, ["x"], [op], name="inner")], op, [], [value(op, [2])])

    nodes = [helper.make_node("If", ["c"], ["y"], name="choose", then_branch=body("Exp"), else_branch=body("Erf"))]
    model = save(tmp_path / "if.onnx", nodes, [value("c", [], TensorProto.BOOL), value("x", [2])], [value("y", [2])])
    explained = json.loads(evener("explain", model, "--json")[0])
    levels = {node["op"]: node["level"] for node in explained["nodes"]}
    assert {"Exp", "Erf"} <= set(levels)
    evener("explain", model, "--html", tmp_path / "page.html", "--run")
    page_of(tmp_path / "page.html")


def hostile_model(tmp_path):
    nodes = [helper.make_node("Softmax", ["x"], [HOSTILE], name=HOSTILE),
             helper.make_node("Exp", [HOSTILE], ["y"], name="]]>\u2028\u202e")]
    return save(tmp_path / "h.onnx", nodes, [value("x", [2, 3])], [value("y", [2, 3])])


def test_hostile_names_are_texts_in_the_page(tmp_path):
    evener("explain", hostile_model(tmp_path), "--html", tmp_path / "page.html", "--run")
    page, data = page_of(tmp_path / "page.html")
    assert data["explanation"]["nodes"][0]["name"] == HOSTILE and data["explanation"]["nodes"][0]["outputs"] == [HOSTILE]
    assert "b" not in page.tags and not re.search("[<>&]", page.texts["data"])


def test_the_page_excludes_other_formats_and_may_be_asserted(conv, tmp_path):
    for other in ("--json", "--dot", "--svg"):
        evener("explain", conv, "--html", tmp_path / "page.html", other, code=USAGE)
    assert not (tmp_path / "page.html").exists()
    evener("explain", conv, "--html", tmp_path / "page.html", "--assert", "all!=cpu", code=FAILURE)
    assert (tmp_path / "page.html").exists()
    _, err = evener("explain", conv, "--html", tmp_path / "absent" / "page.html", code=FAILURE)
    assert "cannot be written" in err


def test_a_run_needs_dimensions(add, tmp_path):
    assert "--shape a=" in evener("explain", add, "--html", tmp_path / "page.html", "--run", code=USAGE)[1]
    evener("explain", add, "--html", tmp_path / "page.html", "--run", "--shape", "a=2,3", "--shape", "b=2,3")
    assert page_of(tmp_path / "page.html")[1]["trace"]["traceEvents"]


# A document that is just enough for the page's script, which prints what it has made. What a test looks at is text, never markup.
BROWSER = r"""
const pen = new Proxy({ measureText: (text) => ({ width: 6 * text.length }) },
  { get: (t, k) => t[k] || (() => {}), set: () => true });
function node(id) {
  const children = [];
  return { id, style: {}, clientWidth: 800, clientHeight: 500, children, handlers: {}, append(...more) { children.push(...more); },
    replaceChildren(...more) { children.splice(0, children.length, ...more); }, getContext: () => pen, setPointerCapture() {},
    addEventListener(name, f) { this.handlers[name] = f; }, value: "",
    text() { return (this.textContent || "") + children.map((c) => typeof c === "string" ? c : c.text()).join("|"); } };
}
const byId = {};
globalThis.document = { getElementById: (id) => byId[id] = byId[id] || node(id), createElement: (tag) => node(tag) };
globalThis.window = { devicePixelRatio: 1 };
globalThis.requestAnimationFrame = (f) => f();
globalThis.ResizeObserver = class { constructor(f) { this.f = f; } observe() { this.f(); } };
"""


def run_script(path, then):
    """What the page's script does in a document of its own: JSON of an expression, once it has started."""
    if shutil.which("node") is None:
        pytest.skip("Node.js is not installed")
    page, _ = page_of(path)
    script = path.with_suffix(".js")
    data = f"document.getElementById('data').textContent = {json.dumps(page.texts['data'])};\n"
    script.write_text(f"{BROWSER}{data}{page.texts['script']}\nconsole.log(JSON.stringify({then}));\n")
    done = subprocess.run(["node", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == OK, done.stderr
    return json.loads(done.stdout)


def test_the_script_lays_the_graph_out_and_shows_a_node(conv, tmp_path):
    evener("explain", conv, "--html", tmp_path / "page.html", "--run")
    layers, overlaps, details, title, timeline, counts = run_script(tmp_path / "page.html", """[
      PLACED.layers.map((layer) => layer.map((box) => box.name)),
      PLACED.layers.some((layer) => layer.some((a) => layer.some((b) => a !== b && Math.abs(a.x - b.x) < BOX_WIDTH))),
      (select(boxNamed("sub_1"), true), byId.details.text()), byId.title.text(), LANES.length,
      [...TRACE.byNode.values()].map((took) => took.count)]""")
    assert layers[0] == ["x"] and layers[-1] == ["y"] and not overlaps
    assert "conv.onnx" in title and "sub_1" in details and "Sub" in details and "float32[1,4,8,8]" in details and "µs" in details
    assert timeline >= 1 and set(counts) == {1}  # of the last run alone


def test_the_script_copes_with_hostile_names(tmp_path):
    evener("explain", hostile_model(tmp_path), "--html", tmp_path / "page.html", "--run")
    assert HOSTILE in run_script(tmp_path / "page.html", "(select(GRAPH.boxes[1], true), byId.details.text())")


def test_the_script_lays_out_thousands_of_nodes_in_seconds(tmp_path):
    rng = np.random.default_rng(1)
    nodes = [helper.make_node("Add", [f"v{rng.integers(max(0, i - 9), i + 1)}", f"v{i}"], [f"v{i + 1}"], name=f"add_{i}")
             for i in range(4000)]
    model = save(tmp_path / "m.onnx", nodes, [value("v0", [3])], [value("v4000", [3])])
    evener("explain", model, "--html", tmp_path / "page.html", "--run")
    count, milliseconds = run_script(tmp_path / "page.html", """
        ((start) => [place(makeGraph(EXPLANATION)).layers.length, Date.now() - start])(Date.now())""")
    assert count > 1000 and milliseconds < 5000


def test_the_page_shows_copies_between_devices(conv, tmp_path):
    config = opencl_config(tmp_path)
    evener("explain", conv, "--config", config, "--html", tmp_path / "page.html", "--run")
    copies, devices, red = run_script(tmp_path / "page.html", """
        [byId.copies.text(), byId.devices.text(), GRAPH.edges.filter((edge) => edge.copy).length]""")
    assert "cpu" in devices and "gpu" in devices and red >= 2 and "x" in copies and "µs" in copies and "768 B" in copies
