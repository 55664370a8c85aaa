"""What is no tensor in an arena counts against the memory limit: sequences, strings, what loops collect, graphs and plans. In a process of its
own, each model's resident memory grows by no more than the ledger's peak, a tenth of it and 8 MiB; and under a limit by no more than the
limit and 8 MiB. tests/limits does the same for each row of the operator tables."""
import json
import os
import pathlib
import subprocess
import sys

import numpy
import onnx.helper as h
import onnx.numpy_helper
import onnx.parser
import pytest

MIB = 1 << 20
if os.environ.get("EVN_SANITIZER_PRELOAD"):
    pytest.skip("a sanitizer has memory of its own", allow_module_level=True)
if not pathlib.Path("/proc/self/clear_refs").exists():
    pytest.skip("the system does not say how much memory is resident", allow_module_level=True)

HEAD = '<ir_version: 9, opset_import: ["" : 20, "ai.onnx.ml" : 3]>\n'
COUNT = numpy.array([1 << 19])


def text(body):
    return onnx.parser.parse_model(HEAD + body).SerializeToString()


def chain(nodes):
    """A graph that is large in itself: names, nodes, a plan."""
    made = [h.make_node("Add" if i % 2 else "Mul", [f"a{i - 1}" if i else "x", "x"], [f"a{i}"], name=f"a node with quite a long name, {i}")
            for i in range(nodes)]
    x, y = h.make_tensor_value_info("x", 1, ["n"]), h.make_tensor_value_info(f"a{nodes - 1}", 1, ["n"])
    return h.make_model(h.make_graph(made, "g", [x], [y]), opset_imports=[h.make_opsetid("", 17)], ir_version=8).SerializeToString()


def constants(count):
    """Many small initializers and a long list in an attribute."""
    weights = [onnx.numpy_helper.from_array(numpy.float32(i), f"w{i}") for i in range(count)]
    nodes = [h.make_node("Constant", [], ["c"], value_ints=list(range(8 * count))), h.make_node("Size", ["c"], ["y"])]
    return h.make_model(h.make_graph(nodes, "g", [], [h.make_tensor_value_info("y", 7, [])], weights),
                        opset_imports=[h.make_opsetid("", 17)], ir_version=8).SerializeToString()


# The model, what it is fed, and a limit that it does not fit under.
CASES = {
    "parts": lambda: (text("""g (int64[1] n) => (int64 y) {
        v = ConstantOfShape(n)
        s = SplitToSequence <keepdims = 0> (v)
        y = SequenceLength(s) }"""), {"n": COUNT}, 16 * MIB),
    "parts_of_columns": lambda: (text("""g (int64[1] n) => (int64 y) {
        two = Constant <value_ints = [2]> ()
        shape = Concat <axis = 0> (two, n)
        v = ConstantOfShape(shape)
        s = SplitToSequence <axis = 1> (v)
        y = SequenceLength(s) }"""), {"n": COUNT // 4}, 8 * MIB),
    "strings": lambda: (text("""g (int64[1] n) => (int64[k] y) {
        zero = Constant <value_int = 0> ()
        one = Constant <value_int = 1> ()
        count = Squeeze(n)
        numbers = Range(zero, count, one)
        words = Cast <to = 8> (numbers)
        both = StringConcat(words, words)
        parts, lengths = StringSplit <delimiter = "1"> (both)
        y = Shape(parts) }"""), {"n": COUNT // 4}, 8 * MIB),
    "unique": lambda: (text("""g (int64[1] n) => (int64[1] y) {
        zero = Constant <value_int = 0> ()
        one = Constant <value_int = 1> ()
        count = Squeeze(n)
        numbers = Range(zero, count, one)
        a, b, c, d = Unique <sorted = 0> (numbers)
        y = Shape(d) }"""), {"n": COUNT}, 16 * MIB),
    "largest": lambda: (text("""g (int64[1] n) => (int64[1] y) {
        zero = Constant <value_int = 0> ()
        one = Constant <value_int = 1> ()
        count = Squeeze(n)
        numbers = Range(zero, count, one)
        small = Cast <to = 3> (numbers)
        a, b = TopK <axis = 0> (small, n)
        y = Shape(b) }"""), {"n": COUNT * 2}, 16 * MIB),
    "turns": lambda: (text("""g (int64[1] n) => (int64[2] y) {
        count = Squeeze(n)
        go = Equal(count, count)
        all = Loop <body = turn (int64 i, bool before) => (bool more, float[256] row) {
            more = Identity(before)
            shape = Constant <value_ints = [256]> ()
            row = ConstantOfShape(shape) }> (count, go)
        y = Shape(all) }"""), {"n": COUNT // 32}, 16 * MIB),
    "scan": lambda: (text("""g (int64[1] n) => (int64[2] y) {
        zero = Constant <value_int = 0> ()
        one = Constant <value_int = 1> ()
        count = Squeeze(n)
        numbers = Range(zero, count, one)
        all = Scan <num_scan_inputs = 1, body = step (int64 i) => (float[256] row) {
            shape = Constant <value_ints = [256]> ()
            row = ConstantOfShape(shape) }> (numbers)
        y = Shape(all) }"""), {"n": COUNT // 32}, 16 * MIB),
    "edited_parts": lambda: (text("""g (int64[1] n) => (int64[1] y) {
        v = ConstantOfShape(n)
        s = SplitToSequence <keepdims = 0> (v)
        zero = Constant <value_int = 0> ()
        first = SequenceAt(s, zero)
        longer = SequenceInsert(s, first, zero)
        shorter = SequenceErase(longer, zero)
        whole = ConcatFromSequence <axis = 0, new_axis = 1> (shorter)
        y = Shape(whole) }"""), {"n": COUNT}, 16 * MIB),
    "mapped_parts": lambda: (text("""g (int64[1] n) => (int64 y) {
        v = ConstantOfShape(n)
        s = SplitToSequence <keepdims = 0> (v)
        m = SequenceMap <body = each (float a) => (float b) { b = Neg(a) }> (s)
        y = SequenceLength(m) }"""), {"n": COUNT // 8}, 8 * MIB),
    "maps": lambda: (text("""g (int64[1] n) => (int64 y) {
        two = Constant <value_ints = [2]> ()
        shape = Concat <axis = 0> (n, two)
        v = ConstantOfShape(shape)
        z = ai.onnx.ml.ZipMap <classlabels_int64s = [0, 1]> (v)
        y = SequenceLength(z) }"""), {"n": COUNT // 8}, 8 * MIB),
    "chain": lambda: (chain(20000), {"x": numpy.ones(8, "float32")}, 8 * MIB),
    "constants": lambda: (constants(40000), {}, 8 * MIB),
}

# Operators that run on the host (src/ops/host.h) and take no memory worth a case, with the reason.
EXEMPT = {
    ("", "Identity"): "hands on its input",
    ("", "If"): "hands on one of its inputs",
    ("", "Optional"): "wraps its input",
    ("", "OptionalHasElement"): "makes one element",
    ("", "OptionalGetElement"): "hands on what its input wraps",
    ("", "SequenceConstruct"): "makes a list of no more parts than the model's file names",
    ("", "SequenceEmpty"): "makes an empty list",
    ("", "ImageDecoder"): "its module charges what it takes: tests/models/test_image_decoder.py, test_the_cap_on_memory_holds",
    ("ai.onnx.ml", "DictVectorizer"): "makes a tensor as long as an attribute, of a map that the caller holds",
    ("ai.onnx.ml", "CastMap"): "makes a tensor of a map that the caller holds, with one entry for each of the map's",
}


def operators_of(graph):
    for node in graph.node:
        yield "" if node.domain == "ai.onnx" else node.domain, node.op_type
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from operators_of(attribute.g)


def test_each_operator_that_runs_on_the_host_has_a_case_or_a_reason():
    """tests/limits measures those that have a reference."""
    rows = json.loads(subprocess.run([pathlib.Path(os.environ["EVENER_BUILD"]) / "list_operators"], check=True, capture_output=True).stdout)
    host = {("", "If") if row["merge"] else (row["domain"], row["name"]) for row in rows if row["host"]}
    assert {("", "Loop"), ("", "Scan"), ("", "SequenceInsert"), ("ai.onnx.ml", "ZipMap")} <= host
    measured = {operator for make in CASES.values() for operator in operators_of(onnx.load_from_string(make()[0]).graph)}
    assert sorted(host - measured - set(EXEMPT)) == [], "need a case in CASES, or a reason in EXEMPT"
    assert sorted(set(EXEMPT) - host) == [], "no such operators"


CHILD = """
import ctypes, json, sys, numpy, evener
model, feeds, limit, size = open(sys.argv[1], 'rb').read(), dict(numpy.load(sys.argv[2])), json.loads(sys.argv[3]), 0
def field(name):
    return next(int(line.split()[1]) << 10 for line in open('/proc/self/status') if line.startswith(name))
warm = evener.Runtime(threads=2, cache_dir='')
runtime = evener.Runtime(threads=2, cache_dir='', memory_limit=limit)
cpu = runtime.device('cpu')
ctypes.CDLL(None).malloc_trim(0)
open('/proc/self/clear_refs', 'w').write('5')
before, code, counted, status, why = field('VmRSS'), field('RssFile'), cpu.memory().current, 'OK', ''
try:
    session = runtime.session(model)
    session.run(feeds)
except evener.Error as e:
    status, why, size = e.status.name, str(e), e.bytes_requested
before += field('RssFile') - code  # pages of the library that the case has touched first
print(json.dumps({'grown': field('VmHWM') - before, 'counted': cpu.memory().peak - counted, 'status': status, 'why': why, 'size': size}))
"""


def measured(name, folder, limit):
    model, feeds, _ = CASES[name]()
    (folder / "m.onnx").write_bytes(model)
    numpy.savez(folder / "feeds.npz", **feeds)
    done = subprocess.run([sys.executable, "-c", CHILD, folder / "m.onnx", folder / "feeds.npz", json.dumps(limit)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", CASES)
def test_the_ledger_counts_what_is_taken(name, tmp_path):
    found = measured(name, tmp_path, None)
    assert found["status"] == "OK", found
    assert found["grown"] <= found["counted"] * 1.1 + 8 * MIB, found


@pytest.mark.parametrize("name", CASES)
def test_a_limit_holds(name, tmp_path):
    limit = CASES[name]()[2]
    found = measured(name, tmp_path, limit)
    assert found["grown"] <= limit + 8 * MIB, found
    assert found["status"] == "OUT_OF_MEMORY" and found["size"] > 0, found


TWO_RUNS = """
import json, sys, numpy, evener
parts, arena, limit, keeps = open(sys.argv[1], 'rb').read(), open(sys.argv[2], 'rb').read(), int(sys.argv[3]), sys.argv[4] == 'keep'
def field(name):
    return next(int(line.split()[1]) << 10 for line in open('/proc/self/status') if line.startswith(name))
runtime = evener.Runtime(threads=1, cache_dir='', memory_limit=limit)
first, second = runtime.session(parts), runtime.session(arena)
for session in (first, second):
    session.run({'n': numpy.array([100])})
open('/proc/self/clear_refs', 'w').write('5')
before, left = field('VmRSS'), {}
last = first.run({'n': numpy.array([50_000])})
if not keeps:
    last = None
    runtime.device('cpu').trim_memory()
    left = {'left': field('VmRSS') - before}
second.run({'n': numpy.array([12 << 20])})
print(json.dumps({'grown': field('VmHWM') - before, **left}))
"""


@pytest.mark.parametrize("how", ["keep", "trim"])
def test_small_blocks_that_a_run_has_freed_do_not_stay_beside_the_next_run(how, tmp_path):
    """Some 40 MiB in small blocks, of which the caller may keep one, and then an arena of 48 MiB."""
    limit = 64 * MIB
    (tmp_path / "parts.onnx").write_bytes(text("""g (int64[1] n) => (float[k] y) {
        v = ConstantOfShape(n)
        s = SplitToSequence <keepdims = 1> (v)
        m = SequenceMap <body = each (float[1] a) => (float[1] b) { b = Neg(a) }> (s)
        last = Constant <value_int = -1> ()
        y = SequenceAt(m, last) }"""))
    (tmp_path / "arena.onnx").write_bytes(text("""g (int64[1] n) => (float y) {
        v = ConstantOfShape(n)
        w = Exp(v)
        y = ReduceMax <keepdims = 0> (w) }"""))
    done = subprocess.run([sys.executable, "-c", TWO_RUNS, tmp_path / "parts.onnx", tmp_path / "arena.onnx", str(limit), how],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["grown"] <= limit + 8 * MIB, found
    assert found.get("left", 0) <= 8 * MIB, found
