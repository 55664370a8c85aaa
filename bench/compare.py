#!/usr/bin/env python3
"""Compares the speed and memory of inference engines on the same models, with the same threads and inputs.

usage: compare.py [--threads LIST] [--engines LIST] [--rounds N] [--slice SECONDS] [--starts N] [--isa CLASS] [--peak PROGRAM]
                  [--command PROGRAM] [--models DIR] [--cache DIR] [--markdown FILE] [--int8 | --int8-isas | --precision bf16]
                  [--subnormals flush|keep|both] [--fastest] [MODEL...]

MODEL is a name of the lists below or a trained model of bench/models/zoo.py (default: all of them), or PATH[:INPUT=1x3x224x224]...,
where dims that are not given are 1. Trained models of the zoo have its inputs, pieces of real pictures and recordings; others noise.
A page has at least 5 rounds of each model.

Floats below 2^-126 slow some processors down, and engines differ in what they do with them unless told. They are 0 in all engines that
can do so, and the page says which; with --subnormals keep they are kept by all that can, with `both` the page has a second part, with
the first number of threads, in which they are.

EVENER_COMPARE_CONFIG names a configuration (YAML) for Evener; the page has its text.

Each engine has a process of its own, and they take turns: A B C A B C ..., so that a machine that gets slower gets slower
for all. A process that waits is stopped, so that its threads cannot spin during another's turn. Outputs are compared with
the first engine's: a wrong output is a failure, not a time. Printed are the median time of a run, the median over the
rounds of its ratio to the first engine's, the time to load, the first run, and the peak of memory above what the process
held with the engine's library loaded (the kernel's peak counter is reset there; outputs of a run are let go before the
next). To load and to run first happen once in a
process: --starts processes of each engine do so one after the other, engine by engine, and the medians are taken.

With --peak, the program of bench/kernels/peak.cc runs before and after each model, and a time is also given as the share of the
multiply-adds that the processor could have done meanwhile, of bytes with --int8 and of bfloat16 with --precision bf16; the `evener`
command counts those that a model has. At the end come the best of the other engines for each model, Evener's ratio to it, and the
geometric mean of those.

--isa shows every engine a processor that has one class of instruction sets and nothing beyond it (isa.py): avx2, avx2_vnni, avx512,
avx512_vnni, avx512_bf16 or avx512_amx. A worker of a class without AVX-512 that finds it used ends. Where the machine cannot do so,
Evener and OpenVINO are kept to the class by their own switches, and the others are "not measurable here"; outputs are compared with
the first engine's all the same. A class that the processor does not have is an error.

--int8 takes quantized models instead, ONNX Runtime and OpenVINO in its default precision beside us, and our own float32 on the
network that each was made of; outputs are compared by their cosine. --int8-isas compares our int8 and float32 alone, kept to each
instruction set.

EVENER_BEFORE names a checkout of an earlier commit, built with the preset release: then there are the engines evener:before,
evener_int8:before and evener_bf16:before, with that commit's library and binding. --engines evener:before,evener compares both.

--precision bf16 asks Evener for products of bfloat16, and takes OpenVINO in its default precision, which is that where the processor
has matrix tiles for it; ONNX Runtime in float32 is what outputs are compared with, by their cosine.

--engines ort,evener_opencl compares Evener on the first OpenCL device. A driver for processors has as many threads as the other engines
then, where it can be told (PoCL), and as each engine has a process that is stopped while others have their turn, its threads and those of
the others never share the cores, which they would in one process: theirs spin while they wait.

--fastest, for a machine on which other programs run: of each turn the fastest run in place of the median, and of all turns the fastest of
these, and its ratio to the first engine's. No page is written of it.

The engines are in engines.py; scripts/requirements-bench.txt has their versions. An engine that is not installed is named, and
left out; one that cannot run a model fails there. --markdown writes a page with everything.
"""
import argparse
import json
import os
import pathlib
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import typing

import numpy

import isa
import report
from engines import BFLOAT16_ENGINES, DEFAULT_ENGINES, ENGINES, INT8_ENGINES, KEEP, KEPT_ENGINES, REPOSITORY, RTOL
from output_check import compare_outputs, difference, least_cosine  # noqa: F401 (scripts that import this one use difference)

sys.path.append(str(REPOSITORY / "bench" / "models"))
import networks  # noqa: E402

MODELS = {  # name -> file, shapes of inputs
    "minilm_l3": ("paraphrase_minilm_l3.onnx", {"input_ids": (1, 128), "attention_mask": (1, 128)}),
    **{name: (f"{name}.onnx", shapes[0]) for name, shapes in networks.SKELETONS.items()},
}
INT8_MODELS = {  # name -> file, shapes of inputs, the float network
    **{name: (f"{name}.onnx", {}, f"{name.removesuffix('_int8_qdq')}.onnx")
       for name in ("mobilenet_v2_int8_qdq", "resnet50_int8_qdq", "yolo_like_640_int8_qdq")},
    **{name: (f"{name}.onnx", {"input": (1, 3, 224, 224)}, "efficientnet_lite0.onnx")
       for name in ("efficientnet_lite0_int8_qdq", "efficientnet_lite0_int8_qoperator")},
    "bert_base_int8_dyn": ("bert_base_int8_dyn.onnx", networks.text_shapes(1, 128), "bert_base.onnx"),
    "gpt_kv_int8_dyn": ("gpt_kv_int8_dyn.onnx", networks.cache_shapes(1, 1, 64), "gpt_kv.onnx"),
    **{f"{name}_int8_evener": (f"{name}_int8_evener.onnx", {}, f"{name}.onnx")
       for name in ("mobilenet_v3_small", "squeezenet1_1", "shufflenet_v2_x1_0")},
    "ppocrv4_det_int8_evener": ("ppocrv4_det_int8_evener.onnx", {"x": (1, 3, 160, 320)}, "ch_PP-OCRv4_det_infer.onnx"),
    "ppocrv4_rec_int8_evener": ("ppocrv4_rec_int8_evener.onnx", {"x": (1, 3, 48, 320)}, "ch_PP-OCRv4_rec_infer.onnx"),
    "bert_mini_int8_evener": ("bert_mini_int8_evener.onnx", networks.SKELETONS["bert_mini"][0], "bert_mini.onnx"),
    "minilm_l6_q": ("all_minilm_l6_v2_q.onnx", networks.text_shapes(1, 128), None),
    "bge_small_q": ("bge_small_en_v15_q.onnx", networks.text_shapes(1, 128), None),
}
BFLOAT16_MODELS = ("resnet50", "densenet121", "vit_b_16", "bert_base", "mobilenet_v2", "squeezenet1_1", "shufflenet_v2_x1_0", "mobilenet_v3_small",
                   "bert_mini", "lstm_gru", "yolo_like_640")
FEWEST_ROUNDS = 5                      # of a page
SEED = 1                               # of the zoo's inputs
PARTNER = "evener"                     # the engine whose ratio to the best of the others is given


def trained():
    """The trained models of bench/models/zoo.py, by name."""
    import zoo  # needs pillow, which a worker does not
    return {model.name: model for model in zoo.TRAINED}


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


def limit_memory():
    """An engine that asks for more than half of the machine's memory gets an error, before the system ends some process or other."""
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_DATA, (pages * page // 2,) * 2)


def worker(arguments):
    """Loads the model, runs it once, then times runs for as many seconds as each line of stdin says. Answers in JSON lines."""
    answers = os.fdopen(arguments.answers, "w")

    def answer(**fields):
        print(json.dumps(fields), file=answers, flush=True)

    limit_memory()
    watch = isa.Watch(arguments.only_isa) if arguments.only_isa else None
    folder = pathlib.Path(arguments.folder)
    with numpy.load(folder / "feeds.npz") as stored:
        feeds = {name: stored[name] for name in stored.files}
    engine = ENGINES[arguments.worker]()
    engine.prepare(arguments.model[0], feeds, arguments.cache)
    before = reset_memory_peak()
    start = time.perf_counter()
    engine.load(arguments.model[0], int(arguments.threads), feeds)
    loaded = time.perf_counter()
    outputs = engine.run(feeds)
    first = time.perf_counter()
    peaks = [memory_bytes("VmHWM")]
    numpy.savez(folder / f"{arguments.worker}.first.npz", *(numpy.asarray(output) for output in outputs))
    # What wrote the outputs to a file, and held them, is not the engine's.
    outputs = None
    reset_memory_peak()
    answer(load=loaded - start, first=first - loaded)
    for line in sys.stdin:
        times, end = [], time.perf_counter() + float(line)
        while len(times) < 3 or time.perf_counter() < end:
            outputs = None
            begin = time.perf_counter()
            outputs = engine.run(feeds)
            times.append(time.perf_counter() - begin)
        if watch:
            watch.check()
        peaks.append(memory_bytes("VmHWM"))
        known = before is not None and None not in peaks
        seconds = min(times) if arguments.fastest else statistics.median(times)
        answer(seconds=seconds, memory=max(peaks) - before if known else None, bound=engine.memory_bound())
    if outputs is not None:
        numpy.savez(folder / f"{arguments.worker}.last.npz", *(numpy.asarray(output) for output in outputs))


def worker_environment(name, threads, limit, keep):
    """That of an engine's process. How its threads wait is left to it: who has no turn is stopped."""
    environment = dict(limit.environment(name), OMP_NUM_THREADS=str(threads), **ENGINES[name].environment)
    for variable in ("OMP_WAIT_POLICY", KEEP):
        environment.pop(variable, None)
    return dict(environment, **({KEEP: "1"} if keep else {}))


class Worker:
    """A worker process as its parent sees it: it runs only between `resume` and `pause`."""

    def __init__(self, name, path, threads, folder, cache, limit, keep=False, fastest=False):
        self.name = name
        self.log = folder / f"{name}.log"
        read_end, write_end = os.pipe()
        kept = (["--only-isa", limit.name] if limit.masked else []) + (["--fastest"] if fastest else [])
        command = [sys.executable, os.path.abspath(__file__), "--worker", name, "--answers", str(write_end), "--folder", str(folder),
                   "--cache", str(cache), "--threads", str(threads), *kept, str(path)]
        self.rounds = []
        environment = worker_environment(name, threads, limit, keep)
        partner = next((entry[2] for entry in INT8_MODELS.values() if entry[2] and entry[0] == path.name), None)
        if partner:
            environment["EVENER_COMPARE_FLOAT"] = str(path.with_name(partner))
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True,
                                            pass_fds=[write_end], env=environment)
        os.close(write_end)
        self.answers = os.fdopen(read_end)
        self.started = self.read()
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


def measured_peak(program, threads, limit, operands="fma"):
    """What bench/kernels/peak finds now: figure -> number. `operands` are "fma" (float32), "int8" or "bf16"; without products of
    bfloat16 the peak is that of float32."""
    done = subprocess.run([program, "--json", "--threads", str(threads)], capture_output=True, text=True,
                          env=limit.environment(PARTNER), check=True)
    found = json.loads(done.stdout)
    which = operands if operands in found else "fma"
    figure = found[f"fma_{found['isa']}" if which == "fma" else which]
    return {"flops": figure[0] * 1e9, "read_bytes": found["read"][0] * 1e9, "unit": report.PEAK_UNITS[which]}


def multiply_adds(command, path, feeds):
    """Those of a run, by `evener inspect`; 0 where it does not know all shapes."""
    shapes = [part for name, value in feeds.items() if value.ndim for part in ("--shape", f"{name}={'x'.join(map(str, value.shape))}")]
    done = subprocess.run([command, "inspect", path, "--json", *shapes], capture_output=True, text=True)
    estimate = json.loads(done.stdout).get("estimate") if done.returncode == 0 else None
    return estimate["multiply_adds"] if estimate and estimate["complete"] and not estimate["bodies_of_unknown_turns"] else 0


def kernel_times(command, path, feeds_file, limit):
    """kernel -> (seconds, floating-point operations) of traced runs with one thread, by `evener bench --layers`."""
    done = subprocess.run([command, "bench", path, "--layers", "--json", "--threads", "1", "--runs", "5", "--input", str(feeds_file)],
                          capture_output=True, text=True, env=limit.environment(PARTNER))
    found = {}
    for event in json.loads(done.stdout)["trace"]["traceEvents"] if done.returncode == 0 else []:
        if event.get("cat") == "kernel" and event["ph"] == "X":
            seconds, flops = found.get(event["args"]["kernel"], (0, 0))
            found[event["args"]["kernel"]] = seconds + event["dur"] * 1e-6, flops + event["args"].get("flops", 0)
    return found


def operands(arguments):
    """Of the products whose peak is measured."""
    return "int8" if arguments.int8 or arguments.int8_isas else arguments.precision or "fma"


def write_outputs(name, path, folder, cache, keep):
    """Runs an engine that is not timed once, so that others can be compared with its outputs. Whether it could."""
    try:
        Worker(name, path, 1, folder, cache, isa.Unlimited(), keep).end()
    except RuntimeError as error:
        print(f"not compared with: {name}: {error}")
        return False
    return True


def measure(model, engines, threads, limit, arguments, keep=False, reference=None):
    """The rows of one model, by engine, and the yardstick that was measured with them. `reference` is an engine that is only there
    to compare outputs with, as it cannot be kept to `limit`."""
    path = model.path
    rows, workers = {}, {}
    yardstick = report.Yardstick()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        try:
            feeds = model.feeds()
            numpy.savez(folder / "feeds.npz", **feeds)
        except ValueError as error:
            raise SystemExit(f"compare.py: {path}: {error}") from None
        if arguments.peak:
            yardstick.multiply_adds = multiply_adds(arguments.command, path, feeds)
            yardstick.peaks.append(measured_peak(arguments.peak, threads, limit, operands(arguments)))
        starts = {name: [] for name in engines}
        try:
            for _ in range(arguments.starts - 1):
                for name in engines:
                    try:
                        one = Worker(name, path, threads, folder, arguments.cache, limit, keep)
                    except RuntimeError:
                        continue
                    starts[name].append(one.started)
                    one.end()
            for name in engines:
                try:
                    workers[name] = Worker(name, path, threads, folder, arguments.cache, limit, keep, arguments.fastest)
                except RuntimeError as error:
                    rows[name] = report.Row(name, str(error))
            for _ in range(arguments.rounds):
                for one in list(workers.values()):
                    try:
                        one.turn(arguments.slice)
                    except RuntimeError as error:
                        rows[one.name] = report.Row(one.name, str(error))
                        del workers[one.name]
        finally:
            for one in workers.values():
                one.end()
        if arguments.peak:
            yardstick.peaks.append(measured_peak(arguments.peak, threads, limit, operands(arguments)))
            yardstick.kernels = kernel_times(arguments.command, path, folder / "feeds.npz", limit) if threads == 1 else {}
        first = next(iter(workers), None)
        if reference is None or not write_outputs(reference, path, folder, arguments.cache, keep):
            reference = first
        for name, one in workers.items():
            failure = compare_outputs(folder, name, reference, model.rtol)
            rows[name] = row_of(one, workers[first], starts[name] + [one.started], failure, arguments.fastest)
            if ENGINES[name].cosine is not None:
                rows[name].cosine = least_cosine(folder, name, reference)
    return [rows[name] for name in engines], yardstick


def row_of(one, reference, starts, failure, fastest):
    times, others = ([entry["seconds"] for entry in worker.rounds] for worker in (one, reference))
    time_of_run = min(times) if fastest else statistics.median(times)
    ratio = time_of_run / min(others) if fastest else statistics.median(mine / other for mine, other in zip(times, others))
    load, first = (statistics.median(started[key] for started in starts) for key in ("load", "first"))
    return report.Row(one.name, failure, time_of_run, ratio, load, first, one.rounds[-1]["memory"], one.rounds[-1]["bound"],
                      ENGINES[one.name].reads_onnx, times, ENGINES[one.name].is_peer)


class Given(typing.NamedTuple):
    """A model that is compared."""
    label: str
    path: pathlib.Path
    feeds: typing.Callable  # () -> inputs by name
    rtol: float = RTOL


def trained_model(model, cache):
    """A model of the zoo; one that is made, not fetched, is written to the cache."""
    try:
        content = model.content()
    except FileNotFoundError as error:
        raise SystemExit(f"compare.py: {error}") from None
    path = content
    if not isinstance(content, pathlib.Path):
        cache.mkdir(parents=True, exist_ok=True)
        path = cache / f"{model.name}.onnx"
        path.write_bytes(content)
    return Given(model.name, path.resolve(), lambda: model.feeds(content, SEED), model.rtol)


def parse_model(text, folder, cache):
    """The model of a MODEL argument."""
    if text in trained():
        return trained_model(trained()[text], cache)
    if text in MODELS or text in INT8_MODELS:
        name, shapes = (MODELS.get(text) or INT8_MODELS[text])[:2]
        path, label = folder / name, text
    else:
        name, *inputs = text.split(":")
        path = pathlib.Path(name)
        try:
            shapes = {key: tuple(map(int, dims.split("x"))) for key, dims in (part.rsplit("=", 1) for part in inputs)}
        except ValueError:
            raise SystemExit(f"compare.py: {text} is not PATH:INPUT=1x3x224x224") from None
        label = path.stem
    if not path.exists():
        raise SystemExit(f"compare.py: there is no {path}; scripts/fetch_models.py minilm skeletons fetches: {', '.join(MODELS)}; "
                         f"skeletons8 embeddings, and bench/models/quantized.py: {', '.join(INT8_MODELS)}")
    return Given(label, path.resolve(), lambda: networks.noise_inputs(path, shapes))


def parse_engines(text, limit):
    """The engines that are there, of those asked for; the others are named."""
    names = text.split(",")
    if not set(names) <= set(ENGINES):
        raise SystemExit(f"compare.py: there are the engines: {', '.join(ENGINES)}")
    missing = {name: ENGINES[name].missing() for name in names}
    for name in names:
        missing[name] = missing[name] or limit.missing(name)
    for name, why in missing.items():
        if why:
            hint = "; see scripts/requirements-bench.txt" if ENGINES[name].missing() else ""
            print(f"not compared: {ENGINES[name].title}: {why}{hint}")
    return [name for name in names if not missing[name]], {name: why for name, why in missing.items() if why}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--threads", default="1", metavar="LIST", help="numbers of threads, one after the other: 1,2")
    parser.add_argument("--int8", action="store_true", help="quantized models, and engines for them")
    parser.add_argument("--int8-isas", action="store_true", help="our int8 and float32 on them, kept to each instruction set")
    parser.add_argument("--precision", choices=["bf16"], help="Evener with products of it, and OpenVINO in its default precision")
    parser.add_argument("--engines", help="the first is the reference; there are: " + ", ".join(ENGINES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--slice", type=float, default=0.4, help="seconds of a turn; a turn has at least three runs")
    parser.add_argument("--starts", type=int, default=3, help="processes that load and run once; the last one is timed further")
    parser.add_argument("--models", type=pathlib.Path, default=REPOSITORY / "build" / "models", metavar="DIR")
    parser.add_argument("--cache", type=pathlib.Path, default=REPOSITORY / "build" / "converted", metavar="DIR",
                        help="where models in the engines' own formats are kept")
    parser.add_argument("--isa", default="", choices=list(isa.CLASSES), help="keep engines to this class of instruction sets")
    parser.add_argument("--peak", metavar="PROGRAM", help="bench/kernels/peak of a build with EVN_BENCH: also give shares of the peak")
    parser.add_argument("--command", metavar="PROGRAM", default=str(REPOSITORY / "build" / "release" / "evener"),
                        help="the evener command, which counts multiply-adds for --peak")
    parser.add_argument("--markdown", type=pathlib.Path, metavar="FILE", help="also write a page with the results")
    parser.add_argument("--subnormals", default="flush", choices=["flush", "keep", "both"],
                        help="what becomes of floats below 2^-126 in engines that can do either")
    parser.add_argument("--fastest", action="store_true", help="the fastest runs, not medians: where other programs run")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--only-isa", help=argparse.SUPPRESS)
    parser.add_argument("--answers", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("model", nargs="*")
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(arguments)
    if arguments.markdown and arguments.rounds < FEWEST_ROUNDS:
        parser.error(f"a page has at least {FEWEST_ROUNDS} rounds of each model")
    os.environ["EVENER_MODELS"] = str(arguments.models)  # where the zoo's are
    if arguments.markdown and arguments.fastest:
        parser.error("a page has medians")
    with tempfile.TemporaryDirectory() as folder:
        try:
            limit = isa.Only(arguments.isa, folder) if arguments.isa else isa.Unlimited()
        except RuntimeError as error:
            raise SystemExit(f"compare.py: {error}") from None
        return compare(limit, arguments)


def compare(limit, arguments):
    """All models with all engines; 1 where one failed."""
    quantized = arguments.int8 or arguments.int8_isas
    if arguments.int8 + arguments.int8_isas + bool(arguments.precision) > 1:
        raise SystemExit("compare.py: --int8, --int8-isas and --precision exclude each other")
    if arguments.int8_isas and limit.name:
        raise SystemExit("compare.py: --int8-isas and --isa exclude each other")
    asked = (INT8_ENGINES if arguments.int8 else KEPT_ENGINES if quantized else
             BFLOAT16_ENGINES if arguments.precision else DEFAULT_ENGINES)
    usual = INT8_MODELS if quantized else BFLOAT16_MODELS if arguments.precision else [*trained(), *MODELS]
    wanted = arguments.engines or ",".join(engine.name for engine in asked)
    engines, missing = parse_engines(wanted, limit)
    if not engines:
        raise SystemExit("compare.py: no engine is there")
    first = wanted.split(",")[0]
    reference = first if first in missing and not ENGINES[first].missing() else None
    models = [parse_model(text, arguments.models, arguments.cache) for text in arguments.model or usual]
    counts = [int(count) for count in arguments.threads.split(",")]
    passes = [(keep, counts[:1] if keep and arguments.subnormals == "both" else counts)
              for keep in {"flush": [False], "keep": [True], "both": [False, True]}[arguments.subnormals]]
    reports = []
    for keep, threads_of_pass in passes:
        results = report.Report(ENGINES, engines, missing, arguments.rounds, arguments.slice, limit, keep, reference)
        reports.append(results)
        print(results.machine)
        if limit.method:
            print(limit.method)
        for threads in threads_of_pass:
            print(report.HEADER.format(reference=engines[0]), flush=True)
            for model in models:
                rows, yardstick = measure(model, engines, threads, limit, arguments, keep, reference)
                results.add(threads, model.label, rows, yardstick)
                for row in rows:
                    print(report.line(model.label, row, threads, yardstick), flush=True)
            print(results.against_best(threads) + results.against_float(threads) + results.cosines(threads), flush=True)
            if arguments.markdown:
                arguments.markdown.write_text(report.page(reports))
    return 1 if any(results.failures() for results in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
