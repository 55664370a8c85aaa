#!/usr/bin/env python3
"""Steps of two processes of one thread beside those of one process of one thread, with the same batch in all: what data-parallel training gains.

usage: compare_ranks.py [--engines mpi gloo] [--only NAME ...] [--rounds 3] [--steps 20]

One process and two, by each engine, take turns; the median of all steps of rank 0 counts. Needs the environment of the tests (EVENER_LIBRARY, PYTHONPATH), two cores
that nobody else uses, and for MPI its launcher.
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


def child(name, steps, engine, rank, ranks, store):
    import evener
    from large_nets import NETWORKS, batch_of

    model, batch, classes = NETWORKS[name]()
    arrays, labels = batch_of(model, batch, classes)
    options = {"mpi": {"collective": "mpi"}, "gloo": {"collective": "gloo", "rank": rank, "ranks": ranks, "store": store}}.get(engine, {})
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", rank))
    rows = slice(batch * rank // ranks, batch * (rank + 1) // ranks)
    inputs, labels, times = {key: x[rows] for key, x in arrays.items()}, labels[rows], []
    with evener.Runtime(threads=1) as runtime:
        trainer = evener.Trainer(runtime, model.SerializeToString(), learning_rate=0.01, momentum=0.9, **options)
        for step in range(steps + 3):
            start = time.perf_counter()
            loss = trainer.step(inputs, labels).loss
            if step >= 3:
                times.append(1e3 * (time.perf_counter() - start))
    if rank == 0:
        print(*times, loss)


def run(name, steps, engine):
    """The times of rank 0's steps, and its last loss."""
    ranks = 1 if engine is None else 2
    with tempfile.TemporaryDirectory() as store:
        command = [sys.executable, __file__, "child", name, str(steps), str(engine), "{}", str(ranks), store]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
        if engine == "mpi":
            commands = [["mpirun", "--allow-run-as-root", "--bind-to", "core", "-np", "2", *[word.replace("{}", "0") for word in command]]]
        else:
            commands = [[word.replace("{}", str(rank)) for word in command] for rank in range(ranks)]
        children = [subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) for words in commands]
        words = [text.split() for text in (process.communicate()[0] for process in children) if text][0]
    return [float(word) for word in words[:-1]], float(words[-1])


def main():
    if sys.argv[1:2] == ["child"]:
        name, steps, engine, rank, ranks, store = sys.argv[2:]
        return child(name, int(steps), engine, int(rank), int(ranks), store)
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--engines", nargs="+", default=["mpi", "gloo"], choices=["mpi", "gloo"])
    parser.add_argument("--only", nargs="+", default=["simple_cnn", "resnet18"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    print("| network | one process, ms | " + " | ".join(f"{engine}, ms | times as fast" for engine in options.engines) + " | losses differ by |")
    print("|---" * (3 + 2 * len(options.engines)) + "|")
    for name in options.only:
        times, losses = {}, {}
        for _ in range(options.rounds):
            for engine in (None, *options.engines):
                taken, losses[engine] = run(name, options.steps, engine)
                times.setdefault(engine, []).extend(taken)
        medians = {engine: statistics.median(values) for engine, values in times.items()}
        rows = " | ".join(f"{medians[engine]:.1f} | {medians[None] / medians[engine]:.2f}" for engine in options.engines)
        off = max(abs(losses[engine] - losses[None]) / abs(losses[None]) for engine in options.engines)
        print(f"| {name} | {medians[None]:.1f} | {rows} | {off:.1e} |", flush=True)


if __name__ == "__main__":
    main()
