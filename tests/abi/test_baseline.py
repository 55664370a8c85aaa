"""The C ABI against what was recorded of it: this version's baseline is what the headers and the library are, and nothing of an older
one has gone, moved or changed its meaning."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = os.environ["EVENER_LIBRARY"]
sys.path.insert(0, str(ROOT / "scripts"))

import abi_baseline  # noqa: E402

NOW = abi_baseline.generate()
FILES = {tuple(map(int, path.stem.split("-")[1].split("."))): path for path in (ROOT / "tests" / "abi").glob("baseline-*.txt")}
CURRENT = tuple(map(int, abi_baseline.version()))
OLDER = sorted(number for number in FILES if number < CURRENT)


def lines_of(number):
    return FILES[number].read_text().splitlines()


def test_this_version_is_recorded_as_it_is():
    assert CURRENT in FILES, "run scripts/abi_baseline.py"
    assert lines_of(CURRENT)[1:] == NOW, "what is new has not been recorded: run scripts/abi_baseline.py"


@pytest.mark.parametrize("number", OLDER, ids=str)
def test_nothing_of_an_older_version_has_changed(number):
    assert abi_baseline.breaks(lines_of(number), NOW) == []


def test_what_is_new_says_since_when():
    text = "".join((ROOT / "include" / "evener" / name).read_text() for name in abi_baseline.HEADERS)
    first = {name for kind, name in abi_baseline.read(lines_of(min(FILES))) if kind == "function"}
    said = {}
    for found in re.finditer(r"^EVN_API[^;(]*?\b(evn_\w+)\(", text, re.M):
        since = re.findall(r"@since (\d+)\.(\d+)", text[text.rindex("/*", 0, found.start()):found.start()])
        said[found[1]] = tuple(map(int, since[-1])) if since else min(FILES)
    for name, number in said.items():
        assert number in FILES and (name in first) == (number == min(FILES)), name
    assert len(said) > len(first) > 70


def test_there_is_an_older_version_and_no_newer_one():
    assert OLDER and max(FILES) == CURRENT


def test_the_library_exports_what_is_recorded_under_the_recorded_versions():
    shown = subprocess.run(["nm", "-D", "--extern-only", "--defined-only", LIBRARY], check=True, capture_output=True, text=True).stdout
    exported = dict(line.split()[-1].split("@@") for line in shown.splitlines() if " T " in line)
    recorded = {name: value.split(" ")[0] for (kind, name), value in abi_baseline.read(NOW).items() if kind == "function"}
    assert len(recorded) > 100 and exported == recorded


def test_the_log_writes_the_events_that_the_header_promises():
    promised = [name for kind, name in abi_baseline.read(NOW) if kind == "event"]
    assert len(promised) > 10 and abi_baseline.logged_names() == set(promised)


# The comparison sees each kind of break. Each row: a change of the lines of a baseline, and what is said of it.
def without(lines, start):
    return [line for line in lines if not line.startswith(start)]


def put(lines, old, new):
    assert any(line.startswith(old) for line in lines), old
    return [re.sub("^" + re.escape(old), new, line) for line in lines]


BREAKS = {
    "a function that has gone": (lambda x: without(x, "function evn_tensor_wrap "), "function evn_tensor_wrap has gone"),
    "another parameter": (lambda x: put(x, "function evn_tensor_release EVN_0 evn_status (evn_tensor)",
                                        "function evn_tensor_release EVN_0 evn_status (evn_tensor, int)"), "evn_tensor_release was"),
    "another result": (lambda x: put(x, "function evn_version EVN_0 const", "function evn_version EVN_0"), "evn_version was"),
    "another symbol version": (lambda x: put(x, "function evn_version EVN_0 ", "function evn_version EVN_0.2 "), "evn_version was"),
    "a callback of another type": (lambda x: put(x, "callback evn_deleter void", "callback evn_deleter int"), "evn_deleter was"),
    "an enum value that has gone": (lambda x: without(x, "enum EVN_ERROR_IO "), "enum EVN_ERROR_IO has gone"),
    "an enum that is counted anew": (lambda x: put(x, "enum EVN_ERROR_IO 7", "enum EVN_ERROR_IO 8"), "EVN_ERROR_IO was"),
    "a field that has moved": (lambda x: put(x, "field evn_run_options.timeout_ns 8 ", "field evn_run_options.timeout_ns 16 "), "timeout_ns was"),
    "a field of another type": (lambda x: put(x, "field evn_run_options.timeout_ns 8 8 uint64_t", "field evn_run_options.timeout_ns 8 8 int64_t"),
                                "timeout_ns was"),
    "a field in the middle": (lambda x: [*x, "field evn_error.code 4 4 int32_t"], "evn_error.code is new"),
    "a struct that has shrunk": (lambda x: put(x, "struct evn_error 728", "struct evn_error 720"), "struct evn_error had"),
    "a struct without a size that grows": (lambda x: put(x, "struct evn_tensor_view 88", "struct evn_tensor_view 96"), "never grows"),
    "a constant": (lambda x: put(x, "macro EVN_MAX_RANK 8", "macro EVN_MAX_RANK 16"), "EVN_MAX_RANK was"),
    "an event that has gone": (lambda x: without(x, "event plan.created"), "event plan.created has gone"),
    "an event of a trace that has gone": (lambda x: without(x, "trace-event wait"), "trace-event wait has gone"),
    "an integer of another size": (lambda x: put(x, "type evn_status int32_t", "type evn_status int64_t"), "evn_status was"),
    "a new function under an old symbol version": (lambda x: [*x, "function evn_new EVN_0 void (void)"], "evn_new is new"),
    "a new function without one": (lambda x: [*x, "function evn_new none void (void)"], "evn_new is new"),
}


@pytest.mark.parametrize("what", BREAKS)
def test_a_break_is_seen(what):
    change, said = BREAKS[what]
    old = lines_of((0, 1))
    found = abi_baseline.breaks(old, change(old))
    assert len(found) == 1 and said in found[0], found


def test_growth_at_the_end_is_no_break():
    old = lines_of((0, 1))
    grown = put(old, "struct evn_run_options 24", "struct evn_run_options 32")
    grown += ["field evn_run_options.more 24 8 void *", "function evn_new EVN_0.9 void (void)", "enum EVN_ERROR_NEW 18", "event new.thing"]
    assert abi_baseline.breaks(old, grown) == []
