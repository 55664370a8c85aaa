"""Clients of the C++ headers with real networks: one reads what Python reads (recognizer.cpp), one learns what Python learns (trainer.cpp)."""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = pathlib.Path(os.environ["EVENER_LIBRARY"])
MODELS = pathlib.Path(os.environ["EVENER_MODELS"])
RECOGNIZER = MODELS / "ch_PP-OCRv4_rec_infer.onnx"


DIGITS = MODELS / "digits.csv.gz"


def build(name, folder):
    client = folder / name
    subprocess.run([os.environ.get("CXX", "c++"), "-std=c++17", "-Wall", "-Wextra", "-Werror", "-O1", f"-I{ROOT / 'include'}",
                    ROOT / "tests" / "models" / f"{name}.cpp", "-o", client, f"-L{LIBRARY.parent}", "-levener", f"-Wl,-rpath,{LIBRARY.parent}"],
                   check=True)
    return client


@pytest.mark.skipif(not RECOGNIZER.exists(), reason="needs the models of scripts/fetch_models.py ocr")
def test_a_client_of_the_headers_reads_the_page(tmp_path):
    lines = tmp_path / "lines"
    lines.mkdir()
    subprocess.run([sys.executable, ROOT / "bindings" / "rust" / "evener" / "tests" / "make_ocr_lines.py", MODELS, lines], check=True)
    done = subprocess.run([build("recognizer", tmp_path), RECOGNIZER, lines], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (lines / "texts.txt").read_text() and len(done.stdout) > 20


@pytest.mark.skipif(not DIGITS.exists(), reason="needs the pictures of scripts/fetch_models.py digits")
def test_a_client_of_the_headers_learns_digits_with_the_numbers_of_python(tmp_path):
    subprocess.run([sys.executable, ROOT / "tests" / "training" / "make_digits_run.py", DIGITS, tmp_path], check=True)
    done = subprocess.run([build("trainer", tmp_path), tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(" of 64\n")
