#!/usr/bin/env python3
"""Exported networks as ONNX Runtime's own tools rewrite them, on Evener and on ONNX Runtime.

usage: zoo_variants.py [--variants LIST] [--threads N] [--seconds S] [--folder FOLDER] [--made FOLDER] [--markdown FILE] [NAME...]

NAMEs are patterns of what bench/zoo_torch.py has exported into its folder (torchvision.resnet18, transformers.*); without, those of NETWORKS. The
variants are

    optimized  onnxruntime.transformers.optimizer: attention, normalizations and activations of com.microsoft (transformers alone)
    float16    convert_float_to_float16, inputs and outputs stay float32
    optimized_float16
               the first two together
    dynamic    quantize_dynamic: weights of 8 bits, activations quantized in each run
    static     quantize_static: QuantizeLinear and DequantizeLinear around each operator, calibrated with the network's example

Both engines run in turns in one process (bench/pair.py). Printed are medians in ms, their ratio (ours to theirs) and the largest difference of an
output, which is large for a network of random weights in 8 bits: rounding decides over much there, between two levels of ONNX Runtime's optimization
too. What a tool cannot rewrite, or ONNX Runtime cannot run, is left out and named. Needs the packages of scripts/requirements-zoo.txt.
"""
import argparse
import collections
import fnmatch
import logging
import pathlib
import statistics
import sys
import warnings

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import pair  # noqa: E402
from table import Table  # noqa: E402

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
VARIANTS = ["optimized", "float16", "optimized_float16", "dynamic", "static"]
NETWORKS = ["torchvision.resnet18", "torchvision.mobilenet_v3_small", "torchvision.shufflenet_v2_x1_0", "torchvision.squeezenet1_1",
            "torchvision.efficientnet_b0", "torchvision.densenet121", "timm.convnext_atto", "timm.mobilevit_xxs", "timm.levit_128s", "timm.regnetx_002",
            "timm.regnetz_b16", "timm.resnest14d", "timm.ghostnetv3_100", "transformers.bert", "transformers.distilbert", "transformers.albert",
            "transformers.deberta", "transformers.gpt2", "transformers.gpt2-step", "transformers.gpt-neox", "transformers.bart", "transformers.t5",
            "transformers.vit", "transformers.clip", "transformers.whisper-encoder", "transformers.segformer", "transformers.wav2vec2"]
# Which of the optimizer's kinds a network is, by how its name begins.
KINDS = {"bert": "bert", "roberta": "bert", "distilbert": "bert", "electra": "bert", "albert": "bert", "deberta": "bert", "gpt2": "gpt2", "gpt-neox": "gpt_neox",
         "bart": "bart", "whisper": "bart", "t5": "t5", "vit": "vit", "clip": "clip"}


class Example:
    """Calibrates with one example."""

    def __init__(self, feeds):
        self.left = [feeds]

    def get_next(self):
        return self.left.pop() if self.left else None


def kind_of(stem):
    name = stem.split(".")[1]
    return next((kind for begin, kind in KINDS.items() if name.startswith(begin)), None)


def optimized(source, stem):
    from onnxruntime.transformers import optimizer
    return optimizer.optimize_model(str(source), model_type=kind_of(stem), num_heads=0, hidden_size=0, opt_level=0)


def make(variant, source, stem, to):
    if variant == "float16":
        import onnx
        from onnxruntime.transformers.float16 import convert_float_to_float16
        onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), to)
    elif variant == "dynamic":
        from onnxruntime.quantization import quantize_dynamic
        quantize_dynamic(source, to)
    elif variant == "static":
        from onnxruntime.quantization import QuantFormat, quantize_static
        quantize_static(source, to, Example(dict(numpy.load(source.with_suffix(".npz")))), quant_format=QuantFormat.QDQ)
    else:
        model = optimized(source, stem)
        if variant == "optimized_float16":
            model.convert_float_to_float16(keep_io_types=True)
        model.save_model_to_file(str(to))


def measured(variant, source, arguments):
    """Medians in ms, ours and theirs, and the largest difference."""
    stem = source.name.removesuffix(".onnx")
    to = arguments.made / f"{stem}.{variant}.onnx"
    if not to.exists():
        make(variant, source, stem, to)
    import onnxruntime
    names = [i.name for i in onnxruntime.InferenceSession(to, providers=["CPUExecutionProvider"]).get_inputs()]
    example = numpy.load(source.with_suffix(".npz"))
    both = pair.Pair(to, {name: example[name] for name in names}, arguments.threads)
    error = max((pair.error_of(a, b) for a, b in zip(both.run_ours(), both.run_theirs()) if numpy.asarray(b).dtype.kind == "f"), default=0.0)
    ours, theirs = both.measure(arguments.seconds)
    return ours / 1e3, theirs / 1e3, error


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--folder", type=pathlib.Path, default=REPOSITORY / "build" / "zoo")
    parser.add_argument("--made", type=pathlib.Path, default=REPOSITORY / "build" / "zoo-variants")
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("names", nargs="*", default=NETWORKS)
    arguments = parser.parse_args()
    arguments.made.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    table, ratios, left_out = Table("network", "variant", "evener, ms", "ort, ms", "ratio", "difference"), collections.defaultdict(dict), []
    files = [f for f in sorted(arguments.folder.glob("*.script.onnx")) if any(fnmatch.fnmatch(f.name, f"{name}.script.onnx") for name in arguments.names)]
    for source in files:
        name = source.name.removesuffix(".script.onnx")
        for variant in arguments.variants.split(","):
            if variant.startswith("optimized") and kind_of(source.name) is None:
                continue
            try:
                ours, theirs, error = measured(variant, source, arguments)
            except Exception as reason:  # of a tool, or of an engine
                left_out.append(f"{name}, {variant}: {str(reason).splitlines()[0][:120] if str(reason) else type(reason).__name__}")
                continue
            ratios[variant][name] = ours / theirs
            table.add(name, variant, f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs:.2f}", f"{error:.1e}")
    table.write(arguments.markdown)
    lines = [f"{variant}: {len(all_of)} networks, geometric mean {statistics.geometric_mean(all_of.values()):.2f}, worst {max(all_of.values()):.2f} "
             f"({max(all_of, key=all_of.get)})" for variant, all_of in ratios.items()]
    lines += [f"left out: {line}" for line in left_out]
    print("\n".join(lines))
    if arguments.markdown:
        with arguments.markdown.open("a") as file:
            file.write("\n" + "\n\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
