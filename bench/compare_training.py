#!/usr/bin/env python3
"""Steps of training beside PyTorch's: the same networks, weights, batches and optimizer, in turns, on the same number of threads.

usage: compare_training.py [--threads 1 2] [--rounds 7] [--only NAME ...] [--precision float32 | bfloat16] [--device NAME] [--memory]

--memory: the memory of both sides instead, by training_memory.py, with the last of --threads.

For each network each side takes --rounds turns, of as many steps as fill half a second; the median of all of a side's steps counts. PyTorch is eager
and, where torch.compile works here, compiled; the better one is the peer. Losses of both sides are compared after the first three steps. Needs PyTorch in the Python that runs
it, which may be another one than that of the tests, and the environment of the tests (EVENER_LIBRARY, PYTHONPATH). With --device opencl the same steps
wholly on that device are one more side.
"""
import argparse
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "training"), str(ROOT / "bindings" / "python")]

import evener  # noqa: E402
import make_reference  # noqa: E402
import torch  # noqa: E402
import torch._dynamo  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import training_memory  # noqa: E402
from large_nets import NETWORKS, batch_of  # noqa: E402

torch._dynamo.config.recompile_limit = 10_000  # the graph is run node by node by one function


class Peer:
    """PyTorch's side."""

    def __init__(self, model, compiled, precision):
        self.network = make_reference.Network(model, torch.float32)
        self.forward = torch.compile(self.network.__call__) if compiled else self.network
        self.optimizer = torch.optim.SGD(self.network.parameters.values(), lr=0.01, momentum=0.9)
        self.precision = precision

    def step(self, inputs, labels):
        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.precision == "bfloat16"):
            loss = F.cross_entropy(self.forward(inputs), labels)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def turn(step):
    """The seconds of each step of half a second."""
    times, end = [], time.perf_counter() + 0.5
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return times


def compare(name, threads, options):
    model, batch, classes = NETWORKS[name]()
    arrays, labels = batch_of(model, batch, classes)
    inputs, targets = {key: torch.from_numpy(x) for key, x in arrays.items()}, torch.from_numpy(labels)
    torch.set_num_threads(threads)
    with evener.Runtime(threads=threads) as runtime:
        trainer = evener.Trainer(runtime, model.SerializeToString(), learning_rate=0.01, momentum=0.9, precision=options.precision)
        sides = {"evener": lambda: trainer.step(arrays, labels).loss}
        if options.device:
            there = evener.Trainer(runtime, model.SerializeToString(), learning_rate=0.01, momentum=0.9, precision=options.precision, device=options.device)
            sides["device"] = lambda: there.step(arrays, labels).loss
        for kind in ("eager", "compiled"):
            peer = Peer(model, kind == "compiled", options.precision)
            try:
                peer.step(inputs, targets)
            except Exception as error:
                print(f"  {name}: torch.compile does not work here: {str(error).splitlines()[0][:100]}", file=sys.stderr)
                continue
            peer = Peer(model, False, options.precision) if kind == "eager" else peer
            sides[kind] = lambda peer=peer: peer.step(inputs, targets)
        first = {side: [step() for _ in range(3)] for side, step in sides.items() if side != "compiled"}
        off = max(abs(a - b) / abs(b) for side in ("evener", "device") if side in first for a, b in zip(first[side], first["eager"]))
        times = {side: [] for side in sides}
        for _ in range(options.rounds):
            for side, step in sides.items():
                times[side] += turn(step)
    medians = {side: 1e3 * statistics.median(values) for side, values in times.items()}
    ratio = medians["evener"] / min(value for side, value in medians.items() if side not in ("evener", "device"))
    there = f" {medians['device']:.1f} | {medians['device'] / medians['evener']:.2f} |" if options.device else ""
    print(f"| {name} | {batch} | {threads} | {medians['evener']:.1f} | {medians['eager']:.1f} | {medians.get('compiled', float('nan')):.1f} | {ratio:.2f} | {off:.1e} |{there}", flush=True)
    return ratio


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--device", help="a device of Evener's beside its CPU, whose steps are timed too; \"opencl\", for example")
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    if options.memory:
        return training_memory.compare(options.only, options.threads[-1])
    there = (f" {options.device} | times Evener's CPU |", "---|---|") if options.device else ("", "")
    print(f"| network | batch | threads | Evener, ms | PyTorch eager | compiled | ratio | losses differ by |{there[0]}\n|---|---|---|---|---|---|---|---|{there[1]}")
    ratios = [compare(name, threads, options) for threads in options.threads for name in options.only]
    print(f"\ngeometric mean of the ratios: {statistics.geometric_mean(ratios):.2f}; PyTorch {torch.__version__}")


if __name__ == "__main__":
    main()
