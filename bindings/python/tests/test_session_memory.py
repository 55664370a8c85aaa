"""What sessions hold, caps that change, and weights that processes share."""
import json
import pathlib
import subprocess
import sys

import evener
import numpy
import pytest
import tiny


def rows():
    """Softmax of rows of 8, again and again"""
    nodes = [tiny.helper.make_node("Softmax", [a], [b], axis=axis) for a, b, axis in (("x", "v", 0), ("v", "w", 1), ("w", "y", 0))]
    return tiny.model(nodes, [tiny.value("x", "float32", ["n", 8])], [tiny.value("y", "float32", ["n", 8])])


def test_a_session_tells_what_it_holds(runtime):
    session = runtime.session(rows())
    assert session.memory_stats() == evener.SessionMemoryStats(*[0] * 10)
    for count in (100, 100, 1):
        session.run({"x": numpy.zeros((count, 8), "float32")})
    stats = session.memory_stats()
    assert stats.arena_count == stats.arenas_made == stats.plan_count == 2
    assert stats.arenas_reused == 1 and stats.arenas_dropped == 0 and stats.plan_bytes > 0 and stats.state_bytes == 0
    assert stats.arena_bytes == stats.idle_arena_bytes == stats.peak_arena_bytes >= 101 * 8 * 4
    assert runtime.devices[0].memory().by_class["arenas"] >= stats.arena_bytes
    assert runtime.devices[0].memory().by_class["states"] == 0


def test_a_session_keeps_no_more_than_it_may(runtime):
    for most in (1000, 0):
        session = runtime.session(rows(), idle_arena_bytes=most)
        for count in (10, 100):
            session.run({"x": numpy.zeros((count, 8), "float32")})
            assert session.memory_stats().arena_count == 1
        assert session.memory_stats().arenas_dropped == 1
    with pytest.raises(ValueError, match="concurrency is 0"):
        runtime.session(rows(), concurrency=0)


def test_a_session_may_be_small(runtime):
    x = numpy.arange(80, dtype="float32").reshape(10, 8)
    small = runtime.session(rows(), memory="small")
    assert '"plan":"small"' in small.explain("json").replace(" ", "")
    assert (small.run({"x": x})["y"] == runtime.session(rows(), memory="fast").run({"x": x})["y"]).all()
    with pytest.raises(ValueError, match="memory must be one of fast, small"):
        runtime.session(rows(), memory="tiny")


def test_a_device_tells_what_its_pool_keeps():
    with evener.Runtime(config_text="devices: {cpu: {type: cpu, cache_limit: 0}}", threads=1, cache_dir="") as runtime:
        runtime.session(rows()).run({"x": numpy.zeros((100, 8), "float32")})
        memory = runtime.devices[0].memory()
        assert memory.reserved == memory.current + memory.cached + memory.unused
        assert memory.cached == memory.free_blocks == memory.largest_free_block == memory.fragmentation == 0
        assert memory.weights_dropped == memory.weights_restored == 0
        device = runtime.statistics()["devices"][0]
        assert device["cached_bytes"] == 0 and device["unused_bytes"] == memory.unused and device["fragmentation_percent"] == 0
        assert 'kind="unused"' in runtime.statistics("prometheus")


def test_a_cap_may_change():
    with evener.Runtime(threads=1, cache_dir="") as runtime:
        cpu = runtime.devices[0]
        session = runtime.session(rows())
        x = numpy.zeros((1000, 8), "float32")
        session.run({"x": x})
        assert cpu.memory().limit is None
        cpu.set_memory_limit(4096)
        assert cpu.memory().limit == 4096 and session.memory_stats().arena_bytes == 0
        with pytest.raises(evener.Error) as caught:
            session.run({"x": x})
        assert caught.value.status == evener.Status.OUT_OF_MEMORY
        cpu.set_memory_limit(None)
        assert cpu.memory().limit is None
        assert session.run({"x": x})["y"].shape == x.shape
        with pytest.raises(evener.Error, match="limit_bytes is 0"):
            cpu.set_memory_limit(0)


CHILD = """
import sys
import evener
import numpy

def anonymous():
    return sum(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("RssAnon"))

with evener.Runtime(threads=1, cache_dir="") as runtime:
    before = anonymous()
    session = runtime.session(sys.argv[1], cache=sys.argv[2], cache_write=False, cache_map=True)
    y = session.run({"x": numpy.ones((1, 1024), "float32")})["y"]
    print(y.sum(), anonymous() - before, flush=True)
    sys.stdin.read()
"""


def mapped(pid, path, key):
    """A figure of the mappings of a file, in bytes."""
    total, inside = 0, False
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        first = line.split()[0]
        if not first.endswith(":"):
            inside = line.endswith(str(path))
        elif inside and first == key + ":":
            total += int(line.split()[1]) << 10
    return total


def test_processes_that_map_a_cache_file_share_the_weights(tmp_path):
    size, layers = 1024, 4
    generator = numpy.random.default_rng(1)
    weights = {f"w{i}": generator.standard_normal((size, size), "float32") for i in range(layers)}
    nodes = [tiny.helper.make_node("MatMul", ["x" if i == 0 else f"v{i}", f"w{i}"], ["y" if i + 1 == layers else f"v{i + 1}"])
             for i in range(layers)]
    model, cache = tmp_path / "model.onnx", tmp_path / "weights.evc"
    model.write_bytes(tiny.model(nodes, [tiny.value("x", "float32", ["n", size])], [tiny.value("y", "float32", ["n", size])], weights))
    weight_bytes = layers * size * size * 4
    with evener.Runtime(threads=1, cache_dir="") as runtime:
        runtime.session(model, cache=cache)
    assert cache.stat().st_size >= weight_bytes
    package = pathlib.Path(evener.__file__).parents[1]
    children = []
    try:
        for _ in range(8):
            children.append(subprocess.Popen([sys.executable, "-c", CHILD, model, cache], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                             cwd=package, text=True))
        said = [child.stdout.readline().split() for child in children]
        one = mapped(children[0].pid, cache, "Rss")
        shared = sum(mapped(child.pid, cache, "Pss") for child in children)
        assert weight_bytes <= one <= cache.stat().st_size + 4096
        assert shared <= 1.2 * one, (shared, one)
        assert len({sums for sums, _ in said}) == 1
        # Nor has anybody a copy.
        assert max(int(grown) for _, grown in said) < weight_bytes / 2, said
    finally:
        for child in children:
            child.stdin.close()
            child.wait()
            child.stdout.close()


def test_what_the_pool_keeps_may_change():
    with evener.Runtime(threads=1, cache_dir="") as runtime:
        cpu = runtime.devices[0]
        assert (cpu.memory().cache_limit, cpu.memory().trim, cpu.state, cpu.condition) == (None, "never", "ready", "")
        session = runtime.session(rows())
        session.run({"x": numpy.zeros((100, 8), "float32")})
        assert cpu.memory().by_class["arenas"] > 0
        cpu.set_cache_policy(4096, "idle")
        assert (cpu.memory().cache_limit, cpu.memory().trim) == (4096, "idle")
        session.run({"x": numpy.zeros((100, 8), "float32")})
        assert cpu.memory().by_class["arenas"] == 0
        cpu.set_cache_policy(trim="always")
        session.run({"x": numpy.zeros((100, 8), "float32")})
        assert cpu.memory().cached == 0
        with pytest.raises(ValueError, match="trim must be one of never, idle, always"):
            cpu.set_cache_policy(trim="sometimes")


def test_sessions_share_arenas_where_they_are_told_to(runtime):
    x = numpy.zeros((100, 8), "float32")
    held = {}
    for share in (False, True):
        sessions = [runtime.session(rows(), share_arenas=share) for _ in range(2)]
        for session in sessions:
            session.run({"x": x})
        held[share] = runtime.devices[0].memory().by_class["arenas"]
        del sessions, session
        runtime.devices[0].trim_memory()
    assert held[False] == 2 * held[True] > 0


def test_a_probe_that_cannot_be_made_hides_the_drivers():
    with evener.Runtime(threads=1, cache_dir="", probe_program="/no-such-program", probe_timeout=0.5) as runtime:
        backends = {backend["type"]: backend for backend in json.loads(runtime.describe_devices("json"))["backends"]}
        assert backends["cpu"]["devices"] and not backends["opencl"]["devices"]
        assert "cannot be started" in backends["opencl"]["why"]
