"""Outputs that a node leaves out by the empty name, in graphs, functions, branches and bodies: those that remain are what they are beside
the others. tests/conformance/outputs_test.cc does the same with each kernel of each operator."""
import itertools

import evener
import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

node, info = helper.make_node, helper.make_tensor_value_info
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
X = numpy.random.default_rng(1).normal(size=(2, 6, 4)).astype("float32")


def body(nodes, inputs, outputs):
    return helper.make_graph(nodes, "body", inputs, [info(name, kind, None) for name, kind in outputs])


LOOP = body([node("Identity", ["go"], ["goes"]), node("Add", ["a", "x"], ["a2"]), node("Mul", ["b", "a2"], ["b2"]),
             node("Neg", ["a2"], ["s"]), node("Abs", ["b2"], ["t"])],
            [info("i", INT64, []), info("go", BOOL, []), info("a", FLOAT, [2, 6, 4]), info("b", FLOAT, [2, 6, 4])],
            [("goes", BOOL), ("a2", FLOAT), ("b2", FLOAT), ("s", FLOAT), ("t", FLOAT)])
SCAN = body([node("Add", ["a", "e"], ["a2"]), node("Mul", ["b", "e"], ["b2"]), node("Neg", ["a2"], ["s"]), node("Abs", ["b2"], ["t"])],
            [info("a", FLOAT, [6, 4]), info("b", FLOAT, [6, 4]), info("e", FLOAT, [6, 4])],
            [("a2", FLOAT), ("b2", FLOAT), ("s", FLOAT), ("t", FLOAT)])
BRANCHES = {"then_branch": body([node("Neg", ["x"], ["p"]), node("Abs", ["x"], ["q"]), node("Identity", ["x"], ["r"])], [],
                                [("p", FLOAT), ("q", FLOAT), ("r", FLOAT)]),
            "else_branch": body([node("Exp", ["x"], ["u"]), node("Abs", ["x"], ["v"]), node("Neg", ["x"], ["w"])], [],
                                [("u", FLOAT), ("v", FLOAT), ("w", FLOAT)])}
MAP = body([node("Neg", ["e"], ["p"]), node("Abs", ["e"], ["q"])], [info("e", FLOAT, None)], [("p", FLOAT), ("q", FLOAT)])
R = numpy.random.default_rng(2)


def real(*shape):
    return R.normal(size=shape).astype("float32")


def ints(*values):
    return numpy.array(values, "int64")


ONES = numpy.ones(6, "float32")
LSTM = [real(1, 12, 4), real(1, 12, 3)]
# Name: (opset, operator, inputs beside x, attributes, outputs, first one that may be left out)
CASES = {
    "split_2": (2, "Split", [], {"axis": 1}, 3, 0),
    "split_2_sizes": (2, "Split", [], {"axis": 1, "split": [1, 3, 2]}, 3, 0),
    "split_11_sizes": (11, "Split", [], {"axis": -2, "split": [1, 3, 2]}, 3, 0),
    "split_13": (13, "Split", [], {"axis": 1}, 3, 0),
    "split_13_outermost": (13, "Split", [], {"axis": 0}, 2, 0),
    "split_13_sizes": (13, "Split", [ints(3, 1, 2)], {"axis": 1}, 3, 0),
    "split_18_sizes": (18, "Split", [ints(3, 1, 2)], {"axis": 1}, 3, 0),
    "split_18_uneven": (18, "Split", [], {"axis": 1, "num_outputs": 4}, 4, 0),
    "loop": (21, "Loop", [], {"body": LOOP}, 4, 0),
    "scan_9": (9, "Scan", [], {"body": SCAN, "num_scan_inputs": 1}, 4, 0),
    "scan_21": (21, "Scan", [], {"body": SCAN, "num_scan_inputs": 1, "scan_output_directions": [1, 0]}, 4, 0),
    "if": (21, "If", [], BRANCHES, 3, 0),
    "sequence_map": (17, "SequenceMap", [], {"body": MAP}, 2, 0),
    "max_pool": (12, "MaxPool", [], {"kernel_shape": [2]}, 2, 1),
    "batch_norm": (15, "BatchNormalization", [ONES, ONES, ONES, ONES], {"training_mode": 1}, 3, 1),
    "layer_norm": (17, "LayerNormalization", [real(4)], {}, 3, 1),
    "dropout": (13, "Dropout", [], {}, 2, 1),
    "unique": (11, "Unique", [], {}, 4, 1),
    "lstm": (14, "LSTM", LSTM, {"hidden_size": 3}, 3, 0),
    "gru": (14, "GRU", [real(1, 9, 4), real(1, 9, 3)], {"hidden_size": 3}, 2, 0),
    "rnn": (14, "RNN", [real(1, 3, 4), real(1, 3, 3)], {"hidden_size": 3}, 2, 0),
    "loss": (13, "SoftmaxCrossEntropyLoss", [numpy.array([[0, 1, 2, 3], [3, 2, 1, 0]])], {}, 2, 1),
}


def nodes_of(case, outputs):
    _, op, inputs, attributes, _, _ = CASES[case]
    names = [f"c{i}" for i in range(len(inputs))]
    before, after, made = [], [], list(outputs)
    if op == "Loop":
        given = ["three", "", "x", "x"]
    elif op == "Scan":
        before.append(node("Reshape", ["x", "cut"], ["parts"]))
        given = ["first", "first", "parts"]
    elif op == "If":
        given = ["yes"]
    elif op == "SequenceMap":
        before.append(node("SplitToSequence", ["x"], ["parts"], axis=1))
        given = ["parts"]
        made = [o and o + "_parts" for o in outputs]
        after = [node("ConcatFromSequence", [o + "_parts"], [o], axis=1) for o in outputs if o]
    else:
        given = ["x", *names]
    return [*before, node(op, given, made, **attributes), *after], dict(zip(names, inputs))


CONSTANTS = {"three": numpy.int64(3), "yes": numpy.bool_(True), "cut": ints(2, 6, 4), "first": real(6, 4)}


def model_of(case, outputs, place="graph"):
    opset = CASES[case][0]
    nodes, constants = nodes_of(case, outputs)
    constants = constants | CONSTANTS
    wanted = [o for o in outputs if o]
    used = {i for n in nodes for i in n.input} & set(constants)
    functions, imports = [], [helper.make_opsetid("", opset)]
    if place == "function":
        inner = [o or "" for o in outputs]
        functions = [helper.make_function("own", "Part", ["x", *sorted(used)], wanted, nodes, imports)]
        assert inner == list(outputs)
        nodes = [node("Part", ["x", *sorted(used)], wanted, domain="own")]
        imports.append(helper.make_opsetid("own", 1))
    elif place == "branch":
        named = {o: f"{o}_inside" for o in wanted}
        for n in nodes:
            for k, o in enumerate(n.output):
                n.output[k] = named.get(o, o)
        branch = helper.make_graph(nodes, "branch", [], [onnx.ValueInfoProto(name=named[o]) for o in wanted])
        other = helper.make_graph([n for n in map(onnx.NodeProto.FromString, (n.SerializeToString() for n in nodes))], "other", [],
                                  [onnx.ValueInfoProto(name=named[o]) for o in wanted])
        for n in other.node:
            for k, o in enumerate(n.output):
                n.output[k] = o and o + "_other"
            for k, i in enumerate(n.input):
                if any(i + "_other" in m.output for m in other.node):
                    n.input[k] = i + "_other"
        for o in other.output:
            o.name += "_other"
        nodes = [node("If", ["yes"], wanted, then_branch=branch, else_branch=other)]
        used |= {"yes"}
    graph = helper.make_graph(nodes, "g", [info("x", FLOAT, ["n", 6, 4])], [onnx.ValueInfoProto(name=o) for o in wanted],
                              [numpy_helper.from_array(numpy.asarray(constants[name]), name) for name in sorted(used)])
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=9).SerializeToString()


@pytest.fixture(scope="module")
def runtime():
    return evener.Runtime(threads=2)


@pytest.mark.parametrize("place", ["graph", "function", "branch"])
@pytest.mark.parametrize("case", CASES)
def test_the_outputs_that_remain_are_the_same(runtime, case, place):
    count, first = CASES[case][4:]
    names = [f"y{k}" for k in range(count)]
    whole = runtime.session(model_of(case, names)).run({"x": X})
    for keeps in itertools.product([False, True], repeat=count):
        if not any(keeps) or not all(keeps[:first]):
            continue
        outputs = [name if keep else "" for name, keep in zip(names, keeps)]
        found = runtime.session(model_of(case, outputs, place)).run({"x": X})
        assert list(found) == [o for o in outputs if o]
        for name, value in found.items():
            assert value.dtype == whole[name].dtype and value.shape == whole[name].shape, (outputs, name)
            if case == "layer_norm":  # another kernel computes it without the statistics
                numpy.testing.assert_allclose(value, whole[name], rtol=1e-5, atol=1e-6, err_msg=f"{outputs}, {name}")
            else:
                assert value.tobytes() == whole[name].tobytes(), (outputs, name)


@pytest.mark.parametrize("case", [name for name in CASES if name.startswith("split")])
def test_on_other_devices(case):
    try:
        runtime = evener.Runtime(config_text="version: 1\ndevices: {gpu: {type: opencl}, cpu: {type: cpu}}\nplacement: {default: gpu}\n")
    except evener.Error as e:
        pytest.skip(str(e))
    count = CASES[case][4]
    names = [f"y{k}" for k in range(count)]
    whole = evener.Runtime().session(model_of(case, names)).run({"x": X})
    for keeps in itertools.product([False, True], repeat=count):
        outputs = [name if keep else "" for name, keep in zip(names, keeps)]
        if any(keeps):
            for name, value in runtime.session(model_of(case, outputs)).run({"x": X}).items():
                numpy.testing.assert_array_equal(value, whole[name], err_msg=f"{outputs}, {name}")


def test_nodes_without_any_named_output_are_left_out(runtime):
    nodes = [node("Split", ["x"], ["", ""], axis=1), node("LSTM", ["x", "w", "r"], ["", "", ""], hidden_size=3), node("Neg", ["x"], ["y"])]
    graph = helper.make_graph(nodes, "g", [info("x", FLOAT, [2, 6, 4])], [info("y", FLOAT, None)],
                              [numpy_helper.from_array(a, n) for a, n in zip(LSTM, "wr")])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8).SerializeToString()
    numpy.testing.assert_array_equal(runtime.session(content).run({"x": X})["y"], -X)


@pytest.mark.parametrize("op, outputs", [("TopK", ["", "i"]), ("TopK", ["v", ""]), ("Relu", [""])])
def test_outputs_that_an_operator_must_give_need_a_name(runtime, op, outputs):
    inputs = ["x", "k"] if op == "TopK" else ["x"]
    graph = helper.make_graph([node(op, inputs, outputs, "the node"), node("Neg", ["x"], ["y"])], "g", [info("x", FLOAT, [4])],
                              [info("y", FLOAT, None)], [numpy_helper.from_array(ints(1), "k")])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8).SerializeToString()
    with pytest.raises(evener.Error, match="the node"):
        runtime.session(content)


def test_the_gradient_of_a_split_counts_the_parts_without_a_name(runtime):
    for outputs in (["a", "", ""], ["", "a", ""], ["", "", "a"]):
        nodes = [node("Split", ["x"], outputs, axis=1), node("Mul", ["a", "a"], ["s"]), node("ReduceSum", ["s"], ["l"], keepdims=0),
                 node("Gradient", ["x"], ["d"], domain="ai.onnx.preview.training", xs=["x"], y="l")]
        graph = helper.make_graph(nodes, "g", [info("x", FLOAT, [2, 6, 4])], [info("d", FLOAT, None)])
        imports = [helper.make_opsetid("", 13), helper.make_opsetid("ai.onnx.preview.training", 1)]
        content = helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
        wanted = numpy.zeros_like(X)
        at = 2 * outputs.index("a")
        wanted[:, at:at + 2] = 2 * X[:, at:at + 2]
        numpy.testing.assert_allclose(runtime.session(content).run({"x": X})["d"], wanted, rtol=1e-6)


@pytest.mark.parametrize("case", ["loop", "scan_21", "split_13_sizes", "layer_norm", "lstm", "gru", "rnn"])
def test_gradients_are_the_same(runtime, case):
    """Of one output at a time, the others named or not."""
    def derivative(outputs, used):
        nodes, constants = nodes_of(case, outputs)
        constants = constants | CONSTANTS
        nodes = [*nodes, node("Mul", [used, used], ["square"]), node("ReduceSum", ["square"], ["l"], keepdims=0),
                 node("Gradient", ["x"], ["d"], domain="ai.onnx.preview.training", xs=["x"], y="l")]
        used_constants = sorted({i for n in nodes for i in n.input} & set(constants))
        graph = helper.make_graph(nodes, "g", [info("x", FLOAT, [2, 6, 4])], [info("d", FLOAT, None)],
                                  [numpy_helper.from_array(numpy.asarray(constants[name]), name) for name in used_constants])
        imports = [helper.make_opsetid("", CASES[case][0]), helper.make_opsetid("ai.onnx.preview.training", 1)]
        return runtime.session(helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()).run({"x": X})["d"]

    count, first = CASES[case][4:]
    for k in range(1 if first > 0 else count):
        names = [f"y{i}" for i in range(count)]
        alone = [name if i == k else "" for i, name in enumerate(names)]
        numpy.testing.assert_array_equal(derivative(alone, names[k]), derivative(names, names[k]), err_msg=f"output {k}")


def trained_model():
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Split", ["h"], ["", "y", ""], axis=1)]
    graph = helper.make_graph(nodes, "g", [info("x", FLOAT, ["n", 5])], [info("y", FLOAT, ["n", 2])], [numpy_helper.from_array(real(5, 6), "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_trained_and_quantized_models_keep_them(tmp_path, runtime):
    content = trained_model()
    path = str(tmp_path / "m.onnx")
    onnx.save(content, path)
    x = real(4, 5)
    w = numpy_helper.to_array(content.graph.initializer[0])
    numpy.testing.assert_allclose(runtime.session(path).run({"x": x})["y"], (x @ w)[:, 2:4], rtol=1e-5, atol=1e-6)
    trainer = evener.Trainer(runtime, path, loss="mse", optimizer="sgd", learning_rate=0.1)
    trainer.step({"x": x}, numpy.zeros((4, 2), "float32"))
    trainer.finish(str(tmp_path / "trained.onnx"))
    learned = numpy_helper.to_array(onnx.load(str(tmp_path / "trained.onnx")).graph.initializer[0])
    numpy.testing.assert_array_equal(learned[:, [0, 1, 4, 5]], w[:, [0, 1, 4, 5]])
    assert not numpy.array_equal(learned[:, 2:4], w[:, 2:4])
    quantizer = evener.Quantizer(runtime, path)
    quantizer.add_batch({"x": x})
    quantizer.finish()
    quantizer.save(str(tmp_path / "q.onnx"))
    numpy.testing.assert_allclose(runtime.session(str(tmp_path / "q.onnx")).run({"x": x})["y"], (x @ w)[:, 2:4], atol=0.1)
