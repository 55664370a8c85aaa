"""The examples of training: each in a short form; that of the digits with all five folds with EVN_TEST_FULL=1."""
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get("EVENER_MODELS", ROOT / "build/models"))
FULL = bool(os.environ.get("EVN_TEST_FULL"))
pytestmark = pytest.mark.skipif(bool(os.environ.get("EVN_SANITIZER_PRELOAD")), reason="sanitizers make a minute's training one of many: the release build runs it")


def fetched(*names):
    return pytest.mark.skipif(not all((DATA / name).exists() for name in names), reason=f"{names[-1]} is not fetched")


def run(name, folder, *options):
    """What an example prints, after it has drawn its picture of three lines."""
    done = subprocess.run([sys.executable, ROOT / f"examples/python/{name}.py", *map(str, options), "-o", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    picture, = folder.glob("*.svg")
    assert len(list(xml.etree.ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}polyline"))) == 3
    return done.stdout


def numbers(pattern, text):
    return [float(number) for number in re.search(pattern, text).groups()]


@fetched("digits.csv.gz")
def test_digits_are_learned_and_quantized(tmp_path):
    said = run("train_digits", tmp_path, "--data", DATA / "digits.csv.gz", "--folds", "5" if FULL else "1")
    mean, = numbers(r"mean accuracy of \d folds: ([\d.]+)%", said)
    of_bytes, plain, share = numbers(r"quantized: ([\d.]+)% in place of ([\d.]+)%, ([\d.]+)", said)
    assert mean >= 98.5 and of_bytes >= plain - 0.5 and share <= 0.27, said


@fetched("digits.csv.gz")
def test_digits_need_half_of_the_channels(tmp_path):
    said = run("prune_digits", tmp_path, "--data", DATA / "digits.csv.gz", "--epochs", 24 if FULL else 8)
    whole, pruned = numbers(r"mean accuracy of 1 folds: ([\d.]+)% -> ([\d.]+)%", said)
    share, = numbers(r"bytes, ([\d.]+) of them", said)
    assert "Conv conv1 32 -> 16, Conv conv2 64 -> 32" in said and share <= 0.5, said
    assert whole >= 97.5 and pruned >= whole - 1, said


@fetched("efficientnet_lite0.pth", "face.dat")
def test_pictures_are_told_apart(tmp_path):
    said = run("train_pictures", tmp_path, "--data", DATA, "--steps", 120 if FULL else 40)
    before, after = numbers(r"accuracy: ([\d.]+)% before, ([\d.]+)% after", said)
    assert before <= 25 and after >= 80, said


@fetched("paraphrase_minilm_l3.onnx", "bert_vocab.txt")
def test_sentences_are_judged(tmp_path):
    said = run("train_sentences", tmp_path, "--data", DATA, *(() if FULL else ("--epochs", 2, "--sentences", 1500)))
    before, after, most = numbers(r"accuracy: ([\d.]+)% before, ([\d.]+)% after .* ([\d.]+)% of which", said)
    assert before <= 60 and after >= max(70, most + 10), said


@fetched("two_cities.wav")
def test_a_keyword_is_heard(tmp_path):
    said = run("train_keyword", tmp_path, "--data", DATA / "two_cities.wav", "--steps", 400 if FULL else 120)
    before, after = numbers(r"accuracy: ([\d.]+)% before, ([\d.]+)% after", said)
    assert before <= 60 and after >= (95 if FULL else 85), said
