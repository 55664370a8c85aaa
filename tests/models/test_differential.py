"""Drawn cases of every operator against onnx's reference evaluator and ONNX Runtime; see the package differential.

EVN_DIFFERENTIAL_CASES=n: so many counted cases of each operator; 50 otherwise, and 10,000 with EVN_TEST_FULL=1. EVN_SHARE=i/n:
only every n-th operator, from the i-th on.
"""
import os
import pathlib

import differential
import pytest
from differential import trial

BUILD = os.environ.get("EVENER_BUILD") or str(pathlib.Path(__file__).resolve().parents[2] / "build" / "release")
CASES = int(os.environ.get("EVN_DIFFERENTIAL_CASES") or (10000 if os.environ.get("EVN_TEST_FULL") == "1" else 50))
ROWS = trial.operator_rows(BUILD)
DOMAINS = ("", "ai.onnx.ml", "com.microsoft", "ai.onnx.preview.training")  # of which every operator is drawn; of others, those that have a generator
SHARE, SHARES = (int(part) for part in os.environ.get("EVN_SHARE", "0/1").split("/"))
DRAWN = [key for key in sorted(ROWS) if key in differential.GENERATORS]


def test_every_operator_is_drawn_or_has_a_reason():
    excused = {name for names in differential.NOT_DRAWN for name in names.split()}
    assert [key for key in sorted(ROWS) if key[0] in DOMAINS and key not in differential.GENERATORS and key[1] not in excused] == []


@pytest.fixture(scope="module")
def trials():
    return trial.Trials(ROWS)


@pytest.mark.parametrize("domain, name", DRAWN[SHARE::SHARES], ids=lambda part: part or "onnx")
def test_drawn_cases_give_what_the_judges_give(trials, domain, name):
    count = trials.run(domain, name, CASES)
    assert not count.failures, "\n".join(count.failures)
    assert not count.too_many_dropped(), count.too_many_dropped()
    assert count.counted >= CASES, count.line()
