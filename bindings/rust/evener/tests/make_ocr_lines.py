#!/usr/bin/env python3
"""Writes the lines of the photographed page as the recognition network reads them, and what Python reads in them: for tests/ocr.rs.

usage: make_ocr_lines.py MODELS OUTPUT      (both folders)
"""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[4]
sys.path[:0] = [str(ROOT / "bindings" / "python"), str(ROOT / "examples" / "python")]

import evener  # noqa: E402
import ocr  # noqa: E402
from PIL import Image  # noqa: E402


def main(models, output):
    runtime = evener.Runtime(threads=2, cache_dir="")
    detection = runtime.session(models / "ch_PP-OCRv4_det_infer.onnx")
    recognition = runtime.session(models / "ch_PP-OCRv4_rec_infer.onnx")
    reader = ocr.Ocr(ocr.runner(detection), ocr.runner(recognition), ocr.alphabet_of(recognition.metadata("character")))
    image = Image.open(models / "page.png").convert("RGB")
    texts = []
    for index, line in enumerate(reader.detect(image)):
        (output / f"line{index}.f32").write_bytes(ocr.recognition_input(image, line).tobytes())
        texts.append(reader.recognize(image, line)[0])
    (output / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
