"""An operator that waits: with it a test says when runs begin and end."""
import threading

import onnx
from onnx import helper


class Gate:
    """A session of one operator, a copy of its input of two numbers, whose runs wait until `open` is set; `began` counts them."""

    def __init__(self, runtime):
        self.runtime, self.open, self.began = runtime, threading.Event(), threading.Semaphore(0)
        runtime.register_operator("mine", "Gate", lambda node, inputs: [(inputs[0].dtype, inputs[0].shape)], self._run)
        ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
        graph = helper.make_graph([helper.make_node("Gate", ["x"], ["y"], domain="mine")], "g", ends[:1], ends[1:])
        model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)])
        self.session = runtime.session(model.SerializeToString())

    def _run(self, _node, arrays):
        self.began.release()
        assert self.open.wait(600)
        return [arrays[0]]

    def occupy(self, x, threads):
        """Futures of so many runs, all of which have begun: the runtime has no thread left for other requests."""
        futures = [self.session.submit({"x": x}) for _ in range(threads)]
        assert all(self.began.acquire(timeout=600) for _ in futures)
        return futures
