#!/usr/bin/env python3
"""Times whole models in turns, in one process: Evener in bf16 and in fp32, OpenVINO at its default precision and in f32; says how near
Evener's bf16 is to its fp32.

usage: EVENER_LIBRARY=build/release/libevener.so bf16_models.py [--threads N] [--rounds N] MODEL.onnx...

Inputs are noise; open dims are 1, and 128 from the second axis on. The precisions of the columns are what each engine says of itself.
"""
import argparse
import pathlib
import statistics
import sys
import time

import numpy
import openvino

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bindings" / "python"))
import evener


def feeds_of(session):
    random = numpy.random.default_rng(0)
    feeds = {}
    for value in session.inputs:
        dims = [dim if isinstance(dim, int) else (128 if axis else 1) for axis, dim in enumerate(value.shape)]
        is_float = numpy.issubdtype(value.dtype, numpy.floating)
        feeds[value.name] = random.standard_normal(dims).astype(value.dtype) if is_float else numpy.ones(dims, value.dtype)
    return feeds


def cosine(a, b):
    a, b = a.astype("float64").ravel(), b.astype("float64").ravel()
    return float(a @ b / numpy.sqrt((a @ a) * (b @ b)))


def openvino_run(path, threads, feeds, precision):
    core = openvino.Core()
    model = core.read_model(path)
    model.reshape({name: list(array.shape) for name, array in feeds.items()})
    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    if precision:
        options["INFERENCE_PRECISION_HINT"] = precision
    compiled = core.compile_model(model, "CPU", options)
    request = compiled.create_infer_request()
    return compiled.get_property("INFERENCE_PRECISION_HINT").to_string(), lambda: request.infer(feeds)


def measure(path, threads, rounds):
    with evener.Runtime(threads=threads) as runtime:
        sessions = {name: runtime.session(str(path), precision=name) for name in ("bf16", "fp32")}
        feeds = feeds_of(sessions["fp32"])
        outputs = {name: session.run(feeds) for name, session in sessions.items()}
        near = min(cosine(outputs["fp32"][name], outputs["bf16"][name]) for name in outputs["fp32"])
        runs = {f"Evener {name}": (lambda s: lambda: s.run(feeds))(session) for name, session in sessions.items()}
        for hint in (None, "f32"):
            says, run = openvino_run(path, threads, feeds, hint)
            runs[f"OpenVINO {says}" + ("" if hint else " (its default)")] = run
        times = {name: [] for name in runs}
        for _ in range(rounds + 2):
            for name, run in runs.items():
                begin = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(values[2:]) * 1e3 for name, values in times.items()}, near


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    for number, path in enumerate(options.models):
        times, near = measure(path, options.threads, options.rounds)
        if number == 0:
            print("| model | " + " | ".join(times) + " | bf16 to OpenVINO's default | cosine to fp32 |")
            print("|---|" + "---:|" * (len(times) + 2))
        row = list(times.values())
        print(f"| {path.stem} | " + " | ".join(f"{ms:.2f}" for ms in row) + f" | {row[0] / row[2]:.2f} | {near:.6f} |", flush=True)


if __name__ == "__main__":
    main()
