#!/usr/bin/env python3
"""Runs each model of bench/models/zoo.py on Evener and on ONNX Runtime, and makes the page docs/models.md of what came out.

usage: models_table.py [--rounds N] [--seconds S] [--markdown FILE] [MODEL...]

Both have one thread and take turns in one process: Evener, ONNX Runtime, Evener, ONNX Runtime, ..., at least N times each and for
S seconds. Times are processor time, and there to look at; compare.py measures with more care. Needs what scripts/fetch_models.py
fetches, and for the column OpenCL a device; ends with 1 if a model fails or is not within the tolerance.
"""
import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import statistics
import sys
import time

import numpy

import report
from compare import FEWEST_ROUNDS, difference
from engines import ATOL, REPOSITORY, Evener, OnnxRuntime

sys.path.append(str(REPOSITORY / "bench" / "models"))
import networks  # noqa: E402
import zoo  # noqa: E402

SEEDS = (1, 2)
OPENCL = """
version: 1
devices: {cpu: {type: cpu, threads: 1}, gpu: {type: opencl}}
placement: {default: cpu, rules: [{device: gpu, policy: prefer}]}
"""
COLUMNS = ("model", "from", "nodes", "inputs", "absolute error", "relative error", "within", "Evener ms", "ONNX Runtime ms",
           "ratio", "OpenCL")
HEADER = f"""| {" | ".join(COLUMNS)} |
|---|---|---:|---|---:|---:|---|---:|---:|---:|---|"""


@dataclasses.dataclass
class Row:
    name: str
    source: str
    nodes: int = 0
    inputs: str = ""
    absolute: float = 0.0
    relative: float = 0.0      # to the largest number of its output
    rtol: float = 1e-3
    failure: str = ""
    evener: float = 0.0        # seconds
    reference: float = 0.0
    ratio: float = 0.0         # the median over the turns
    opencl: str = "-"

    def line(self):
        if self.failure:
            return f"| {self.name} | {self.source} | FAILED: {self.failure} | | | | no | | | | |"
        within = "yes" if self.rtol == 1e-3 else f"yes, at {self.rtol:g}"
        return (f"| {self.name} | {self.source} | {self.nodes} | {self.inputs} | {self.absolute:.1e} | {self.relative:.1e} "
                f"| {within} | {self.evener * 1e3:.3g} | {self.reference * 1e3:.3g} | {self.ratio:.2f} | {self.opencl} |")


def inputs_text(feeds):
    """The inputs and their dims; those with the same dims are named together."""
    names = {}
    for name, value in feeds.items():
        names.setdefault(value.shape, []).append(name)
    parts = []
    for shape, same in names.items():
        dims = "x".join(map(str, shape)) or "scalar"
        parts.append(f"{same[0]} and {len(same) - 1} more {dims}" if len(same) > 3 else f"{', '.join(same)} {dims}")
    return "; ".join(parts)


def count_nodes(graph):
    """With those of inner graphs."""
    inner = [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    return len(graph.node) + sum(map(count_nodes, inner))


def errors(actual, expected):
    """The largest absolute error, and the largest relative to the largest number of its output."""
    pairs = [(numpy.abs(a.astype("float64") - b).max(initial=0), numpy.abs(b.astype("float64")).max(initial=0))
             for a, b in zip(actual, expected)]
    return max(error for error, _ in pairs), max(error / largest if largest else error for error, largest in pairs)


def why_wrong(actual, expected, rtol):
    if len(actual) != len(expected):
        return f"{len(actual)} outputs, not {len(expected)}"
    found = [(index, difference(a, b, (rtol, ATOL))) for index, (a, b) in enumerate(zip(actual, expected))]
    return next((f"output {index} {why}" for index, why in found if why), "")


def first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0][:160].replace("|", "/")


def loaded(kind, content, feeds):
    engine = kind()
    engine.prepare(content, feeds, None)
    engine.load(content, 1, feeds)
    return engine


def interleaved(one, other, feeds, rounds, seconds):
    """The median processor times of both, in turns, and the median of their ratios."""
    times, end = ([], []), time.perf_counter() + seconds
    while len(times[0]) < rounds or time.perf_counter() < end:
        for engine, its in zip((one, other), times):
            start = time.process_time()  # with one thread all of the time, but for what others take of a shared machine
            engine.run(feeds)
            its.append(time.process_time() - start)
    ratios = [mine / its for mine, its in zip(*times)]
    return map(statistics.median, (*times, ratios))


def opencl_text(runtime, content, feeds, expected, rtol):
    """How much of a model runs on OpenCL when all that can shall; nodes that only compute shapes run on no device."""
    try:
        session = runtime.session(content)
        outputs = list(session.run(feeds).values())
    except Evener.module().Error as error:
        return f"fails: {first_line(error)}"
    nodes = [node["device"] for node in json.loads(session.explain("json"))["nodes"] if node["kernel"] != "planned"]
    there = nodes.count("gpu")
    if not there:
        return "not"
    why = why_wrong(outputs, expected, rtol)
    return ("whole" if there == len(nodes) else f"parts: {there} of {len(nodes)}") + (f", but {why}" if why else "")


def measure(model, runtime, arguments):
    row = Row(model.name, model.source, rtol=model.rtol)
    try:
        content = model.content()
        feeds = [model.feeds(content, seed) for seed in SEEDS]
        row.nodes, row.inputs = count_nodes(networks.loaded(content).graph), inputs_text(feeds[0])
        evener, reference = loaded(Evener, content, feeds[0]), loaded(OnnxRuntime, content, feeds[0])
        expected = [reference.run(given) for given in feeds]
        for given, wanted in zip(feeds, expected):
            actual = evener.run(given)
            row.failure = row.failure or why_wrong(actual, wanted, model.rtol)
            row.absolute, row.relative = map(max, (row.absolute, row.relative), errors(actual, wanted))
        times = interleaved(evener, reference, feeds[0], arguments.rounds, arguments.seconds)
        row.evener, row.reference, row.ratio = times
        del evener, reference
        if runtime:
            row.opencl = opencl_text(runtime, content, feeds[0], expected[0], model.rtol)
    except Exception as error:  # whatever an engine throws is that model's failure
        row.failure = row.failure or first_line(error)
    return row


def opencl_runtime(evener):
    try:
        return evener.Runtime(config_text=OPENCL)
    except evener.Error as error:
        print(f"no OpenCL: {error}", file=sys.stderr)
        return None


def described(runtime, evener):
    """The CPU's instruction set, and the OpenCL device."""
    cpu, = (device for device in evener.Runtime(threads=1).devices if device.kind == "cpu")
    gpus = [device for device in runtime.devices if device.kind == "opencl"] if runtime else []
    return cpu.driver, f"{gpus[0].description} ({gpus[0].driver})" if gpus else "none"


def page(rows, cluster, opencl, rounds, seconds):
    right = sum(not row.failure for row in rows)
    configured = bool(os.environ.get("EVENER_COMPARE_CONFIG"))
    command = " ".join(["bench/models_table.py", report.shown_arguments(sys.argv[1:])]).strip()
    tables = []
    for title, models in (("Trained models", zoo.TRAINED), ("Networks with noise for weights", zoo.NOISE)):
        lines = [row.line() for row in rows if row.name in {model.name for model in models}]
        tables += [f"\n## {title}\n\n{HEADER}\n" + "\n".join(lines) + "\n"] if lines else []
    return f"""# Models

{report.stamp()}
{right} of {len(rows)} models give ONNX Runtime's results. Made by `{command}` on
{datetime.date.today().isoformat()} with Evener {Evener.versions()}, {OnnxRuntime.versions()}, onnx {networks.onnx.__version__}.

- **Machine**: {report.machine()}; Evener's kernels: {cluster}.
- **OpenCL device**: {opencl}.
- **Inputs**: for trained models pieces of a photographed page, of a portrait, of speech, of a source file; for the others noise.
  Two different ones are compared.
- **Errors**: the largest absolute difference from ONNX Runtime, and the largest difference divided by the largest number of its
  output. **Within**: |a - b| <= 1e-3 |b| + 1e-4 max|b| throughout. An expected output that is the same number
  throughout counts as a failure.
- **Subnormal numbers** (below 2^-126): Evener: {Evener.subnormals[False]}; ONNX Runtime: {OnnxRuntime.subnormals[False]}.
- **Configuration** of Evener: {"as `EVENER_COMPARE_CONFIG` has it, at the end" if configured else "its default"}.
- **Times**: median processor time of a run with one thread each, taken in turns in one process for at least {rounds} runs and
  {seconds:g} s, and the median of the turns' ratios; below 1 Evener is faster. The machine is shared: figures to look at, not to
  rely on. `bench/compare.py` is for comparing.
- **OpenCL**: how many of the nodes run there when all that can shall ("whole": all of them), with right results where nothing else
  is said. Nodes that only compute shapes are not counted, and those that were fused count as one.
- **Networks with noise for weights**: `light_*` are of the onnx package, where nodes make each weight, of one number throughout;
  those nodes are left out. The others are `bench/models/skeletons.tgz`. They tell that a network is computed rightly and how fast.
""" + "".join(tables) + ("\n" + "\n".join(report.configuration()) + "\n" if configured else "")


def main():
    known = {model.name: model for model in zoo.TRAINED + zoo.NOISE}
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--markdown", type=pathlib.Path, metavar="FILE", help="write the page here")
    parser.add_argument("model", nargs="*", metavar="MODEL", help="default: all of them")
    arguments = parser.parse_args()
    if arguments.markdown and arguments.rounds < FEWEST_ROUNDS:
        parser.error(f"a page has at least {FEWEST_ROUNDS} rounds of each model")
    unknown = set(arguments.model) - set(known)
    if unknown:
        parser.error(f"unknown model: {' '.join(sorted(unknown))}; there are: {' '.join(known)}")
    evener = Evener.module()
    runtime = opencl_runtime(evener)
    print(HEADER, flush=True)
    rows = []
    for name in arguments.model or known:
        rows.append(measure(known[name], runtime, arguments))
        print(rows[-1].line(), flush=True)
    if arguments.markdown:
        arguments.markdown.write_text(page(rows, *described(runtime, evener), arguments.rounds, arguments.seconds))
    return 1 if any(row.failure for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
