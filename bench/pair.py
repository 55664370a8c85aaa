"""A session of Evener and one of ONNX Runtime for the same model in one process, run in turns.

What is timed is the engine's call, not its Python binding: tensors are made once, evn_session_run is called with them through
ctypes, ONNX Runtime through an IOBinding. Both make their outputs anew in each run. With one thread times are processor time,
which other programs disturb less.
"""
import json
import pathlib
import statistics
import sys
import time

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bindings" / "python"))
TURNS = 4


class Pair:
    def __init__(self, model, feeds, threads):
        """`model` is a path or the bytes of one."""
        import evener
        import onnxruntime
        self.feeds = feeds
        self.clock = time.process_time if threads == 1 else time.perf_counter
        self.runtime = evener.Runtime(threads=threads, cache_dir="")
        self.ours = self.runtime.session(model)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 4
        options.add_session_config_entry("session.intra_op.allow_spinning", "1")
        self.theirs = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.bind_ours(), self.bind_theirs()

    def steps(self):
        return [node for node in json.loads(self.ours.explain("json"))["nodes"] if node.get("kernel")]

    def bind_ours(self):
        call = self.ours._take_call()  # the C side of a run
        self.ours._give(call, self.feeds)
        run, release, results = call._session_run, call._release, call._results
        arguments = (self.ours._handle, call._slots_at, len(self.feeds), call._results_at, len(results), None, call._error_at)
        places = range(len(results))

        def bound():
            if run(*arguments):
                raise RuntimeError(call.error.message.decode())
            for place in places:
                release(results[place])
                results[place] = None

        self.bound_ours, self.call = bound, call

    def bind_theirs(self):
        binding = self.theirs.io_binding()
        for name, value in self.feeds.items():
            binding.bind_cpu_input(name, value)
        for output in self.theirs.get_outputs():
            binding.bind_output(output.name)
        run, arguments = self.theirs._sess.run_with_iobinding, (binding._iobinding, None)
        self.bound_theirs, self.binding = lambda: run(*arguments), binding

    def run_ours(self):
        """Outputs in the model's order; one that it lists twice is there twice."""
        made = self.ours.run(self.feeds)
        return [made[output.name] for output in self.theirs.get_outputs()]

    def run_theirs(self):
        return self.theirs.run(None, self.feeds)

    def measure(self, seconds):
        """Medians in microseconds, ours and theirs, each after a warm-up and for `seconds` / 2 in all."""
        ours, theirs = [], []
        self.bound_ours(), self.bound_theirs()
        for _ in range(TURNS):
            ours += timed(self.bound_ours, seconds / (2 * TURNS), self.clock)
            theirs += timed(self.bound_theirs, seconds / (2 * TURNS), self.clock)
        return statistics.median(ours) * 1e6, statistics.median(theirs) * 1e6


def timed(run, seconds, clock=time.perf_counter):
    """Times of one turn."""
    times, end = [], clock() + seconds
    while True:
        begin = clock()
        run()
        now = clock()
        times.append(now - begin)
        if now >= end:
            return times


def error_of(ours, theirs):
    """The largest difference of two arrays, to the largest magnitude of theirs; infinite where others of them are not finite."""
    a, b = (numpy.asarray(x).astype("float64") for x in (ours, theirs))
    if not numpy.array_equal(numpy.isfinite(a), numpy.isfinite(b)):
        return float("inf")
    a, b = a[numpy.isfinite(a)], b[numpy.isfinite(b)]
    return float(numpy.max(numpy.abs(a - b), initial=0)) / max(float(numpy.max(numpy.abs(b), initial=0)), 1e-30)
