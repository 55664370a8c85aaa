#!/usr/bin/env python3
"""Runs each model with one thread and with two, in turns, while another process keeps one core busy, and prints the ratio of the two
threads' time to the one's: two threads should not be slower than one by more than a tenth.

usage: busy_core.py --command EVENER MODEL [MODEL...]   (a MODEL may be followed by its --shape NAME=DIMS, as in "m.onnx --shape x=1,3,8,8")
"""

import argparse
import multiprocessing
import os
import re
import shlex
import statistics
import subprocess


def spin(core):
    os.sched_setaffinity(0, {core})
    while True:
        pass


def milliseconds(command, model, threads, runs):
    words = [command, "bench", *shlex.split(model), "--threads", str(threads), "--runs", str(runs)]
    out = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return float(re.search(r"more: median ([\d.]+) ms", out)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--command", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) != 2:
        parser.error(f"this is measured on two cores, not on {len(cores)}: run it under taskset")
    print("| model | 1 thread, ms | 2 threads, ms | ratio | 1 thread, a core busy | 2 threads, a core busy | ratio |\n|---|---|---|---|---|---|---|")
    for model in options.models:
        cells = []
        for busy in (False, True):
            other = multiprocessing.Process(target=spin, args=(cores[1],), daemon=True) if busy else None
            if other:
                other.start()
            times = {1: [], 2: []}
            for _ in range(options.rounds):
                for threads in times:
                    times[threads].append(milliseconds(options.command, model, threads, options.runs))
            if other:
                other.kill()
            ratio = statistics.median(b / a for a, b in zip(times[1], times[2]))
            cells += [f"{statistics.median(times[1]):.2f}", f"{statistics.median(times[2]):.2f}", f"{ratio:.2f}"]
        print(f"| {os.path.basename(model.split()[0])} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
