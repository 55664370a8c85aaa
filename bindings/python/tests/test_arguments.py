"""Numbers and lists as arguments: numbers that C has no room for, and a str in the place of a list of names."""
import types

import evener
import numpy
import pytest
import tiny
from evener import _operator, _raw
from onnx import helper

BIG = 2**64


@pytest.fixture(scope="module")
def session(runtime):
    return runtime.session(tiny.add())


def register(runtime, **options):
    runtime.register_operator("mine", "Any", lambda node, inputs: [], lambda node, arrays: [], **options)


@pytest.mark.parametrize("call", [
    lambda cpu: cpu.set_memory_limit(-1), lambda cpu: cpu.set_memory_limit(BIG), lambda cpu: cpu.set_cache_policy(-1),
    lambda cpu: cpu.set_cache_policy(cache_limit=BIG), lambda cpu: cpu.tensor((BIG + 2,)), lambda cpu: cpu.tensor((4,)).view(BIG, (2,)),
    lambda cpu: cpu.tensor((4,)).view(0, (BIG + 2,)), lambda cpu: cpu.wrap_opencl_buffer(0, (2,), offset=-1)])
def test_numbers_of_a_device_are_not_cut(runtime, call):
    cpu = runtime.devices[0]
    before = cpu.memory()
    with pytest.raises(OverflowError):
        call(cpu)
    assert (cpu.memory().limit, cpu.memory().cache_limit) == (before.limit, before.cache_limit)


@pytest.mark.parametrize("call", [
    lambda session: session.trace(2**32), lambda session: session.trace(-1),
    lambda session: session.state([("y", "a", BIG + 1)]), lambda session: session.state([("y", "a", 4)], dims={"a": (BIG + 1, 3)})])
def test_numbers_of_a_session_are_not_cut(session, call):
    with pytest.raises(OverflowError):
        call(session)


def test_a_state_is_not_cut_to_the_lower_bits_of_a_length(session):
    with pytest.raises(OverflowError):
        session.state([("y", "a")], dims={"a": (1, 3)}).truncate(BIG)


@pytest.mark.parametrize("options", [{"value_inputs": (32,)}, {"since_version": 2**32 + 1}, {"inputs": 2**32 + 1}, {"outputs": (-1, 1)}])
def test_numbers_of_operators_are_not_cut(runtime, options):
    with pytest.raises(OverflowError):
        register(runtime, **options)


def test_dims_of_operators_are_not_cut():
    view = _raw.evn_tensor_view()
    with pytest.raises(OverflowError):
        _operator._declare(view, ("float32", (BIG + 2,)))


def test_numbers_of_loaders_and_models_are_not_cut(runtime):
    loader = evener.Loader(runtime, {"x": numpy.ones((4, 2), "float32")}, batch=2)
    for number, first in ((-1, 0), (0, BIG)):
        with pytest.raises(OverflowError):
            loader.epoch(number, first)
    with pytest.raises(OverflowError):
        runtime.inspect(tiny.scale(), shapes={"x": (BIG + 2,)})
    with pytest.raises(OverflowError):
        runtime.session(tiny.scale(), batching={"mask": "x", "buckets": [BIG + 16]})


def test_an_event_is_waited_for_no_less_than_not_at_all():
    waits, event = [], evener.Event.__new__(evener.Event)
    event._library = types.SimpleNamespace(evn_event_wait=lambda handle, nanoseconds, error: waits.append(nanoseconds) or 0)
    for timeout in (-1, 0, 0.5, 1e300, float("inf"), None):
        assert event.wait(timeout)
    assert waits == [0, 0, 500_000_000] + 3 * [2**64 - 1]


def layers():
    """y = (x up) down"""
    nodes = [helper.make_node("MatMul", ["x", "up"], ["t"], name="first"), helper.make_node("MatMul", ["t", "down"], ["y"], name="last")]
    weights = {name: numpy.ones((64, 64), "float32") for name in ("up", "down")}
    return tiny.model(nodes, [tiny.value("x", "float32", ["n", 64])], [tiny.value("y", "float32", ["n", 64])], weights)


@pytest.mark.parametrize("options, learn", [({"trainable": "up"}, {"up"}), ({"frozen": "up"}, {"down"}), ({"replicas": "cpu"}, {"up", "down"}),
                                            ({"trainable": ["up"]}, {"up"}), ({"groups": [("up", 0.5, None)]}, {"up", "down"})])
def test_a_trainer_takes_a_name_for_a_list_of_one(runtime, options, learn):
    assert evener.Trainer(runtime, layers(), "mse", **options).parameters.keys() == learn


@pytest.mark.parametrize("keep", ["first", ["first"], ("first",), iter(["first"])])
def test_a_quantizer_takes_a_name_for_a_list_of_one(runtime, keep):
    quantizer = evener.Quantizer(runtime, layers(), mode="weights", keep=keep)
    quantizer.finish()
    assert quantizer.report("dict")["quantized_nodes"] == 1
