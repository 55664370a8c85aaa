#!/usr/bin/env python3
"""Networks of torchvision, timm, transformers and diffusers, as torch.onnx.export writes them, on Evener and on ONNX Runtime.

usage: zoo_torch.py [--exporter script,dynamo] [--threads 1,2] [--seconds S] [--above RATIO] [--export-only | --exported] [--again]
                    [--folder FOLDER] [--markdown FILE] [--json FILE] [NAME...]

NAMEs are patterns (resnet*, timm/*); all networks without. Each is made with random weights and exported, in a process of its
own, by the exporter that traces (script: dynamo=False) and by the one that captures (dynamo: dynamo=True); files stay in the
folder, so that a second call only measures. What cannot be exported is listed with the reason and not counted; --again tries it
once more.

Both engines run a network in turns in one process (bench/pair.py), with each number of threads for at least S seconds in all.
Printed are the medians in ms and their ratio (ours to theirs), whether the outputs are equal (RTOL and ATOL below), and their
largest difference to the largest magnitude of its output. Then the geometric mean, the share above RATIO, the worst, and for
each above RATIO the three kernels of our trace that take the most time. --json keeps all of this in a file, a line for each
network and number of threads; what it has is not measured again, so that a run that was cut off goes on. --exported leaves out
what is not exported yet.

Needs the packages of scripts/requirements-zoo.txt. It exits with 1 where a network fails or outputs differ.
"""
import argparse
import collections
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import pair  # noqa: E402
import zoo_torch_export  # noqa: E402
import zoo_torch_models  # noqa: E402
from table import Table  # noqa: E402

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
RTOL, ATOL = 1e-3, 1e-3   # the latter of the largest magnitude of an output
LIMIT = 300               # seconds of a network in its process
TRACED = 5                # runs
SHOWN = 3                 # kernels of a slow network


def compared(ours, theirs, may_differ=0):
    """(whether outputs are equal, the largest error). The share `may_differ` of an output's elements may be anything."""
    equal, most = len(ours) == len(theirs), 0.0
    for a, b in zip(ours, theirs):
        a, b = numpy.asarray(a), numpy.asarray(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            return False, math.inf
        if b.dtype.kind != "f":
            equal &= bool(numpy.array_equal(a, b))
            continue
        most = max(most, pair.error_of(a, b))
        scale = float(numpy.max(numpy.abs(b), initial=0, where=numpy.isfinite(b)))
        near = numpy.isclose(a, b, rtol=RTOL, atol=ATOL * max(scale, 1e-30), equal_nan=True)
        equal &= bool(numpy.count_nonzero(~near) <= may_differ * near.size)
    return equal, most


def kernels_of(events):
    """What a trace says of kernels: [op, kernel, how many steps, ms of a run, share, shapes of the longest], the costliest first.

    Each step counts with the shortest time that it has in the trace: longer ones contain what else the machine did.
    """
    steps = {}
    for event in events:
        if event.get("cat") in ("kernel", "copy"):
            arguments = event["args"]
            key = arguments.get("op", "copy"), arguments.get("kernel", ""), arguments.get("shapes", ""), event["name"]
            steps[key] = min(event["dur"], steps.get(key, math.inf))
    sums, counts, longest = collections.Counter(), collections.Counter(), {}
    for (op, kernel, shapes, _), time in steps.items():
        sums[op, kernel] += time
        counts[op, kernel] += 1
        longest[op, kernel] = max((time, shapes), longest.get((op, kernel), (0, "")))
    whole = sum(sums.values()) or 1
    return [[*key, counts[key], time / 1e3, time / whole, longest[key][1]] for key, time in sums.most_common()]


def traced(session, feeds):
    with session.trace(400000) as trace:
        for _ in range(TRACED):
            session.run(feeds)
    return kernels_of(json.loads(trace.json())["traceEvents"])


def peer_refusal(path, feeds):
    """Why ONNX Runtime does not run a model, or ""."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, feeds)
    except Exception as error:  # noqa: BLE001: it throws many types
        return zoo_torch_export.reason_of(error)
    return ""


def worker(arguments):
    """Measures one file, and prints a line of JSON for each number of threads, or one that says why ONNX Runtime refuses it."""
    stem = arguments.worker
    feeds = dict(numpy.load(f"{stem}.npz"))
    may_differ = json.loads(pathlib.Path(f"{stem}.json").read_text()).get("may_differ", 0)
    refusal = peer_refusal(f"{stem}.onnx", feeds)
    if refusal:
        return print(json.dumps({"refusal": refusal}))
    for threads in arguments.threads:
        made = pair.Pair(f"{stem}.onnx", feeds, threads)
        equal, error = compared(made.run_ours(), made.run_theirs(), may_differ)
        ours, theirs = made.measure(arguments.seconds)
        kernels = traced(made.ours, feeds) if ours / theirs > arguments.above else []
        print(json.dumps({"threads": threads, "equal": bool(equal), "error": error, "ours": ours / 1e3, "theirs": theirs / 1e3,
                          "kernels": kernels}), flush=True)


def measured(stem, arguments):
    """What a process that measures a file says for each number of threads, and why it failed, or ""."""
    words = [sys.executable, __file__, "--worker", stem, "--threads", ",".join(map(str, arguments.threads)),
             "--seconds", arguments.seconds, "--above", arguments.above]
    try:
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, errors="replace", timeout=LIMIT)
        output, failure = done.stdout, failure_of(done.returncode, done.stderr)
    except subprocess.TimeoutExpired as late:
        output, failure = (late.stdout or b"").decode(), f"takes above {LIMIT} s"
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")], failure


def kept_rows(path):
    """The rows of a file of --json: {(name, exporter): rows}, the last for each number of threads."""
    rows = {}
    for line in path.read_text().splitlines() if path and path.exists() else []:
        row = json.loads(line)
        rows.setdefault((row["name"], row["exporter"]), {})[row.get("threads")] = row
    return {key: list(by_threads.values()) for key, by_threads in rows.items()}


def failure_of(code, text):
    if code == 0:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"exit status {code}: {lines[-1] if lines else 'no message'}"[:400]


def counted(threads):
    return f"{threads} thread{'s' if threads > 1 else ''}"


def summary(rows, above):
    """A line for each number of threads."""
    lines = []
    for threads in sorted({row["threads"] for row in rows}):
        ratios = {f"{row['name']} ({row['exporter']})": row["ours"] / row["theirs"] for row in rows if row["threads"] == threads}
        mean = math.exp(statistics.fmean(map(math.log, ratios.values())))
        worst = max(ratios, key=ratios.get)
        slow = sum(ratio > above for ratio in ratios.values())
        lines.append(f"{counted(threads)}: {len(ratios)} files, geometric mean {mean:.2f}, {slow} above {above:g} "
                     f"({100 * slow / len(ratios):.0f} %), worst {worst} with {ratios[worst]:.2f}")
    return lines


def slow_table(rows, above):
    table = Table("network", "exporter", "threads", "ratio", *(f"kernel {place + 1}" for place in range(SHOWN)))
    for row in sorted(rows, key=lambda row: -row["ours"] / row["theirs"]):
        if row["ours"] / row["theirs"] > above:
            kernels = [f"{kernel or op} ({op}) x {count}: {100 * share:.0f} %, {shapes}"
                       for op, kernel, count, _, share, shapes in row["kernels"][:SHOWN]]
            kernels += [""] * (SHOWN - len(kernels))
            table.add(row["name"], row["exporter"], str(row["threads"]), f"{row['ours'] / row['theirs']:.2f}", *kernels)
    return table


def row_cells(name, task, exporter, made, rows, threads, failure):
    """The cells of a row of the main table."""
    by_threads = {row["threads"]: row for row in rows}
    state = f"FAILS: {failure}" if failure else "yes" if all(row["equal"] for row in rows) else "NO"
    error = f"{max(row['error'] for row in rows):.0e}" if rows else ""
    cells = [name, task, exporter, str(made["opset"]), str(made["nodes"]), state, error]
    for count in threads:
        row = by_threads.get(count)
        cells += [f"{row['ours']:.2f}", f"{row['theirs']:.2f}", f"{row['ours'] / row['theirs']:.2f}"] if row else [""] * 3
    return cells


def page(table, slow, unexported, lines, bad):
    parts = ["\n".join(f"- {line}" for line in lines), table.text()]
    parts += ["\n".join(f"- {line}" for line in bad)] if bad else []
    parts += ["## The slowest kernels of those above the limit", slow.text()] if slow else []
    parts += ["## Not exported", "\n".join(f"- {line}" for line in unexported)] if unexported else []
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def numbers(text):
    return [int(number) for number in text.split(",")]


def arguments_of(words=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--exporter", default="script,dynamo", type=lambda text: text.split(","))
    parser.add_argument("--threads", default="1,2", type=numbers)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--above", type=float, default=0.95)
    parser.add_argument("--export-only", action="store_true")
    parser.add_argument("--exported", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path, default=REPOSITORY / "build" / "zoo")
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args(words)
    for exporter in arguments.exporter:
        if exporter not in zoo_torch_export.EXPORTERS:
            parser.error(f"--exporter: {exporter} is neither {' nor '.join(zoo_torch_export.EXPORTERS)}")
    return arguments


def main():
    arguments = arguments_of()
    if arguments.worker:
        return worker(arguments)
    networks = zoo_torch_models.chosen(arguments.names, zoo_torch_models.networks())
    if not arguments.exported:
        zoo_torch_export.export_all(networks, arguments.exporter, arguments.folder, arguments.again)
    if arguments.export_only:
        return 0
    kept = kept_rows(arguments.json)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(arguments.threads)))
    heads = [f"{what}, {counted(count)}" for count in arguments.threads for what in ("Evener, ms", "ONNX Runtime, ms", "ratio")]
    table = Table("network", "task", "exporter", "opset", "nodes", "equal", "error", *heads)
    all_rows, unexported, bad = [], [], []
    for network in networks:
        for exporter in arguments.exporter:
            stem = zoo_torch_export.stem_of(network.name, exporter, arguments.folder)
            if arguments.exported and not pathlib.Path(f"{stem}.json").exists():
                continue
            made = zoo_torch_export.exported(network, exporter, arguments.folder)
            if "error" in made:
                unexported.append(f"{network.name} ({exporter}): {made['error']}")
                continue
            rows, failure = kept.get((network.name, exporter), []), ""
            is_kept = rows and ("refusal" in rows[0] or set(arguments.threads) <= {row["threads"] for row in rows})
            if not is_kept:
                rows, failure = measured(stem, arguments)
                rows = [{"name": network.name, "exporter": exporter, **row} for row in rows]
                if arguments.json:
                    with open(arguments.json, "a") as file:
                        file.writelines(json.dumps(row) + "\n" for row in rows)
            if rows and "refusal" in rows[0]:
                unexported.append(f"{network.name} ({exporter}): ONNX Runtime refuses it: {rows[0]['refusal']}")
                continue
            table.add(*row_cells(network.name, network.task, exporter, made, rows, arguments.threads, failure))
            if failure or not all(row["equal"] for row in rows):
                bad.append(f"{network.name} ({exporter}): {failure or 'outputs differ'}")
            all_rows += [row for row in rows if row["threads"] in arguments.threads]
    lines = summary(all_rows, arguments.above)
    text = page(table, slow_table(all_rows, arguments.above) if all_rows else None, unexported, lines, bad)
    if arguments.markdown:
        arguments.markdown.write_text(text)
    print(text)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
