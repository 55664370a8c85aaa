"""Models with If, Loop, Scan and functions, quantized by us: ONNX Runtime runs the files, with our results and near to those in float32."""
import evener
import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_quantized_models import cosine, onnx_runtime

GENERATOR = numpy.random.default_rng(7)
F, I, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
MODES = ({}, {"method": "percentile"}, {"qoperator": True}, {"correct_bias": True, "smooth": True, "equalize": True}, {"activation": "int8"},
         {"dynamic": True}, {"mode": "weights"}, {"mode": "weights", "bits": 4, "contrib": True}, {"mode": "float16"}, {"mode": "bfloat16"})


def value(name, dtype=F, dims=None):
    return helper.make_tensor_value_info(name, dtype, dims)


def weight(name, *dims):
    return numpy_helper.from_array((GENERATOR.standard_normal(dims) / dims[0] ** 0.5).astype("float32"), name)


def scalar(name, number, dtype):
    return numpy_helper.from_array(numpy.array(number, dtype), name)


def model_of(nodes, inputs, outputs, initializers=(), opset=17, functions=(), domains=()):
    graph = helper.make_graph(nodes, "main", inputs, outputs, initializers)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    model = helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=8)
    if not functions:  # the checker wants one opset for all
        onnx.checker.check_model(model)
    return model


def branch(name, nodes, outputs, initializers=()):
    return helper.make_graph(nodes, name, [], [value(o) for o in outputs], initializers)


def dense(prefix, x, y):
    """Two products with a Relu between them."""
    node = helper.make_node
    return [node("MatMul", [x, prefix + "w"], [prefix + "p"]), node("Relu", [prefix + "p"], [prefix + "r"]),
            node("Gemm", [prefix + "r", prefix + "v", prefix + "c"], [y], name=prefix + "gemm")], [
                weight(prefix + "w", 32, 48), weight(prefix + "v", 48, 32), weight(prefix + "c", 32)]


def branches(opset=17):
    """The branches hand out what they made, twice, a value from outside, a constant of their own and one from outside."""
    node = helper.make_node
    graphs = []
    for name in "ab":
        nodes, constants = dense(name, "h", name + "y")
        nodes += [node("Identity", [name + "y"], [name + "same"]), node("Identity", [name + "c"], [name + "own"]),
                  node("Identity", ["h"], [name + "h"])]
        outputs = [name + "y", name + "same", name + "h", name + "own"]
        graphs.append(branch(name, nodes, outputs, constants))
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("ReduceSum" if opset >= 13 else "ReduceMean", ["x"], ["s"], keepdims=0),
             node("Greater", ["s", "zero"], ["positive"]),
             node("If", ["positive"], ["y", "same", "h2", "own"], then_branch=graphs[0], else_branch=graphs[1], name="choice"),
             node("Add", ["y", "same"], ["z"]), node("Add", ["z", "own"], ["zz"]), node("MatMul", ["zz", "u"], ["out"])]
    return model_of(nodes, [value("x", dims=["n", 32])], [value("out", dims=["n", 32]), value("h2", dims=["n", 32])],
                    [weight("w", 32, 32), weight("u", 32, 32), scalar("zero", 0, "float32")], opset)


def loop(opset=17, inner=None):
    """The state goes through products in each turn, with a value from outside beside it; the weights of one lie outside."""
    node = helper.make_node
    nodes, constants = dense("b", "state", "made")
    nodes += [node("MatMul", ["made", "w"], ["turned"]), node("Add", ["turned", "h"], ["sum"])]
    if inner is not None:
        nodes += inner
    nodes += [node("Tanh", ["sum" if inner is None else "chosen"], ["next"]), node("Identity", ["go"], ["on"]),
              node("ReduceMax", ["next"], ["top"], keepdims=0)]
    body = helper.make_graph(nodes, "body", [value("i", I, []), value("go", B, []), value("state")],
                             [value("on", B, []), value("next"), value("top", dims=[])], constants)
    return model_of([node("MatMul", ["x", "w"], ["h"]),
                     node("Loop", ["turns", "", "h"], ["last", "tops"], body=body, name="turning"), node("MatMul", ["last", "u"], ["out"])],
                    [value("x", dims=["n", 32]), value("turns", I, [])], [value("out", dims=["n", 32]), value("tops", dims=["t"])],
                    [weight("w", 32, 32), weight("u", 32, 32)], opset)


def branches_in_a_loop():
    node = helper.make_node
    many, constants = dense("m", "sum", "much")
    first = [node("Constant", [], ["none"], value=scalar("", 0, "int64")), node("Equal", ["i", "none"], ["first"]),
             node("If", ["first"], ["chosen"], then_branch=branch("yes", many, ["much"], constants),
                  else_branch=branch("no", [node("Mul", ["sum", "h"], ["little"])], ["little"]))]
    return loop(inner=first)


def scan():
    node = helper.make_node
    nodes, constants = dense("b", "step", "made")
    nodes += [node("Add", ["made", "state"], ["sum"]), node("MatMul", ["sum", "w"], ["p"]), node("Tanh", ["p"], ["next"]),
              node("Identity", ["next"], ["seen"])]
    body = helper.make_graph(nodes, "body", [value("state", dims=[1, 32]), value("step", dims=[1, 32])],
                             [value("next", dims=[1, 32]), value("seen", dims=[1, 32])], constants)
    return model_of([node("Unsqueeze", ["x", "axis"], ["steps"]), node("Scan", ["begin", "steps"], ["last", "all"], body=body, num_scan_inputs=1),
                     node("MatMul", ["all", "w"], ["out"])],
                    [value("x", dims=["n", 32])], [value("out", dims=["a", "b", "c"]), value("last", dims=[1, 32])],
                    [weight("w", 32, 32), weight("begin", 1, 32), numpy_helper.from_array(numpy.array([1]), "axis")])


def function_of_another_opset():
    """ReduceMean has its axes as an attribute in the function's opset and as an input in the model's."""
    node = helper.make_node
    nodes = [node("MatMul", ["a", "b"], ["p"]), node("ReduceMean", ["p"], ["m"], axes=[1], keepdims=1), node("Sub", ["p", "m"], ["c"])]
    function = helper.make_function("our", "Centred", ["a", "b"], ["c"], nodes, [helper.make_opsetid("", 13)])
    return model_of([node("Centred", ["x", "w"], ["h"], domain="our"), node("MatMul", ["h", "u"], ["out"])],
                    [value("x", dims=["n", 32])], [value("out", dims=["n", 32])], [weight("w", 32, 32), weight("u", 32, 32)], 18, [function], ["our"])


def feeds_of(model, count, turns=5):
    for i in range(count):
        x = GENERATOR.standard_normal((3, 32)).astype("float32")
        x *= (1 if i % 2 else -1) * numpy.sign(x.sum())  # both branches in turn
        yield {v.name: x if v.name == "x" else numpy.array(turns) for v in model.graph.input}


def in_one_opset(model):
    """Without what ONNX Runtime cannot run: a function of an older opset."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    for function in copy.functions:
        function.node[1].input.append("axes")
        del function.node[1].attribute[0]
        function.node.insert(0, helper.make_node("Constant", [], ["axes"], value_ints=[1]))
        function.opset_import[0].version = copy.opset_import[0].version
    return copy


CASES = {"if": branches, "loop": loop, "if_in_loop": branches_in_a_loop, "scan": scan, "function": function_of_another_opset,
         "if_of_opset_11": lambda: branches(11)}


def quantized(model, batches, path, **options):
    runtime = evener.Runtime(threads=1)
    quantizer = evener.Quantizer(runtime, model.SerializeToString(), **options)
    if options.get("mode", "static") == "static" and "dynamic" not in options:
        for batch in batches:
            quantizer.add_batch(batch)
    if "mode" not in options:
        quantizer.guard(batches[0], speed=False, min_cosine=0.9)
    session = runtime.session(quantizer.finish())
    quantizer.save(path)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    return session, quantizer.report("dict")


@pytest.mark.parametrize("options", MODES, ids=lambda o: "_".join(str(v) for pair in o.items() for v in pair if v is not True) or "minmax")
@pytest.mark.parametrize("case", CASES)
def test_onnx_runtime_runs_what_was_made_of_graphs_in_graphs(case, options, tmp_path):
    model = CASES[case]()
    batches = list(feeds_of(model, 8))
    session, report = quantized(model, batches, tmp_path / "q.onnx", **options)
    in_float, oracle = onnx_runtime(in_one_opset(model).SerializeToString()), onnx_runtime(str(tmp_path / "q.onnx"), optimized=False)
    quantized_nodes = [n for n in report["nodes"] if n["quantized"] and n["op"] in ("MatMul", "Gemm")]
    products = {"if": 6, "loop": 5, "if_in_loop": 7, "scan": 4, "function": 2, "if_of_opset_11": 6}
    assert len(quantized_nodes) == products[case] or options.get("bits") == 4, report["nodes"]
    floor = 0.96 if options.get("bits") == 4 else 0.99
    for feeds in batches[:4]:
        names = [o.name for o in in_float.get_outputs()]
        wanted, got, theirs = in_float.run(None, feeds), session.run(feeds), oracle.run(None, feeds)
        for name, w, t in zip(names, wanted, theirs):
            assert got[name].shape == w.shape == t.shape
            assert cosine(got[name], w) >= floor and cosine(got[name], t) >= 0.999, (name, cosine(got[name], w), cosine(got[name], t))


def test_what_calibration_does_not_see_stays_as_it_is(tmp_path):
    model = branches()
    batches = [b for b in feeds_of(model, 8) if b["x"].sum() > 0]
    session, report = quantized(model, batches, tmp_path / "q.onnx")
    unseen = [n["name"] for n in report["nodes"] if n["reason"] == "not seen in calibration"]
    assert len(unseen) == 2 and all(name.startswith("choice/else/") for name in unseen), report["nodes"]
    saved = onnx.load(tmp_path / "q.onnx")
    kinds = {a.name: {n.op_type for n in a.g.node} for n in saved.graph.node if n.op_type == "If" for a in n.attribute}
    assert "QuantizeLinear" in kinds["then_branch"] and "QuantizeLinear" not in kinds["else_branch"]
    in_float = onnx_runtime(model.SerializeToString())
    for feeds in feeds_of(model, 2):
        assert cosine(session.run(feeds)["out"], in_float.run(None, feeds)[0]) >= 0.99


def test_a_body_that_never_runs_stays_as_it_is(tmp_path):
    model = loop()
    batches = list(feeds_of(model, 3, turns=0))
    _, report = quantized(model, batches, tmp_path / "q.onnx")
    reasons = [n["reason"] for n in report["nodes"]]
    assert reasons.count("not seen in calibration") == 3 and reasons.count(None) >= 2


def test_each_turn_is_seen(tmp_path):
    """A state that grows from turn to turn: the last one's range is what the scale has to span."""
    node = helper.make_node
    body = helper.make_graph([node("MatMul", ["state", "e"], ["p"]), node("Add", ["p", "p"], ["next"]), node("Identity", ["go"], ["on"])], "body",
                             [value("i", I, []), value("go", B, []), value("state")], [value("on", B, []), value("next")])
    model = model_of([node("Loop", ["turns", "", "x"], ["out"], body=body)], [value("x", dims=["n", 32]), value("turns", I, [])], [value("out", dims=["n", 32])],
                     [numpy_helper.from_array(numpy.eye(32, dtype="float32"), "e")])
    batches = list(feeds_of(model, 3, turns=6))
    _, report = quantized(model, batches, tmp_path / "q.onnx")
    saved = onnx.load(tmp_path / "q.onnx")
    inner = saved.graph.node[0].attribute[0].g
    scale = max(float(numpy_helper.to_array(i)) for i in inner.initializer if i.data_type == F and not i.dims)
    spread = max(b["x"].max() for b in batches) - min(b["x"].min() for b in batches)
    assert 32 * spread / 255 == pytest.approx(scale, rel=0.05)  # five turns double it before the last reads it


def names_in(graph):
    for n in graph.node:
        yield from filter(None, n.output)
        for a in n.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                yield from names_in(a.g)
    yield from (i.name for i in graph.initializer)
    yield from (i.name for i in graph.input)


def test_names_are_unique_in_all_graphs(tmp_path):
    """Both branches call their values by the same names, and values outside are called as loading calls those inside."""
    node = helper.make_node
    graphs = []
    for _ in range(2):
        nodes, constants = dense("m", "x", "made")
        graphs.append(branch("b", nodes, ["made"], constants))
    model = model_of([node("Identity", ["x"], ["choice/then/made"]), node("Neg", ["choice/then/made"], ["choice/else/mp_quantized"]),
                      node("If", ["yes"], ["y"], then_branch=graphs[0], else_branch=graphs[1], name="choice"),
                      node("Add", ["y", "choice/else/mp_quantized"], ["out"])],
                     [value("x", dims=["n", 32]), value("yes", B, [])], [value("out", dims=["n", 32])])
    feeds = [{"x": f["x"], "yes": numpy.array(bool(i % 2))} for i, f in enumerate(feeds_of(loop(), 4))]
    session, _ = quantized(model, feeds, tmp_path / "q.onnx")
    names = list(names_in(onnx.load(tmp_path / "q.onnx").graph))
    assert len(names) == len(set(names))
    oracle, in_float = onnx_runtime(str(tmp_path / "q.onnx")), onnx_runtime(model.SerializeToString())
    for f in feeds:
        assert cosine(session.run(f)["out"], in_float.run(None, f)[0]) >= 0.99
        assert cosine(session.run(f)["out"], oracle.run(None, f)[0]) >= 0.999


def test_a_file_is_quantized_again(tmp_path):
    """What was saved with its weights alone in fewer bits is read, flattened, and saved again."""
    model = branches_in_a_loop()
    batches = list(feeds_of(model, 6))
    quantized(model, [], tmp_path / "half.onnx", mode="float16", keep=["turning/*"])
    again = onnx.load(tmp_path / "half.onnx")
    session, _ = quantized(again, batches, tmp_path / "q.onnx")
    in_float = onnx_runtime(model.SerializeToString())
    for feeds in batches:
        assert cosine(session.run(feeds)["out"], in_float.run(None, feeds)[0]) >= 0.98


def nested(depth):
    node = helper.make_node
    graph = branch("inmost", [node("MatMul", ["x", "w"], ["y0"])], ["y0"])
    other = branch("other", [node("Neg", ["x"], ["n0"])], ["n0"])
    for i in range(1, depth):
        inner = node("If", ["yes"], [f"y{i}"], then_branch=graph, else_branch=other)
        graph, other = branch(f"b{i}", [inner], [f"y{i}"]), branch(f"o{i}", [node("Neg", ["x"], [f"n{i}"])], [f"n{i}"])
    graph = helper.make_graph([node("If", ["yes"], ["y"], then_branch=graph, else_branch=other)], "main",
                              [value("x", dims=["n", 32]), value("yes", B, [])], [value("y", dims=["n", 32])], [weight("w", 32, 32)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_deep_nestings_are_saved(tmp_path):
    model = nested(18)
    feeds = [{"x": GENERATOR.standard_normal((3, 32)).astype("float32"), "yes": numpy.array(True)} for _ in range(3)]
    session, report = quantized(model, feeds, tmp_path / "q.onnx")
    assert [n["op"] for n in report["nodes"] if n["quantized"]] == ["MatMul"]
    oracle = onnx_runtime(str(tmp_path / "q.onnx"))
    assert cosine(session.run(feeds[0])["y"], oracle.run(None, feeds[0])[0]) >= 0.999


def test_numbers_that_are_none_in_a_branch_name_the_value():
    model = branches()
    quantizer = evener.Quantizer(evener.Runtime(threads=1), model.SerializeToString())
    bad = next(feeds_of(model, 1))
    bad["x"] = numpy.full((3, 32), 3e38, "float32")
    with pytest.raises(evener.Error, match="NaN or infinite"):
        quantizer.add_batch(bad)
    with pytest.raises(evener.Error, match="no calibration batch"):
        quantizer.finish()


def recurrent(direction, extras=True):
    count, hidden = (2 if direction == "bidirectional" else 1), 24
    names = ["w", "r", "b", "", "h0", "c0", "p"] if extras else ["w", "r"]
    sizes = {"w": (count, 4 * hidden, 32), "r": (count, 4 * hidden, hidden), "b": (count, 8 * hidden), "h0": (count, 3, hidden),
             "c0": (count, 3, hidden), "p": (count, 3 * hidden)}
    constants = [numpy_helper.from_array((GENERATOR.standard_normal(sizes[n]) / 5).astype("float32"), n) for n in names if n]
    outputs = ["y", "last"] if extras else ["", "last"]
    node = helper.make_node("LSTM", ["x", *names], outputs, name="lstm", hidden_size=hidden, direction=direction)
    return model_of([node], [value("x", dims=["t", 3, 32])], [value(o, dims=[None] * (4 if o == "y" else 3)) for o in outputs if o], constants)


@pytest.mark.parametrize("per_tensor", (False, True))
@pytest.mark.parametrize("direction, extras", (("forward", True), ("reverse", False), ("bidirectional", True)))
def test_an_lstm_becomes_whole_numbers_where_it_is_asked_for(direction, extras, per_tensor, tmp_path):
    model = recurrent(direction, extras)
    batches = [{"x": GENERATOR.standard_normal((9, 3, 32)).astype("float32")} for _ in range(3)]
    session, report = quantized(model, batches, tmp_path / "q.onnx", dynamic=True, contrib=True, per_tensor=per_tensor)
    assert [(n["op"], n["quantized"], n["sqnr_db"] > 20) for n in report["nodes"]] == [("LSTM", True, True)]
    assert onnx.load(tmp_path / "q.onnx").graph.node[0].op_type == "DynamicQuantizeLSTM"
    in_float, oracle = onnx_runtime(model.SerializeToString()), onnx_runtime(str(tmp_path / "q.onnx"))
    for feeds in batches:
        for name, wanted, theirs in zip([o.name for o in in_float.get_outputs()], in_float.run(None, feeds), oracle.run(None, feeds)):
            got = session.run(feeds)[name]
            assert cosine(got, wanted) >= 0.999
            # An h may be quantized one step apart.
            numpy.testing.assert_allclose(got, theirs, atol=2e-3)
    plain, *others = (evener.Runtime(threads=n).session(str(tmp_path / "q.onnx")).run(batches[0])["last"] for n in (1, 2, 16))
    assert all(numpy.array_equal(plain, other) for other in others)
    with pytest.raises(evener.Error, match="has to be asked for"):
        evener.Quantizer(evener.Runtime(threads=1), model.SerializeToString(), dynamic=True)


def test_outputs_that_no_node_of_a_branch_makes(tmp_path):
    """A value from outside and an initializer, as outputs of a branch as they are; a body that hands on what it gets."""
    node = helper.make_node
    nodes, constants = dense("a", "x", "made")
    own = weight("own", 3, 32)
    yes = branch("yes", nodes, ["made", "h"], constants)
    no = branch("no", [], ["h", "own"], [own])
    body = helper.make_graph([], "body", [value("i", I, []), value("go", B, []), value("state")], [value("go", B, []), value("state")])
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("If", ["yes"], ["y", "z"], then_branch=yes, else_branch=no),
             node("Loop", ["turns", "", "y"], ["last"], body=body), node("Add", ["last", "z"], ["out"])]
    graph = helper.make_graph(nodes, "main", [value("x", dims=[3, 32]), value("yes", B, []), value("turns", I, [])], [value("out", dims=[3, 32])],
                              [weight("w", 32, 32)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feeds = [{"x": GENERATOR.standard_normal((3, 32)).astype("float32"), "yes": numpy.array(bool(i % 2)), "turns": numpy.array(2)} for i in range(4)]
    session, _ = quantized(model, feeds, tmp_path / "q.onnx")
    oracle, in_float = onnx_runtime(str(tmp_path / "q.onnx")), evener.Runtime(threads=1).session(model.SerializeToString())
    for f in feeds:
        assert cosine(session.run(f)["out"], in_float.run(f)["out"]) >= 0.99
        assert cosine(session.run(f)["out"], oracle.run(None, f)[0]) >= 0.999


def test_a_body_without_outputs_is_an_error():
    node = helper.make_node
    body = helper.make_graph([], "body", [value("i", I, []), value("go", B, []), value("state")], [])
    graph = helper.make_graph([node("Loop", ["turns", "", "x"], ["out"], body=body)], "main", [value("x", dims=[3, 32]), value("turns", I, [])],
                              [value("out", dims=[3, 32])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(evener.Error, match="no outputs"):
        evener.Quantizer(evener.Runtime(threads=1), model.SerializeToString())


@pytest.mark.parametrize("options", ({}, {"mode": "float16"}), ids=("static", "float16"))
def test_larger_constants_lie_in_a_file_beside_the_model(options, tmp_path):
    model = branches_in_a_loop()
    batches = list(feeds_of(model, 4))
    path = tmp_path / "q.onnx"
    (tmp_path / "q.onnx.data").write_bytes(b"of an older file")
    session, _ = quantized(model, batches, path, external_data=True, **options)
    data = (tmp_path / "q.onnx.data").stat().st_size
    assert data >= 8_000 and path.stat().st_size < 16_000 and len(list(tmp_path.iterdir())) == 2
    ours, oracle = evener.Runtime(threads=1).session(str(path)), onnx_runtime(str(path), optimized=False)
    for feeds in batches:
        got = session.run(feeds)["out"]
        numpy.testing.assert_array_equal(ours.run(feeds)["out"], got)
        assert cosine(got, oracle.run(None, feeds)[0]) >= 0.999
