"""What `inspect` says that real models take, beside what a run of them takes."""
import evener
import numpy
import onnx.parser
import pytest
from common import CASES, model_path
from zoo import array_for


@pytest.mark.parametrize("name, shape", [case for case in CASES if numpy.prod(case[1]) < 400_000][:12], ids=str)
def test_the_estimate_of_memory_is_what_a_run_takes(name, shape, tmp_path):
    # With the shape in the model: kernels are chosen by it where it is known.
    model = onnx.load(model_path(name))
    for dim, size in zip(model.graph.input[0].type.tensor_type.shape.dim, shape):
        dim.dim_value = size
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    with evener.Runtime(threads=2, cache_dir="") as runtime:
        session = runtime.session(path)
        array = array_for(name, shape, 1)
        session.run({session.inputs[0].name: array})
        took = runtime.devices[0].memory()
        found = runtime.inspect(path, {session.inputs[0].name: array.shape})
    estimate = found["estimate"]
    assert found["loads"] and estimate["complete"] and estimate["multiply_adds"] > 0
    # The estimate makes the plan that a run makes.
    assert estimate["arena_bytes"] == took.by_class["arenas"] and estimate["packed_bytes"] <= took.by_class["packed"]
    # The array is the caller's memory. Some alignment of packed copies is all that an estimate does not know.
    held = estimate["peak_bytes"] - estimate["input_bytes"] - estimate["output_bytes"]
    ran = sum(took.by_class[kind] for kind in ("weights", "packed", "arenas"))
    assert abs(held - ran) <= 0.01 * ran + 4096, (held, ran)


def test_bodies_are_counted_for_all_their_turns():
    def work(bound):
        model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        main (int64 turns, float[N, 8] x) => (float[N, 8] y) {{
          w = Constant <value = float[8, 8] {{{", ".join(["1"] * 64)}}}> ()
          three = Constant <value = int64 {{3}}> ()
          y = Loop <body = body (int64 i, bool go, float[N, 8] state) => (bool on, float[N, 8] next) {{
            on = Identity (go)
            next = MatMul (state, w)
          }}> ({bound}, , x)
        }}""").SerializeToString()
        with evener.Runtime() as runtime:
            return runtime.inspect(model, {"x": (4, 8)})["estimate"]

    known, unknown = work("three"), work("turns")
    assert known["multiply_adds"] == 3 * 4 * 8 * 8 and known["complete"] and known["bodies_of_unknown_turns"] == 0
    assert unknown["multiply_adds"] == 4 * 8 * 8 and not unknown["complete"] and unknown["bodies_of_unknown_turns"] == 1
    assert known["arena_bytes"] >= 4 * 8 * 4 and known["weights_bytes"] >= 8 * 8 * 4
