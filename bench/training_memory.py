#!/usr/bin/env python3
"""The memory of training: beside PyTorch's, and what a limit of it costs.

usage: training_memory.py compare [NAME ...] [--threads 2]
       training_memory.py limits [NAME ...] [--threads 2] [--shares 1 0.7 0.5 0.4]

compare: each side trains three steps in a process of its own (SGD with momentum); what counts is the most memory that it has had (VmHWM) less what
it had when it had its modules, the model's bytes and the batch. PyTorch is eager and lets go of values as soon as its own modules would.
Needs PyTorch, as compare_training.py does.
limits: steps of trainers with a memory_limit of these shares of the activations without one, in turns; the time of the process is what counts, so that
others on the machine disturb little; and the smallest limit that is not refused.
"""
import argparse
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "training"), str(ROOT / "bindings" / "python")]

from large_nets import NETWORKS, batch_of  # noqa: E402

STEPS = 3


def status(field):
    """Bytes of /proc/self/status."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(field)


def train_by_evener(model, inputs, labels, threads):
    import evener
    data = model.SerializeToString()

    def run():
        with evener.Runtime(threads=threads) as runtime:
            trainer = evener.Trainer(runtime, data, learning_rate=0.01, momentum=0.9)
            return [trainer.step(inputs, labels).loss for _ in range(STEPS)]
    return run


def train_by_pytorch(model, inputs, labels, threads):
    import make_reference
    import torch
    torch.set_num_threads(threads)
    last = {name: i for i, node in enumerate(model.graph.node) for name in node.input}

    class Network(make_reference.Network):
        def __call__(self, inputs):
            v = dict(self.weights, **inputs)
            for i, node in enumerate(model.graph.node):
                attributes = {a.name: make_reference.helper.get_attribute_value(a) for a in node.attribute}
                y = self.run(node, [v[name] for name in node.input], attributes)
                v.update(zip(node.output, y) if isinstance(y, tuple) else {node.output[0]: y})
                del y
                for name in set(node.input):
                    if last[name] == i:
                        del v[name]
            return v[model.graph.output[0].name]

    def run():
        network = Network(model, torch.float32)
        optimizer = torch.optim.SGD(network.parameters.values(), lr=0.01, momentum=0.9)
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network({key: torch.from_numpy(x) for key, x in inputs.items()}), torch.from_numpy(labels))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses
    return run


SIDES = {"evener": train_by_evener, "pytorch": train_by_pytorch}


def child(side, name, threads):
    model, batch, classes = NETWORKS[name]()
    run = SIDES[side](model, *batch_of(model, batch, classes), threads)
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the most so far is what there is now
    before = status("VmRSS")
    losses = run()
    print(status("VmHWM") - before, losses[-1])


def compare(names, threads):
    print("| network | batch | Evener, MB | PyTorch, MB | ratio | losses differ by |\n|---|---|---|---|---|---|")
    for name in names:
        got = {}
        for side in SIDES:
            done = subprocess.run([sys.executable, __file__, "child", side, name, "--threads", str(threads)], capture_output=True, text=True, check=True)
            got[side] = [float(word) for word in done.stdout.split()]
        (ours, loss), (theirs, other) = got["evener"], got["pytorch"]
        print(f"| {name} | {NETWORKS[name]()[1]} | {ours / 1e6:.1f} | {theirs / 1e6:.1f} | {ours / theirs:.2f} | {abs(loss - other) / abs(other):.1e} |", flush=True)


def memory_of(trainer):
    return trainer.describe("dict")["memory"]


def smallest_limit(runtime, model, batch, full):
    import evener
    low, high = 0, full
    while high - low > full // 200:
        middle = (low + high) // 2
        trainer = evener.Trainer(runtime, model, memory_limit=middle)
        try:
            trainer.step(*batch)
            high = middle
        except evener.Error as error:
            if error.status.name != "LIMIT":
                raise
            low = middle
    return high


def limits(names, threads, shares, rounds=5):
    import evener
    print("| network | share | limit, MB | activations, MB | values computed again | steps run again | time of a step |\n|---|---|---|---|---|---|---|")
    for name in names:
        model, size, classes = NETWORKS[name]()
        batch = batch_of(model, size, classes)
        data = model.SerializeToString()
        with evener.Runtime(threads=threads) as runtime:
            def made(limit):
                trainer = evener.Trainer(runtime, data, learning_rate=0.01, momentum=0.9, memory_limit=limit)
                trainer.step(*batch)
                return trainer
            free = made(1 << 50)
            full = memory_of(free)["activation_bytes"]
            trainers = {1.0: free, **{share: made(int(share * full)) for share in shares if share != 1}}
            times = {share: [] for share in trainers}
            for _ in range(rounds):
                for share, trainer in trainers.items():
                    start = time.process_time()
                    trainer.step(*batch)
                    times[share].append(time.process_time() - start)
            for share, trainer in trainers.items():
                m = memory_of(trainer)
                ratio = statistics.median(times[share]) / statistics.median(times[1.0])
                print(f"| {name} | {share:.0%} | {share * full / 1e6:.1f} | {m['activation_bytes'] / 1e6:.1f} | {m['recomputed_values']} | "
                      f"{m['recomputed_steps']} of {m['steps']} | {ratio:.2f} |", flush=True)
            least = smallest_limit(runtime, data, batch, full)
            print(f"\n{name}: the smallest limit is {least / 1e6:.1f} MB, {least / full:.0%} of {full / 1e6:.1f} MB\n", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("what", choices=("compare", "limits", "child"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--shares", type=float, nargs="+", default=[1, 0.7, 0.5, 0.4])
    options = parser.parse_args()
    if options.what == "child":
        return child(*options.names, options.threads)
    names = options.names or list(NETWORKS)
    unknown = set(names) - set(NETWORKS)
    if unknown:
        parser.error(f"unknown networks: {', '.join(sorted(unknown))}")
    return compare(names, options.threads) if options.what == "compare" else limits(names, options.threads, options.shares)


if __name__ == "__main__":
    main()
