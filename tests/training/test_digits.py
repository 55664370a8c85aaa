"""The example of training: one fold of the digits; all five with EVN_TEST_FULL=1."""
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get("EVENER_MODELS", ROOT / "build/models")) / "digits.csv.gz"
FULL = bool(os.environ.get("EVN_TEST_FULL"))


@pytest.mark.skipif(not DATA.exists(), reason="the digits are not fetched")
@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="a minute's training takes an hour with the sanitizers")
def test_the_example_learns_digits_and_quantizes_what_it_has_learned(tmp_path):
    done = subprocess.run([sys.executable, ROOT / "examples/python/train_digits.py", "--data", DATA, "--folds", "5" if FULL else "1", "-o", tmp_path],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    mean = float(re.search(r"mean accuracy of \d folds: ([\d.]+)%", done.stdout)[1])
    of_bytes, plain, share = map(float, re.search(r"quantized: ([\d.]+)% in place of ([\d.]+)%, ([\d.]+)", done.stdout).groups())
    assert mean >= 98.5 and of_bytes >= plain - 0.5 and share <= 0.27, done.stdout
    assert len(list(xml.etree.ElementTree.parse(tmp_path / "training.svg").iter("{http://www.w3.org/2000/svg}polyline"))) == 3
