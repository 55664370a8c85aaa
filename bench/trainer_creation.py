#!/usr/bin/env python3
"""How long a trainer takes to be made, and how much memory its process has at most meanwhile, by library.

usage: trainer_creation.py LIBRARY... [--network resnet18] [--rounds 9] [--from file|bytes]

Each trainer is made in a process of its own, of the libraries in turns. Time is that of evn_trainer_create; memory is the most that the process has had
(VmHWM) by its end less what it had before. Written are medians, and each library's share of the first one's. Libraries whose structs differ from those of
this tree's binding are refused by it: they are timed with the binding of their own tree.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "training"), str(ROOT / "bindings" / "python")]


def make_once(path, source):
    """Prints seconds and bytes."""
    import evener
    from training_memory import status
    model = path if source == "file" else pathlib.Path(path).read_bytes()
    with evener.Runtime(threads=2) as runtime:
        before = status("VmRSS")
        begin = time.perf_counter()
        trainer = evener.Trainer(runtime, model, learning_rate=0.01, momentum=0.9)
        seconds = time.perf_counter() - begin
        print(seconds, status("VmHWM") - before)
        del trainer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="+")
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--from", dest="source", choices=("file", "bytes"), default="file")
    parser.add_argument("--once", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.once:
        return make_once(args.once, args.source)
    from large_nets import NETWORKS
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        pathlib.Path(path).write_bytes(NETWORKS[args.network]()[0].SerializeToString())
        taken = {library: [] for library in args.libraries}
        for _ in range(args.rounds):
            for library in args.libraries:
                run = subprocess.run([sys.executable, __file__, library, "--once", path, "--from", args.source], check=True, capture_output=True,
                                     text=True, env=dict(os.environ, EVENER_LIBRARY=os.path.abspath(library)))
                taken[library].append(tuple(float(word) for word in run.stdout.split()))
    first = None
    for library, runs in taken.items():
        seconds, size = (statistics.median(column) for column in zip(*runs))
        first = first or (seconds, size)
        print(f"{library}: {seconds * 1e3:.1f} ms ({seconds / first[0]:.2f}), {size / 2**20:.1f} MiB ({size / first[1]:.2f})")


if __name__ == "__main__":
    main()
