"""Requests that are joined to batches: all models of docs/models.md either have the bits that they have alone, or are refused with the reason."""
import threading

import evener
import numpy
import onnx
import pytest
from onnx import helper
from test_threads import ALL, FIXED_BATCH, LEFT_OUT, assert_same, content, result, rows

THREADS = 2


class Busy:
    """While this context lasts all threads of a runtime wait in an operator, so that requests come together."""

    def __init__(self, runtime):
        self._open, self._began = threading.Event(), threading.Semaphore(0)
        runtime.register_operator("mine", "Gate", lambda node, inputs: [(inputs[0].dtype, inputs[0].shape)], self._run)
        ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy"]
        graph = helper.make_graph([helper.make_node("Gate", ["x"], ["y"], domain="mine")], "g", ends[:1], ends[1:])
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
        self._session = runtime.session(helper.make_model(graph, ir_version=9, opset_imports=opsets).SerializeToString())

    def _run(self, _node, arrays):
        self._began.release()
        assert self._open.wait(600)
        return [arrays[0]]

    def __enter__(self):
        self._futures = [self._session.submit({"x": numpy.zeros(1, "float32")}) for _ in range(THREADS)]
        assert all(self._began.acquire(timeout=600) for _ in self._futures)

    def __exit__(self, *_exception):
        self._open.set()
        for future in self._futures:
            future.result(600)


@pytest.mark.parametrize("name", [name for name in ALL if name not in (*FIXED_BATCH, *LEFT_OUT)])
def test_joined_requests_have_the_bits_of_runs(name):
    said = []
    runtime = evener.Runtime(threads=THREADS, cache_dir="", log=said.append, log_level="info")
    model = runtime.model(content(name))
    session, joined = runtime.session(model), runtime.session(model, batching={"max_batch": 8})
    inputs = [row for row in rows(name)[:8] for _ in range(2)]
    with Busy(runtime):
        futures = [joined.submit(row) for row in inputs]
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
