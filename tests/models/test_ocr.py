"""The OCR example reads a photographed page, on the CPU and with the example configuration."""
import os
import pathlib
import shutil

import evener
import numpy
import ocr
import pytest
from common import devices_of, model_path
from zoo import REPOSITORY, picture

LINES = ["Region-based segmentation", "Let us first determine markers of the coins and the"]


def read_page(runtime, detection=None, recognition=None):
    """The lines of the page, and the two sessions that read it."""
    detection, recognition = detection or runtime.session(model_path("det")), recognition or runtime.session(model_path("rec"))
    alphabet = ocr.alphabet_of(recognition.metadata("character"))
    reader = ocr.Ocr(ocr.runner(detection), ocr.runner(recognition), alphabet)
    image = picture("page.png", "RGB")
    return [reader.recognize(image, line) for line in reader.detect(image)], detection, recognition


def assert_lines(read):
    """The network drops some spaces, so they are not compared."""
    texts = [text.replace(" ", "") for text, _ in read]
    assert texts[:2] == [line.replace(" ", "") for line in LINES]
    assert len(read) == 7
    assert all(score > 0.8 for _, score in read[:6])


def test_the_cpu_reads_the_page():
    assert_lines(read_page(evener.Runtime(threads=2))[0])


def test_opencl_finds_the_lines_and_the_cpu_reads_them():
    runtime = evener.Runtime(REPOSITORY / "config" / "examples" / "ocr-cpu-opencl.yaml")
    read, detection, recognition = read_page(runtime)
    assert_lines(read)
    opencl = {device.name for device in runtime.devices if device.kind == "opencl"}
    if not opencl and os.environ.get("EVN_REQUIRE_OPENCL") != "1":
        pytest.skip("no OpenCL device: the CPU has found the lines too")
    assert opencl and devices_of(detection) <= opencl
    assert devices_of(recognition) == {"cpu"}


def test_the_models_come_by_their_names_from_one_file(tmp_path):
    for name in ("det", "rec"):
        source = pathlib.Path(model_path(name))
        shutil.copyfile(source, tmp_path / source.name)
    shutil.copyfile(REPOSITORY / "config" / "examples" / "ocr.yaml", tmp_path / "ocr.yaml")
    runtime = evener.Runtime(tmp_path / "ocr.yaml")
    read, detection, recognition = read_page(runtime, runtime.session("ocr_det"), runtime.session("ocr_rec"))
    assert_lines(read)
    assert read == read_page(runtime, *(runtime.session(model_path(name), device=device) for name, device in
                                        (("det", devices_of(detection).pop()), ("rec", "cpu"))))[0]
    assert devices_of(recognition) == {"cpu"}


def test_components_join_across_rows_and_corners():
    mask = numpy.array([[1, 0, 1, 0, 0], [1, 0, 1, 0, 0], [0, 1, 0, 0, 1]], bool)
    found = sorted(sorted(runs) for runs in ocr.components(mask))
    assert found == [[(0, 0, 1), (0, 2, 3), (1, 0, 1), (1, 2, 3), (2, 1, 2)], [(2, 4, 5)]]


def test_decoding_drops_blanks_and_repetitions():
    classes = [0, 1, 1, 0, 1, 2, 2, 0]
    probabilities = numpy.eye(3, dtype="float32")[classes] * 0.5
    assert ocr.decode(probabilities, ["", "a", "b"]) == ("aab", 0.5)
