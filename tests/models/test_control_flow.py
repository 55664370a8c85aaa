"""Loop, Scan, If, sequences, optionals and strings in small models, against ONNX Runtime; and what bounds them."""
import numpy
import onnx
import onnx.parser
import onnxruntime
import pytest

import evener

HEAD = '<ir_version: 9, opset_import: ["" : 19]>\n'


def build(text):
    return onnx.parser.parse_model(HEAD + text).SerializeToString()


@pytest.fixture(scope="module")
def runtime():
    with evener.Runtime(threads=1, cache_dir="") as r:
        yield r


def compare(actual, wanted):
    if isinstance(wanted, list):
        assert len(actual) == len(wanted)
        for a, b in zip(actual, wanted):
            compare(a, b)
    elif wanted is None:
        assert actual is None
    else:
        assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
        if wanted.dtype.kind == "f":
            numpy.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)
        else:
            numpy.testing.assert_array_equal(actual, wanted)


def check(runtime, text, *feeds):
    """Each of the feeds, in turn, gives what ONNX Runtime gives."""
    data = build(text)
    session = runtime.session(data)
    judge = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for feed in feeds:
        for _ in range(2):  # by a new plan and by an old one
            compare(list(session.run(feed).values()), judge.run(None, feed))


def floats(*shape):
    return numpy.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


LOOP = """main (float[N, 3] x, int64 turns, float[3] bias) => (float[?, ?] last, float[?, ?, ?] all) {
  yes = Constant <value = bool {1}> ()
  scale = Constant <value = float {0.5}> ()
  last, all = Loop (turns, yes, x) <body = body (int64 turn, bool go, float[?, ?] state) => (bool on, float[?, ?] next, float[?, ?] out) {
    half = Mul (state, scale)
    next = Add (half, bias)
    out = Relu (next)
    on = Identity (go)
  }>
}"""


@pytest.mark.parametrize("turns", [0, 1, 7])
def test_loop_uses_values_and_constants_around_it(runtime, turns):
    feed = {"x": floats(2, 3), "turns": numpy.array(turns), "bias": floats(3)}
    if turns == 0:  # ONNX Runtime gives scan outputs of no turn other dims
        results = runtime.session(build(LOOP)).run(feed)
        compare(results["last"], feed["x"])
        assert results["all"].shape[0] == 0
    else:
        check(runtime, LOOP, feed)


def test_loop_whose_state_grows(runtime):
    check(runtime, """main (float[N] x, int64 turns) => (float[M] y) {
      yes = Constant <value = bool {1}> ()
      y = Loop (turns, yes, x) <body = body (int64 turn, bool go, float[K] s) => (bool on, float[L] t) {
        t = Concat <axis = 0> (s, x)
        on = Identity (go)
      }>
    }""", *[{"x": floats(n), "turns": numpy.array(t)} for n, t in ((3, 4), (1, 2), (3, 0))])


def test_loop_that_its_condition_ends(runtime):
    check(runtime, """main (float x) => (float y, int64 n) {
      yes = Constant <value = bool {1}> ()
      none = Constant <value = int64 {0}> ()
      one = Constant <value = int64 {1}> ()
      limit = Constant <value = float {100.0}> ()
      y, n = Loop ("", yes, x, none) <body = body (int64 turn, bool go, float s, int64 c) => (bool on, float t, int64 d) {
        t = Add (s, s)
        d = Add (c, one)
        on = Less (t, limit)
      }>
    }""", {"x": numpy.array(3, "float32")}, {"x": numpy.array(200, "float32")})


def test_if_in_loop_in_if_with_values_of_all_around(runtime):
    check(runtime, """main (float[2] x, bool which, int64 turns) => (float[2] y) {
      yes = Constant <value = bool {1}> ()
      two = Constant <value = int64 {2}> ()
      zero = Constant <value = int64 {0}> ()
      y = If (which) <then_branch = then_graph () => (float[2] a) {
        doubled = Add (x, x)
        a = Loop (turns, yes, x) <body = body (int64 turn, bool go, float[2] s) => (bool on, float[2] t) {
          rest = Mod (turn, two)
          even = Equal (rest, zero)
          t = If (even) <then_branch = even_graph () => (float[2] e) { e = Add (s, doubled) },
                         else_branch = odd_graph () => (float[2] o) { o = Mul (s, x) }>
          on = Identity (go)
        }>
      }, else_branch = else_graph () => (float[2] b) { b = Neg (x) }>
    }""", *[{"x": floats(2), "which": numpy.array(w), "turns": numpy.array(5)} for w in (True, False)])


def test_nested_loops(runtime):
    check(runtime, """main (int64 outer, int64 inner, float x) => (float y) {
      yes = Constant <value = bool {1}> ()
      y = Loop (outer, yes, x) <body = rows (int64 i, bool go, float s) => (bool on, float t) {
        t = Loop (inner, yes, s) <body = columns (int64 j, bool go2, float u) => (bool on2, float v) {
          sum = Add (i, j)
          f = Cast <to = 1> (sum)
          scaled = Mul (f, x)
          v = Add (u, scaled)
          on2 = Identity (go2)
        }>
        on = Identity (go)
      }>
    }""", {"outer": numpy.array(3), "inner": numpy.array(4), "x": numpy.array(0.5, "float32")})


@pytest.mark.parametrize("axes, directions, turned", [("0, 1", "0, 1", False), ("1, -2", "1, 0", True)])
def test_scan_along_axes_and_backwards(runtime, axes, directions, turned):
    a, b = floats(4, 2), floats(2, 4)
    check(runtime, f"""main (float[2] s, float[N, M] a, float[M, N] b) => (float[2] last, float[?, ?] out) {{
      last, out = Scan <num_scan_inputs = 2, scan_input_axes = [{axes}], scan_input_directions = [{directions}],
                        scan_output_axes = [1], scan_output_directions = [1],
                        body = body (float[2] t, float[2] x, float[2] y) => (float[2] u, float[2] z) {{
        z = Mul (x, y)
        u = Add (t, z)
      }}> (s, a, b)
    }}""", {"s": floats(2), "a": a.T if turned else a, "b": b.T if turned else b})


def test_sequences_go_through_a_loop(runtime):
    check(runtime, """main (float[N] x, int64 turns) => (float[M] joined, int64 n, float[K] first) {
      yes = Constant <value = bool {1}> ()
      none = SequenceEmpty <dtype = 1> ()
      zero = Constant <value = int64 {0}> ()
      list = Loop (turns, yes, none) <body = body (int64 i, bool go, seq(float[?]) s) => (bool on, seq(float[?]) t) {
        f = Cast <to = 1> (i)
        scaled = Mul (x, f)
        t = SequenceInsert (s, scaled)
        on = Identity (go)
      }>
      joined = ConcatFromSequence <axis = 0> (list)
      n = SequenceLength (list)
      first = SequenceAt (list, zero)
    }""", {"x": floats(3), "turns": numpy.array(4)}, {"x": floats(2), "turns": numpy.array(1)})


def test_sequences_split_edited_and_given_out(runtime):
    check(runtime, """main (float[6, 2] x, int64[3] lengths, int64 at) => (seq(float[?, ?]) parts, seq(float[?, ?]) fewer, float[?, ?] one) {
      parts = SplitToSequence <axis = 0> (x, lengths)
      fewer = SequenceErase (parts, at)
      one = SequenceAt (parts, at)
    }""", *[{"x": floats(6, 2), "lengths": numpy.array([1, 3, 2]), "at": numpy.array(at)} for at in (0, -1)])


def test_strings_move_and_compare(runtime):
    words = numpy.array([["a", "bee"], ["", "a"]], object)
    check(runtime, """main (string[2, 2] w, string[1] other) => (string[2, 3] joined, bool[2, 2] same, string[2] picked, int64[n] where) {
      shape = Constant <value = int64[2] {2, 1}> ()
      wide = Expand (other, shape)
      joined = Concat <axis = 1> (w, wide)
      same = Equal (w, other)
      at = Constant <value = int64 {1}> ()
      picked = Gather <axis = 1> (w, at)
      flat = Flatten (w)
      u, first, where, count = Unique (flat)
    }""", {"w": words, "other": numpy.array(["a"], object)})


def test_constant_strings_are_folded_and_kept(runtime):
    results = runtime.session(build("""main (int64 at) => (string y) {
      words = Constant <value_strings = ["one", "two", "three"]> ()
      yes = Constant <value = bool {1}> ()
      chosen = Where (yes, words, words)
      y = Gather (chosen, at)
    }""")).run({"at": numpy.array(2)})
    assert results["y"].item() == "three"


FOREVER = """main (float x) => (float y) {
  yes = Constant <value = bool {1}> ()
  y = Loop ("", yes, x) <body = body (int64 turn, bool go, float s) => (bool on, float t) {
    t = Add (s, x)
    on = Identity (go)
  }>
}"""


def test_turns_are_limited_by_the_configuration():
    with evener.Runtime(config_text="limits: {loop_iterations: 10}", threads=1, cache_dir="") as r:
        with pytest.raises(evener.Error) as caught:
            r.session(build(FOREVER)).run({"x": numpy.array(1, "float32")})
    assert caught.value.status == evener.Status.LIMIT
    assert caught.value.node.startswith("Loop")


def test_a_loop_ends_with_the_runs_time(runtime):
    with pytest.raises(evener.Error) as caught:
        runtime.session(build(FOREVER)).run({"x": numpy.array(1, "float32")}, timeout=0.05)
    assert caught.value.status == evener.Status.TIMEOUT


def test_a_state_that_doubles_hits_the_limit_of_a_tensor():
    with evener.Runtime(config_text="limits: {tensor_bytes: 1MiB}", threads=1, cache_dir="") as r:
        session = r.session(build("""main (float[N] x, int64 turns) => (float[M] y) {
          yes = Constant <value = bool {1}> ()
          y = Loop (turns, yes, x) <body = body (int64 turn, bool go, float[K] s) => (bool on, float[L] t) {
            t = Concat <axis = 0> (s, s)
            on = Identity (go)
          }>
        }"""))
        with pytest.raises(evener.Error) as caught:
            session.run({"x": floats(4), "turns": numpy.array(2**40)})
    assert caught.value.status == evener.Status.LIMIT


@pytest.mark.parametrize("text, what", [
    ("""main (float x, int64 n) => (float y) {
       yes = Constant <value = bool {1}> ()
       y = Loop (n, yes, x) <body = body (int64 turn, bool go) => (bool on, float t) { t = Identity (x)  on = Identity (go) }>
     }""", "body of Loop"),
    ("""main (float x, int64 n) => (float y) {
       yes = Constant <value = bool {1}> ()
       y = Loop (n, yes, x) <body = body (int64 turn, bool go, float s) => (bool on, int64 t) { t = Cast <to = 7> (s)  on = Identity (go) }>
     }""", "iteration"),
    ("""main (float x, int64 n) => (float y) {
       yes = Constant <value = bool {1}> ()
       y = Loop (n, yes, x) <body = body (int64 turn, bool go, float s) => (bool on, float t) { t = Add (s, nowhere)  on = Identity (go) }>
     }""", "nowhere"),
    ("main (float x) => (float y) { y = Relu <body = body () => (float z) { z = Identity (x) }> (x) }", "takes no graph"),
    ("main (float[2] x) => (float y) { y = SequenceAt (x, x) }", "SequenceAt"),
])
def test_bodies_that_do_not_fit_are_refused(runtime, text, what):
    with pytest.raises(evener.Error) as caught:
        runtime.session(build(text))
    assert caught.value.status == evener.Status.INVALID_MODEL
    assert what in caught.value.message
    assert caught.value.node


def test_positions_outside_a_sequence_are_the_callers_fault(runtime):
    session = runtime.session(build("main (seq(float[N]) s, int64 at) => (float[M] y) { y = SequenceAt (s, at) }"))
    for at in (2, -3):
        with pytest.raises(evener.Error) as caught:
            session.run({"s": [floats(1), floats(2)], "at": numpy.array(at)})
        assert caught.value.status == evener.Status.INVALID_ARGUMENT
    compare(session.run({"s": [floats(1), floats(2)], "at": numpy.array(-1)})["y"], floats(2))


def test_another_seed_gives_other_numbers(runtime):
    session = runtime.session(build("main () => (float[4] y) { y = RandomNormal <shape = [4]> () }"))
    once, again, other = (session.run({}, seed=seed)["y"] for seed in (0, 0, 1))
    numpy.testing.assert_array_equal(once, again)
    assert (once != other).all()


def test_each_turn_draws_numbers_of_its_own(runtime):
    session = runtime.session(build("""main (int64 n) => (float[?, ?] all) {
      yes = Constant <value = bool {1}> ()
      all = Loop (n, yes) <body = body (int64 turn, bool go) => (bool on, float[3] t) { t = RandomUniform <shape = [3]> ()  on = Identity (go) }>
    }"""))
    drawn = session.run({"n": numpy.array(5)})["all"]
    assert numpy.unique(drawn).size == 15


def test_rules_match_nodes_of_bodies_and_explain_lists_them():
    with evener.Runtime(config_text="placement: {rules: [{match: {name: '*/body/*'}, device: cpu, policy: require}]}", threads=1, cache_dir="") as r:
        session = r.session(build(LOOP))
        text = session.explain()
    (line,) = [line for line in text.splitlines() if " Relu " in line]
    assert "/body/" in line and "rule at line 1" in line
