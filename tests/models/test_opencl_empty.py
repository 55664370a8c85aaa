"""Inputs without elements on an OpenCL device: for drawn nodes of each operator that the device has, each axis, and each pair of axes of one
size, is emptied where the shape rule allows it. What then has elements all the same is what the CPU gives: zeros of a product without terms,
pads, initial states, what a scatter without updates leaves as it is."""
import dataclasses
import itertools
import os
import zlib

import evener
import numpy
import pytest
from common import config, explained, opencl_runtime
from differential import GENERATORS, judges, trial
from differential.draw import Draw

DRAWS = 2  # nodes of an operator
MOST = 6  # ways in which the inputs of a node are emptied
LEAST = 50  # operators of the device that give something for an input without elements


@pytest.fixture(scope="module")
def runtime():
    return opencl_runtime(config(default="gpu"))


@pytest.fixture(scope="module")
def rows():
    return trial.operator_rows(os.environ["EVENER_BUILD"])


def ways_of(case):
    """Sets of (input, axis) of one size that become empty together."""
    axes = [(i, axis) for i, x in enumerate(case.inputs) if x is not None for axis in range(x.ndim) if x.shape[axis] > 0]
    pairs = [(a, b) for a, b in itertools.combinations(axes, 2) if case.inputs[a[0]].shape[a[1]] == case.inputs[b[0]].shape[b[1]]]
    return [(a,) for a in axes] + pairs


def emptied(case, way):
    inputs = list(case.inputs)
    for i, axis in way:
        inputs[i] = numpy.take(inputs[i], [], axis)
    return dataclasses.replace(case, inputs=inputs, open_dims=True)


def drawn(rows, domain, name):
    rng = numpy.random.default_rng(zlib.crc32(f"{domain}.{name}".encode()))
    newest = max(since for since in rows[domain, name] if domain != "" or since <= trial.NEWEST)
    dtypes = trial.dtypes_of(rows[domain, name][newest])
    opset = trial.opsets_of(domain, name, rows[domain, name])[-1]
    if "float32" in dtypes:
        dtypes = ["float32"]
    return [GENERATORS[domain, name](Draw(rng, domain, name, opset, dtypes)) for _ in range(DRAWS)]


def ran(session, feeds):
    """What a run gives, or None where it refuses such inputs."""
    try:
        return list(session.run(feeds).values())
    except evener.Error as error:
        assert error.status in (evener.Status.INVALID_ARGUMENT, evener.Status.INVALID_MODEL, evener.Status.UNSUPPORTED, evener.Status.LIMIT), error
        return None


def session_of(runtime, model, device):
    try:
        return runtime.session(model, device=device)
    except evener.Error:
        return None  # an operator or a type that the device has not, or a model that is none


def wrongs_of(runtime, case):
    """How many ways of emptying the inputs gave something, and what was wrong."""
    count, wrong = 0, []
    for way in ways_of(case):
        if count == MOST:
            break
        few = emptied(case, way)
        model, feeds = judges.model_of([few])
        model = model.SerializeToString()
        sessions = {device: session_of(runtime, model, device) for device in ("cpu", "gpu", "gpu,cpu")}
        if None in sessions.values():
            continue
        wanted = ran(sessions["cpu"], feeds)
        if wanted is None or not any(array.size for array in wanted):
            continue
        count += 1
        for device in ("gpu", "gpu,cpu"):
            got = ran(sessions[device], feeds)
            why = "refused" if got is None else trial.differences(got, wanted, lambda dtype: trial.tolerance_of(few, dtype))
            if why:
                wrong.append(f"{few.describe()} on {device}: {why}")
    return count, wrong


def test_every_operator_gives_for_empty_inputs_what_the_cpu_gives(runtime, rows):
    found, wrong = set(), []
    for domain, name in sorted(rows):
        if (domain, name) not in GENERATORS or domain == trial.TRAINING:
            continue
        for case in drawn(rows, domain, name):
            if case.check is not None or any(x is not None and x.dtype.kind in "OUS" for x in case.inputs):
                continue
            count, more = wrongs_of(runtime, case)
            wrong += more
            if count:
                found.add(name)
    assert not wrong, "\n".join(wrong)
    assert len(found) >= LEAST, sorted(found)


def test_a_node_that_the_cpu_ran_says_why(runtime):
    nodes = [node_of("MatMul", ["a", "b"], ["p"]), node_of("Softmax", ["p"], ["y"])]
    model = model_of(nodes, {"a": [2, "k"], "b": ["k", 3]}, {"y": [2, 3]})
    session = runtime.session(model, device="gpu")
    y = session.run({"a": numpy.zeros((2, 0), "float32"), "b": numpy.zeros((0, 3), "float32")})["y"]
    numpy.testing.assert_allclose(y, 1 / 3, rtol=1e-6)
    reasons = {node["op"]: (node["device"], node["reason"]) for node in explained(session)["nodes"]}
    assert reasons["MatMul"] == ("cpu", "the default device; gpu does not run an input without elements: cpu")
    assert reasons["Softmax"][0] == "gpu"
    session.run({"a": numpy.ones((2, 4), "float32"), "b": numpy.ones((4, 3), "float32")})
    assert {node["device"] for node in explained(session)["nodes"]} == {"gpu"}


def node_of(op, inputs, outputs, **attributes):
    return judges.onnx.helper.make_node(op, inputs, outputs, **attributes)


def model_of(nodes, inputs, outputs, weights=()):
    helper, of_floats = judges.onnx.helper, judges.onnx.TensorProto.FLOAT
    infos = [[helper.make_tensor_value_info(name, of_floats, dims) for name, dims in values.items()] for values in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *infos, list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


@pytest.mark.parametrize("device", ["gpu", "gpu,cpu"])
def test_what_does_not_match_is_left_as_it_is(runtime, device):
    """x[x > 5] = 0."""
    constant = judges.onnx.numpy_helper.from_array
    nodes = [node_of("Greater", ["x", "five"], ["g"]), node_of("NonZero", ["g"], ["z"]),
             node_of("Transpose", ["z"], ["i"], perm=[1, 0]), node_of("Shape", ["i"], ["s"]), node_of("Gather", ["s", "first"], ["k"]),
             node_of("Expand", ["zero", "k"], ["u"]), node_of("ScatterND", ["x", "i", "u"], ["y"])]
    weights = [constant(numpy.float32(5), "five"), constant(numpy.zeros(1, "int64"), "first"), constant(numpy.zeros(1, "float32"), "zero")]
    model = model_of(nodes, {"x": ["n"]}, {"y": ["n"]}, weights)
    try:
        session = runtime.session(model, device=device)
    except evener.Error as error:
        assert device == "gpu" and "NonZero" in error.message
        return
    for x in ([0, 1, 2, 3], [4, 5, 6, 7]):
        assert session.run({"x": numpy.array(x, "float32")})["y"].tolist() == [v if v <= 5 else 0 for v in x]
