"""What `inspect` says that real models take, beside what a run of them takes."""
import evener
import numpy
import pytest
from common import CASES, model_path
from zoo import array_for


@pytest.mark.parametrize("name, shape", [case for case in CASES if numpy.prod(case[1]) < 400_000][:12], ids=str)
def test_the_estimate_of_memory_is_what_a_run_takes(name, shape):
    path = model_path(name)
    with evener.Runtime(threads=2, cache_dir="") as runtime:
        session = runtime.session(path)
        array = array_for(name, shape, 1)
        session.run({session.inputs[0].name: array})
        took = runtime.devices[0].memory()
        found = runtime.inspect(path, {session.inputs[0].name: array.shape})
    estimate = found["estimate"]
    assert found["loads"] and estimate["complete"] and estimate["multiply_adds"] > 0
    # The array is the caller's memory. Some alignment is all that an estimate does not know.
    held = estimate["peak_bytes"] - estimate["input_bytes"] - estimate["output_bytes"]
    ran = sum(took.by_class[kind] for kind in ("weights", "packed", "arenas"))
    assert abs(held - ran) <= 0.01 * ran + 4096, (held, ran)
