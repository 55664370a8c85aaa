#!/usr/bin/env python3
"""Networks and their products on an OpenCL GPU, beside PyTorch on CUDA in the same run where that is installed.

usage: gpu.py [--device D] [--models LIST] [--layers N] [--seconds S]

products    square matrices and 3 x 3 convolutions of ResNet's shapes, float32, inputs and outputs on the device
models      the skeletons of bench/models with noise for weights, from host arrays to host arrays; answers are
            compared with those of the library's CPU. PyTorch runs torchvision's or transformers' network of the same name, eagerly, in
            float32 with and without TF32 and in float16
layers      with --layers the N nodes of each model that take longest, as `evener bench --layers` tells them (EVENER_COMMAND)

Times are medians, PyTorch's and the library's in turns.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy
import onnx
from onnx import TensorProto, helper

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / "bindings" / "python"), str(pathlib.Path(__file__).parent / "models")]
import evener  # noqa: E402
import networks  # noqa: E402

try:
    import torch
    if not torch.cuda.is_available():
        torch = None
except ImportError:
    torch = None

MODELS = ["simple_cnn", "mobilenet_v2", "mobilenet_v3_small", "squeezenet1_1", "shufflenet_v2_x1_0", "efficientnet_b0", "densenet121", "resnet18",
          "resnet50", "bert_mini", "gpt_kv", "vit_b_16", "bert_base", "lstm_gru", "yolo_like_640"]


def medians(runs, seconds):
    """Medians in ms of the functions, which are called in turns after two calls of each."""
    for run in runs:
        run(), run()
    times = [[] for _ in runs]
    end = time.perf_counter() + seconds * len(runs)
    while time.perf_counter() < end or len(times[0]) < 5:
        for run, mine in zip(runs, times):
            begin = time.perf_counter()
            run()
            mine.append(time.perf_counter() - begin)
    return [sorted(mine)[len(mine) // 2] * 1e3 for mine in times]


# ------------------------------------------------------------------------------------------------------- PyTorch's networks

def torch_network(name):
    """PyTorch's network on the GPU and a function that gives its inputs, or None where there is none of that name."""
    if torch is None:
        return None
    try:
        if name.startswith("bert"):
            from transformers import BertConfig, BertModel
            sizes = {"bert_mini": (256, 4, 4), "bert_base": (768, 12, 12)}[name]
            network = BertModel(BertConfig(hidden_size=sizes[0], num_hidden_layers=sizes[1], num_attention_heads=sizes[2], intermediate_size=4 * sizes[0]))
            tokens = torch.randint(0, 1000, (1, 128), device="cuda")
            return network.eval().cuda(), lambda dtype: {"input_ids": tokens}
        import torchvision
        network = getattr(torchvision.models, name)(weights=None)
        image = torch.randn(1, 3, 224, 224)
        return network.eval().cuda(), lambda dtype: (image.to("cuda", dtype),)
    except (ImportError, AttributeError, KeyError):
        return None


def torch_run(network, inputs, dtype, tf32):
    """A function that runs the network from the host to the host."""
    def run():
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        with torch.inference_mode():
            given = inputs(dtype)
            result = network(**given) if isinstance(given, dict) else network(*given)
            (result if torch.is_tensor(result) else result[0]).float().cpu()
    return run


# -------------------------------------------------------------------------------------------------------------------- ours

def session_of(model, device, precision=None):
    return evener.Runtime().session(model, device=device, **({"precision": precision} if precision else {}))


def difference(got, wanted):
    """The largest difference of an output relative to the largest number in it."""
    return max(float(numpy.abs(got[name].astype("float64") - value).max() / (numpy.abs(value).max() + 1e-30)) for name, value in wanted.items() if value.size)


def single(nodes, shapes, weights):
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    constants = [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", ends, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants)
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


def product(side):
    weight = numpy.random.default_rng(1).normal(0, 1, (side, side)).astype("float32")
    return single([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [side, side]}, {"w": weight}), [side, side], 2 * side**3, weight


def convolution(channels, side):
    weight = numpy.random.default_rng(1).normal(0, 0.05, (channels, channels, 3, 3)).astype("float32")
    model = single([helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])], {"x": [1, channels, side, side]}, {"w": weight})
    return model, [1, channels, side, side], 18 * channels**2 * side**2, weight


def on_device(session, x):
    """A function that runs the session from and to memory of the device; the outputs of one run are the next one's input."""
    state = {"x": session.run({"x": x}, outputs_on_device=True)["y"]}

    def run():
        state["x"] = session.run({"x": state["x"]}, outputs_on_device=True)["y"]
    return run


def products(device, seconds):
    print("\n### Products, float32, on the device\n\n| product | ms | TFLOP/s | PyTorch, ms | TFLOP/s | of its time |\n|---|---|---|---|---|---|")
    cases = [(f"MatMul {side}", *product(side)) for side in (256, 512, 1024, 2048, 4096)]
    cases += [(f"Conv 3 x 3, {channels} channels, {side} x {side}", *convolution(channels, side)) for channels, side in ((64, 56), (128, 28), (256, 14), (512, 7), (64, 224))]
    for name, model, shape, flops, weight in cases:
        runs = [on_device(session_of(model, device), numpy.zeros(shape, "float32"))]
        if torch is not None:
            x, w = torch.zeros(shape, device="cuda"), torch.tensor(weight, device="cuda")

            def theirs(x=x, w=w):
                torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
                _ = x @ w if x.dim() == 2 else torch.nn.functional.conv2d(x, w, padding=1)
                torch.cuda.synchronize()
            runs.append(theirs)
        ms = medians(runs, seconds)
        told = "".join(f" {t:.3f} | {flops / t / 1e9:.2f} |" for t in ms) + (f" {ms[0] / ms[1]:.2f} |" if len(ms) > 1 else " | | |")
        print(f"| {name} |{told}", flush=True)


def layers(path, device, shapes, count):
    command = os.environ.get("EVENER_COMMAND", "evener")
    arguments = [command, "bench", path, "--layers", "--device", device, "--runs", "5"]
    for name, shape in shapes.items():
        arguments += ["--shape", f"{name}={','.join(map(str, shape))}"]
    done = subprocess.run(arguments, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith("node ")), None)
    print("\n".join(lines[first:first + count + 1]) if first is not None else done.stderr[-500:], flush=True)


def models(names, device, seconds, layer_count):
    print("\n### Networks, from the host to the host\n\n| network | ms | fp16, ms | nodes elsewhere | difference | first run, s | PyTorch, ms | TF32 | fp16 | of its time |\n"
          "|---|---|---|---|---|---|---|---|---|---|")
    traced = []
    for name in names:
        try:
            model = networks.filled_skeleton(name)
            with tempfile.NamedTemporaryFile(suffix=".onnx", delete=False) as file:
                file.write(model)
            feeds = networks.noise_inputs(file.name, networks.SKELETONS[name][0])
            begin = time.perf_counter()
            gpu = session_of(model, device)
            got = gpu.run(feeds)
            first = time.perf_counter() - begin
            error = difference(got, session_of(model, "cpu").run(feeds))
            elsewhere = sum(node.get("device") != device for node in json.loads(gpu.explain("json"))["nodes"])
            half = session_of(model, device, "fp16")
            runs = [lambda: gpu.run(feeds), lambda: half.run(feeds)]
            theirs = torch_network(name)
            if theirs is not None:
                network, inputs = theirs
                runs += [torch_run(network, inputs, torch.float32, False), torch_run(network, inputs, torch.float32, True)]
                halved = torch_network(name)[0].half()
                runs.append(torch_run(halved, inputs, torch.float16, True))
            ms = medians(runs, seconds)
            told = " | ".join(f"{t:.2f}" for t in ms[2:]) + f" | {ms[0] / ms[2]:.2f}" if theirs is not None else " | | |"
            print(f"| {name} | {ms[0]:.2f} | {ms[1]:.2f} | {elsewhere} | {error:.0e} | {first:.2f} | {told} |", flush=True)
            traced.append((name, file.name, {key: value.shape for key, value in feeds.items()}))
        except Exception as error:  # one network that fails must not end the others' measurement
            print(f"| {name} | {type(error).__name__}: {str(error)[:200]} |", flush=True)
    for name, path, shapes in traced if layer_count else []:
        print(f"\n#### {name}\n")
        layers(path, device, shapes, layer_count)
    for _, path, _ in traced:
        os.unlink(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="opencl:0")
    parser.add_argument("--models", type=lambda text: [name for name in text.split(",") if name], default=MODELS)
    parser.add_argument("--layers", type=int, default=0, metavar="N")
    parser.add_argument("--seconds", type=float, default=0.3, help="of measurement for each way to run")
    arguments = parser.parse_args()
    products(arguments.device, arguments.seconds)
    models(arguments.models, arguments.device, arguments.seconds, arguments.layers)


if __name__ == "__main__":
    main()
