"""ONNX's own backend node tests of the operators that src/ops has: models and expected outputs that others wrote.

Each case runs as it is written, with dims that the model does not tell, without even ranks, with all inputs but the first as
initializers, and with all of them, so that it is folded. What is refused stands in REFUSED with its reason: a refusal that is not
there fails the test, and so does one that is there but runs.
"""
import functools
import re
import warnings

import evener
import numpy
import onnx
import pytest
from onnx.backend.test.case.node import collect_testcases
from zoo import REPOSITORY

# Cases by their whole names, how the message reads, why.
REFUSED = [
    (r"test_equal_string.*", "is string", "strings"),
    (r"test_identity_(sequence|opt)", "is not a tensor", "sequences and optional values"),
    (r"test_training_dropout.*", "in training mode", "training"),
]

# |a - b| <= rtol * |b| + atol * max|b|; other types are exact.
TOLERANCE = {"float32": (1e-3, 1e-6), "float64": (1e-6, 1e-9), "float16": (2e-3, 1e-4), "bfloat16": (1e-2, 1e-3)}


def operators_of_library():
    """The names that stand first in a row of src/ops; what else the pattern finds is no operator of ONNX. Names of other domains than
    ONNX's own, which a file names for all its rows, have that in front."""
    named = set()
    for path in (REPOSITORY / "src" / "ops").glob("*.cc"):
        text = path.read_text(encoding="utf-8")
        domain = re.search(r'kDomain = "([\w.]+)"', text)
        named |= {(domain[1] if domain else "", name) for name in re.findall(r'[({]"([A-Z]\w*)",', text)}
    known = named & {(schema.domain, schema.name) for schema in onnx.defs.get_all_schemas()}
    known.add(("", "If"))  # its branches become regions of the graph: no row of a table
    return {f"{domain}.{name}" if domain else name for domain, name in known}


def operators_of(graph):
    for node in graph.node:
        yield node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        for attribute in node.attribute:
            yield from operators_of(attribute.g)


@functools.lru_cache(maxsize=None)
def cases():
    known = operators_of_library()
    numpy.random.seed(1)  # for those that draw their inputs
    with warnings.catch_warnings(), numpy.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return {case.name: case for case in collect_testcases(None) if set(operators_of(case.model.graph)) <= known}


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", cases().values(), ids=lambda case: case.name)


@pytest.fixture(scope="module")
def runtime():
    return evener.Runtime(threads=1)


def array_of(value):
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else numpy.asarray(value)


def copy_of(model):
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.value_info[:]
    return copy


def with_open_dims(model):
    copy = copy_of(model)
    for value in [*copy.graph.input, *copy.graph.output]:
        for index, dim in enumerate(value.type.tensor_type.shape.dim):
            dim.dim_param = f"{value.name}_{index}"
    return copy


def without_ranks(model):
    copy = copy_of(model)
    for value in [*copy.graph.input, *copy.graph.output]:
        value.type.tensor_type.ClearField("shape")
    return copy


def with_initializers(model, inputs, first):
    """With the values of the inputs from `first` on in the model."""
    copy = copy_of(model)
    copy.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in list(inputs.items())[first:])
    del copy.graph.input[first:]
    return copy


def assert_like(actual, wanted):
    assert (actual.shape, actual.dtype) == (wanted.shape, wanted.dtype)
    if actual.dtype.name.startswith(("float8", "float4")):
        actual, wanted = (array.astype("float64") for array in (actual, wanted))
        numpy.testing.assert_array_equal(numpy.signbit(actual), numpy.signbit(wanted))
        numpy.testing.assert_array_equal(actual, wanted)
        return
    if wanted.dtype.name not in TOLERANCE:
        numpy.testing.assert_array_equal(actual, wanted)
        return
    rtol, atol = TOLERANCE[wanted.dtype.name]
    a, b = actual.astype("float64"), wanted.astype("float64")
    finite = numpy.isfinite(b)
    numpy.testing.assert_array_equal(a[~finite], b[~finite])  # the same NaN and infinities
    numpy.testing.assert_allclose(a[finite], b[finite], rtol, atol * numpy.abs(b[finite]).max(initial=0))


def run(runtime, model, inputs, wanted):
    session = runtime.session(model.SerializeToString())
    results = list(session.run({value.name: inputs[value.name] for value in model.graph.input}).values())
    assert len(results) == len(wanted)
    for actual, expected in zip(results, wanted):
        assert_like(actual, expected)


def run_all_ways(runtime, model, inputs, wanted):
    run(runtime, model, inputs, wanted)
    run(runtime, with_open_dims(model), inputs, wanted)
    run(runtime, without_ranks(model), inputs, wanted)
    run(runtime, with_initializers(model, inputs, 1), inputs, wanted)
    run(runtime, with_initializers(model, inputs, 0), inputs, wanted)


def test_a_case_gives_what_onnx_expects_or_is_refused_for_a_known_reason(runtime, case):
    refusal = next((message for names, message, _ in REFUSED if re.fullmatch(names, case.name)), None)
    for inputs, wanted in case.data_sets:
        named = {value.name: value_in for value, value_in in zip(case.model.graph.input, inputs, strict=True)}
        if refusal is None:
            arrays = {name: array_of(value) for name, value in named.items()}
            run_all_ways(runtime, case.model, arrays, [array_of(value) for value in wanted])
        else:
            with pytest.raises(evener.Error, match=refusal) as error:
                runtime.session(case.model.SerializeToString()).run(named)
            assert error.value.status == evener.Status.UNSUPPORTED


@pytest.mark.parametrize("names", [names for names, _, _ in REFUSED])
def test_every_known_reason_has_its_cases(names):
    assert any(re.fullmatch(names, name) for name in cases())


def test_the_cases_are_there():
    assert len(cases()) > 1700
    assert operators_of_library() - {operator for case in cases().values() for operator in operators_of(case.model.graph)} == set()
