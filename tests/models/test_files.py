"""How a model file may hold its constants: each form against what onnx itself and ONNX Runtime read."""
import os

import evener
import numpy
import onnx
import pytest
from common import onnx_runtime
from onnx import TensorProto, helper, numpy_helper

OPSET = 24
NAMES = ["FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "BOOL", "FLOAT8E4M3FN",
         "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT8E8M0", "FLOAT4E2M1", "UINT4", "INT4", "UINT2", "INT2"]
DTYPES = [name for name in NAMES if hasattr(TensorProto, name)]
SHAPE = (3, 5)


def constant_model(dtype, initializers=(), sparse=(), nodes=()):
    """y is the constant w."""
    graph = helper.make_graph([*nodes, helper.make_node("Identity", ["w"], ["y"])], "g", [], [helper.make_tensor_value_info("y", dtype, None)],
                              initializer=list(initializers), sparse_initializer=list(sparse))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=13)


def evener_reads(model):
    actual, = evener.Runtime(threads=1).session(model.SerializeToString()).run({}).values()
    return actual


def values_of(dtype):
    numbers = numpy.array([0, 1, 1, 0, 2, 1, 0, 3, 1, 1, 0, 2, 1, 0, 1]).reshape(SHAPE)
    return numbers.astype(helper.tensor_dtype_to_np_dtype(dtype))


@pytest.mark.parametrize("raw", [False, True], ids=["typed", "raw"])
@pytest.mark.parametrize("name", DTYPES)
def test_an_initializer_is_read_as_onnx_reads_it(name, raw):
    dtype = getattr(TensorProto, name)
    values = values_of(dtype)
    tensor = numpy_helper.from_array(values, "w") if raw else helper.make_tensor("w", dtype, SHAPE, values.ravel())
    assert tensor.HasField("raw_data") == raw
    wanted = numpy_helper.to_array(tensor)
    actual = evener_reads(constant_model(dtype, [tensor]))
    assert actual.dtype == wanted.dtype and numpy.array_equal(actual.astype(float), wanted.astype(float), equal_nan=True)


def sparse_tensor(values, positions, dims):
    positions = numpy.array(positions, numpy.int64)
    return helper.make_sparse_tensor(numpy_helper.from_array(values, "w"), numpy_helper.from_array(positions, "w_indices"), dims)


@pytest.mark.parametrize("positions", [[1, 4, 11], [[0, 1], [1, 0], [2, 3]]], ids=["linear", "by dims"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64", "uint8"])
@pytest.mark.parametrize("form", ["initializer", "constant"])
def test_a_sparse_tensor_is_read_as_onnx_runtime_reads_it(form, dtype, positions):
    sparse = sparse_tensor(numpy.array([3, 1, 2], dtype), positions, [3, 4])
    kind = helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype))
    if form == "initializer":
        model = constant_model(kind, sparse=[sparse])
    else:
        model = constant_model(kind, nodes=[helper.make_node("Constant", [], ["w"], sparse_value=sparse)])
    wanted, = onnx_runtime(model.SerializeToString()).run(None, {})
    actual = evener_reads(model)
    assert actual.dtype == wanted.dtype and numpy.array_equal(actual, wanted) and wanted.any()


@pytest.mark.parametrize("version", range(3, onnx.IR_VERSION + 1))
def test_every_ir_version_is_read(version):
    model = constant_model(TensorProto.FLOAT, [numpy_helper.from_array(values_of(TensorProto.FLOAT), "w")])
    model.opset_import[0].version = 7
    model.ir_version = version
    if version == 3:  # where initializers were inputs too
        model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, SHAPE))
    assert numpy.array_equal(evener_reads(model), values_of(TensorProto.FLOAT))


def test_a_newer_ir_version_is_refused():
    model = constant_model(TensorProto.FLOAT, [numpy_helper.from_array(values_of(TensorProto.FLOAT), "w")])
    model.ir_version = onnx.IR_VERSION + 1
    with pytest.raises(evener.Error, match="ir_version"):
        evener.Runtime(threads=1).model(model.SerializeToString())


@pytest.mark.skipif(not os.environ.get("EVN_TEST_FULL"), reason="a long form: set EVN_TEST_FULL=1")
def test_a_model_file_above_two_gigabytes(tmp_path):
    """The file is written by hand, with a hole for the weights: protobuf cannot."""
    rows = 600_000_000
    size = 4 * rows
    start, end = (numpy_helper.from_array(numpy.array([n], numpy.int64), name) for n, name in ((rows - 2, "start"), (rows, "end")))
    graph = helper.make_graph([helper.make_node("Slice", ["w", "start", "end"], ["y"])], "g", [],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])], initializer=[start, end])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def field(number, wire, payload=b"", length=None):
        def varint(v):
            return bytes([v]) if v < 128 else bytes([v & 127 | 128]) + varint(v >> 7)
        return varint(number << 3 | wire) + (varint(len(payload) if length is None else length) + payload if wire == 2 else varint(length))

    tensor = field(1, 0, length=rows) + field(2, 0, length=1) + field(8, 2, b"w") + field(9, 2, length=size)
    body = graph.SerializeToString() + field(5, 2, tensor, len(tensor) + size)
    model.ClearField("graph")
    text = model.SerializeToString() + field(7, 2, body, len(body) + size)
    path = tmp_path / "large.onnx"
    with open(path, "wb") as file:
        file.write(text)
        file.truncate(len(text) + size)
        file.seek(-4, os.SEEK_END)
        file.write(numpy.float32(1.5).tobytes())
    with pytest.raises(evener.Error, match="LIMIT"):
        evener.Runtime(threads=1).model(path)
    with evener.Runtime(config_text="limits: {model_bytes: 4GiB}") as runtime:
        actual, = runtime.session(path).run({}).values()
    assert numpy.array_equal(actual, [0, 1.5])
