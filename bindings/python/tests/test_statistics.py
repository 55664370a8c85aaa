"""Statistics: dicts of sessions and runtimes, and the text for Prometheus, read by a strict parser of its format 0.0.4."""
import math
import re

import evener
import numpy
import pytest

import tiny

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


def parse_labels(text):
    labels, at = {}, 0
    while at < len(text):
        match = _LABEL.match(text, at)
        assert match, f"labels: {text!r}"
        assert match[1] not in labels and match[1] != "__name__"
        labels[match[1]] = re.sub(r'\\["\\n]', lambda escape: _ESCAPES[escape[0]], match[2])
        at = match.end()
        assert match[3] == "" or at < len(text), f"a comma at the end: {text!r}"
    return labels


def parse(text):
    """{family: (type, [(name, labels, value)])}; asserts what the format demands."""
    assert text.endswith("\n") and "\r" not in text
    families, series, family = {}, set(), None
    lines = text[:-1].split("\n")
    for index, line in enumerate(lines):
        if line.startswith("# HELP "):
            name, help_text = line[7:].split(" ", 1)
            assert re.fullmatch(_NAME, name) and help_text and name not in families
            assert lines[index + 1].startswith(f"# TYPE {name} ")
        elif line.startswith("# TYPE "):
            family, kind = line[7:].split(" ")
            assert kind in ("counter", "gauge", "histogram") and family not in families
            assert lines[index - 1].startswith(f"# HELP {family} ")
            families[family] = (kind, [])
        else:
            match = _SAMPLE.fullmatch(line)
            assert match, f"line {index + 1}: {line!r}"
            name, labels = match[1], parse_labels(match[2] or "")
            suffixes = ("_bucket", "_sum", "_count") if families[family][0] == "histogram" else ("",)
            assert name in [family + suffix for suffix in suffixes], line
            key = (name, tuple(sorted(labels.items())))
            assert key not in series, f"twice: {line}"
            series.add(key)
            families[family][1].append((name, labels, float(match[3].replace("Inf", "inf"))))
    for name, (kind, samples) in families.items():
        if kind == "histogram":
            check_histogram(name, samples)
        assert all(value >= 0 for _, _, value in samples)
    return families


def check_histogram(name, samples):
    groups = {}
    for sample, labels, value in samples:
        rest = {key: text for key, text in labels.items() if key != "le"}
        group = groups.setdefault(tuple(sorted(rest.items())), {"buckets": []})
        if sample == name + "_bucket":
            group["buckets"].append((float(labels["le"].replace("Inf", "inf")), value))
        else:
            assert "le" not in labels
            group[sample[len(name) + 1:]] = value
    for group in groups.values():
        bounds, counts = [bound for bound, _ in group["buckets"]], [count for _, count in group["buckets"]]
        assert bounds == sorted(set(bounds)) and math.isinf(bounds[-1])
        assert counts == sorted(counts) and counts[-1] == group["count"]
        assert (group["count"] == 0) == (group["sum"] == 0) or group["count"] > 0


def value_of(families, family, **labels):
    [value] = [value for name, have, value in families[family][1] if name == family and have == labels]
    return value


@pytest.fixture
def runtime():
    with evener.Runtime(threads=1, cache_dir="") as made:
        yield made


def run(session, times=1, **options):
    for _ in range(times):
        session.run({"x": numpy.arange(4, dtype=numpy.float32)}, **options)


def test_a_session_tells_what_its_runs_have_come_to(runtime):
    session = runtime.session(tiny.scale(-1), name="mine")
    run(session, 3)
    run(session, 2, priority=5)
    assert session.submit({"x": numpy.zeros(4, numpy.float32)}, priority=5).result()["y"].shape == (4,)
    with pytest.raises(evener.Error):
        run(session, deadline=1e-9)
    cancel = evener.Cancel()
    cancel.cancel()
    with pytest.raises(evener.Error):
        run(session, cancel=cancel)
    told = session.statistics()
    assert told["name"] == "mine" and told["queued"] == told["running"] == 0 and told["batches"] == []
    assert [row["priority"] for row in told["priorities"]] == [0, 5]
    assert [row["completed"] for row in told["priorities"]] == [3, 3]
    assert told["all"]["completed"] == told["all"]["run_ns"]["count"] == 6
    assert told["all"]["late"] == told["all"]["cancelled"] == 1 and told["all"]["failed"] == told["all"]["rejected"] == 0
    for times in (told["all"]["run_ns"], told["all"]["wait_ns"]):
        assert times["p50"] <= times["p90"] <= times["p99"] <= times["p999"] <= times["max"]
    assert runtime.statistics()["sessions"] == [told]
    assert [device["name"] for device in runtime.statistics()["devices"]] == ["cpu"]


def test_prometheus_reads_it(runtime):
    sessions = [runtime.session(tiny.scale(-1), name=name) for name in ("mine", "mine", "a\\b\"c\nd{},=\u00e9", "mine")]
    run(sessions[0], 4)
    run(sessions[1], 2, priority=-7)
    run(sessions[2])
    families = parse(runtime.statistics("prometheus"))
    assert sorted(families) == ["evener_batch_rows", "evener_device_quarantines_total", "evener_device_usable", "evener_memory_bytes",
                                "evener_request_run_seconds", "evener_request_wait_seconds", "evener_requests_queued",
                                "evener_requests_running", "evener_requests_total"]
    assert {name: kind for name, (kind, _) in families.items() if kind != "histogram"} == {
        "evener_device_quarantines_total": "counter", "evener_device_usable": "gauge", "evener_memory_bytes": "gauge",
        "evener_requests_queued": "gauge", "evener_requests_running": "gauge", "evener_requests_total": "counter"}
    assert value_of(families, "evener_device_usable", device="cpu") == 1
    total = lambda **labels: value_of(families, "evener_requests_total", **labels)
    assert total(session="mine", priority="0", outcome="completed") == 4
    assert total(session="mine#2", priority="-7", outcome="completed") == 2
    assert total(session="a\\b\"c\nd{},=\u00e9", priority="0", outcome="completed") == 1
    assert total(session="mine", priority="0", outcome="rejected") == 0
    assert {labels["session"] for _, labels, _ in families["evener_requests_queued"][1]} == {
        "mine", "mine#2", "mine#3", "a\\b\"c\nd{},=\u00e9"}
    counts = {labels["session"]: value for name, labels, value in families["evener_request_run_seconds"][1] if name.endswith("_count")}
    assert counts == {"mine": 4, "mine#2": 2, "a\\b\"c\nd{},=\u00e9": 1}
    assert value_of(families, "evener_memory_bytes", device="cpu", kind="limit") == math.inf
    memory = runtime.devices[0].memory()
    assert value_of(families, "evener_memory_bytes", device="cpu", kind="peak") >= memory.current - memory.by_class["heap"]


def test_histograms_agree_with_the_percentiles(runtime):
    session = runtime.session(tiny.scale(-1), name="mine")
    run(session, 200)
    families = parse(runtime.statistics("prometheus"))
    times = session.statistics()["all"]["run_ns"]
    buckets = [(float(labels["le"]), value) for name, labels, value in families["evener_request_run_seconds"][1]
               if name.endswith("_bucket") and labels["le"] != "+Inf"]
    for key, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        for bound, count in buckets:
            if bound * 1e9 >= times[key]:
                assert count >= share * 200
            elif bound * 1.032e9 < times[key]:
                assert count < share * 200 + 1
    [total] = [value for name, _, value in families["evener_request_run_seconds"][1] if name.endswith("_sum")]
    assert abs(total * 1e9 / 200 - times["mean"]) <= 1


def test_formats(runtime):
    runtime.session(tiny.scale(-1))
    text = runtime.statistics("text")
    assert "memory of cpu" in text
    assert runtime.statistics("json").startswith('{"sessions":[')
    with pytest.raises(ValueError, match="format must be one of text, json, prometheus"):
        runtime.statistics("svg")


def test_sessions_that_have_gone_are_not_listed(runtime):
    session = runtime.session(tiny.scale(-1))
    assert [told["name"] for told in runtime.statistics()["sessions"]] == ["model"]
    session.close()
    assert runtime.statistics()["sessions"] == []
    with pytest.raises(evener.Error):
        session.statistics()
