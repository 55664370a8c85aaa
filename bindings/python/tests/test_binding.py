"""The package as its users see it: arrays in and out, what sessions and models tell, errors, configurations."""
import gc
import json
import pickle
import time
import xml.etree.ElementTree

import evener
import numpy
import onnx
import pytest
import tiny
from evener import _call
from helpers import floats


# What a session tells

def test_values_have_names_shapes_of_ints_and_symbols_and_dtypes(runtime):
    session = runtime.session(tiny.add(("batch", 3)))
    assert [(value.name, value.shape) for value in session.inputs] == [("a", ("batch", 3)), ("b", ("batch", 3))]
    assert [value.dtype for value in session.inputs] == [numpy.dtype("float32")] * 2
    assert session.outputs[0].name == "y" and session.outputs[0].shape[1] == 3


def test_a_dim_without_a_name_is_none(runtime):
    assert runtime.session(tiny.identity("int64", [None, 2])).inputs[0].shape == (None, 2)


def test_explain_names_device_and_kernel_of_each_node(runtime):
    session = runtime.session(tiny.add())
    plan = json.loads(session.explain("json"))
    assert [(node["name"], node["op"], node["device"]) for node in plan["nodes"]] == [("sum", "Add", runtime.devices[0].name)]
    assert plan["nodes"][0]["kernel"]
    assert "sum" in session.explain()
    with pytest.raises(ValueError, match="xml"):
        session.explain("xml")


def test_explain_draws_the_graph(runtime):
    session = runtime.session(tiny.add())
    assert session.explain("dot").startswith("digraph") and "sum" in session.explain("dot")
    assert xml.etree.ElementTree.fromstring(session.explain("svg")).tag.endswith("svg")
    with pytest.raises(ValueError, match="dot"):
        session.model.describe("dot")


def test_a_trace_records_the_runs_inside_it(runtime, tmp_path):
    session = runtime.session(tiny.scale())
    session.run({"x": floats(1)})
    with session.trace() as trace:
        for _ in range(3):
            session.run({"x": floats(1, 2)})
    session.run({"x": floats(1)})
    events = json.loads(trace.json())["traceEvents"]
    assert [event["name"] for event in events if event.get("cat") == "kernel"] == ["scale"] * 3
    assert trace.table().startswith("3 runs") and "scale" in trace.table()
    trace.save(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())["otherData"]["dropped_events"] == 0


def test_a_session_has_one_trace_at_a_time(runtime):
    session = runtime.session(tiny.scale())
    with pytest.raises(evener.Error) as caught:
        session.trace().table()
    assert caught.value.status == evener.Status.WRONG_STATE
    with session.trace(), pytest.raises(evener.Error) as caught:
        session.trace().start()
    assert caught.value.status == evener.Status.WRONG_STATE


def test_a_model_tells_inputs_outputs_and_metadata_without_a_session(runtime):
    model = runtime.model(tiny.scale(metadata={"one": "1", "k" * 300: "2"}))
    session = runtime.session(model)
    assert (model.inputs, model.outputs) == (session.inputs, session.outputs)
    assert model.inputs[0].name == "x"
    assert model.metadata_keys() == ["one", "k" * 300]
    assert [model.metadata(key) for key in model.metadata_keys()] == ["1", "2"]


def test_metadata_is_read_and_a_missing_key_is_a_key_error(runtime):
    session = runtime.session(tiny.scale(metadata={"alphabet": "a\nb\né"}))
    assert session.metadata("alphabet") == "a\nb\né"
    with pytest.raises(KeyError):
        session.metadata("nothing")


def test_model_describes_itself(runtime):
    model = runtime.model(tiny.add())
    assert "Add" in model.describe()
    assert json.loads(model.describe("json"))


def dense(seed):
    """y = x W, with W in the file, or beside it when it is saved so."""
    weights = numpy.random.default_rng(seed).standard_normal((96, 80)).astype("float32")
    return tiny.model([tiny.helper.make_node("MatMul", ["x", "w"], ["y"], name="product")], [tiny.value("x", "float32", ["n", 96])],
                      [tiny.value("y", "float32", ["n", 80])], {"w": weights})


def test_a_session_says_which_precision_its_nodes_have(runtime):
    model = dense(1)

    def node(**options):
        return json.loads(runtime.session(model, **options).explain("json"))["nodes"][0]

    assert node()["precision"] == "fp32" and node()["precision_reason"] == "the default"
    assert node(precision="bf16")["precision_reason"].startswith("the session's options")
    half = node(precision="fp16")
    lacks = "" if half["precision"] == "fp16" else "; fp16: this CPU has no AVX512-FP16"
    assert half["precision_reason"] == "the session's options" + lacks
    for keep in ("type:MatMul", ["prod*"]):
        kept = node(precision="bf16", keep_fp32=keep)
        assert kept["precision"] == "fp32" and kept["precision_reason"].startswith("keep_fp32 ")
    with pytest.raises(ValueError, match="fp32, bf16, fp16, auto"):
        runtime.session(model, precision="int8")


def test_a_session_says_which_library_multiplies(runtime):
    model = dense(1)
    x = numpy.random.default_rng(2).standard_normal((5, 96)).astype("float32")

    def node(**options):
        return json.loads(runtime.session(model, **options).explain("json"))["nodes"][0]

    assert (node()["products"], node()["products_reason"]) == ("own", "the default")
    assert (node(products="own")["products"], node(products="own")["products_reason"]) == ("own", "the session's options")
    asked = node(products="openblas")
    # Its module is not built, or its kernels for this CPU have other bits for a row in another batch.
    assert asked["products"] == "openblas" or asked["products_reason"].startswith("the session's options; openblas: ")
    assert node(products="clblast")["products_reason"] == "the session's options; clblast: this device does not have it"
    expected = runtime.session(model).run({"x": x})["y"]
    for products in ("openblas", "measured"):
        session = runtime.session(model, products=products)
        numpy.testing.assert_allclose(session.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-4)
        assert (session.run({"x": x})["y"] == session.run({"x": x})["y"]).all()
    with pytest.raises(ValueError, match="own, openblas, clblast, auto, measured"):
        runtime.session(model, products="mkl")


def test_passes_are_listed_and_left_out_of_a_session(runtime):
    names = [row["name"] for row in evener.passes() if row["when"] == "session"]
    assert "cascade" in names
    model = dense(1)
    for disabled in ("cascade", names):
        assert runtime.session(model, disabled_passes=disabled).explain("json")
    with pytest.raises(evener.Error, match='there is no pass "cascde" .*; there are cascade'):
        runtime.session(model, disabled_passes=["cascde"])


def test_a_session_says_which_numerics_its_nodes_have_and_strict_ones_keep_small_numbers(runtime):
    model = dense(1)

    def node(**options):
        return json.loads(runtime.session(model, **options).explain("json"))["nodes"][0]

    assert (node()["numerics"], node()["numerics_reason"]) == ("fast", "the default")
    assert (node(numerics="strict")["numerics"], node(numerics="strict")["numerics_reason"]) == ("strict", "the session's options")
    with pytest.raises(ValueError, match="fast, strict"):
        runtime.session(model, numerics="exact")
    small = numpy.full((2, 96), 1e-40, "float32")
    assert (runtime.session(model, numerics="strict").run({"x": small})["y"] != 0).any()


def blocks(rows, columns):
    """Convolutions with sums around them, as residual networks have them: some values are read by convolutions alone."""
    random = numpy.random.default_rng(4)
    nodes, weights, x = [], {}, "x"
    for block in range(3):
        h = x
        for layer, (k, outs, ins) in enumerate([(1, 48, 32), (3, 48, 48), (1, 32, 48)]):
            name = f"{block}.{layer}"
            weights[f"w{name}"] = (random.standard_normal((outs, ins, k, k)) / (ins * k * k) ** 0.5).astype("float32")
            weights[f"b{name}"] = random.standard_normal(outs).astype("float32")
            nodes.append(tiny.helper.make_node("Conv", [h, f"w{name}", f"b{name}"], [f"c{name}"], pads=[k // 2] * 4))
            h = f"c{name}"
            if layer < 2:
                nodes.append(tiny.helper.make_node("Relu", [h], [f"r{name}"]))
                h = f"r{name}"
        nodes.append(tiny.helper.make_node("Add", [h, x], [f"s{block}"]))
        nodes.append(tiny.helper.make_node("Relu", [f"s{block}"], [f"y{block}"]))
        x = f"y{block}"
    shape = ["n", 32, rows, columns]
    return tiny.model(nodes, [tiny.value("x", "float32", shape)], [tiny.value(x, "float32", shape)], weights)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("known", [True, False])
def test_bf16_is_near_fp32_whatever_shapes_came_before(threads, known):
    model = blocks(15, 17) if known else blocks("h", "w")
    x = numpy.random.default_rng(5).standard_normal((2, 32, 15, 17)).astype("float32")
    with evener.Runtime(threads=threads) as runtime:
        exact = runtime.session(model).run({"x": x})["y2"]
        session = runtime.session(model, precision="bf16")
        near = session.run({"x": x})["y2"]
        if "this CPU has no" not in session.explain():
            assert {n["precision"] for n in json.loads(session.explain("json"))["nodes"] if n["op"] == "Conv"} == {"bf16"}
            assert near.tobytes() != exact.tobytes()
        assert numpy.abs(near - exact).max() < 0.03 * numpy.abs(exact).max()
        for batch in (1, 3, 1, 2):
            y = session.run({"x": numpy.concatenate([x, x])[:batch]})["y2"]
            assert y.tobytes() == numpy.concatenate([near, near])[:batch].tobytes()
        kept = runtime.session(model, precision="bf16", keep_fp32="*").run({"x": x})["y2"]
        assert kept.tobytes() == exact.tobytes()


@pytest.mark.parametrize("external", [False, True])
def test_a_cache_file_keeps_packed_weights(tmp_path, external):
    x = numpy.random.default_rng(1).standard_normal((3, 96)).astype("float32")
    cache = tmp_path / "model.evc"

    def run(seed, **options):
        model = tmp_path / "model.onnx"
        if seed is not None:
            (tmp_path / "model.data").unlink(missing_ok=True)
            onnx.save(onnx.load_from_string(dense(seed)), model, save_as_external_data=external, location="model.data", size_threshold=0)
        with evener.Runtime(threads=1) as opened:
            return opened.session(str(model), **options).run({"x": x})["y"]

    run(1, cache=cache, cache_write=False)
    assert not cache.exists()
    first = run(1, cache=cache)
    written = cache.read_bytes()
    for options in ({}, {"cache": cache}, {"cache": cache, "cache_map": True}, {"cache": ""}):
        assert run(None, **options).tobytes() == first.tobytes()
    assert cache.read_bytes() == written
    other = run(2, cache=cache)
    assert other.tobytes() == run(None).tobytes() != first.tobytes()
    assert cache.read_bytes() != written


def test_sessions_can_share_a_model(runtime):
    model = runtime.model(tiny.scale(3.0))
    first, second = runtime.session(model), runtime.session(model)
    assert first.run({"x": floats(1)})["y"] == second.run({"x": floats(1)})["y"] == 3


# Runs

def test_run_adds(runtime):
    a, b = numpy.arange(6, dtype="float32").reshape(2, 3), numpy.full((2, 3), 0.5, "float32")
    result = runtime.session(tiny.add()).run({"b": b, "a": a})
    assert list(result) == ["y"]
    assert result["y"].dtype == numpy.float32
    numpy.testing.assert_array_equal(result["y"], a + b)


def test_a_run_ends_when_that_is_asked_for_or_its_deadline_has_passed(runtime):
    session, inputs = runtime.session(tiny.add()), {"a": floats(1, 2, 3)[None], "b": floats(4, 5, 6)[None]}
    cancel, later = evener.Cancel(), time.monotonic() + 600
    assert session.run(inputs, cancel=cancel, deadline=later)["y"].tolist() == [[5, 7, 9]]
    with pytest.raises(evener.Error) as late:
        session.run(inputs, cancel=cancel, deadline=time.monotonic() - 1)
    assert late.value.status == evener.Status.TIMEOUT
    cancel.cancel()
    with pytest.raises(evener.Error) as ended:
        session.run(inputs, cancel=cancel, deadline=later)
    assert ended.value.status == evener.Status.CANCELLED
    cancel.close()
    with pytest.raises(ValueError, match="closed"):
        session.run(inputs, cancel=cancel)
    assert session.run(inputs)["y"].tolist() == [[5, 7, 9]]


def test_outputs_come_in_the_models_order(runtime):
    result = runtime.session(tiny.two_outputs()).run({"x": floats(1, -2, 3, -4)})
    assert list(result) == ["z", "y"]
    numpy.testing.assert_array_equal(result["z"], floats(-1, 2, -3, 4))
    numpy.testing.assert_array_equal(result["y"], floats(1, 2, 3, 4))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
                                   "uint64", "bool", "complex64", "complex128"])
def test_every_dtype_passes_through(runtime, dtype):
    x = (numpy.arange(6) % 2 if dtype == "bool" else numpy.arange(6)).astype(dtype).reshape(2, 3)
    session = runtime.session(tiny.identity(dtype, [2, 3]))
    y = session.run({"x": x})["y"]
    assert session.inputs[0].dtype == session.outputs[0].dtype == y.dtype == x.dtype
    numpy.testing.assert_array_equal(y, x)


def test_scalars_and_empty_arrays_pass_through(runtime):
    scalar = runtime.session(tiny.identity("float32", [])).run({"x": numpy.array(7, "float32")})["y"]
    assert scalar.shape == () and scalar == 7
    empty = runtime.session(tiny.identity("float32", ["n", 4])).run({"x": numpy.zeros((0, 4), "float32")})["y"]
    assert empty.shape == (0, 4)


def test_python_numbers_and_lists_get_the_models_dtype(runtime):
    assert runtime.session(tiny.scale()).run({"x": [1, 2]})["y"].tolist() == [2, 4]
    assert runtime.session(tiny.identity("int64", [])).run({"x": 5})["y"] == 5


def test_arrays_of_any_layout_give_the_same_result(runtime):
    session = runtime.session(tiny.identity("float32", [3, 2]))
    x = numpy.arange(6, dtype="float32").reshape(3, 2)
    locked = x.copy()
    locked.flags.writeable = False
    wide = numpy.zeros((3, 4), "float32")
    wide[:, ::2] = x
    for array in (numpy.asfortranarray(x), wide[:, ::2], x[::-1][::-1], x.astype(">f4"), locked):
        numpy.testing.assert_array_equal(session.run({"x": array})["y"], x)


def test_a_run_with_another_shape_gives_that_shape(runtime):
    session = runtime.session(tiny.scale())
    for length in (1, 7, 3, 7):
        x = numpy.arange(length, dtype="float32")
        numpy.testing.assert_array_equal(session.run({"x": x})["y"], 2 * x)


# No copies

def test_contiguous_inputs_are_wrapped_where_they_are(runtime, monkeypatch):
    seen = []
    whole = _call.Call._give_memory
    monkeypatch.setattr(_call.Call, "_give_memory", lambda self, *arguments: seen.append(arguments[3]) or whole(self, *arguments))
    x = numpy.arange(8, dtype="float32")
    runtime.session(tiny.scale()).run({"x": x})
    assert seen == [x.ctypes.data]


def test_a_run_that_failed_leaves_nothing_to_the_next(runtime):
    session = runtime.session(tiny.scale())
    x = floats(1, 2)
    tensors = runtime.devices[0].memory().by_class["tensors"]
    for wrong in ({}, {"x": x, "no": x}, {"x": x.astype("int64")}, {"x": numpy.array([{}], object)}):
        with pytest.raises((evener.Error, TypeError)):
            session.run(wrong)
        assert session.run({"x": x})["y"].tolist() == [2, 4]
    gc.collect()
    assert runtime.devices[0].memory().by_class["tensors"] == tensors


def test_an_input_of_an_earlier_run_does_not_stand_for_one_that_is_missing(runtime):
    session = runtime.session(tiny.add())
    a, b = numpy.ones((2, 3), "float32"), numpy.ones((2, 3), "float32")
    session.run({"a": a, "b": b})
    assert "'b' is missing" in invalid(session, {"a": a})
    for other in (b + 1, 2 * b, b.copy(), b):  # at other addresses, and at those of arrays that are gone
        assert session.run({"a": a, "b": other})["y"].tolist() == (a + other).tolist()


def test_runs_see_what_was_written_into_the_input_between_them(runtime):
    session = runtime.session(tiny.scale())
    x = floats(1, 2)
    first = session.run({"x": x})["y"]
    x[:] = 10
    assert session.run({"x": x})["y"].tolist() == [20, 20]
    assert first.tolist() == [2, 4]


def test_outputs_are_the_librarys_memory_until_the_last_view_of_them_ends(runtime):
    cpu = runtime.devices[0]
    session = runtime.session(tiny.scale())
    x = numpy.ones(1 << 16, "float32")
    session.run({"x": x})
    gc.collect()
    before = cpu.memory().by_class["tensors"]
    y = session.run({"x": x})["y"]
    view = y[10:20]
    assert not y.flags.owndata and y.flags.writeable
    assert cpu.memory().by_class["tensors"] >= before + y.nbytes
    del y
    assert cpu.memory().by_class["tensors"] > before
    assert view.tolist() == [2] * 10
    del view
    assert cpu.memory().by_class["tensors"] == before


def test_outputs_of_two_runs_do_not_share_memory(runtime):
    session = runtime.session(tiny.scale())
    first = session.run({"x": floats(1)})["y"]
    second = session.run({"x": floats(2)})["y"]
    assert not numpy.shares_memory(first, second)
    assert (first[0], second[0]) == (2, 4)


# Models

def test_models_come_from_paths_and_bytes(runtime, tmp_path):
    path = tmp_path / "scale.onnx"
    path.write_bytes(tiny.scale(5.0))
    data = path.read_bytes()
    for source in (path, str(path), data, bytearray(data), memoryview(data)):
        assert runtime.session(source).run({"x": floats(2)})["y"] == 10


def test_a_missing_file_is_an_io_error(runtime, tmp_path):
    with pytest.raises(evener.Error) as caught:
        runtime.session(tmp_path / "nothing.onnx")
    assert caught.value.status == evener.Status.IO


def test_a_path_with_a_null_is_refused(runtime):
    with pytest.raises(ValueError, match="null"):
        runtime.session("model.onnx\0.txt")


def test_bytes_that_are_no_model_are_an_error(runtime):
    with pytest.raises(evener.Error) as caught:
        runtime.session(b"\xff" * 10)
    assert caught.value.status == evener.Status.INVALID_MODEL
    assert str(caught.value).startswith("INVALID_MODEL: ")


def test_an_error_names_the_node(runtime):
    with pytest.raises(evener.Error) as caught:
        runtime.session(tiny.unknown_operator())
    assert caught.value.status == evener.Status.UNSUPPORTED
    assert caught.value.node == "strange"
    assert "NoSuchOperator" in caught.value.message


def test_errors_can_be_pickled():
    error = pickle.loads(pickle.dumps(evener.Error(5, "too much", "node", "cpu", 10, 3)))
    assert (error.status, error.message, error.node, error.device) == (evener.Status.LIMIT, "too much", "node", "cpu")
    assert (error.bytes_requested, error.bytes_available) == (10, 3)


# Wrong inputs

def invalid(session, inputs):
    with pytest.raises(evener.Error) as caught:
        session.run(inputs)
    assert caught.value.status == evener.Status.INVALID_ARGUMENT
    return caught.value.message


def test_a_wrong_dtype_names_the_input(runtime):
    assert "x" in invalid(runtime.session(tiny.scale()), {"x": numpy.ones(3, "float64")})


def test_wrong_ranks_and_dims_are_errors(runtime):
    session = runtime.session(tiny.add((2, 3)))
    good = numpy.ones((2, 3), "float32")
    for bad in (good[0], good[None], numpy.ones((3, 2), "float32"), numpy.ones([1] * 12, "float32")):
        with pytest.raises(evener.Error):
            session.run({"a": bad, "b": good})
    assert session.run({"a": good, "b": good})["y"].sum() == 12


def test_a_missing_input_is_named(runtime):
    assert "'b' is missing" in invalid(runtime.session(tiny.add()), {"a": numpy.ones((1, 3), "float32")})


def test_an_unknown_input_is_an_error_that_lists_the_inputs(runtime):
    message = invalid(runtime.session(tiny.scale()), {"x": floats(1), "wrong": floats(1)})
    assert "wrong" in message and "x" in message


def test_strings_for_numbers_are_refused(runtime):
    with pytest.raises(evener.Error, match="string"):
        runtime.session(tiny.scale()).run({"x": numpy.array(["a"])})


def test_arrays_of_other_objects_are_a_type_error(runtime):
    with pytest.raises(TypeError, match="string"):
        runtime.session(tiny.scale()).run({"x": numpy.array([object()])})


@pytest.mark.parametrize("name", [1, None, b"x", ("x",), 1.5], ids=repr)
def test_names_that_are_no_text_are_a_type_error(runtime, name):
    session, x = runtime.session(tiny.scale()), numpy.ones(2, "float32")
    other = runtime.session(tiny.scale())
    calls = [
        lambda: session.run({name: x}),
        lambda: session.run({"x": x, name: x}),
        lambda: session.compare(other, {name: x}),
        lambda: session.metadata(name),
        lambda: runtime.device(name),
        lambda: runtime.session(tiny.scale(), keep_fp32=[name]),
        lambda: runtime.inspect(tiny.scale(), {name: (2,)}),
        lambda: runtime.register_operator(name, "Op", None, None),
        lambda: runtime.register_operator("domain", name, None, None),
    ]
    if name is not None:
        calls += [lambda: runtime.session(tiny.scale(), name), lambda: evener.Runtime(config_text=name)]
    for call in calls:
        with pytest.raises(TypeError, match="must be a str, not " + type(name).__name__):
            call()
    assert session.run({"x": x})["y"].shape == (2,)  # and the session is as it was


def test_a_key_that_is_no_text_is_a_type_error_where_values_are_more_than_tensors(runtime):
    session = runtime.session(tiny.sequence())
    with pytest.raises(TypeError, match="must be a str, not int"):
        session.run({1: numpy.ones(2, "float32")})


def test_inputs_with_names_longer_than_the_c_struct_holds_are_found(runtime):
    name = "x" * 300
    node = tiny.helper.make_node("Neg", [name], ["y"], name="neg")
    session = runtime.session(tiny.model([node], [tiny.value(name, "float32", [1])], [tiny.value("y", "float32", [1])]))
    assert session.run({name: floats(3)})["y"] == -3
    assert [value.name for value in session.inputs] == [value.name for value in session.model.inputs] == [name]


# Devices and configuration

def test_the_first_device_is_the_cpu(runtime):
    cpu = runtime.devices[0]
    assert cpu.kind == "cpu" and cpu.compute_units == 1 and cpu.description
    assert cpu.device_class == "cpu" and "unified_memory" in cpu.features and "subgroups" not in cpu.features
    assert cpu.largest_allocation == cpu.memory_bytes and cpu.identity.startswith("host, ")
    session = runtime.session(tiny.matmul(16))
    stats = cpu.memory()
    assert session.inputs and stats.limit is None and stats.peak >= stats.current >= sum(stats.by_class.values()) > 0
    cpu.reset_memory_peak()
    assert cpu.memory().peak <= stats.peak
    cpu.trim_memory()


def test_an_unknown_device_is_an_error_that_lists_the_devices(runtime):
    with pytest.raises(evener.Error) as caught:
        runtime.device("abacus")
    assert caught.value.status == evener.Status.DEVICE_UNAVAILABLE
    assert "cpu" in caught.value.message


def test_describe_devices_gives_text_and_json(runtime):
    assert "cpu" in runtime.describe_devices().lower()
    assert json.loads(runtime.describe_devices("json"))


def test_a_configuration_names_the_devices(tmp_path):
    path = tmp_path / "devices.yaml"
    path.write_text("version: 1\ndevices:\n  brain: {type: cpu, threads: 1}\n")
    runtime = evener.Runtime(path)
    assert runtime.devices[0].name == "brain"
    assert evener.Runtime(config_text=path.read_text()).devices[0].name == "brain"


def test_a_wrong_key_of_the_configuration_is_an_error_with_its_place():
    with pytest.raises(evener.Error) as caught:
        evener.Runtime(config_text="version: 1\ndevcies: {}\n")
    assert caught.value.status == evener.Status.CONFIG
    assert "2:1" in caught.value.message and "devices" in caught.value.message


def test_a_memory_limit_gives_the_bytes_that_were_asked_for():
    runtime = evener.Runtime(threads=1, memory_limit=1 << 20)
    session = runtime.session(tiny.scale())
    with pytest.raises(evener.Error) as caught:
        session.run({"x": numpy.ones(1 << 20, "float32")})
    assert caught.value.status == evener.Status.OUT_OF_MEMORY
    assert caught.value.bytes_requested >= 1 << 22 and caught.value.bytes_available <= 1 << 20
