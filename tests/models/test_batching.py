"""Requests that are joined to batches: all models of docs/models.md either have the bits that they have alone, or are refused with the reason."""
import evener
import pytest
from test_threads import ALL, FIXED_BATCH, LEFT_OUT, assert_same, content, result, rows

REFUSED = {}  # name of a model -> what its session says


@pytest.mark.parametrize("name", [name for name in ALL if name not in (*FIXED_BATCH, *LEFT_OUT, *REFUSED)])
def test_joined_requests_have_the_bits_of_runs(name):
    said = []
    runtime = evener.Runtime(threads=2, cache_dir="", log=said.append, log_level="info")
    model = runtime.model(content(name))
    session, joined = runtime.session(model), runtime.session(model, batching={"max_batch": 8})
    inputs = [row for row in rows(name)[:8] for _ in range(2)]
    futures = [joined.submit(row) for row in inputs]
    for row, future in zip(inputs, futures):
        assert_same(future.result(300), result(session, row), "joined")
    assert not [record for record in said if record.event.startswith("batching")]


@pytest.mark.parametrize("name", [name for name in (*FIXED_BATCH, *REFUSED) if name not in LEFT_OUT])
def test_models_that_cannot_be_joined_say_why(name):
    runtime = evener.Runtime(threads=1, cache_dir="")
    with pytest.raises(evener.Error, match=REFUSED.get(name, "is 1 in the model's file|works along")) as caught:
        runtime.session(content(name), batching={})
    assert caught.value.status == evener.Status.UNSUPPORTED
