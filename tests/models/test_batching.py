"""Requests that are joined to batches: all models of docs/models.md either have the bits that they have alone, or are refused with the reason."""
import evener
import numpy
import pytest
from gate import Gate
from test_threads import ALL, FIXED_BATCH, LEFT_OUT, assert_same, content, result, rows

THREADS = 2


@pytest.mark.parametrize("name", [name for name in ALL if name not in (*FIXED_BATCH, *LEFT_OUT)])
def test_joined_requests_have_the_bits_of_runs(name):
    said = []
    runtime = evener.Runtime(threads=THREADS, cache_dir="", log=said.append, log_level="info")
    model = runtime.model(content(name))
    session, joined = runtime.session(model), runtime.session(model, batching={"max_batch": 8})
    inputs = [row for row in rows(name)[:8] for _ in range(2)]
    gate = Gate(runtime)
    gate.occupy(numpy.zeros(2, "float32"), THREADS)  # so that the requests come together
    futures = [joined.submit(row) for row in inputs]
    gate.open.set()
    for row, future in zip(inputs, futures):
        assert_same(future.result(300), result(session, row), "joined")
    assert not [record for record in said if record.event.startswith("batching")]
    batches = joined.statistics()["batches"]
    assert sum(batch["rows"] * batch["count"] for batch in batches) == len(inputs)
    assert max(batch["rows"] for batch in batches) > 1


@pytest.mark.parametrize("name", [name for name in FIXED_BATCH if name not in LEFT_OUT])
def test_models_that_cannot_be_joined_say_why(name):
    runtime = evener.Runtime(threads=1, cache_dir="")
    with pytest.raises(evener.Error, match="is 1 in the model's file|works along") as caught:
        runtime.session(content(name), batching={})
    assert caught.value.status == evener.Status.UNSUPPORTED
