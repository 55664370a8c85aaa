"""Attention of language models over caches that grow: a state gives the bits that carried caches give, and ONNX Runtime nearly the same.

The caches' width is open in the model, as it is in those that onnxruntime-genai exports.
"""
import evener
import numpy
import onnx
import pytest
from common import onnx_runtime
from onnx import TensorProto, helper

CASES = {
    "groups": dict(heads=8, groups=2, depth=64),
    "one_group_of_an_odd_number": dict(heads=7, groups=1, depth=48),
    "more_heads_than_a_block": dict(heads=22, groups=1, depth=16),
    "a_window": dict(heads=4, groups=2, depth=32, window=40),
    "a_window_without_groups": dict(heads=3, groups=3, depth=16, window=7),
}
PIECES = [50, 3, *[1] * 90, 70, 1, 1]  # positions of each run


def rounded(rows, caches):
    """What pages store of rows of float32."""
    if caches == "float16":
        return rows.astype("float16").astype("float32")
    most = numpy.abs(rows).max(-1, keepdims=True)
    return numpy.rint(rows * (numpy.float32(127) / most)) * (most / numpy.float32(127))


def model(heads, groups, depth, window=0, dtype=TensorProto.FLOAT):
    node = helper.make_node("GroupQueryAttention", ["query", "key", "value", "past_key", "past_value", "lengths", "total", "cos", "sin"],
                            ["y", "present_key", "present_value"], domain="com.microsoft", num_heads=heads, kv_num_heads=groups, do_rotary=1,
                            **({"local_window_size": window} if window else {}))
    positions = sum(PIECES)
    angles = numpy.arange(positions)[:, None] / 100 ** (numpy.arange(depth // 2) / (depth // 2))
    given = [("query", dtype, [1, "steps", heads * depth]), ("key", dtype, [1, "steps", groups * depth]),
             ("value", dtype, [1, "steps", groups * depth]), ("past_key", dtype, [1, groups, "past", "width"]),
             ("past_value", dtype, [1, groups, "past", "width"]), ("lengths", TensorProto.INT32, [1]), ("total", TensorProto.INT32, [])]
    made = [("y", [1, "steps", heads * depth]), ("present_key", [1, groups, "all", "width"]), ("present_value", [1, groups, "all", "width"])]
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info(*value) for value in given],
                              [helper.make_tensor_value_info(name, dtype, dims) for name, dims in made],
                              [onnx.numpy_helper.from_array(f(angles).astype(helper.tensor_dtype_to_np_dtype(dtype)), name) for name, f in (("cos", numpy.cos), ("sin", numpy.sin))])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def draw(random, steps, past, heads, groups, depth, dtype="float32"):
    drawn = {key: random.standard_normal((1, steps, n * depth)).astype(dtype) for key, n in (("query", heads), ("key", groups), ("value", groups))}
    return {**drawn, "lengths": numpy.array([past + steps - 1], "int32"), "total": numpy.array(past + steps, "int32")}


PAIRS = [("present_key", "past_key", sum(PIECES)), ("present_value", "past_value", sum(PIECES))]


@pytest.mark.parametrize("name", CASES)
def test_a_cache_that_grows(name):
    sizes = CASES[name]
    heads, groups, depth = sizes["heads"], sizes["groups"], sizes["depth"]
    content = model(**sizes)
    oracle = onnx_runtime(content)
    random = numpy.random.default_rng(3)
    with evener.Runtime(threads=2, cache_dir="") as runtime, runtime.session(content) as session:
        state = session.state(PAIRS)
        caches = {key: numpy.zeros((1, groups, 0, depth), "float32") for key in ("past_key", "past_value")}
        past = 0
        for steps in PIECES:
            drawn = draw(random, steps, past, heads, groups, depth)
            kept = session.run(drawn, state=state)["y"]
            carried = session.run({**drawn, **caches})
            assert numpy.array_equal(kept, carried["y"]), f"{steps} after {past}"
            wanted = oracle.run(None, {**drawn, **caches})
            numpy.testing.assert_allclose(carried["y"], wanted[0], rtol=1e-4, atol=1e-5)
            caches = {"past_key": carried["present_key"], "past_value": carried["present_value"]}
            for key, array in zip(caches, wanted[1:]):
                numpy.testing.assert_allclose(caches[key], array, rtol=1e-5, atol=1e-6)
            past += steps


@pytest.mark.parametrize("place", (0, 1), ids=("before", "behind"))
def test_a_cache_that_another_node_reads_too(place):
    heads, groups, depth = 4, 2, 16
    made = onnx.load_from_string(model(heads, groups, depth))
    made.graph.node.insert(place, helper.make_node("ReduceSum", ["past_key"], ["sum"], keepdims=0))
    made.graph.output.append(helper.make_tensor_value_info("sum", TensorProto.FLOAT, []))
    random = numpy.random.default_rng(3)
    with evener.Runtime(threads=2, cache_dir="") as runtime, runtime.session(made.SerializeToString()) as session:
        state = session.state(PAIRS)
        caches = {key: numpy.zeros((1, groups, 0, depth), "float32") for key in ("past_key", "past_value")}
        past = 0
        for steps in PIECES:
            drawn = draw(random, steps, past, heads, groups, depth)
            kept, carried = session.run(drawn, state=state), session.run({**drawn, **caches})
            assert numpy.array_equal(kept["y"], carried["y"]) and numpy.array_equal(kept["sum"], carried["sum"]), f"{steps} after {past}"
            caches = {"past_key": carried["present_key"], "past_value": carried["present_value"]}
            past += steps


@pytest.mark.parametrize("caches", ["float16", "int8"])
@pytest.mark.parametrize("name", CASES)
def test_pages_of_16_and_8_bits_round_what_they_store(name, caches):
    sizes = CASES[name]
    heads, groups, depth = sizes["heads"], sizes["groups"], sizes["depth"]
    random = numpy.random.default_rng(4)
    with evener.Runtime(threads=2, cache_dir="") as runtime, runtime.session(model(**sizes)) as session:
        state = session.state(PAIRS, caches=caches)
        past = {key: numpy.zeros((1, groups, 0, depth), "float32") for key in ("past_key", "past_value")}
        for steps in PIECES:
            at = past["past_key"].shape[2]
            drawn = draw(random, steps, at, heads, groups, depth)
            kept = session.run(drawn, state=state)["y"]
            carried = session.run({**drawn, **past})
            assert numpy.array_equal(kept, carried["y"]), f"{steps} after {at}"
            past = {key: numpy.concatenate([past[key], rounded(carried[key.replace("past", "present")][:, :, at:], caches)], 2) for key in past}
        described = state.describe()
        assert [(p["storage"], p["dtype"], p["stored"]) for p in described] == [("pages", "float32", caches)] * 2
        saved = state.save()
        assert len(saved) < {"float16": 0.6, "int8": 0.4}[caches] * sum(array.nbytes for array in past.values())
        other = session.state([(output, given, capacity + 8) for output, given, capacity in PAIRS], caches=caches)
        other.restore(saved)
        beam = other.fork()
        beam.truncate(len(beam) - 1)
        drawn = draw(random, 1, len(beam), heads, groups, depth)
        carried = session.run({**drawn, **{key: array[:, :, :-1] for key, array in past.items()}})
        assert numpy.array_equal(session.run(drawn, state=beam)["y"], carried["y"])
        with pytest.raises(evener.Error) as error:
            session.state(PAIRS).restore(saved)
        assert error.value.status == evener.Status.INVALID_ARGUMENT


@pytest.mark.parametrize("dtype", ["FLOAT16", "BFLOAT16"])
def test_caches_of_models_in_16_bits_are_not_converted(dtype):
    sizes = dict(heads=6, groups=2, depth=40)
    bits = helper.tensor_dtype_to_np_dtype(getattr(TensorProto, dtype))
    random = numpy.random.default_rng(5)
    with evener.Runtime(threads=2, cache_dir="") as runtime, runtime.session(model(**sizes, dtype=getattr(TensorProto, dtype))) as session:
        state = session.state(PAIRS)
        narrow = session.state(PAIRS, caches="int8")
        past = {key: numpy.zeros((1, 2, 0, 40), bits) for key in ("past_key", "past_value")}
        for steps in PIECES:
            drawn = draw(random, steps, past["past_key"].shape[2], 6, 2, 40, bits)
            kept = session.run(drawn, state=state)["y"]
            carried = session.run({**drawn, **past})
            assert numpy.array_equal(numpy.asarray(kept).view("uint16"), numpy.asarray(carried["y"]).view("uint16")), steps
            numpy.testing.assert_allclose(numpy.asarray(session.run(drawn, state=narrow)["y"]).astype("float32"),
                                          numpy.asarray(kept).astype("float32"), rtol=0.1, atol=0.1)
            past = {key: numpy.asarray(carried[key.replace("past", "present")]).view(bits) for key in past}
        assert [(p["storage"], p["stored"]) for p in state.describe()] == [("pages", dtype.lower())] * 2
        assert [(p["storage"], p["stored"]) for p in narrow.describe()] == [("pages", "int8")] * 2
