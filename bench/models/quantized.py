#!/usr/bin/env python3
"""Makes models of 8 bits with ONNX Runtime's quantizer and with Evener's, as a user would have them, for compare.py --int8.

usage: quantized.py [--models DIR]

EfficientNet-Lite0 (trained weights) in QDQ and in QOperator form, uint8 activations and int8 weights for each channel, calibrated on
crops of photographs; BERT-base and a decoder's step (noise for weights) with dynamic quantization. Evener's quantizer makes the others
in QDQ form, without its guard, so that every layer that can be quantized is: light networks and BERT-mini calibrated on noise, as their
weights are, and the detector and the recognizer of PP-OCRv4 on a photographed page. What is there already is kept.
Needs the float models in DIR (scripts/fetch_models.py more people ocr skeletons), numpy, onnx, onnxruntime and Pillow, and the library
(EVENER_LIBRARY, else the one of the release build).
"""
import argparse
import os
import pathlib
import sys
import tempfile

import numpy

import efficientnet_lite

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PICTURES = ("coffee.png", "chelsea.png", "astronaut.png")
CROPS = 10  # of each picture, for calibration
SIDE = 224
CLASSIFIER = "efficientnet_lite0"
DYNAMIC = {"bert_base_int8_dyn": "bert_base", "gpt_kv_int8_dyn": "gpt_kv"}
OURS = {  # made by Evener's quantizer: name -> the float network's name here or in zoo.py
    "mobilenet_v3_small_int8_evener": "mobilenet_v3_small",
    "squeezenet1_1_int8_evener": "squeezenet1_1",
    "shufflenet_v2_x1_0_int8_evener": "shufflenet_v2_x1_0",
    "ppocrv4_det_int8_evener": "ch_PP-OCRv4_det_infer",
    "ppocrv4_rec_int8_evener": "ch_PP-OCRv4_rec_infer",
    "bert_mini_int8_evener": "bert_mini",
}
SEEDS = range(4)  # batches that Evener's quantizer is calibrated on


def crops(folder, count=CROPS, seed=0):
    """Squares of photographs, of drawn size and place, as the classifier wants them."""
    from PIL import Image
    generator = numpy.random.default_rng(seed)
    for name in PICTURES:
        picture = Image.open(folder / name).convert("RGB")
        for _ in range(count):
            side = int(generator.integers(SIDE, min(picture.size) + 1))
            left, top = (int(generator.integers(0, length - side + 1)) for length in picture.size)
            square = picture.crop((left, top, left + side, top + side)).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
            yield ((numpy.asarray(square, "float32") - 127) / 128).transpose(2, 0, 1)[None]


def make_classifier(folder, float_model, form, target):
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Crops(CalibrationDataReader):
        def __init__(self):
            self.left = crops(folder)

        def get_next(self):
            return next(({"input": crop} for crop in self.left), None)

    quantize_static(float_model, target, Crops(), quant_format=getattr(QuantFormat, form), per_channel=True,
                    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)


def make_dynamic(float_model, target):
    from onnxruntime.quantization import quantize_dynamic
    quantize_dynamic(float_model, target)


def make_ours(folder, name, target):
    sys.path.insert(0, str(REPOSITORY / "bindings" / "python"))
    import evener
    import networks
    import zoo
    trained = {model.name: model for model in zoo.TRAINED}
    path = folder / f"{name}.onnx"

    def feeds(seed):
        return trained[name].feeds(None, seed) if name in trained else networks.noise_inputs(path, networks.SKELETONS[name][0], seed)

    quantizer = evener.Quantizer(evener.Runtime(), str(path))
    for seed in SEEDS:
        quantizer.add_batch(feeds(seed))
    quantizer.save(str(target))


def write(path, make):
    """Makes a file that is not there, so that it is never seen half written."""
    if path.exists():
        return
    print(f"making {path.name} ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as temporary:
        partial = pathlib.Path(temporary) / path.name
        make(partial)
        os.replace(partial, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--models", type=pathlib.Path, default=REPOSITORY / "build" / "models", metavar="DIR")
    folder = parser.parse_args().models
    classifier = folder / f"{CLASSIFIER}.onnx"
    checkpoint = folder / f"{CLASSIFIER}.pth"
    write(classifier, lambda path: path.write_bytes(efficientnet_lite.build(checkpoint).SerializeToString()))
    for suffix, form in (("qdq", "QDQ"), ("qoperator", "QOperator")):
        write(folder / f"{CLASSIFIER}_int8_{suffix}.onnx", lambda path, form=form: make_classifier(folder, classifier, form, path))
    for name, source in DYNAMIC.items():
        write(folder / f"{name}.onnx", lambda path, source=source: make_dynamic(folder / f"{source}.onnx", path))
    for name, source in OURS.items():
        write(folder / f"{name}.onnx", lambda path, source=source: make_ours(folder, source, path))


if __name__ == "__main__":
    main()
