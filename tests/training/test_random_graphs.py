"""Drawn graphs (drawn.py): their gradients are those of central differences in float64, those that PyTorch found where they are stored
(drawn_reference.json, by make_drawn_reference.py), and in float32, by the kernels, those of float64.

EVN_TEST_FULL=1 draws 10,000 instead of 100.
"""
import json
import os
import pathlib

import drawn
import evener
import numpy as np
import pytest

STORED = json.loads(pathlib.Path(__file__).with_name("drawn_reference.json").read_text())
COUNT = 10_000 if os.environ.get("EVN_TEST_FULL") == "1" else 100
PART = 25           # graphs of one test
STEPS = (1e-5, 1e-6, 3e-5)  # of differences: a corner may lie within one of them
MARGIN = 1e-4       # of what corners depend on, for float32


@pytest.fixture(scope="module")
def runtime():
    with evener.Runtime(threads=2) as made:
        yield made


def gradients_of(runtime, graph, dtype):
    names = [f"d_{n}" for n in graph.feeds]
    session = runtime.session(graph.model(names, dtype, gradient=True))
    found = session.run({n: a.astype(dtype) for n, a in graph.feeds.items()})
    return {n: found[f"d_{n}"] for n in graph.feeds}


def check_differences(runtime, graph, found, seed):
    session = runtime.session(graph.model(["y"]))

    def value(t, direction):
        return float(session.run({n: np.asarray(a + t * direction[n]) for n, a in graph.feeds.items()})["y"])

    scale = max(1.0, float(sum(abs(g).sum() for g in found.values())))
    for direction in drawn.directions(graph, seed, 2):
        slope = drawn.along(found, direction)
        off = min(abs((value(h, direction) - value(-h, direction)) / (2 * h) - slope) for h in STEPS)
        assert off <= 1e-6 * scale, (seed, slope, off, scale)


def has_margin(runtime, graph):
    """Whether float32 sees the same side of every corner."""
    names = [n for n, _ in graph.watched if n not in graph.feeds]
    values = dict(graph.feeds)
    if names:
        values.update(runtime.session(graph.model(sorted(set(names)))).run(graph.feeds))
    for name, corner in graph.watched:
        x = values[name].ravel()
        apart = np.diff(np.sort(x)) if corner == "order" else x if corner == "zero" else x - corner
        if apart.size and abs(apart).min() < MARGIN:
            return False
    return True


def check_float32(runtime, graph, found, seed):
    single = gradients_of(runtime, graph, np.float32)
    largest = max(float(abs(g).max()) for g in found.values() if g.size)
    for name, g in found.items():
        assert single[name].dtype == np.float32 and single[name].shape == g.shape
        off = abs(single[name] - g).max() if g.size else 0
        assert off <= 1e-4 * max(abs(g).max(), 0.1 * largest) + 1e-7, (seed, name, off, abs(g).max(), largest)


@pytest.mark.parametrize("first", range(0, COUNT, PART))
def test_gradients_of_drawn_graphs(first, runtime):
    compared = 0
    for seed in range(first, first + PART):
        graph = drawn.draw(seed)
        found = gradients_of(runtime, graph, np.float64)
        assert all(np.isfinite(g).all() for g in found.values()), seed
        check_differences(runtime, graph, found, seed)
        if seed < len(STORED):
            for slope, direction in zip(STORED[seed]["slopes"], drawn.directions(graph, seed, 3)):
                assert abs(drawn.along(found, direction) - slope) <= 1e-9 * max(1.0, STORED[seed]["size"]), seed
        if has_margin(runtime, graph):
            compared += 1
            check_float32(runtime, graph, found, seed)
    assert compared >= PART // 2


def test_the_drawn_graphs_have_every_operator_that_is_drawn():
    kinds = {node.op_type for seed in range(100) for node in drawn.draw(seed).nodes}
    assert kinds >= {"LSTM", "GRU", "RNN", "Attention", "If", "Loop", "Scan", "Conv", "ConvTranspose", "MaxPool", "BatchNormalization", "Einsum", "Gather", "Where"}
