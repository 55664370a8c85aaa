"""evener quantize: its files in onnx's checker and ONNX Runtime, how near they are to the float32 model, and what it refuses.

The command is taken from the environment variable EVENER_COMMAND.
"""
import functools
import json
import os
import subprocess

import evener
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

COMMAND = os.environ.get("EVENER_COMMAND", "")
if not COMMAND:
    pytest.skip("EVENER_COMMAND is not set", allow_module_level=True)

OK, FAILURE, USAGE, MODEL = 0, 1, 2, 4


def quantize(*words, code=OK):
    """What the guard takes back depends on the machine's speed: it looks only where a test says so."""
    if "--guard" not in words:
        words += ("--no-guard",)
    done = subprocess.run([COMMAND, "quantize", *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, f"{done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout if code == OK else done.stderr


def weight(rng, name, *dims):
    return numpy_helper.from_array((rng.standard_normal(dims) / np.sqrt(np.prod(dims[1:]))).astype(np.float32), name)


def save(path, nodes, inputs, outputs, initializers, opset=17):
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, initializers), opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def value(name, dims):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)


@pytest.fixture
def network(tmp_path):
    """Convolutions with batch normalization, a residual, a squeeze-and-excite branch, pooling, concatenation and a classifier."""
    rng = np.random.default_rng(3)
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], name="first", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", ["c0", "scale", "shift", "mean", "var"], ["n0"], name="norm"),
        node("Relu", ["n0"], ["r0"], name="relu"),
        node("Conv", ["r0", "w1", "b1"], ["c1"], name="second", pads=[1, 1, 1, 1]),
        node("Add", ["c1", "r0"], ["sum"], name="add"),
        node("Relu", ["sum"], ["r1"], name="relu_of_sum"),
        node("MaxPool", ["r1"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["p"], ["g"], name="squeeze"),
        node("Conv", ["g", "w2", "b2"], ["e"], name="excite"),
        node("Sigmoid", ["e"], ["gate"], name="gate"),
        node("Mul", ["p", "gate"], ["gated"], name="gated"),
        node("Conv", ["gated", "w3"], ["d"], name="depthwise", group=16, pads=[1, 1, 1, 1]),
        node("Concat", ["gated", "d"], ["both"], name="both", axis=1),
        node("GlobalAveragePool", ["both"], ["v"], name="mean"),
        node("Flatten", ["v"], ["f"], name="flatten"),
        node("Gemm", ["f", "w4", "b4"], ["y0"], name="classifier", transB=1),
        node("Softmax", ["y0"], ["y"], name="softmax"),
    ]
    constants = [weight(rng, "w0", 16, 3, 3, 3), weight(rng, "w1", 16, 16, 3, 3), weight(rng, "w2", 16, 16, 1, 1), weight(rng, "w3", 16, 1, 3, 3),
                 weight(rng, "w4", 10, 32)]
    constants += [numpy_helper.from_array(rng.standard_normal(n).astype(np.float32), name) for name, n in
                  (("b0", 16), ("b1", 16), ("b2", 16), ("b4", 10), ("scale", 16), ("shift", 16), ("mean", 16))]
    constants.append(numpy_helper.from_array(rng.uniform(0.5, 2, 16).astype(np.float32), "var"))
    return save(tmp_path / "network.onnx", nodes, [value("x", ["N", 3, 32, 32])], [value("y", ["N", 10]), value("y0", ["N", 10])], constants)


@pytest.fixture
def batches(tmp_path):
    folder = tmp_path / "calibration"
    folder.mkdir()
    rng = np.random.default_rng(4)
    for i in range(8):
        np.savez(folder / f"{i}.npz", x=rng.standard_normal((2, 3, 32, 32)).astype(np.float32))
    held = tmp_path / "held.npz"
    np.savez(held, x=rng.standard_normal((4, 3, 32, 32)).astype(np.float32))
    return folder, held


def ort_session(path, exact=True):
    """A session of ONNX Runtime whose sums of 8 bits are exact, also where the CPU has no VNNI: there it adds two products in 16 bits."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if exact:
        options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@functools.cache
def ort_saturates():
    """Whether ONNX Runtime adds two products of 8 bits in 16 here, for which it has no remedy where activations are int8."""
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"])
    ends = [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 4]), helper.make_tensor_value_info("y", TensorProto.INT32, [1, 1])]
    weight = numpy_helper.from_array(np.full((4, 1), 127, np.int8), "w")
    model = helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:], [weight]), opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.full((1, 4), 255, np.uint8)})[0][0, 0] != 4 * 255 * 127


def run_ort(path, x):
    return ort_session(path).run(["y0"], {"x": x})[0]


def cosine(a, b):
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


@pytest.mark.parametrize("options", [[], ["--method", "percentile"], ["--method", "entropy"], ["--method", "mse"], ["--int8"], ["--per-tensor"],
                                     ["--equalize"], ["--correct-bias"], ["--smooth"], ["--per-tensor", "--equalize", "--correct-bias"]],
                         ids=lambda o: " ".join(o) or "minmax")
def test_a_network_in_8_bits_is_near_the_network(network, batches, tmp_path, options):
    folder, held = batches
    out = tmp_path / "out.onnx"
    report = json.loads(quantize(network, "-o", out, "--calibration", folder, "--verify", held, "--json", *options))
    model = onnx.load(out)
    onnx.checker.check_model(model, full_check=True)
    x = np.load(held)["x"]
    assert cosine(run_ort(out, x), run_ort(network, x)) >= 0.99
    y0 = next(o for o in report["outputs"] if o["name"] == "y0")
    assert y0["cosine"] >= 0.99 and y0["sqnr_db"] > 15
    assert report["batches"] == 8 and report["float_ns"] > 0
    quantized = {n["name"] for n in report["nodes"] if n["quantized"]}
    assert {"first", "second", "excite", "depthwise", "classifier"} <= quantized or not quantized  # named where there is a reason
    int8 = [t for t in model.graph.initializer if t.data_type == TensorProto.INT8 and len(t.dims) > 1]
    assert len(int8) == 5
    assert not [n for n in model.graph.node if n.op_type == "BatchNormalization"]


def test_what_both_engines_make_of_the_file_is_near(network, batches, tmp_path):
    folder, held = batches
    out = tmp_path / "out.onnx"
    quantize(network, "-o", out, "--calibration", folder)
    np.save(tmp_path / "x.npy", np.load(held)["x"])
    done = subprocess.run([COMMAND, "run", str(out), "--input", f"x={tmp_path / 'x.npy'}", "--output-dir", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert cosine(np.load(tmp_path / "y0.npy"), run_ort(out, np.load(held)["x"])) >= 0.9999


def test_values_that_are_handed_on_share_a_scale(network, batches, tmp_path):
    out = tmp_path / "out.onnx"
    quantize(network, "-o", out, "--calibration", batches[0])
    model = onnx.load(out)
    values = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    scale = {n.input[0]: values[n.input[1]] for n in model.graph.node if n.op_type == "QuantizeLinear"}
    assert scale["r1"] == scale["p"]
    assert scale["gated"] == scale["d"] == scale["both"]


def test_dynamic_quantization_needs_no_calibration(tmp_path):
    rng = np.random.default_rng(5)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"], name="product"), helper.make_node("Gemm", ["m", "v", "b"], ["y"], name="gemm", transB=1)]
    bias = numpy_helper.from_array(rng.standard_normal(8).astype(np.float32), "b")
    path = save(tmp_path / "m.onnx", nodes, [value("x", ["N", 32])], [value("y", ["N", 8])], [weight(rng, "w", 32, 16), weight(rng, "v", 8, 16), bias])
    out = tmp_path / "out.onnx"
    quantize(path, "-o", out, "--dynamic")
    model = onnx.load(out)
    onnx.checker.check_model(model, full_check=True)
    assert [n.op_type for n in model.graph.node].count("MatMulInteger") == 2
    x = rng.standard_normal((5, 32)).astype(np.float32)
    run = lambda p: ort_session(p).run(None, {"x": x})[0]  # noqa: E731
    assert cosine(run(out), run(path)) >= 0.999


def test_dynamic_quantization_takes_convolutions(tmp_path):
    rng = np.random.default_rng(6)
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], name="first", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c"], ["r"]),
        node("Conv", ["r", "d", "e"], ["k"], name="depthwise", group=16, auto_pad="SAME_UPPER"),
        node("Conv", ["k", "p"], ["y"], name="last", dilations=[2, 2]),
    ]
    numbers = [weight(rng, "w", 16, 3, 3, 3), weight(rng, "b", 16), weight(rng, "d", 16, 1, 3, 3), weight(rng, "e", 16), weight(rng, "p", 8, 16, 3, 3)]
    path, out = save(tmp_path / "m.onnx", nodes, [value("x", ["N", 3, 32, 32])], [value("y", ["N", 8, 12, 12])], numbers), tmp_path / "out.onnx"
    x = rng.standard_normal((2, 3, 32, 32)).astype(np.float32)
    oracle = lambda p: ort_session(p).run(None, {"x": x})[0]  # noqa: E731
    for words in ((), ("--per-tensor",)):
        quantize(path, "-o", out, "--dynamic", *words)
        model = onnx.load(out)
        onnx.checker.check_model(model, full_check=True)
        assert [n.op_type for n in model.graph.node].count("ConvInteger") == 3
        got = evener.Runtime(threads=1).session(str(out)).run({"x": x})["y"]
        assert cosine(got, oracle(out)) >= 0.99999 and cosine(got, oracle(path)) >= 0.999


def test_kept_nodes_stay_float32(network, batches, tmp_path):
    out = tmp_path / "out.onnx"
    report = json.loads(quantize(network, "-o", out, "--calibration", batches[0], "--keep", "first", "--keep", "type:Gemm", "--json"))
    reasons = {n["name"]: n["reason"] for n in report["nodes"] if not n["quantized"]}
    assert reasons == {"first": 'kept by "first"', "classifier": 'kept by "type:Gemm"'}
    model = onnx.load(out)
    assert next(n for n in model.graph.node if n.name == "first").input[0] == "x"


def test_no_file_comes_of_a_batch_that_is_not_finite(network, tmp_path):
    for bad in (np.nan, np.inf):
        x = np.ones((1, 3, 32, 32), np.float32)
        x[0, 1, 2, 3] = bad
        np.savez(tmp_path / "bad.npz", x=x)
        message = quantize(network, "-o", tmp_path / "out.onnx", "--calibration", tmp_path / "bad.npz", code=FAILURE)
        assert 'value "x" has elements that are NaN or infinite' in message
        assert not (tmp_path / "out.onnx").exists()


def test_batches_that_show_nothing_still_make_a_model(network, tmp_path):
    np.savez(tmp_path / "zero.npz", x=np.zeros((1, 3, 32, 32), np.float32))
    out = tmp_path / "out.onnx"
    quantize(network, "-o", out, "--calibration", tmp_path / "zero.npz")
    assert np.isfinite(run_ort(out, np.ones((1, 3, 32, 32), np.float32))).all()


def test_wrong_batches_and_options_are_refused(network, batches, tmp_path):
    folder, _ = batches
    out = tmp_path / "out.onnx"
    np.savez(tmp_path / "name.npz", z=np.zeros(1, np.float32))
    np.savez(tmp_path / "shape.npz", x=np.zeros((1, 4, 32, 32), np.float32))
    np.savez(tmp_path / "type.npz", x=np.zeros((1, 3, 32, 32), np.int32))
    for name, words in (("name.npz", 'no input "z"'), ("shape.npz", "x"), ("type.npz", "float32")):
        assert words in quantize(network, "-o", out, "--calibration", tmp_path / name, code=FAILURE)
    (tmp_path / "empty").mkdir()
    assert "no .npz files" in quantize(network, "-o", out, "--calibration", tmp_path / "empty", code=FAILURE)
    quantize(network, "--calibration", folder, code=USAGE)
    quantize(network, "-o", out, code=USAGE)
    quantize(network, "-o", out, "--calibration", folder, "--dynamic", code=USAGE)
    quantize(network, "-o", out, "--calibration", folder, "--method", "best", code=USAGE)
    quantize(network, "-o", out, "--calibration", folder, "--percentile", "nan", code=USAGE)
    quantize(network, "-o", out, "--calibration", folder, "--min-cosine", "2", code=USAGE)
    quantize(network, "-o", out, "--calibration", folder, "--guard-only", "luck", code=USAGE)
    quantize(network, "-o", out, "--calibration", folder, "--guard", folder, "--no-guard", code=USAGE)
    assert not out.exists()


def test_an_old_file_stays_whole_where_the_new_one_cannot_be_written(network, batches, tmp_path):
    target = tmp_path / "is_a_folder.onnx"
    target.mkdir()
    quantize(network, "-o", target, "--calibration", batches[0], code=FAILURE)
    assert target.is_dir()


def test_models_that_cannot_be_quantized_say_why(tmp_path, batches):
    rng = np.random.default_rng(6)
    relu = save(tmp_path / "relu.onnx", [helper.make_node("Relu", ["x"], ["y"])], [value("x", [2])], [value("y", [2])], [])
    assert "no node can be quantized" in quantize(relu, "-o", tmp_path / "o.onnx", "--calibration", batches[0], code=MODEL)
    old = save(tmp_path / "old.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", [2, 4])], [value("y", [2, 4])],
               [weight(rng, "w", 4, 4)], opset=6)
    assert "opset 6" in quantize(old, "-o", tmp_path / "o.onnx", "--calibration", batches[0], code=MODEL)
    out = tmp_path / "quantized.onnx"
    path = save(tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", [2, 4])], [value("y", [2, 4])], [weight(rng, "w", 4, 4)])
    np.savez(tmp_path / "x.npz", x=np.ones((2, 4), np.float32))
    quantize(path, "-o", out, "--calibration", tmp_path / "x.npz")
    assert "quantized already" in quantize(out, "-o", tmp_path / "again.onnx", "--calibration", tmp_path / "x.npz", code=MODEL)


def test_a_branch_that_no_batch_takes_is_reported(tmp_path):
    rng = np.random.default_rng(7)
    branches = {name: helper.make_graph([helper.make_node("MatMul", ["m", name + "_w"], [name], name=name + "_product")], name, [],
                                        [value(name, [2, 4])], [weight(rng, name + "_w", 4, 4)]) for name in ("then", "else")}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
             helper.make_node("If", ["c"], ["y"], name="choice", then_branch=branches["then"], else_branch=branches["else"])]
    inputs = [value("x", [2, 4]), helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    path = save(tmp_path / "if.onnx", nodes, inputs, [value("y", [2, 4])], [weight(rng, "w", 4, 4)])
    batch = {"x": rng.standard_normal((2, 4)).astype(np.float32), "c": np.array(True)}
    np.savez(tmp_path / "batch.npz", **batch)
    words = (path, "-o", tmp_path / "o.onnx", "--calibration", tmp_path / "batch.npz", "--external-data")
    assert 'MatMul "choice/else/else_product": float32, not seen in calibration' in quantize(*words)
    reasons = {n["name"]: n["reason"] for n in json.loads(quantize(*words, "--json"))["nodes"]}
    assert reasons == {"product": None, "choice/then/then_product": None, "choice/else/else_product": "not seen in calibration"}
    wanted, got = (ort_session(p).run(None, batch)[0] for p in (path, tmp_path / "o.onnx"))
    np.testing.assert_allclose(got, wanted, atol=0.1 * np.abs(wanted).max())


@pytest.fixture
def uneven(tmp_path):
    """Two products, of which "hard" reads a column a hundred times as large as the others, with small weights: 8 bits have no room for the others."""
    rng = np.random.default_rng(8)
    w = rng.standard_normal((32, 16)).astype(np.float32)
    w[0] *= 1e-5
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="hard"), helper.make_node("Tanh", ["h"], ["t"], name="tanh"),
             helper.make_node("MatMul", ["t", "v"], ["y"], name="easy")]
    path = save(tmp_path / "uneven.onnx", nodes, [value("x", ["N", 32])], [value("y", ["N", 8])],
                [numpy_helper.from_array(w, "w"), weight(rng, "v", 16, 8)])
    x = rng.standard_normal((64, 32)).astype(np.float32)
    x[:, 0] *= 100
    np.savez(tmp_path / "uneven.npz", x=x)
    return path, tmp_path / "uneven.npz"


def test_the_guard_takes_back_a_layer_that_loses_too_much(uneven, tmp_path):
    path, batch = uneven
    run = lambda p: ort_session(p).run(None, {"x": np.load(batch)["x"]})[0]  # noqa: E731
    quantize(path, "-o", tmp_path / "all.onnx", "--calibration", batch)
    assert cosine(run(tmp_path / "all.onnx"), run(path)) < 0.9
    words = (path, "-o", tmp_path / "out.onnx", "--calibration", batch, "--guard", batch, "--guard-only", "error")
    report = json.loads(quantize(*words, "--json"))
    nodes = {n["name"]: n for n in report["nodes"]}
    assert not nodes["hard"]["quantized"] and nodes["hard"]["reason"].startswith("guard: alone it keeps")
    assert nodes["easy"]["quantized"] and nodes["easy"]["reason"] is None
    assert nodes["hard"]["sqnr_db"] < 10 < nodes["easy"]["sqnr_db"] and nodes["hard"]["float_ns"] is None
    assert report["guard"] == {"batches": 1, "error": True, "speed": False, "min_cosine": 0.99, "min_layer_sqnr_db": 10, "taken_back": 1}
    assert cosine(run(tmp_path / "out.onnx"), run(path)) > 0.999
    assert 'MatMul "hard": float32, guard: alone it keeps' in quantize(*words)


def test_the_guard_takes_back_layers_until_the_outputs_are_near(uneven, tmp_path):
    path, batch = uneven
    words = (path, "-o", tmp_path / "out.onnx", "--calibration", batch, "--guard", batch, "--guard-only", "error", "--json", "--min-layer-sqnr", "0.01")
    nodes = {n["name"]: n for n in json.loads(quantize(*words))["nodes"]}
    assert "an output has cosine" in nodes["hard"]["reason"] and nodes["easy"]["quantized"]
    report = json.loads(quantize(*words, "--min-cosine", "1"))  # nothing in 8 bits is that near: the file is the float32 model
    assert report["quantized_nodes"] == 0 and report["guard"]["taken_back"] == 2
    assert not [n for n in onnx.load(tmp_path / "out.onnx").graph.node if "Quantize" in n.op_type]


def test_the_guard_times_layers_and_says_which_are_slower(network, batches, tmp_path):
    folder, held = batches
    report = json.loads(quantize(network, "-o", tmp_path / "out.onnx", "--calibration", folder, "--guard", held, "--json"))
    products = [n for n in report["nodes"] if n["op"] in ("Conv", "Gemm")]
    assert len(products) == 5 and all(n["float_ns"] > 0 and n["quantized_ns"] > 0 for n in products)
    for n in products:
        assert n["quantized"] == (n["reason"] is None)
        assert n["quantized"] or n["reason"].startswith("guard: ")
    assert report["guard"]["taken_back"] == sum(not n["quantized"] for n in products)


def test_the_guard_looks_at_dynamic_quantization_too(uneven, tmp_path):
    path, batch = uneven
    words = (path, "-o", tmp_path / "out.onnx", "--dynamic", "--guard", batch, "--guard-only", "error", "--json")
    nodes = {n["name"]: n for n in json.loads(quantize(*words))["nodes"]}
    assert not nodes["hard"]["quantized"] and nodes["easy"]["quantized"]


@pytest.fixture
def language(tmp_path):
    """Embeddings, products with and without biases, a Gemm of either kind, layer normalization and softmax."""
    rng = np.random.default_rng(11)
    node = helper.make_node
    nodes = [
        node("Gather", ["table", "ids"], ["e"], name="embed"),
        node("LayerNormalization", ["e", "gain", "shift"], ["n"], name="norm"),
        node("MatMul", ["n", "w0"], ["m0"], name="wide"),
        node("Add", ["m0", "b0"], ["a0"], name="bias"),
        node("Relu", ["a0"], ["r0"], name="relu"),
        node("MatMul", ["r0", "w1"], ["m1"], name="back"),
        node("Add", ["m1", "n"], ["s"], name="sum"),
        node("ReduceMean", ["s"], ["p"], name="mean", axes=[1], keepdims=0),
        node("Gemm", ["p", "w2", "b2"], ["g"], name="head", transB=1),
        node("Gemm", ["g", "w3"], ["h"], name="top"),
        node("MatMul", ["h", "w4"], ["l"], name="short"),
        node("Softmax", ["l"], ["y"], name="softmax"),
    ]
    floats = lambda name, v: numpy_helper.from_array(np.asarray(v, np.float32), name)  # noqa: E731
    weights = [weight(rng, "table", 50, 64), floats("gain", np.ones(64)), floats("shift", rng.standard_normal(64)), weight(rng, "w0", 64, 200),
               floats("b0", rng.standard_normal(200)), weight(rng, "w1", 200, 64), weight(rng, "w2", 48, 64), floats("b2", rng.standard_normal(48)),
               weight(rng, "w3", 48, 12), floats("w4", 0.1 * rng.standard_normal((12, 5)))]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["N", "T"])
    path = save(tmp_path / "language.onnx", nodes, [ids], [value("y", ["N", 5]), value("s", ["N", "T", 64])], weights)
    np.savez(tmp_path / "ids.npz", ids=rng.integers(0, 50, (4, 7)))
    return path, tmp_path / "ids.npz"


def outputs_of(path, batch):
    session = ort_session(path, exact=False)
    return session.run(None, dict(np.load(batch)))


MODES = [(("weights",), 0.9999, 0.42), (("weights", "--contrib"), 0.9999, 0.42), (("weights", "--bits", "4"), 0.985, 0.32),
         (("weights", "--bits", "4", "--contrib"), 0.985, 0.32), (("weights", "--bits", "4", "--block", "64"), 0.98, 0.31),
         (("float16",), 0.99999, 0.58), (("bfloat16",), 0.9999, 0.58)]


@pytest.mark.parametrize("words, least, share", MODES, ids=["-".join(m[0]).replace("--", "") for m in MODES])
def test_weights_and_halves_are_smaller_and_near_here_and_in_onnx_runtime(language, tmp_path, words, least, share):
    path, batch = language
    out = tmp_path / "out.onnx"
    report = json.loads(quantize(path, "-o", out, "--mode", *words, "--verify", batch, "--json"))
    onnx.checker.check_model(onnx.load(out), full_check="--contrib" not in words)
    assert report["mode"] == words[0] and report["batches"] == 0
    assert report["quantized_bytes"] == out.stat().st_size < share * report["float_bytes"]
    for ours, got, want in zip(report["outputs"], outputs_of(out, batch), outputs_of(path, batch)):
        assert ours["cosine"] > least
        assert got.dtype == np.float32 and cosine(got, want) > least


def test_weights_alone_are_named_by_what_they_became(language, tmp_path):
    path, batch = language
    out = tmp_path / "out.onnx"
    report = json.loads(quantize(path, "-o", out, "--mode", "weights", "--bits", "4", "--keep", "back", "--json"))
    nodes = {n["name"]: n for n in report["nodes"]}
    assert {n for n in nodes if nodes[n]["quantized"]} == {"embed", "wide", "head", "top"}
    assert nodes["short"]["reason"] == "its weight has fewer rows than a block"
    assert nodes["back"]["reason"] == 'kept by "back"'
    model = onnx.load(out)
    blocks = [n for n in model.graph.node if n.op_type == "DequantizeLinear"]
    assert len(blocks) == 3 and model.opset_import[0].version == 21
    types = {t.name: t.data_type for t in model.graph.initializer}
    assert all(types[n.input[0]] == types[n.input[2]] == TensorProto.UINT4 for n in blocks)
    contrib = tmp_path / "contrib.onnx"
    quantize(path, "-o", contrib, "--mode", "weights", "--contrib")
    model = onnx.load(contrib)
    assert [n.op_type for n in model.graph.node].count("MatMulNBits") == 4
    assert {o.domain: o.version for o in model.opset_import} == {"": 17, "com.microsoft": 1}


def test_sensitive_operators_stay_float32(language, tmp_path):
    path, batch = language
    out = tmp_path / "out.onnx"
    report = json.loads(quantize(path, "-o", out, "--mode", "float16", "--keep", "type:Gemm", "--json"))
    assert {n["name"] for n in report["nodes"] if n["quantized"]} == {"embed", "wide", "bias", "relu", "back", "sum", "short"}
    model = onnx.shape_inference.infer_shapes(onnx.load(out))
    types = {v.name: v.type.tensor_type.elem_type for v in [*model.graph.value_info, *model.graph.output]}
    for node in model.graph.node:
        if node.op_type in ("LayerNormalization", "ReduceMean", "Softmax", "Gemm"):
            assert types[node.output[0]] == TensorProto.FLOAT, node.name


def test_numbers_beyond_float16_stay_float32_and_are_named(tmp_path):
    rng = np.random.default_rng(5)
    w = weight(rng, "w", 32, 32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"], name="product"), helper.make_node("Mul", ["m", "big"], ["y"], name="scaled")]
    path = save(tmp_path / "big.onnx", nodes, [value("x", ["N", 32])], [value("y", ["N", 32])],
                [w, numpy_helper.from_array(np.float32([1e6]), "big")])
    report = json.loads(quantize(path, "-o", tmp_path / "out.onnx", "--mode", "float16", "--json"))
    nodes = {n["name"]: n for n in report["nodes"]}
    assert nodes["product"]["quantized"] and "beyond 65504" in nodes["scaled"]["reason"]
    x = rng.standard_normal((3, 32)).astype(np.float32)
    run = lambda p: ort_session(p).run(None, {"x": x})[0]  # noqa: E731
    assert np.isfinite(run(tmp_path / "out.onnx")).all() and cosine(run(tmp_path / "out.onnx"), run(path)) > 0.99999


def test_convolutions_have_weights_of_8_bits_too(network, batches, tmp_path):
    folder, held = batches
    out = tmp_path / "out.onnx"
    report = json.loads(quantize(network, "-o", out, "--mode", "weights", "--bits", "4", "--verify", held, "--json"))
    assert all(n["quantized"] for n in report["nodes"] if n["op"] == "Conv") and report["outputs"][0]["cosine"] > 0.99


def test_options_of_other_modes_are_refused(language, tmp_path):
    path, batch = language
    refused = lambda *words, code=USAGE: quantize(path, "-o", tmp_path / "out.onnx", *words, code=code)  # noqa: E731
    assert "--mode is" in refused("--mode", "int3")
    assert "weight_bits is 3" in refused("--mode", "weights", "--bits", "3", code=MODEL)
    assert "block_size is 48" in refused("--mode", "weights", "--block", "48", code=MODEL)
    assert "weight_bits means nothing" in refused("--mode", "float16", "--bits", "4", code=MODEL)
    assert "CONTRIB" in refused("--contrib", "--calibration", batch, code=MODEL)
    refused("--mode", "weights", "--calibration", batch)
    refused("--mode", "weights", "--guard", batch)
    refused("--mode", "weights", "--dynamic")


@pytest.mark.parametrize("words", [(), ("--int8",), ("--per-tensor",)])
def test_operators_on_bytes_give_the_same_numbers(network, batches, tmp_path, words):
    folder, held = batches
    x = np.load(held)["x"]
    both = []
    for name, more in (("qdq", ()), ("qop", ("--qoperator",))):
        out = tmp_path / f"{name}.onnx"
        report = json.loads(quantize(network, "-o", out, "--calibration", folder, "--verify", held, "--json", *words, *more))
        both.append((report["outputs"], onnx.load(out), ort_session(out, "--int8" not in words).run(["y0"], {"x": x})[0]))
    (outputs, qdq, expected), (same, qop, got) = both
    ops = [n.op_type for n in qop.graph.node]
    # What is below 0 saturates at the zero point of uint8 alone: with int8 a Conv before a Relu stays float32.
    assert ops.count("QLinearConv") == [n.op_type for n in qdq.graph.node].count("Conv") - ("--int8" in words)
    assert "--int8" in words or {"QLinearAdd", "QLinearGlobalAveragePool"} <= set(ops)
    assert len(ops) < len(qdq.graph.node) and {o.domain for o in qop.opset_import} == {"", "com.microsoft"}
    for a, b in zip(outputs, same):
        assert abs(a["cosine"] - b["cosine"]) < 1e-4 and b["cosine"] > 0.99
    if "--int8" in words and ort_saturates():
        pytest.skip("this CPU has no VNNI: ONNX Runtime saturates sums of products of 8 bits, and is no judge of the numbers")
    assert np.abs(got - expected).max() <= 0.01 * np.abs(expected).max()


def test_every_operator_on_bytes_is_within_a_step(tmp_path):
    rng = np.random.default_rng(2)
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"], name="relu"),
        node("AveragePool", ["r"], ["a"], name="average", kernel_shape=[2, 2], strides=[2, 2]),
        node("MaxPool", ["r"], ["m"], name="largest", kernel_shape=[2, 2], strides=[2, 2]),
        node("Mul", ["a", "m"], ["p"], name="product"),
        node("Add", ["a", "p"], ["s"], name="sum"),
        node("Concat", ["s", "m"], ["k"], name="join", axis=1),
        node("Conv", ["k", "v", "vb"], ["d"], name="second", pads=[1, 1, 1, 1]),
        node("Clip", ["d", "low", "high"], ["e"], name="clip"),
        node("GlobalAveragePool", ["e"], ["g"], name="pool"),
        node("Flatten", ["g"], ["f"], name="flat"),
        node("Gemm", ["f", "fw", "fb"], ["h"], name="dense", transB=1),
        node("MatMul", ["h", "mw"], ["z"], name="last"),
    ]
    numbers = lambda name, v: numpy_helper.from_array(np.asarray(v, np.float32), name)  # noqa: E731
    weights = [weight(rng, "w", 8, 3, 3, 3), weight(rng, "v", 6, 16, 3, 3), numbers("vb", rng.standard_normal(6)), numbers("low", 0.0), numbers("high", 6.0),
               weight(rng, "fw", 12, 6), numbers("fb", rng.standard_normal(12)), weight(rng, "mw", 12, 5)]
    path = save(tmp_path / "all.onnx", nodes, [value("x", ["N", 3, 12, 12])], [value("z", ["N", 5])], weights)
    x = rng.standard_normal((4, 3, 12, 12)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    run = lambda p: ort_session(p).run(None, {"x": x})[0]  # noqa: E731
    made = []
    for more in ((), ("--qoperator",)):
        out = tmp_path / f"out{len(made)}.onnx"
        report = json.loads(quantize(path, "-o", out, "--calibration", tmp_path / "x.npz", "--verify", tmp_path / "x.npz", "--json", *more))
        made.append((run(out), report["outputs"][0]["cosine"]))
    ops = {n.op_type for n in onnx.load(tmp_path / "out1.onnx").graph.node}
    assert {"QLinearConv", "QGemm", "QLinearAdd", "QLinearMul", "QLinearGlobalAveragePool", "QLinearAveragePool"} <= ops
    assert "AveragePool" not in ops and "Concat" in ops  # of one scale: bytes are joined as they are
    assert np.abs(made[0][0] - made[1][0]).max() <= 0.02 * np.abs(made[0][0]).max()
    assert abs(made[0][1] - made[1][1]) < 1e-3 and made[1][1] > 0.99


@pytest.mark.parametrize("mode", ["static", "dynamic", "weights", "float16", "bfloat16"])
def test_an_input_with_a_default_stays_one_unless_it_was_quantized(mode):
    """`scale` stays float32; `weight` is quantized; `folded` is folded with a constant."""
    rng = np.random.default_rng(0)
    node = helper.make_node
    nodes = [node("MatMul", ["x", "weight"], ["p"], name="product"), node("Add", ["folded", "one"], ["q"], name="fold"),
             node("Sub", ["p", "q"], ["s"], name="sub"), node("ReduceSum", ["s"], ["t"], name="sum"), node("Mul", ["t", "scale"], ["y"], name="mul")]
    numbers = {"weight": rng.standard_normal((32, 64)), "folded": [1], "one": [1], "scale": [2]}
    graph = helper.make_graph(nodes, "g", [value("x", ["n", 32]), value("scale", [1]), value("weight", [32, 64]), value("folded", [1])],
                              [value("y", [1, 1])], [numpy_helper.from_array(np.asarray(v, np.float32), k) for k, v in numbers.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    runtime = evener.Runtime(threads=1)
    quantizer = evener.Quantizer(runtime, model, mode=mode)
    x, scale = rng.standard_normal((8, 32)).astype(np.float32), np.float32([3])
    if mode == "static":
        with pytest.raises(evener.Error, match='input "scale" has a default'):
            quantizer.add_batch({"x": x, "scale": scale})
        quantizer.add_batch({"x": x})
    session = runtime.session(quantizer.finish())
    assert [v.name for v in session.inputs] == ["x"] and [v.name for v in session.defaults] == ["scale"]
    (plain,), (scaled,) = session.run({"x": x}).values(), session.run({"x": x, "scale": scale}).values()
    np.testing.assert_allclose(scaled, plain * 1.5, rtol=1e-4)


def compare(*words, code=OK):
    done = subprocess.run([COMMAND, "compare", *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, f"{done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout if code == OK else done.stderr


def test_two_models_are_compared_output_by_output(network, batches, tmp_path):
    folder, held = batches
    out = tmp_path / "out.onnx"
    report = json.loads(quantize(network, "-o", out, "--calibration", folder, "--verify", held, "--json"))
    found = json.loads(compare(network, "--with", out, "--input", held, "--json"))
    assert [o["name"] for o in found["outputs"]] == ["y", "y0"] and found["expected_ns"] > 0 and found["got_ns"] > 0
    for ours, theirs in zip(found["outputs"], report["outputs"]):
        assert ours == theirs  # the same figures as verify's
    same = json.loads(compare(network, "--with", network, "--input", held, "--json"))
    assert all(o["cosine"] == pytest.approx(1) and o["largest_error"] == 0 and o["sqnr_db"] is None for o in same["outputs"])
    assert 'output "y0": cosine' in compare(network, "--precision", "bf16", "--input", held)
    assert "--with, --precision" in compare(network, code=USAGE)
    relu = save(tmp_path / "relu.onnx", [helper.make_node("Relu", ["x"], ["y"])], [value("x", ["N", 3, 32, 32])], [value("y", ["N", 3, 32, 32])], [])
    assert "outputs" in compare(network, "--with", relu, "--input", held, code=FAILURE)
