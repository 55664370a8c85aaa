#!/usr/bin/env python3
"""How soon a run ends after it is cancelled, how long an urgent run takes beside others, and throughput by callers.

usage: responsiveness.py [--cancels N] [--urgent N] [--slice S] [--opencl] [--only LIST] [--keep FILE] [--markdown FILE]

cancel      a model of about a second is cancelled at random points: the time from cancel() to the end of run(), p50 and p99, with one and two
            threads, for products of matrices and for convolutions; with --opencl also on the first OpenCL device
urgent      a model of about 10 ms at priority 7, alone and beside two threads that run one of about 500 ms again and again at priority 0: p50
            and p99, and their quotient
throughput  1, 2, 4, 8 and 16 callers of one session with all threads, against the best of two fixed choices: all callers in a runtime of one
            thread, one caller with all threads; --keep writes its model, for `evener bench`

Models are made here: nothing is loaded. Other load on the machine shows at once: compare only what one call of this script printed.
"""
import argparse
import os
import pathlib
import random
import sys
import threading
import time

import numpy
from onnx import TensorProto, helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bindings" / "python"))
import evener  # noqa: E402

OPSET = [helper.make_opsetid("", 17)]


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def save(nodes, shape):
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    weight = nodes[0][2]
    weights = [helper.make_tensor("w", TensorProto.FLOAT, weight.shape, weight.tobytes(), raw=True)] if weight is not None else []
    made = []
    for i, (op, attributes, weight) in enumerate(nodes):
        inputs = ["x" if i == 0 else f"v{i - 1}", "w" if weight is not None else "x"]
        made.append(helper.make_node(op, inputs, ["y" if i + 1 == len(nodes) else f"v{i}"], **attributes))
    return helper.make_model(helper.make_graph(made, "g", ends[:1], ends[1:], weights), opset_imports=OPSET, ir_version=9).SerializeToString()


def products(count, side=512):
    return save([("MatMul", {}, None)] * count, [side, side]), [side, side]


def convolutions(count, side=56, channels=64):
    weight = numpy.random.default_rng(1).normal(0, 0.05, (channels, channels, 3, 3)).astype("float32")
    return save([("Conv", {"pads": [1, 1, 1, 1]}, weight)] * count, [1, channels, side, side]), [1, channels, side, side]


def session_of(model, shape, threads, device=None):
    runtime = evener.Runtime(threads=threads, cache_dir="")
    session = runtime.session(model, device=device)
    return session, {"x": numpy.zeros(shape, "float32")}


def timed(session, inputs, **options):
    begin = time.perf_counter()
    session.run(inputs, **options)
    return time.perf_counter() - begin


def of_length(make, seconds, threads, device=None):
    """A model of so many nodes that a run takes about so long; (session, inputs, seconds of a run)."""
    count = 8
    session, inputs = session_of(*make(count), threads, device)
    session.run(inputs)
    one = min(timed(session, inputs) for _ in range(3)) / count
    session, inputs = session_of(*make(max(1, round(seconds / one))), threads, device)
    session.run(inputs)
    return session, inputs, min(timed(session, inputs) for _ in range(2))


def measure_cancels(session, inputs, length, count, generator):
    """Milliseconds from cancel() to the end of run(), of the runs that were cancelled."""
    times = []
    while len(times) < count:
        token, ended = evener.Cancel(), []

        def run(token=token, ended=ended):
            try:
                session.run(inputs, cancel=token)
            except evener.Error as error:
                if error.status == evener.Status.CANCELLED:
                    ended.append(time.perf_counter())

        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(generator.uniform(0.05, 0.6) * length)
        begin = time.perf_counter()
        token.cancel()
        thread.join()
        if ended:
            times.append((ended[0] - begin) * 1e3)
    return times


def cancel_rows(options):
    generator = random.Random(22)
    rows = []
    cases = [("CPU", None, threads) for threads in (1, 2)] + ([("OpenCL", "opencl:0", 2)] if options.opencl else [])
    for name, device, threads in cases:
        for what, make in (("MatMul", products), ("Conv", convolutions)):
            session, inputs, length = of_length(make, options.length, threads, device)
            times = measure_cancels(session, inputs, length, options.cancels, generator)
            rows.append((f"{what}, {name}", threads, f"{length * 1e3:.0f}", len(times), f"{percentile(times, 0.5):.2f}",
                         f"{percentile(times, 0.99):.2f}", f"{max(times):.2f}"))
    return ["model", "threads", "run, ms", "cancels", "p50, ms", "p99, ms", "most, ms"], rows


def urgent_rows(options):
    threads = os.cpu_count()
    runtime = evener.Runtime(threads=threads, cache_dir="")
    lone = {}
    for name, seconds in (("short", 0.01), ("long", 0.5)):
        count, (model, shape) = 4, products(4)
        probe = runtime.session(model)
        inputs = {"x": numpy.zeros(shape, "float32")}
        probe.run(inputs)
        one = min(timed(probe, inputs) for _ in range(3)) / count
        lone[name] = runtime.session(products(max(1, round(seconds / one)))[0])
        lone[name].run(inputs)
    short, long = lone["short"], lone["long"]

    def urgent_times():
        times = []
        for _ in range(options.urgent):
            times.append(timed(short, inputs, priority=7) * 1e3)
            time.sleep(0.005)
        return times

    alone = urgent_times()
    ends = threading.Event()

    def saturate():
        while not ends.is_set():
            long.run(inputs)

    others = [threading.Thread(target=saturate) for _ in range(2)]
    for thread in others:
        thread.start()
    time.sleep(0.2)
    beside = urgent_times()
    ends.set()
    for thread in others:
        thread.join()
    p99 = percentile(alone, 0.99)
    return (["run of priority 7", "runs", "p50, ms", "p99, ms", "of alone"],
            [("alone", len(alone), f"{percentile(alone, 0.5):.2f}", f"{p99:.2f}", "1"),
             ("beside two callers of a 500 ms model", len(beside), f"{percentile(beside, 0.5):.2f}", f"{percentile(beside, 0.99):.2f}",
              f"{percentile(beside, 0.99) / p99:.2f}")])


def throughput(session, inputs, callers, seconds):
    done, ends = [0] * callers, time.perf_counter() + seconds

    def call(number):
        while time.perf_counter() < ends:
            session.run(inputs)
            done[number] += 1

    threads = [threading.Thread(target=call, args=(i,)) for i in range(callers)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - begin)


def throughput_rows(options):
    model, shape = convolutions(4)
    if options.keep:
        options.keep.write_bytes(model)
    cores = os.cpu_count()
    session, inputs = session_of(model, shape, cores)
    single = session_of(model, shape, 1)[0]
    rows = []
    for callers in (1, 2, 4, 8, 16):
        rates = {"it": [], "one caller, all threads": [], "a thread for each core": []}
        for _ in range(options.rounds):  # interleaved
            rates["it"].append(throughput(session, inputs, callers, options.slice))
            rates["one caller, all threads"].append(throughput(session, inputs, 1, options.slice))
            if callers > 1:
                rates["a thread for each core"].append(throughput(single, inputs, min(callers, cores), options.slice))
        best = max((percentile(v, 0.5), k) for k, v in rates.items() if v and k != "it")
        it = percentile(rates["it"], 0.5)
        rows.append((callers, f"{it:.1f}", f"{best[0]:.1f}", best[1], f"{it / best[0]:.2f}"))
    return ["callers", "runs/s", "best fixed choice, runs/s", "which", "share"], rows


def table(title, head, rows):
    lines = [f"### {title}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cancels", type=int, default=200)
    parser.add_argument("--length", type=float, default=1.0, help="seconds of the run that is cancelled")
    parser.add_argument("--urgent", type=int, default=200)
    parser.add_argument("--slice", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--opencl", action="store_true")
    parser.add_argument("--only", default="cancel,urgent,throughput")
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--markdown", type=pathlib.Path)
    options = parser.parse_args()
    parts = {"cancel": ("From cancel() to the end of run()", cancel_rows), "urgent": ("An urgent run beside others", urgent_rows),
             "throughput": ("Throughput by callers", throughput_rows)}
    text = ""
    for name in options.only.split(","):
        title, measure = parts[name]
        part = table(title, *measure(options))
        print(part, flush=True)
        text += part + "\n"
    if options.markdown:
        options.markdown.write_text(text)


if __name__ == "__main__":
    main()
