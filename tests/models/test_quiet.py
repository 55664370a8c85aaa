"""After the first run with a shape a run asks nothing of the system: it allocates no memory, and makes no system call with one thread,
none but futex and changes of a worker's core with several. tests/tools/quiet_run.c looks."""
import os
import pathlib
import subprocess

import networks
import numpy
import pytest
import zoo

PROGRAM = pathlib.Path(os.environ.get("EVENER_BUILD") or pathlib.Path(os.environ["EVENER_LIBRARY"]).parent) / "quiet_run"
RUNS = 5
if os.environ.get("EVN_SANITIZER_PRELOAD"):  # the sanitizers have a malloc and system calls of their own
    pytest.skip("only what is shipped is measured", allow_module_level=True)
LINE = {"det": (1, 3, 64, 64), "cls": (1, 3, 48, 192), "rec": (1, 3, 48, 320), "mobilenet_v2": (1, 3, 224, 224)}


def trained(name):
    return str(zoo.fetched(zoo.FILES[name])), {"x" if name in ("det", "cls", "rec") else "input": zoo.array_for(name, LINE[name], 1)}


def branches():
    """A network with an If."""
    return str(zoo.fetched("silero_vad.onnx")), zoo.silero(1)


def noise(name, folder):
    path = folder / f"{name}.onnx"
    path.write_bytes(networks.filled_skeleton(name))
    return str(path), networks.noise_inputs(str(path), networks.SKELETONS[name][0])


CASES = {
    **{name: (lambda folder, name=name: trained(name)) for name in LINE},
    "silero_vad": lambda folder: branches(),
    **{name: (lambda folder, name=name: noise(name, folder)) for name in ("simple_cnn", "lstm_gru", "bert_mini", "gpt_kv")},
}


@pytest.mark.parametrize("threads", (1, 3))
@pytest.mark.parametrize("name", CASES)
def test_a_later_run_asks_nothing_of_the_system(name, threads, tmp_path):
    path, feeds = CASES[name](tmp_path)
    arguments = []
    for index, (key, value) in enumerate(feeds.items()):
        numpy.ascontiguousarray(value).tofile(tmp_path / f"{index}.bin")
        arguments.append(f"{key}={','.join(map(str, value.shape))}={tmp_path / f'{index}.bin'}")
    done = subprocess.run([PROGRAM, path, str(threads), str(RUNS), *arguments], capture_output=True, text=True)
    if done.stdout.endswith("no seccomp\n"):
        pytest.skip("the system has no seccomp filters")
    assert done.stdout == "allocations 0\nquiet\n", done.stderr
