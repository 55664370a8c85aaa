"""evener.inspect."""
import numpy
import pytest
import tiny
from onnx import helper

import evener


def product():
    return tiny.model([helper.make_node("MatMul", ["x", "w"], ["y"], name="product")], [tiny.value("x", "float32", ["n", 3])],
                      [tiny.value("y", "float32", ["n", 5])], {"w": numpy.ones((3, 5), "float32")})


def test_says_what_a_model_needs(tmp_path):
    (tmp_path / "product.onnx").write_bytes(product())
    found = evener.inspect(tmp_path / "product.onnx", shapes={"x": (4, 3)})
    assert found["loads"] and found["parameters"] == 15 and found["inputs"] == [{"name": "x", "type": "float32", "dims": ["n", 3]}]
    assert found["estimate"]["multiply_adds"] == 4 * 15 and found["estimate"]["shapes"] == {"x": [4, 3]}
    with evener.Runtime(threads=1) as runtime:
        assert runtime.inspect(product())["estimate"]["complete"] is False


def test_names_what_is_not_supported():
    nodes = [helper.make_node("Imagined", ["x"], ["y"], name="here")]
    found = evener.inspect(tiny.model(nodes, [tiny.value("x", "float32", [3])], [tiny.value("y", "float32", [3])]))
    assert not found["loads"] and found["error"]["status"] == "EVN_ERROR_UNSUPPORTED"
    assert found["unsupported"] == [{"domain": "ai.onnx", "name": "Imagined", "count": 1, "reason": "not supported", "nodes": ["here"]}]


def test_refuses_what_cannot_be():
    with pytest.raises(evener.Error) as caught:
        evener.inspect(product(), shapes={"x": (4, 4)})
    assert caught.value.status == evener.Status.INVALID_ARGUMENT
    with pytest.raises(evener.Error):
        evener.inspect(b"\xff" * 10)


def test_a_long_answer_comes_whole():
    nodes = [helper.make_node("Imagined", ["x"], [f"y{i}"], name=f"node number {i}") for i in range(5000)]
    found = evener.inspect(tiny.model(nodes, [tiny.value("x", "float32", [3])], [tiny.value("y0", "float32", [3])]))
    assert len(found["unsupported"][0]["nodes"]) == 5000


def test_counts_as_kernels_do():
    """Traced kernels say two operations for a multiply-add."""
    import json
    weights = {"w": numpy.ones((4, 2, 3, 3), "float32"), "m": numpy.ones((16, 6), "float32")}
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("Flatten", ["r"], ["f"]), helper.make_node("MatMul", ["f", "m"], ["y"])]
    model = tiny.model(nodes, [tiny.value("x", "float32", [1, 2, 4, 4])], [tiny.value("y", "float32", [1, 6])], weights)
    with evener.Runtime(threads=1) as runtime:
        session = runtime.session(model)
        with session.trace() as trace:
            session.run({"x": numpy.ones((1, 2, 4, 4), "float32")})
        events = [e["args"] for e in json.loads(trace.json())["traceEvents"] if e.get("cat") == "kernel"]
        flops = {e["op"]: e["flops"] for e in events if e.get("op") in ("Conv", "MatMul")}
        counted = runtime.inspect(model)["estimate"]["multiply_adds_by_operator"]
    assert counted == {"Conv": 4 * 4 * 18, "MatMul": 16 * 6} and flops == {op: 2 * n for op, n in counted.items()}


def test_reconfigure_places_sessions_anew():
    with evener.Runtime(threads=1) as runtime:
        session = runtime.session(runtime.model(product()))
        assert '"rule_line":2' not in session.explain("json")
        with pytest.raises(evener.Error, match="config_size is 0"):
            runtime.reconfigure(config_text="")
        with pytest.raises(evener.Error, match="config_size is 0"):
            evener.Runtime(config_text="")
        runtime.reconfigure(config_text="placement:\n  rules: [{match: {op: MatMul}, device: cpu}]\n")
        assert '"rule_line":2' in session.explain("json")
        with pytest.raises(evener.Error, match="<text>:1"):
            runtime.reconfigure(config_text="placement: {rules: [{match: {op: MatMul}, device: gpuu}]}")
        assert '"rule_line":2' in session.explain("json")
        runtime.reconfigure()
        assert '"rule_line":2' not in session.explain("json")


def test_calibrate_measures_the_devices():
    with evener.Runtime(threads=1) as runtime:
        model = runtime.model(product())
        found = runtime.calibrate(model)
        assert [row["device"] for row in found["devices"]] == ["cpu"] and found["devices"][0]["run_ns"] > 0
        assert '"predicted_ns"' in runtime.session(model).explain("json")
