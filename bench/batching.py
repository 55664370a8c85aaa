#!/usr/bin/env python3
"""Throughput and latency of requests that are joined to batches, against the same requests one by one, interleaved.

usage: batching.py [--clients N] [--rounds N] [--duration S] [--max-batch N] [--max-delay-us N] [--only LIST] [--markdown FILE]

Each turn is a process of `evener bench`, with and without `batching` in its configuration. Printed are requests per second, processor time for
each request, and the 99th percentile of the latency, as medians over the turns, and their quotients. That the answers are bit-equal is a test
(tests/models/test_batching.py), not measured here.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy
import onnx

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "models"))
import networks  # noqa: E402
from table import Table  # noqa: E402

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
COMMAND = REPOSITORY / "build" / "release" / "evener"
MODELS = {  # name -> file of build/models, or of a network that is made; shapes of inputs
    "gpt_kv, one step after 64": ("gpt_kv", networks.cache_shapes(1, 1, 64)),
    "minilm_l3, 8 tokens": ("paraphrase_minilm_l3.onnx", {"input_ids": (1, 8), "attention_mask": (1, 8)}),
    "silero_vad": ("silero_vad.onnx", {"input": (1, 576), "state": (2, 1, 128), "sr": ()}),
    "mobilenet_v2": ("mobilenet_v2", {"input": (1, 3, 224, 224)}),
}


def open_batch(content):
    """The model with the batch left open where its file has 1."""
    model = onnx.load_model_from_string(content)
    for value in (*model.graph.input, *model.graph.output):
        dim = value.type.tensor_type.shape.dim
        if dim and dim[0].dim_value == 1:
            dim[0].dim_param = "batch"
    del model.graph.value_info[:]
    return model.SerializeToString()


def turn(path, shapes, arguments, batching, folder):
    config = folder / ("batching.yaml" if batching else "plain.yaml")
    delay = f"{arguments.max_delay_us}us"
    config.write_text(f"session: {{batching: {{max_batch: {arguments.max_batch}, max_delay: {delay}}}}}\n" if batching else "")
    words = [COMMAND, "bench", path, "--clients", str(arguments.clients), "--duration", str(arguments.duration), "--json", "--config", config]
    for name, shape in shapes.items():
        if shape:
            words += ["--shape", f"{name}=" + "x".join(map(str, shape))]
        else:  # the rate of the sound
            numpy.save(folder / f"{name}.npy", numpy.array(16000, "int64"))
            words += ["--input", f"{name}={folder / name}.npy"]
    before = os.times()
    done = subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True)
    after = os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return json.loads(done.stdout), processor


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--duration", type=float, default=4)
    parser.add_argument("--max-batch", type=int, default=16)
    parser.add_argument("--max-delay-us", type=int, default=1000)
    parser.add_argument("--only", default=",".join(name.split(",")[0] for name in MODELS))
    parser.add_argument("--markdown", type=pathlib.Path)
    arguments = parser.parse_args()
    table = Table("model", "requests/s: joined", "one by one", "quotient", "processor ms per request: joined", "one by one", "p99 ms: joined",
                  "one by one")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for title, (source, shapes) in MODELS.items():
            if title.split(",")[0] not in arguments.only.split(","):
                continue
            path = REPOSITORY / "build" / "models" / source
            if not source.endswith(".onnx"):
                path = folder / f"{source}.onnx"
                path.write_bytes(open_batch(networks.filled_skeleton(source)))
            told = {True: [], False: []}
            for _ in range(arguments.rounds):
                for batching in (True, False):
                    told[batching].append(turn(path, shapes, arguments, batching, folder))

            def median(batching, read):
                return statistics.median(read(*each) for each in told[batching])

            figures = []
            for read in (lambda report, _: report["all"]["per_second"], lambda report, processor: 1e3 * processor / report["all"]["completed"],
                         lambda report, _: report["all"]["latency_ms"]["p99"]):
                figures.append([median(batching, read) for batching in (True, False)])
            (rate, alone), (work, work_alone), (p99, p99_alone) = figures
            table.add(title, f"{rate:.1f}", f"{alone:.1f}", f"{rate / alone:.2f}", f"{work:.2f}", f"{work_alone:.2f}", f"{p99:.1f}", f"{p99_alone:.1f}")
    table.write(arguments.markdown)


if __name__ == "__main__":
    main()
