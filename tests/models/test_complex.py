"""Complex numbers in the operators that take them, with ONNX's own evaluator or numpy as the judge: ONNX Runtime has none."""
import evener
import numpy
import onnx
import pytest
from common import config, opencl_runtime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

i64 = numpy.int64
TYPES = {numpy.complex64: TensorProto.COMPLEX64, numpy.complex128: TensorProto.COMPLEX128}


def numbers(dtype, *shape):
    random = numpy.random.default_rng(sum(shape))
    return (random.normal(size=shape) + 1j * random.normal(size=shape)).astype(dtype)


def model_of(op, inputs, attributes, outputs=1, opset=21):
    names = [f"x{index}" if x is not None else "" for index, x in enumerate(inputs)]
    variables = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
                 for name, x in zip(names, inputs) if x is not None]
    results = [f"y{index}" for index in range(outputs)]
    graph = helper.make_graph([helper.make_node(op, names, results, "node", **attributes)], "graph", variables,
                              [onnx.ValueInfoProto(name=name) for name in results])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


@pytest.fixture(scope="module")
def runtime():
    return evener.Runtime(threads=1)


def ints(*values):
    return numpy.array(values, i64)


# Operator, shapes of the complex inputs or other inputs as they are, attributes, outputs.
MOVES = [
    ("Identity", [(3, 4)], {}, 1), ("Reshape", [(3, 4), ints(2, -1)], {}, 1), ("Transpose", [(2, 3, 5)], {"perm": [2, 0, 1]}, 1), ("Transpose", [(1, 2, 3, 2)], {"perm": [0, 3, 1, 2]}, 1),
    ("Concat", [(3, 4), (3, 1)], {"axis": 1}, 1), ("Slice", [(5, 7), ints(4, 1), ints(-9, 6), ints(0, 1), ints(-2, 3)], {}, 1),
    ("Split", [(5, 4), ints(3, 2)], {"axis": 0}, 2), ("Gather", [(5, 4), ints(4, 0, -1)], {"axis": 0}, 1),
    ("GatherElements", [(3, 3), ints(0, 2, 1).reshape(1, 3)], {"axis": 0}, 1), ("GatherND", [(3, 4), numpy.array([[0, 1], [2, 3]], i64)], {}, 1),
    ("ScatterElements", [(3, 3), ints(1, 0, 2).reshape(1, 3), (1, 3)], {"axis": 0}, 1),
    ("ScatterND", [(4, 3), numpy.array([[3], [1]], i64), (2, 3)], {}, 1), ("Pad", [(2, 3), ints(1, 0, 0, 2), (1,)], {}, 1),
    ("Pad", [(2, 3), ints(1, 0, 0, 2)], {}, 1), ("Pad", [(3, 4), ints(1, 2, 0, 2)], {"mode": "reflect"}, 1), ("Expand", [(3, 1), ints(2, 3, 4)], {}, 1),
    ("Tile", [(2, 3), ints(2, 2)], {}, 1), ("Squeeze", [(1, 3, 1), ints(0)], {}, 1), ("Unsqueeze", [(3, 4), ints(1)], {}, 1),
    ("Flatten", [(2, 3, 4)], {"axis": 2}, 1), ("Where", [numpy.array([[True], [False]]), (2, 3), (3,)], {}, 1),
    ("ReverseSequence", [(4, 3), ints(1, 3, 4)], {}, 1), ("Shape", [(3, 4)], {}, 1), ("Size", [(3, 4)], {}, 1),
    ("Compress", [(3, 4), numpy.array([True, False, True])], {"axis": 0}, 1), ("DepthToSpace", [(1, 8, 2, 3)], {"blocksize": 2}, 1),
    ("SpaceToDepth", [(1, 2, 4, 6)], {"blocksize": 2}, 1), ("Trilu", [(3, 4), numpy.array(1, i64)], {"upper": 0}, 1),
    ("CenterCropPad", [(4, 5), ints(7, 2)], {}, 1), ("OneHot", [ints(2, 0, -1), numpy.array(4, i64), (2,)], {}, 1),
]


def filled(dtype, inputs):
    return [numbers(dtype, *x) if isinstance(x, tuple) else x for x in inputs]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("op, inputs, attributes, outputs", MOVES, ids=[f"{index}-{move[0]}" for index, move in enumerate(MOVES)])
def test_moves(runtime, dtype, op, inputs, attributes, outputs):
    given = filled(dtype, inputs)
    model = model_of(op, given, attributes, outputs)
    feeds = {f"x{index}": x for index, x in enumerate(given)}
    actual = runtime.session(model.SerializeToString()).run(feeds)
    wanted = ReferenceEvaluator(model).run(None, feeds)
    for mine, other in zip(actual.values(), wanted):
        assert mine.dtype == (i64 if op in ("Shape", "Size") else dtype) and mine.shape == other.shape
        numpy.testing.assert_array_equal(mine, other)


def run(runtime, op, inputs, attributes, outputs=1, opset=21):
    model = model_of(op, inputs, attributes, outputs, opset).SerializeToString()
    return list(runtime.session(model).run({f"x{index}": x for index, x in enumerate(inputs) if x is not None}).values())


@pytest.mark.parametrize("dtype", TYPES)
def test_what_is_no_move(runtime, dtype):
    x = numbers(dtype, 3, 4)
    x[1, 2], x[0, 1], x[2, 0] = 0, 1j, 1
    assert run(runtime, "NonZero", [x], {})[0].tolist() == numpy.array(numpy.nonzero(x)).tolist()
    repeated = numpy.array([2 + 1j, 1, 2 + 1j, 2, 1 - 1j], dtype)
    assert run(runtime, "Unique", [repeated], {}, 4)[0].tolist() == [1 - 1j, 1, 2, 2 + 1j]
    updates = numbers(dtype, 2)
    for reduction, combined in (("add", x[1, 0] + updates[0] + updates[1]), ("mul", x[1, 0] * updates[0] * updates[1])):
        wanted = x.copy()
        wanted[1, 0] = combined
        actual = run(runtime, "ScatterND", [x, numpy.array([[1, 0], [1, 0]], i64), updates], {"reduction": reduction})[0]
        numpy.testing.assert_allclose(actual, wanted, rtol=1e-5)
    bits = run(runtime, "BitCast", [x], {"to": TYPES[dtype]}, opset=26)[0]
    assert bits.tobytes() == x.tobytes() and bits.dtype == dtype


@pytest.mark.parametrize("dtype", TYPES)
def test_sums_with_real_factors_are_those_of_the_parts(runtime, dtype):
    part = numpy.dtype(dtype).type(0).real.dtype
    image = numbers(dtype, 1, 2, 4, 5)
    grid = numpy.random.default_rng(1).uniform(-1, 1, size=(1, 3, 2, 2)).astype(part)
    scales = numpy.array([1, 1, 2, 1.5], numpy.float32)
    for op, inputs, attributes, opset in (("Resize", [image, None, scales], {"mode": "linear"}, 19), ("Resize", [image, None, scales], {}, 19),
                                          ("GridSample", [image, grid], {"mode": "linear"}, 20),
                                          ("Col2Im", [numbers(dtype, 1, 6, 4), ints(3, 4), ints(2, 3)], {}, 18)):
        whole = run(runtime, op, inputs, attributes, opset=opset)[0]
        parts = [run(runtime, op, [f(inputs[0]).copy(), *inputs[1:]], attributes, opset=opset)[0] for f in (numpy.real, numpy.imag)]
        assert whole.dtype == dtype
        numpy.testing.assert_allclose(whole, parts[0] + 1j * parts[1].astype(dtype), rtol=1e-6)


def test_the_value_outside_of_a_crop_is_real(runtime):
    image = numbers(numpy.complex64, 1, 1, 3, 3)
    roi = numpy.array([0, 0, 0, 0, 1, 1, 2, 2], numpy.float32)
    attributes = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
    out = run(runtime, "Resize", [image, roi, None, ints(1, 1, 3, 3)], attributes, opset=19)[0]
    assert out[0, 0, 2, 2] == 7 and out[0, 0, 0, 0] == image[0, 0, 0, 0]


@pytest.mark.parametrize("op, attributes", [("Cast", {"to": TensorProto.FLOAT}), ("Neg", {}), ("Abs", {}), ("Exp", {}), ("ReduceSum", {})])
def test_arithmetic_is_refused(runtime, op, attributes):
    with pytest.raises(evener.Error) as failure:
        run(runtime, op, [numbers(numpy.complex64, 3)], attributes)
    assert failure.value.node == "node" and "complex64" in str(failure.value)


@pytest.mark.parametrize("op", ["Add", "Mul", "Equal", "MatMul", "Less"])
def test_arithmetic_of_two_is_refused(runtime, op):
    with pytest.raises(evener.Error) as failure:
        run(runtime, op, [numbers(numpy.complex128, 3, 3), numbers(numpy.complex128, 3, 3)], {})
    assert failure.value.node == "node" and "complex128" in str(failure.value)


@pytest.mark.parametrize("change", [{"to": TensorProto.COMPLEX64}, {"reduction": "max"}, {"like": True}])
def test_casts_to_complex_and_orders_of_complex_are_refused(runtime, change):
    x = numbers(numpy.complex64, 3)
    with pytest.raises(evener.Error) as failure:
        if "to" in change:
            run(runtime, "Cast", [numpy.zeros(3, numpy.float32)], change)
        elif "like" in change:
            run(runtime, "CastLike", [numpy.zeros(3, numpy.float32), x], {})
        else:
            run(runtime, "ScatterElements", [x, ints(0), x[:1]], change)
    assert failure.value.status == evener.Status.UNSUPPORTED and failure.value.node == "node"


@pytest.mark.parametrize("dtype", TYPES)
def test_initializers_of_all_forms(runtime, dtype):
    values = numbers(dtype, 2, 3)
    typed = TensorProto(name="typed", data_type=TYPES[dtype], dims=[2, 3])
    parts = numpy.stack([values.real, values.imag], -1).ravel().tolist()
    (typed.float_data if dtype is numpy.complex64 else typed.double_data).extend(parts)
    sparse = helper.make_sparse_tensor(onnx.numpy_helper.from_array(values[0, :2], "sparse"), onnx.numpy_helper.from_array(ints(1, 4), "i"), [2, 3])
    nodes = [helper.make_node("Constant", [], ["constant"], value=onnx.numpy_helper.from_array(values)),
             helper.make_node("Concat", ["typed", "raw", "sparse", "constant", "x"], ["y"], axis=0)]
    graph = helper.make_graph(nodes, "graph", [helper.make_tensor_value_info("x", TYPES[dtype], [2, 3])], [onnx.ValueInfoProto(name="y")],
                              [typed, onnx.numpy_helper.from_array(values, "raw")], sparse_initializer=[sparse])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    dense = numpy.zeros(6, dtype)
    dense[[1, 4]] = values[0, :2]
    wanted = numpy.concatenate([values, values, dense.reshape(2, 3), values, values * 2])
    numpy.testing.assert_array_equal(runtime.session(model).run({"x": values * 2})["y"], wanted)


def test_control_flow_and_sequences(runtime):
    text = """<ir_version: 10, opset_import: ["" : 21]>
    main (complex64[N] x, int64 turns, bool which) => (y, z, n, last) {
      go = Constant <value = bool {1}> ()
      y = If (which) <then_branch = a () => (complex64[N] p) { p = Identity (x) }, else_branch = b () => (complex64[M] q) { q = Concat <axis = 0> (x, x) }>
      last, z = Loop (turns, go, x) <body = body (int64 turn, bool on, complex64[N] s) => (bool more, complex64[N] t, complex64[N] out) {
        more = Identity (on)
        minus = Constant <value = int64[1] {-1}> ()
        far = Constant <value = int64[1] {-9}> ()
        zero = Constant <value = int64[1] {0}> ()
        t = Slice (s, minus, far, zero, minus)
        out = Identity (t)
      }>
      seq = SequenceConstruct (x, y)
      joined = ConcatFromSequence <axis = 0> (seq)
      n = Size (joined)
    }"""
    session = runtime.session(onnx.parser.parse_model(text).SerializeToString())
    x = numbers(numpy.complex64, 3)
    result = session.run({"x": x, "turns": numpy.array(3, i64), "which": numpy.array(False)})
    assert (result["y"] == numpy.concatenate([x, x])).all() and result["n"] == 9 and (result["last"] == x[::-1]).all()
    assert (result["z"] == numpy.stack([x[::-1], x, x[::-1]])).all()
    assert (session.run({"x": x, "turns": numpy.array(0, i64), "which": numpy.array(True)})["y"] == x).all()


@pytest.mark.parametrize("dtype", TYPES)
def test_on_opencl_moves_are_of_elements_up_to_8_bytes(dtype):
    x = numbers(dtype, 4, 5)
    data = model_of("Transpose", [x], {}).SerializeToString()
    with opencl_runtime(config(default="gpu")) as runtime:
        if dtype is numpy.complex64:
            assert (runtime.session(data).run({"x0": x})["y0"] == x.T).all()
        else:
            with pytest.raises(evener.Error) as failure:
                runtime.session(data)
            assert failure.value.status == evener.Status.UNSUPPORTED
