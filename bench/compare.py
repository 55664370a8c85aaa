#!/usr/bin/env python3
"""Compares the speed and memory of inference engines on the same models, with the same threads and inputs.

usage: compare.py [--threads N] [--engines LIST] [--rounds N] [--slice SECONDS] [--models DIR] [MODEL...]

MODEL is a name of the list below (default: all of them) or PATH[:INPUT=1x3x224x224]..., where dims that are not given are 1.

Each engine has a process of its own, and they take turns: A B C A B C ..., so that a machine that gets slower gets slower
for all. A process that waits is stopped, so that its threads cannot spin during another's turn. Outputs are compared with
the first engine's: a wrong output is a failure, not a time. Printed are the median time of a run, the median over the
rounds of its ratio to the first engine's, the time to load, the first run, and the peak of memory above what the process
held with the engine's library loaded (the kernel's peak counter is reset there). Needs numpy and onnx.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import numpy

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
RTOL, ATOL = 1e-3, 1e-4
SEED = 20

MODELS = {  # name -> file, shapes of inputs
    "det": ("ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 640, 960)}),
    "cls": ("ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)}),
    "rec": ("ch_PP-OCRv4_rec_infer.onnx", {"x": (1, 3, 48, 320)}),
    "mobilenet_v2": ("mobilenet_v2.onnx", {"input": (1, 3, 224, 224)}),
    "resnet50": ("resnet50.onnx", {"input": (1, 3, 224, 224)}),
}


class Engine:
    """One engine inside its worker process."""

    name = None

    def prepare(self):
        """Loads the engine's library. What it holds of memory afterwards is not counted."""

    def load(self, path, threads, feeds):
        """Loads the model; `feeds` tells shapes to engines that want them."""
        raise NotImplementedError

    def run(self, feeds):
        """Runs once, and returns the outputs in the model's order."""
        raise NotImplementedError


class OnnxRuntime(Engine):
    name = "ort"

    def prepare(self):
        import onnxruntime
        self.module = onnxruntime

    def load(self, path, threads, feeds):
        options = self.module.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.session = self.module.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(self, feeds):
        return self.session.run(None, feeds)


class Evener(Engine):
    name = "evener"

    def prepare(self):
        sys.path.insert(0, str(REPOSITORY / "bindings" / "python"))
        import evener
        evener.version()  # opens the library
        self.module = evener

    def load(self, path, threads, feeds):
        self.runtime = self.module.Runtime(os.environ.get("EVENER_COMPARE_CONFIG") or None, threads=threads)
        self.session = self.runtime.session(path)

    def run(self, feeds):
        return list(self.session.run(feeds).values())


ENGINES = {engine.name: engine for engine in (OnnxRuntime, Evener)}


def memory_bytes(field):
    """A field of /proc/self/status in bytes; None where the system has none."""
    try:
        lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":")), None)


def reset_memory_peak():
    """Sets VmHWM to what is resident now and returns that; None when the kernel does not let us."""
    try:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return memory_bytes("VmRSS")


def worker(arguments):
    """Loads the model, runs it once, then times runs for as many seconds as each line of stdin says. Answers in JSON lines."""
    answers = os.fdopen(arguments.answers, "w")

    def answer(**fields):
        print(json.dumps(fields), file=answers, flush=True)

    folder = pathlib.Path(arguments.folder)
    with numpy.load(folder / "feeds.npz") as stored:
        feeds = {name: stored[name] for name in stored.files}
    engine = ENGINES[arguments.worker]()
    engine.prepare()
    before = reset_memory_peak()
    start = time.perf_counter()
    engine.load(arguments.model[0], arguments.threads, feeds)
    loaded = time.perf_counter()
    outputs = engine.run(feeds)
    first = time.perf_counter()
    numpy.savez(folder / f"{arguments.worker}.first.npz", *(numpy.asarray(output) for output in outputs))
    answer(load=loaded - start, first=first - loaded)
    for line in sys.stdin:
        times, end = [], time.perf_counter() + float(line)
        while len(times) < 3 or time.perf_counter() < end:
            begin = time.perf_counter()
            outputs = engine.run(feeds)
            times.append(time.perf_counter() - begin)
        peak = memory_bytes("VmHWM")
        answer(seconds=statistics.median(times), memory=None if before is None or peak is None else peak - before)
    numpy.savez(folder / f"{arguments.worker}.last.npz", *(numpy.asarray(output) for output in outputs))


class Worker:
    """A worker process as its parent sees it: it runs only between `resume` and `pause`."""

    def __init__(self, name, path, threads, folder):
        self.name = name
        self.log = folder / f"{name}.log"
        read_end, write_end = os.pipe()
        command = [sys.executable, os.path.abspath(__file__), "--worker", name, "--answers", str(write_end), "--folder", str(folder),
                   "--threads", str(threads), str(path)]
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), OMP_WAIT_POLICY="PASSIVE")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True,
                                            pass_fds=[write_end], env=environment)
        os.close(write_end)
        self.answers = os.fdopen(read_end)
        self.started = self.read()
        self.rounds = []
        self.pause()

    def read(self):
        line = self.answers.readline()
        if not line:
            self.process.wait()
            last = [text for text in self.log.read_text().splitlines() if text.strip()][-1:] or ["no message"]
            raise RuntimeError(f"ended with {self.process.returncode}: {last[0][:200]}")
        return json.loads(line)

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def turn(self, seconds):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        self.rounds.append(self.read())
        self.pause()

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.stdin.close()
            self.process.wait()


@dataclasses.dataclass
class Row:
    engine: str
    failure: str = ""
    median: float = 0.0
    ratio: float = 0.0
    load: float = 0.0
    first: float = 0.0
    memory: float = None


def difference(actual, expected):
    """Why an output is wrong, or "": NaN in other places, or further than rtol * |b| + atol * max|b| from the expected b."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return f"is {actual.dtype}{list(actual.shape)}, not {expected.dtype}{list(expected.shape)}"
    a, b = actual.astype("float64"), expected.astype("float64")
    if b.size and not numpy.isfinite(b).any():
        return "has no finite number to compare"
    if not numpy.array_equal(numpy.isnan(a), numpy.isnan(b)):
        return "has NaN in other places"
    finite = numpy.isfinite(b)
    if not numpy.array_equal(a[~finite & ~numpy.isnan(b)], b[~finite & ~numpy.isnan(b)]):
        return "has infinities in other places"
    a, b = a[finite], b[finite]
    if b.size > 1 and b.min() == b.max():
        return "proves nothing: every expected value is the same"
    error = numpy.abs(a - b) - (RTOL * numpy.abs(b) + ATOL * numpy.abs(b).max(initial=0))
    return f"differs by {numpy.abs(a - b).max():.3g}" if (error > 0).any() else ""


def compare_outputs(folder, name, reference):
    """Why the outputs of an engine's first or last run are wrong, or ""."""
    with numpy.load(folder / f"{reference}.first.npz") as expected:
        for which in ("first", "last"):
            with numpy.load(folder / f"{name}.{which}.npz") as actual:
                if actual.files != expected.files:
                    return f"{len(actual.files)} outputs, not {len(expected.files)}"
                for index, key in enumerate(expected.files):
                    why = difference(actual[key], expected[key])
                    if why:
                        return f"output {index} of the {which} run {why}"
    return ""


def make_feeds(path, shapes):
    """Seeded inputs for a model: normal noise, or small integers."""
    import onnx
    graph = onnx.load(path, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = {value.name: value.type.tensor_type for value in graph.input if value.name not in constants}
    unknown = set(shapes) - set(inputs)
    if unknown:
        raise SystemExit(f"compare.py: {path} has no input {sorted(unknown)[0]}; it has {', '.join(inputs)}")
    generator = numpy.random.default_rng(SEED)
    feeds = {}
    for name, kind in inputs.items():
        dtype = numpy.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
        shape = shapes.get(name) or [max(1, dim.dim_value) for dim in kind.shape.dim]
        noise = generator.standard_normal(shape) if dtype.kind == "f" else generator.integers(0, 2, shape)
        feeds[name] = noise.astype(dtype)
    return feeds


def measure(path, shapes, engines, arguments):
    """The rows of one model."""
    rows, workers = [], {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        numpy.savez(folder / "feeds.npz", **make_feeds(path, shapes))
        try:
            for name in engines:
                try:
                    workers[name] = Worker(name, path, arguments.threads, folder)
                except RuntimeError as error:
                    rows.append(Row(name, str(error)))
            for _ in range(arguments.rounds):
                for one in list(workers.values()):
                    try:
                        one.turn(arguments.slice)
                    except RuntimeError as error:
                        rows.append(Row(one.name, str(error)))
                        del workers[one.name]
        finally:
            for one in workers.values():
                one.end()
        reference = next(iter(workers), None)
        for name, one in workers.items():
            rows.append(row_of(one, workers[reference], compare_outputs(folder, name, reference)))
    return rows


def row_of(one, reference, failure):
    ratios = [mine["seconds"] / other["seconds"] for mine, other in zip(one.rounds, reference.rounds)]
    median = statistics.median(entry["seconds"] for entry in one.rounds)
    return Row(one.name, failure, median, statistics.median(ratios), one.started["load"], one.started["first"],
               one.rounds[-1]["memory"])


def print_rows(label, rows, threads):
    for row in rows:
        if row.failure:
            print(f"| {label} | {row.engine} | {threads} | FAILED: {row.failure.replace('|', '/')} | | | | |")
            continue
        memory = "-" if row.memory is None else f"{row.memory / 2**20:.1f}"
        print(f"| {label} | {row.engine} | {threads} | {row.median * 1e3:.3f} | {row.ratio:.2f} | {row.load * 1e3:.1f} "
              f"| {row.first * 1e3:.1f} | {memory} |")
    sys.stdout.flush()


def machine():
    """The processor's name and how many cores this process may use."""
    name = platform.processor() or platform.machine()
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass
    return f"{name}, {len(os.sched_getaffinity(0))} cores"


def parse_model(text, folder):
    """(label, path, shapes) of a MODEL argument."""
    if text in MODELS:
        name, shapes = MODELS[text]
        path = folder / name
    else:
        name, *inputs = text.split(":")
        path = pathlib.Path(name)
        try:
            shapes = {key: tuple(map(int, dims.split("x"))) for key, dims in (part.rsplit("=", 1) for part in inputs)}
        except ValueError:
            raise SystemExit(f"compare.py: {text} is not PATH:INPUT=1x3x224x224") from None
    if not path.exists():
        raise SystemExit(f"compare.py: there is no {path}; scripts/fetch_models.py gets: {', '.join(MODELS)}")
    sizes = ", ".join("x".join(map(str, shape)) for shape in shapes.values())
    return f"{path.stem if text not in MODELS else text} {sizes}".strip(), path.resolve(), shapes


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--engines", default="ort,evener", help="the first is the reference; there are: " + ", ".join(ENGINES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--slice", type=float, default=0.4, help="seconds of a turn; a turn has at least three runs")
    parser.add_argument("--models", type=pathlib.Path, default=REPOSITORY / "build" / "models", metavar="DIR")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--answers", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("model", nargs="*", metavar="MODEL", help="PATH[:INPUT=1x3x224x224]... or one of: " + ", ".join(MODELS))
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(arguments)
    engines = arguments.engines.split(",")
    if not set(engines) <= set(ENGINES):
        parser.error(f"there are the engines: {', '.join(ENGINES)}")
    models = [parse_model(text, arguments.models) for text in arguments.model or MODELS]
    print(f"{machine()}; {arguments.rounds} rounds of {arguments.slice} s\n")
    print(f"| model | engine | threads | median ms | ratio to {engines[0]} | load ms | first run ms | memory MiB |")
    print("|---|---|---:|---:|---:|---:|---:|---:|", flush=True)
    failed = False
    for label, path, shapes in models:
        rows = measure(path, shapes, engines, arguments)
        print_rows(label, rows, arguments.threads)
        failed = failed or any(row.failure for row in rows)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
