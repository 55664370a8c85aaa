#!/usr/bin/env python3
"""Throughput and latency of engines under many clients, over models and numbers of clients, interleaved and with outputs compared.

usage: clients.py [--clients 1,2,4,16] [--rounds N] [--slice S] [--rate SHARE] [--engines LIST] [--markdown FILE] [MODEL...]

Each engine is a process; they take turns of so many seconds, round by round, and stand still in between. In a turn, N threads run one model
again and again (closed loop): requests per second, and the latency's 50th and 99th percentile. With --rate, requests arrive at random
times, on average at SHARE of what the best peer reaches with 16 clients, for all engines at the same times, and latencies count from the
arrival (open loop).

Engines: `evener` (run() from each thread), `evener:submit` (its own queue), `ort:1` and `ort:all` (Run from each thread, with one intra-op
thread and with one for each core), `openvino` (throughput mode, one asynchronous request for each client), `evener:before` (the checkout that
EVENER_BEFORE names). Models are those of compare.py. Outputs must be within its tolerance of ONNX Runtime's, those of one engine must have the same
bits whatever runs beside them. An engine that cannot run a model is named, and left out there.
"""
import argparse
import json
import os
import pathlib
import queue
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import compare  # noqa: E402
import engines as single  # noqa: E402

MODELS = ("mobilenet_v2", "resnet50", "minilm_l3", "silero_vad", "PP-OCRv6_rec_small")


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


class Ort(single.OnnxRuntime):
    threads = 1

    def clients(self, path, feeds, count):
        self.load(path, self.threads or os.cpu_count(), feeds)
        return [lambda: self.session.run(None, feeds)] * count


class OrtAll(Ort):
    threads = 0


class OpenVino(single.OpenVino):
    """One request of a throughput-mode model for each client."""

    def clients(self, path, feeds, count):
        core = self.module.Core()
        model = core.read_model(path)
        model.reshape({name: list(value.shape) for name, value in feeds.items()})
        compiled = core.compile_model(model, "CPU", {"PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_NUM_THREADS": os.cpu_count(),
                                                     "CPU_DENORMALS_OPTIMIZATION": True, **self.settings})
        outputs = range(len(compiled.outputs))

        def client():
            request = compiled.create_infer_request()
            for name, value in feeds.items():
                request.set_tensor(name, self.module.Tensor(value))

            def run():
                request.start_async()
                request.wait()
                return [request.get_output_tensor(index).data.copy() for index in outputs]
            return run
        return [client() for _ in range(count)]


class Evener(single.Evener):
    def clients(self, path, feeds, count):
        self.load(path, os.cpu_count(), feeds)
        return [lambda: list(self.session.run(feeds).values())] * count


class Submitted(single.Evener):
    def clients(self, path, feeds, count):
        self.load(path, os.cpu_count(), feeds)
        return [lambda: list(self.session.submit(feeds).result().values())] * count


class Before(Evener):
    checkout = pathlib.Path(os.environ.get("EVENER_BEFORE", single.REPOSITORY))


ENGINES = {"evener": Evener, "evener:submit": Submitted, "evener:before": Before, "ort:1": Ort, "ort:all": OrtAll, "openvino": OpenVino}
PEERS = ("ort:1", "ort:all", "openvino")


def closed_loop(runs, seconds):
    """Latencies of what the threads did until the time was over, and how long that took."""
    latencies, end = [[] for _ in runs], time.perf_counter() + seconds

    def client(run, out):
        while time.perf_counter() < end:
            begin = time.perf_counter()
            run()
            out.append(time.perf_counter() - begin)

    begin = time.perf_counter()
    threads = [threading.Thread(target=client, args=pair) for pair in zip(runs, latencies)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [value for some in latencies for value in some], time.perf_counter() - begin


def open_loop(runs, seconds, rate, seed):
    """The same of requests that arrive at random times."""
    arrivals, draw, at = [], random.Random(seed), 0.0
    while at < seconds:
        at += draw.expovariate(rate)
        arrivals.append(at)
    waiting, latencies = queue.SimpleQueue(), []

    def client(run):
        while (arrival := waiting.get()) is not None:
            run()
            latencies.append(time.perf_counter() - arrival)

    threads = [threading.Thread(target=client, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    begin = time.perf_counter()
    for offset in arrivals:
        ahead = begin + offset - time.perf_counter()
        if ahead > 0:
            time.sleep(ahead)
        waiting.put(begin + offset)
    for _ in threads:
        waiting.put(None)
    for thread in threads:
        thread.join()
    return latencies, time.perf_counter() - begin


def worker(arguments):
    answers = os.fdopen(arguments.answers, "w")
    with numpy.load(arguments.feeds) as stored:
        feeds = {name: stored[name] for name in stored.files}
    engine = ENGINES[arguments.worker]()
    engine.prepare(arguments.model[0], feeds, None)
    most = max(int(count) for count in arguments.clients.split(","))
    runs = engine.clients(arguments.model[0], feeds, most)
    first = [numpy.asarray(output).copy() for output in runs[0]()]
    numpy.savez(arguments.outputs, *first)
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        some = runs[:order["clients"]]
        if order.get("rate"):
            latencies, seconds = open_loop(some, order["seconds"], order["rate"], order["seed"])
        else:
            latencies, seconds = closed_loop(some, order["seconds"])
        same = all(numpy.array_equal(a, b, equal_nan=True) for a, b in zip(first, some[-1]()))
        print(json.dumps({"rate": len(latencies) / seconds, "p50": percentile(latencies, .5), "p99": percentile(latencies, .99),
                          "same": same}), file=answers, flush=True)


class Process:
    def __init__(self, name, path, clients, folder):
        self.outputs = folder / f"{name.replace(':', '_')}.npz"
        read_end, write_end = os.pipe()
        command = [sys.executable, os.path.abspath(__file__), "--worker", name, "--answers", str(write_end), "--feeds",
                   str(folder / "feeds.npz"), "--outputs", str(self.outputs), "--clients", clients, str(path)]
        environment = dict(os.environ)
        if name == "evener:before":
            environment["EVENER_LIBRARY"] = str(pathlib.Path(os.environ["EVENER_BEFORE"]) / "build/release/libevener.so")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, pass_fds=[write_end], env=environment)
        os.close(write_end)
        self.answers = os.fdopen(read_end)
        self.read()
        self.process.send_signal(signal.SIGSTOP)

    def read(self):
        line = self.answers.readline()
        if not line:
            raise RuntimeError(f"ended with {self.process.wait()}")
        return json.loads(line)

    def turn(self, **order):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer = self.read()
        self.process.send_signal(signal.SIGSTOP)
        return answer

    def end(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        self.process.wait()


def wrong_outputs(path, expected, name):
    with numpy.load(expected) as right, numpy.load(path) as got:
        for key in right.files:
            why = compare.difference(got[key].reshape(right[key].shape).astype(right[key].dtype), right[key])
            if why and "proves nothing" not in why:
                return f"{name}: {key} {why}"
    return ""


def summary(rounds):
    return {key: statistics.median(r[key] for r in rounds) for key in ("rate", "p50", "p99")}


def measure(given, names, arguments):
    """{(clients, engine): {"rate", "p50", "p99"}}, of the open loop under the number -1."""
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        numpy.savez(folder / "feeds.npz", **given.feeds())
        processes = {}
        try:
            for name in names:
                try:
                    processes[name] = Process(name, given.path, arguments.clients, folder)
                except RuntimeError as error:
                    print(f"  {given.label}: {name} cannot run it: {error}", flush=True)
            names = list(processes)
            for name in names:
                why = wrong_outputs(processes[name].outputs, processes[names[-1]].outputs, name)
                if why:
                    print(f"  {given.label}: {why}")
            counts = [int(count) for count in arguments.clients.split(",")]
            for count in counts:
                rounds = {name: [] for name in names}
                for _ in range(arguments.rounds):
                    for name in names:
                        rounds[name].append(processes[name].turn(clients=count, seconds=arguments.slice))
                for name in names:
                    results[count, name] = summary(rounds[name])
                    if not all(r["same"] for r in rounds[name]):
                        print(f"  {given.label}: {name}: other bits with {count} clients")
            peers = [results[counts[-1], name]["rate"] for name in names if name in PEERS]
            if arguments.rate and peers:
                rounds = {name: [] for name in names}
                for seed in range(arguments.rounds):
                    for name in names:
                        rounds[name].append(processes[name].turn(clients=counts[-1], seconds=2 * arguments.slice,
                                                                 rate=arguments.rate * max(peers), seed=seed))
                for name in names:
                    results[-1, name] = summary(rounds[name])
        finally:
            for process in processes.values():
                process.end()
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--clients", default="1,2,4,16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slice", type=float, default=1.0)
    parser.add_argument("--rate", type=float, default=0.7, help="share of the best peer's throughput for the open loop; 0: none")
    parser.add_argument("--engines", default="evener,evener:submit,openvino,ort:all,ort:1", help="the last one is the outputs' reference")
    parser.add_argument("--models", type=pathlib.Path, default=single.REPOSITORY / "build" / "models")
    parser.add_argument("--cache", type=pathlib.Path, default=single.REPOSITORY / "build" / "converted")
    parser.add_argument("--markdown", type=pathlib.Path)
    for hidden in ("--worker", "--feeds", "--outputs"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--answers", type=int, help=argparse.SUPPRESS)
    parser.add_argument("model", nargs="*")
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(arguments)
    os.environ["EVENER_MODELS"] = str(arguments.models)
    names = [name for name in arguments.engines.split(",") if not (why := ENGINES[name].missing()) or print(f"not compared: {name}: {why}")]
    lines, ratios, tails = [], [], []
    for text in arguments.model or MODELS:
        given = compare.parse_model(text, arguments.models, arguments.cache)
        results = measure(given, names, arguments)
        for count in sorted({key[0] for key in results}, key=lambda c: (c < 0, c)):
            row = {name: results[count, name] for name in names if (count, name) in results}
            best = max((row[name]["rate"] for name in row if name in PEERS), default=None)
            tail = min((row[name]["p99"] for name in row if name in PEERS), default=None)
            cells = [f"{name} {row[name]['rate']:.0f}/s {1e3 * row[name]['p50']:.2f} {1e3 * row[name]['p99']:.2f}" for name in row]
            what = "open loop" if count < 0 else f"{count} clients"
            if best and "evener" in row:
                ratio = row["evener"]["p99"] / tail if count < 0 else row["evener"]["rate"] / best
                (tails if count < 0 else ratios).append(ratio)
                cells.append(f"{'p99' if count < 0 else 'rate'} to the best peer {ratio:.2f}")
            lines.append(f"{given.label:20} {what:11} " + "  |  ".join(cells))
            print(lines[-1], flush=True)
    for what, values in (("requests per second", ratios), ("p99", tails)):
        if values:
            lines.append(f"{what}: geometric mean {statistics.geometric_mean(values):.2f} of the best peer's, from {min(values):.2f} to "
                         f"{max(values):.2f}")
            print(lines[-1])
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(["```", *lines, "```", ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
