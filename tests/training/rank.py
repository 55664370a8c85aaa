"""One of several processes that train a small network together; it writes what it saw as JSON. `test_ranks.py` starts them.

usage: rank.py SETTINGS.json RANK RANKS OUT.json
"""
import hashlib
import json
import os
import signal
import sys
import time

import nets
import numpy as np
import onnx
from onnx import numpy_helper

import evener


def batches(kind, count, size, seed=5):
    random = np.random.default_rng(seed)
    shape = {"mlp": (20,), "simple_cnn": (1, 28, 28), "residual": (3, 16, 16), "adapted": (20,)}[kind]
    classes = {"mlp": 5, "simple_cnn": 10, "residual": 6, "adapted": 5}[kind]
    for _ in range(count):
        yield random.standard_normal((size, *shape), dtype=np.float32), random.integers(0, classes, size)


def share(size, rank, ranks, uneven):
    """The rows of a batch that a rank takes."""
    edges = [round(size * (r / ranks) ** (1.5 if uneven else 1)) for r in range(ranks + 1)]
    return slice(edges[rank], edges[rank + 1])


def train(how, rank, ranks, out):
    model, _ = getattr(nets, how["model"] if how.get("other_model") != rank else "mlp")()
    options = dict(how["options"])
    if ranks > 1:
        options.update(rank=rank, ranks=ranks)
        if how.get("collective") == "gloo":
            options.update(collective="gloo", store=how["store"])
        elif how.get("collective") == "mpi":
            options.update(collective="mpi")
            del options["rank"], options["ranks"]
    if how.get("changed_weights") and rank > 0:
        for tensor in model.graph.initializer:
            if tensor.data_type == 1:
                tensor.raw_data = (np.frombuffer(tensor.raw_data, np.float32) * np.float32(1.5)).tobytes()
    if how.get("other_operator") and rank > 0:
        next(node for node in model.graph.node if node.op_type == "Relu").op_type = "Tanh"
    with evener.Runtime(threads=1) as runtime:
        trainer = evener.Trainer(runtime, model.SerializeToString(), **options)
        if how.get("restore"):
            trainer.restore(how["restore"])
        for number, (x, y) in enumerate(batches(how["model"], how["steps"], how["batch"], how.get("seed", 5))):
            rows = slice(*how["rows"]) if "rows" in how else share(how["batch"], rank, ranks, how.get("uneven", False))
            if how.get("fails") == [rank, number]:
                y = np.full_like(y, 99)
            if how.get("nan") == [rank, number]:
                x = x * np.float32("nan")
            if how.get("dies") == [rank, number]:
                os.kill(os.getpid(), signal.SIGKILL)
            if how.get("hangs") == [rank, number]:
                launcher = os.getppid()
                while os.getppid() == launcher:  # for ever, but not beyond the test
                    time.sleep(0.1)
            try:
                step = trainer.step({"x": x[rows]}, y[rows])
                out["losses"].append(step.loss)
                out["skipped"].append(step.skipped)
            except evener.Error as error:
                out["errors"].append([number, f"EVN_ERROR_{error.status.name}", str(error)])
                if not how.get("goes_on"):
                    break
            if how.get("save") and rank == 0 and number == how["steps"] - 1:
                trainer.save(how["save"])
        out.update((key, value) for key, value in trainer.describe("dict").items() if key in ("transport", "batches"))
        exported = f"{how['store']}.{rank}.onnx"
        trainer.finish(exported)
        # All weights, with the statistics that are no parameters.
        values = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(exported).graph.initializer}
        out["bits"] = {name: hashlib.sha256(value.tobytes()).hexdigest() for name, value in values.items()}
        out["statistics"] = {name: value.tolist() for name, value in values.items() if name.endswith((".mean", ".var"))}


def main():
    settings, rank, ranks, to = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    if rank < 0:
        rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    with open(settings) as file:
        how = json.load(file)
    out = {"losses": [], "skipped": [], "errors": []}
    start = time.monotonic()
    try:
        train(how, rank, ranks, out)
    except evener.Error as error:
        out["errors"].append([-1, f"EVN_ERROR_{error.status.name}", str(error)])
    out["seconds"] = time.monotonic() - start
    with open(f"{to}.{rank}", "w") as file:
        json.dump(out, file)


main()
