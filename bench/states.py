#!/usr/bin/env python3
"""One step of a decoder whose caches lie in a state, against the same step of a caller that carries them from run to run, interleaved.

usage: states.py [--past LIST] [--steps N] [--threads N] [--markdown FILE]

The decoder is gpt_kv of bench/models: six layers, six heads of 64, caches of keys and values of all that came before. Both sides see the same
tokens. The carrying side gives the present tensors of its last run as the next run's past: they are copied within the library alone. Printed
are medians in ms, and their quotient. That the outputs are bit-equal is checked.
"""
import argparse
import pathlib
import statistics
import sys
import time

import numpy

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / "bindings" / "python"), str(pathlib.Path(__file__).resolve().parent / "models")]
import evener  # noqa: E402
import networks  # noqa: E402
from table import Table  # noqa: E402


def timed(call):
    begin = time.perf_counter_ns()
    result = call()
    return result, time.perf_counter_ns() - begin


def measure(session, past, steps):
    caches = list(zip(session.outputs[1:], session.inputs[2:]))
    limit = 512  # positions that the model knows

    def inputs(first, count):
        return {"ids": numpy.arange(first, first + count)[None] % 97, "pos": numpy.minimum(numpy.arange(first, first + count), limit - 1)[None]}

    state = session.state([(output.name, given.name, past + steps) for output, given in caches])
    session.run(inputs(0, past), state=state)
    empty = {given.name: numpy.zeros((1, 6, 0, 64), "float32") for _, given in caches}
    present = session.run({**inputs(0, past), **empty})
    carried = {given.name: present[output.name] for output, given in caches}
    times = {"state": [], "carried": []}
    for step in range(past, past + steps):
        mine, took = timed(lambda: session.run(inputs(step, 1), state=state))
        times["state"].append(took)
        theirs, took = timed(lambda: session.run({**inputs(step, 1), **carried}))
        times["carried"].append(took)
        carried = {given.name: theirs[output.name] for output, given in caches}
        first = session.outputs[0].name
        assert numpy.array_equal(mine[first], theirs[first])
    return [statistics.median(times[kind]) / 1e6 for kind in ("state", "carried")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--past", default="64,256,1024")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--markdown", type=pathlib.Path)
    arguments = parser.parse_args()
    table = Table("past", "step with a state, ms", "step with carried caches, ms", "quotient")
    with evener.Runtime(threads=arguments.threads, cache_dir="") as runtime, runtime.session(networks.filled_skeleton("gpt_kv")) as session:
        for past in map(int, arguments.past.split(",")):
            state, carried = measure(session, past, arguments.steps)
            table.add(str(past), f"{state:.2f}", f"{carried:.2f}", f"{state / carried:.2f}")
    table.write(arguments.markdown)


if __name__ == "__main__":
    main()
