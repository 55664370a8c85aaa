"""Ten models under limits of memory from 100 down to 30 % of what they take: right results, or EVN_ERROR_OUT_OF_MEMORY with the bytes;
never more resident memory than the limit and 8 MiB. Each in a process of its own (bench/memory.py)."""
import pathlib
import sys

import pytest
from zoo import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "bench"))
import memory  # noqa: E402

# How low a model can go at least, in percent of its peak, on any CPU: what the memory ladder is for. Others give clean errors earlier.
FITS_FROM = {"mobilenet_v2": 70, "resnet50": 50, "paraphrase_minilm_l3": 90}


@pytest.fixture(params=memory.DEFAULT, scope="module")
def measured(request):
    if not memory.path_of(request.param).exists():
        pytest.skip(f"{request.param} is not in {pathlib.Path(memory.path_of(request.param)).parent}: scripts/fetch_models.py fetches it")
    return memory.measure(request.param, 2, memory.LIMITS, None)


def test_results_are_right_or_there_is_a_clean_error(measured):
    for row in measured["rows"]:
        assert not row["wrong"], (measured["model"], row["percent"], row["wrong"])


def test_nothing_of_a_run_is_left(measured):
    for row in measured["rows"]:
        assert row["left_arenas"] == 0 and row["left_tensors"] == 0, (measured["model"], row["percent"])


def test_a_model_fits_from_where_the_ladder_takes_it(measured):
    fits = {row["percent"]: row["fits"] for row in measured["rows"]}
    least = FITS_FROM.get(measured["model"], 101)
    assert all(fits[percent] for percent in memory.LIMITS if percent >= least), fits
