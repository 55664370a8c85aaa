"""The hostile inputs that the project lists (H01 to H59): each has tests that carry its number in their name."""
import functools
import pathlib
import re

import pytest

TESTS = pathlib.Path(__file__).resolve().parents[1]
NONE = {59: "a format of the library's own: there is none, models are ONNX"}


@functools.lru_cache(maxsize=None)
def numbers():
    names = (name for file in TESTS.rglob("*.cc") for name in re.findall(r"\bTEST(?:_F|_P)?\(\s*\w+,\s*(\w+)\)", file.read_text()))
    return {int(number) for name in names for number in re.findall(r"(?:^|_)H(\d\d)(?=_)", name)}


@pytest.mark.parametrize("row", range(1, 60))
def test_a_hostile_input_has_a_test(row):
    assert (row in numbers()) != (row in NONE)
