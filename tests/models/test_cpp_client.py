"""A client of the C++ headers with a real network: it reads what Python reads (recognizer.cpp)."""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = pathlib.Path(os.environ["EVENER_LIBRARY"])
MODELS = pathlib.Path(os.environ["EVENER_MODELS"])
RECOGNIZER = MODELS / "ch_PP-OCRv4_rec_infer.onnx"


@pytest.mark.skipif(not RECOGNIZER.exists(), reason="needs the models of scripts/fetch_models.py ocr")
def test_a_client_of_the_headers_reads_the_page(tmp_path):
    lines = tmp_path / "lines"
    lines.mkdir()
    subprocess.run([sys.executable, ROOT / "bindings" / "rust" / "evener" / "tests" / "make_ocr_lines.py", MODELS, lines], check=True)
    client = tmp_path / "recognizer"
    subprocess.run([os.environ.get("CXX", "c++"), "-std=c++17", "-Wall", "-Wextra", "-Werror", "-O1", f"-I{ROOT / 'include'}",
                    ROOT / "tests" / "models" / "recognizer.cpp", "-o", client, f"-L{LIBRARY.parent}", "-levener", f"-Wl,-rpath,{LIBRARY.parent}"],
                   check=True)
    done = subprocess.run([client, RECOGNIZER, lines], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (lines / "texts.txt").read_text() and len(done.stdout) > 20
