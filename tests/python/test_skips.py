"""scripts/skips.py: which tests of a log were skipped, why, and what CI takes for an excuse."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import skips  # noqa: E402

LOG = """1/4 Testing: Dot.Sums/avx2_vnni
[ RUN      ] Isas/Dot.Sums/avx2_vnni
../../tests/support/isas.h:39: Skipped
this machine has no avx2_vnni

[  SKIPPED ] Isas/Dot.Sums/avx2_vnni (0 ms)
2/4 Testing: Fault.Opens
../../tests/backends/opencl/fault_test.cc:12: Skipped
only PoCL has one

3/4 Testing: python.models
..s.s                                                                    [100%]
=========================== short test summary info ============================
SKIPPED [2] tests/models/test_files.py:84: a long form: set EVN_TEST_FULL=1
SKIPPED [1] tests/models/test_more_models.py:18: blazeface_front.onnx is missing
10 passed, 3 skipped in 1.00s
4/4 Testing: cpu.avx2_vnni
this CPU has no avx2_vnni
"""


def write(folder, log):
    (folder / "Testing" / "Temporary").mkdir(parents=True)
    (folder / "Testing" / "Temporary" / "LastTest.log").write_text(log)
    return folder


def run(*arguments):
    return subprocess.run([sys.executable, ROOT / "scripts" / "skips.py", *map(str, arguments)], capture_output=True, text=True)


def test_each_cause_is_counted():
    assert skips.causes_of(LOG) == {"this machine has no avx2_vnni": 1, "only PoCL has one": 1, "a long form: set EVN_TEST_FULL=1": 2,
                                    "blazeface_front.onnx is missing": 1, "this CPU has no avx2_vnni": 1}


@pytest.mark.parametrize("cause, kind", [("this machine has no avx512_fp16", 0), ("with EVN_TEST_FULL=1", 1),
                                         ("the wheel's library is built without the sanitizers: the release tests it", 1),
                                         ("kokoro.onnx comes from npm, which could not be asked", -1), ("no cause given", -1)])
def test_what_excuses_a_skip(cause, kind):
    assert skips.kind_of(cause) == skips.KINDS[kind]


def test_the_report_has_a_sum_for_each_kind():
    lines = skips.report(skips.causes_of(LOG))
    assert lines[0] == "skipped: 6"
    assert "  hardware that is not there: 2" in lines and "  another cause: 2" in lines


def test_strict_fails_for_other_causes_only(tmp_path):
    assert run("--strict", write(tmp_path / "a", LOG)).returncode == 1
    assert run(tmp_path / "a").returncode == 0
    log = LOG.replace("only PoCL has one", "needs two cores").replace("blazeface_front.onnx is missing", "with EVN_TEST_FULL=1")
    excused = write(tmp_path / "b", log)
    assert run("--strict", excused).returncode == 0
