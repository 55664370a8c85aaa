#!/usr/bin/env python3
"""A step of one 3 x 3 convolution in training, forward and both derivatives: by the kernels that are chosen, and by direct products.

usage: training_layers.py [--batch 8] [--precision float32 | bfloat16]

The processor's time of a step of six such layers less that of two, divided by four, with one thread; the median of what fills 1.5 seconds. Direct
products are those of strict numerics. Needs the environment of the tests (EVENER_LIBRARY, PYTHONPATH).
"""
import argparse
import statistics
import time

import evener
import numpy as np
from onnx import TensorProto, helper, numpy_helper

LAYERS = ((64, 56), (128, 28), (256, 14), (512, 7))  # channels, and the side of an image: those of ResNet-18
STRICT = "version: 1\nsession: {numerics: strict}\n"


def model_of(channels, side, batch, layers):
    random = np.random.default_rng(0)
    shape = [batch, channels, side, side]
    weights = [numpy_helper.from_array((random.standard_normal((channels, channels, 3, 3)) / np.sqrt(9 * channels)).astype("f"), f"w{i}") for i in range(layers)]
    nodes = [helper.make_node("Conv", [f"y{i}", f"w{i}"], [f"y{i + 1}"], pads=[1] * 4) for i in range(layers)]
    value = [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, shape) for i in (0, layers)]
    return helper.make_model(helper.make_graph(nodes, "layers", value[:1], value[1:], weights), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def seconds(channels, side, layers, config, options):
    x = np.random.default_rng(1).standard_normal((options.batch, channels, side, side)).astype("f")
    with evener.Runtime(threads=1, config_text=config) as runtime:
        trainer = evener.Trainer(runtime, model_of(channels, side, options.batch, layers).SerializeToString(), loss="mse", learning_rate=1e-3,
                                 precision=options.precision)
        times, end = [], time.perf_counter() + 1.5
        while time.perf_counter() < end or len(times) < 5:
            start = time.process_time()
            trainer.step({"y0": x}, x)
            times.append(time.process_time() - start)
    return statistics.median(times[2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"))
    options = parser.parse_args()
    print("| channels | image | chosen, ms | direct, ms |\n|---|---|---|---|")
    for channels, side in LAYERS:
        chosen, direct = ((seconds(channels, side, 6, config, options) - seconds(channels, side, 2, config, options)) / 4 for config in ("", STRICT))
        print(f"| {channels} | {side} x {side} | {1e3 * chosen:.1f} | {1e3 * direct:.1f} |", flush=True)


if __name__ == "__main__":
    main()
