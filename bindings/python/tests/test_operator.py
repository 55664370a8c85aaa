"""Custom operators in Python."""
import gc

import numpy
import pytest
import tiny
from helpers import in_threads
from onnx import helper, numpy_helper

import evener


def model(nodes, inputs, outputs, opset=1):
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def scaled(**attributes):
    return model([helper.make_node("Scaled", ["x"], ["y"], name="scaled_1", domain="mine", **attributes)],
                 [tiny.value("x", "float32", ["n", 3])], [tiny.value("y", "float32", ["n", 3])])


def same(node, inputs):
    return [inputs[0][:2]]


# One for each test, which registers operators of its own.
@pytest.fixture
def runtime():
    with evener.Runtime(threads=1, cache_dir="") as opened:
        yield opened


def test_runs_and_reads_attributes(runtime):
    seen = []

    def run(node, arrays):
        seen.append((node.name, node.attribute("words"), node.attribute("list"), node.attribute("floats"), node.attribute("none", 7),
                     node.attribute("texts")))
        return [arrays[0] * node.attribute("factor") + node.attribute("bias")]

    runtime.register_operator("mine", "Scaled", same, run)
    bias = numpy_helper.from_array(numpy.array([1, 2, 3], "float32"))
    session = runtime.session(scaled(factor=2.5, bias=bias, words="a b", list=[1, 2, 3], floats=[0.5, 2.0], texts=["one", "", b"a\0b"]))
    x = numpy.arange(6, dtype="float32").reshape(2, 3)
    assert numpy.array_equal(session.run({"x": x})["y"], x * 2.5 + [1, 2, 3])
    assert seen == [("scaled_1", b"a b", [1, 2, 3], [0.5, 2.0], 7, [b"one", b"", b"a\0b"])]
    assert "scaled_1" in session.explain()


def test_stands_among_other_operators_and_is_not_run_while_loading(runtime):
    calls = []

    def run(node, arrays):
        calls.append(1)
        return [numpy.sort(arrays[0], axis=-1)]

    runtime.register_operator("mine", "Sorted", same, run)
    nodes = [helper.make_node("Constant", [], ["c"], value_floats=[3.0, 1.0, 2.0]),
             helper.make_node("Sorted", ["c"], ["s"], domain="mine"),
             helper.make_node("Sorted", ["x"], ["t"], domain="mine"),
             helper.make_node("Add", ["s", "t"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    session = runtime.session(model(nodes, [tiny.value("x", "float32", [3])], [tiny.value("y", "float32", [3])]))
    assert not calls
    assert session.run({"x": [0.5, -5, 9]})["y"].tolist() == [0, 2.5, 12]


def test_shapes_may_depend_on_values(runtime):
    def infer(node, inputs):
        count = inputs[1].value
        return [(inputs[0].dtype, (None if count is None else int(count[0]),))]

    def run(node, arrays):
        return [numpy.resize(arrays[0], int(arrays[1][0]))]

    runtime.register_operator("mine", "Cycled", infer, run, inputs=2, value_inputs=[1])
    nodes = [helper.make_node("Cycled", ["x", "n"], ["c"], domain="mine"), helper.make_node("Neg", ["c"], ["y"])]
    session = runtime.session(model(nodes, [tiny.value("x", "int64", [2]), tiny.value("n", "int64", [1])], [tiny.value("y", "int64", ["m"])]))
    for n in (1, 5, 3, 0):
        assert session.run({"x": numpy.array([7, 8]), "n": numpy.array([n])})["y"].tolist() == (-numpy.resize([7, 8], n)).tolist()


def test_optional_inputs_and_several_outputs(runtime):
    def infer(node, inputs):
        assert inputs[1] is None
        return [(inputs[0].dtype, inputs[0].shape), ("bool", inputs[0].shape)]

    def run(node, arrays):
        assert arrays[1] is None
        return [arrays[0] + arrays[2], arrays[0] > 0]

    runtime.register_operator("mine", "Both", infer, run, inputs=(1, None), outputs=(1, 2))
    nodes = [helper.make_node("Both", ["x", "", "x"], ["y", "z"], domain="mine")]
    session = runtime.session(model(nodes, [tiny.value("x", "float16", [3])], [tiny.value("y", "float16", [3]), tiny.value("z", "bool", [3])]))
    result = session.run({"x": numpy.array([1, -2, 3], "float16")})
    assert result["y"].dtype == numpy.float16 and result["y"].tolist() == [2, -4, 6] and result["z"].tolist() == [True, False, True]


@pytest.mark.parametrize("answer, text", [
    ([], "gave 0 outputs"), ([("float32", (2,) * 9)], "rank 9"), ([("object", (2,))], "dtype"), ([("float32", (-5,))], "negative"),
    ([("float32", None)], "unknown"), ([("float32", (None, 3))], "unknown"), ([("float32", (2**40, 2**40))], "overflow"),
])
def test_what_infer_gives_is_checked(runtime, answer, text):
    runtime.register_operator("mine", "Scaled", lambda node, inputs: answer, lambda node, arrays: arrays)
    nodes = [helper.make_node("Scaled", ["x"], ["y"], name="bad", domain="mine")]
    with pytest.raises(evener.Error) as caught:
        runtime.session(model(nodes, [tiny.value("x", "float32", [2, 3])], [helper.make_empty_tensor_value_info("y")]))
    assert text in str(caught.value) and caught.value.node == "bad"


def test_infer_that_changes_its_mind_is_refused(runtime):
    answers = []
    runtime.register_operator("mine", "Scaled", lambda node, inputs: [answers[-1]], lambda node, arrays: arrays)
    answers.append(("float32", (None, 3)))
    session = runtime.session(scaled())
    x = numpy.zeros((2, 3), "float32")
    for other in (("float64", (2, 3)), ("float32", (2, 3, 1)), ("float32", (2, 4))):
        answers.append(other)
        with pytest.raises(evener.Error, match="when the model was loaded"):
            session.run({"x": x})
    answers.append(("float32", (2, 3)))
    assert session.run({"x": x})["y"].shape == (2, 3)


@pytest.mark.parametrize("raised, status", [(ValueError("no good"), "INVALID_ARGUMENT"), (RuntimeError("no good"), "INTERNAL"),
                                            (MemoryError("no good"), "OUT_OF_MEMORY")])
def test_what_run_raises_names_the_node(runtime, raised, status):
    def run(node, arrays):
        raise raised

    runtime.register_operator("mine", "Scaled", same, run)
    session = runtime.session(scaled())
    with pytest.raises(evener.Error, match="no good") as caught:
        session.run({"x": numpy.zeros((2, 3), "float32")})
    assert caught.value.status.name == status and caught.value.node == "scaled_1"


class Mute(ValueError):
    def __str__(self):
        raise RuntimeError


class Bare(evener.Error):
    def __init__(self):
        pass

    __str__ = object.__repr__


@pytest.mark.parametrize("raised, status, text", [
    (evener.Error(0, "no good"), "INTERNAL", "no good"), (evener.Error(99, "no good"), "INTERNAL", "no good"),
    (evener.Error("strange", "no good"), "INTERNAL", "no good"), (evener.Error(evener.Status.LIMIT, "no good"), "LIMIT", "no good"),
    (Mute(), "INVALID_ARGUMENT", "Mute"), (Bare(), "INTERNAL", "Bare")])
def test_whatever_run_raises_is_an_error(runtime, raised, status, text):
    def run(node, arrays):
        raise raised

    runtime.register_operator("mine", "Scaled", same, run)
    with pytest.raises(evener.Error, match=text) as caught:
        runtime.session(scaled()).run({"x": numpy.zeros((2, 3), "float32")})
    assert caught.value.status.name == status


def test_what_run_gives_is_checked(runtime):
    results = []
    runtime.register_operator("mine", "Scaled", same, lambda node, arrays: results.pop())
    session = runtime.session(scaled())
    for wrong in ([], [numpy.zeros((3, 2), "float32")], [numpy.zeros((2, 3))]):
        results.append(wrong)
        with pytest.raises(evener.Error, match="run gave"):
            session.run({"x": numpy.zeros((2, 3), "float32")})


def test_a_name_is_taken_once(runtime):
    runtime.register_operator("mine", "Scaled", same, lambda node, arrays: arrays)
    for domain, name in (("mine", "Scaled"), ("ai.onnx", "Own"), ("", "Own"), ("com.microsoft", "FusedMatMul"), ("mine", "")):
        with pytest.raises(evener.Error) as caught:
            runtime.register_operator(domain, name, same, lambda node, arrays: arrays)
        assert caught.value.status == evener.Status.INVALID_ARGUMENT
    runtime.register_operator("mine", "Scaled", same, lambda node, arrays: [arrays[0] + 1], since_version=2)
    x = numpy.zeros((1, 3), "float32")
    for opset, want in ((1, 0), (2, 1), (3, 1)):
        nodes = [helper.make_node("Scaled", ["x"], ["y"], domain="mine")]
        values = [tiny.value("x", "float32", [1, 3])], [tiny.value("y", "float32", [1, 3])]
        assert runtime.session(model(nodes, *values, opset=opset)).run({"x": x})["y"][0, 0] == want


def test_belongs_to_one_runtime(runtime):
    runtime.register_operator("mine", "Scaled", same, lambda node, arrays: arrays)
    with evener.Runtime(threads=1) as other, pytest.raises(evener.Error, match="not supported"):
        other.session(scaled())
    assert runtime.inspect(scaled())["loads"] and not evener.inspect(scaled())["loads"]


def test_functions_are_let_go_with_the_runtime():
    class Kept:
        pass

    import weakref
    kept = Kept()
    gone = weakref.ref(kept)
    opened = evener.Runtime(threads=1)
    opened.register_operator("mine", "Scaled", same, lambda node, arrays, kept=kept: arrays)
    session = opened.session(scaled())
    del kept
    opened.close()
    gc.collect()
    assert gone() is not None
    session.run({"x": numpy.zeros((2, 3), "float32")})
    session.close()
    session.model.close()
    del session, opened
    gc.collect()
    assert gone() is None


def test_runs_on_several_threads(runtime):
    runtime.register_operator("mine", "Scaled", same, lambda node, arrays: [arrays[0] + 1])
    session = runtime.session(scaled())
    wrong = []

    def work(seed):
        x = numpy.full((seed + 1, 3), seed, "float32")
        for _ in range(20):
            if not numpy.array_equal(session.run({"x": x})["y"], x + 1):
                wrong.append(seed)

    in_threads(work, 4)
    assert not wrong
