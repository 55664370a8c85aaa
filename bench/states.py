#!/usr/bin/env python3
"""One step of a decoder whose caches lie in a state, against the same step of a caller that carries them from run to run, interleaved.

usage: states.py [--past LIST] [--steps N] [--turns N] [--threads N] [--markdown FILE]

The decoder is gpt_kv of bench/models: six layers, six heads of 64, caches of keys and values of all that came before. All sides see the same
tokens. A carrying side gives the present tensors of its last run as the next run's past: they are copied within the library alone. Each side is a
process; they take turns of so many steps and stand still in between. Printed are medians in ms, and their quotients. That the outputs are
bit-equal is checked.

EVENER_BEFORE names a checkout of an earlier commit, built with the preset release: then there is a side that carries caches with its library.
"""
import argparse
import hashlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
BEFORE = os.environ.get("EVENER_BEFORE")
LIMIT = 512  # positions that the model knows


def inputs(first, count):
    positions = numpy.arange(first, first + count)
    return {"ids": positions[None] % 97, "pos": numpy.minimum(positions, LIMIT - 1)[None]}


def prompt_of(session, past, capacity, with_state):
    """What runs the step at a position, after a prompt of `past` tokens, and gives its first output."""
    caches = list(zip(session.outputs[1:], session.inputs[2:]))
    first = session.outputs[0].name
    if with_state:
        state = session.state([(output.name, given.name, capacity) for output, given in caches])
        session.run(inputs(0, past), state=state)
        return lambda position: session.run(inputs(position, 1), state=state)[first]
    carried = {given.name: numpy.zeros((1, 6, 0, 64), "float32") for _, given in caches}

    def carry(position, count):
        result = session.run({**inputs(position, count), **carried})
        carried.update({given.name: result[output.name] for output, given in caches})
        return result[first]

    carry(0, past)
    return lambda position: carry(position, 1)


def worker(arguments):
    """Does `steps` steps for each line on standard input; answers with their times and a digest of all outputs so far."""
    checkout = pathlib.Path(BEFORE) if arguments.worker == "before" else REPOSITORY
    os.environ["EVENER_LIBRARY"] = str(checkout / "build/release/libevener.so")
    sys.path[:0] = [str(checkout / "bindings" / "python"), str(REPOSITORY / "bench" / "models")]
    import evener
    import networks
    past, digest = int(arguments.past), hashlib.sha256()
    with evener.Runtime(threads=arguments.threads, cache_dir="") as runtime, runtime.session(networks.filled_skeleton("gpt_kv")) as session:
        step = prompt_of(session, past, past + arguments.turns * arguments.steps, arguments.worker == "state")
        print(flush=True)
        for _ in sys.stdin:
            times = []
            for position in range(past, past + arguments.steps):
                begin = time.perf_counter_ns()
                output = step(position)
                times.append(time.perf_counter_ns() - begin)
                digest.update(output.tobytes())
            past += arguments.steps
            print(json.dumps({"times": times, "digest": digest.hexdigest()}), flush=True)


def measure(sides, past, arguments):
    """Median milliseconds of a step of each side."""
    words = [sys.executable, __file__, "--past", past, "--steps", str(arguments.steps), "--turns", str(arguments.turns), "--threads", str(arguments.threads)]
    processes = {side: subprocess.Popen([*words, "--worker", side], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for side in sides}
    times, digests = {side: [] for side in sides}, {}
    try:
        for process in processes.values():
            process.stdout.readline()
        for _ in range(arguments.turns):
            for side, process in processes.items():
                print(file=process.stdin, flush=True)
                answer = json.loads(process.stdout.readline())
                times[side] += answer["times"]
                digests[side] = answer["digest"]
    finally:
        for process in processes.values():
            process.communicate()
    assert digests["state"] == digests["carried"], "the outputs differ"
    return [statistics.median(times[side]) / 1e6 for side in sides]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--past", default="64,256,1024")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(arguments)
    from table import Table
    sides = ["state", "carried"] + (["before"] if BEFORE else [])
    names = {"state": "step with a state, ms", "carried": "step with carried caches, ms", "before": "the same before, ms"}
    table = Table("past", *[names[side] for side in sides], *[f"to {side}" for side in sides[1:]])
    for past in arguments.past.split(","):
        times = measure(sides, past, arguments)
        table.add(past, *[f"{value:.2f}" for value in times], *[f"{times[0] / value:.2f}" for value in times[1:]])
    table.write(arguments.markdown)


if __name__ == "__main__":
    main()
