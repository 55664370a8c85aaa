#!/usr/bin/env python3
"""Writes docs/operators.md: every operator with its versions, element types, tolerance, kernels and ONNX's node tests.

usage: make_operators.py [--build DIR] [OUTPUT]      (DIR: a build folder with list_operators, by default build/release;
                                                      OUTPUT "-": standard output)

The tables come from the library itself, the node tests' results from tests/conformance/onnx_node/expected.txt, which
tests/conformance/onnx_node/run.py compares with what the library does.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys

import onnx

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "conformance" / "onnx_node"))

import cases as onnx_cases  # noqa: E402

OUTPUT = ROOT / "docs" / "operators.md"
TITLES = {"": "ai.onnx"}
OWN = "evener"  # what passes put into graphs; no model has it
LOADED = [("ai.onnx.preview.training", "Gradient")]  # put others in their place while a model is loaded; no node test has them
SETS = [  # shorthands for element types, the larger before what they contain
    ("integers", ("uint8", "int8", "uint16", "int16", "int32", "int64", "uint32", "uint64")),
    ("floats", ("float32", "float64")),
    ("halves", ("float16", "bfloat16")),
    ("float8s", ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0")),
    ("bits", ("uint4", "int4", "float4e2m1", "uint2", "int2")),
    ("complex", ("complex64", "complex128")),
]
READINGS = """
Where the text of ONNX leaves room, or where engines differ, this library reads it so:

- **Outputs without a name.** A node may leave out optional outputs, and any outputs of Split, Loop, Scan and SequenceMap, by the empty name. Empty names
  count, also at the end: they decide how many parts a Split has.
- **Types in `value_info`.** An entry that contradicts the type that a node gives its output, or the type of an input, output or initializer of the graph,
  is ignored, with a warning of the event `model.value_type`. A declared output of the graph is a promise: another type is an error.
- **Resize by sizes** computes positions from the exact ratio of the sizes and the dims, in whole numbers. With scales it computes them in float32 as the
  formulas have it. `tf_half_pixel_for_nn`, of opset 11 alone, is taken in later opsets too.
- **ThresholdedRelu within RNN, GRU and LSTM** is 0 at its threshold, as the operator of that name is and as ONNX Runtime computes it, where the text of the recurrent
  operators says `x >= alpha`.
- **GridSample, `cubic` with `border`.** A place outside the image moves to the border before its four elements are found, as in ONNX's own
  evaluator. PyTorch and ONNX Runtime leave the place where it is and replace each element outside. The two differ within two elements of the border. The
  attribute `cubic_border="taps"` of a node asks for their reading (`"location"`, the default, for ONNX's). The attribute is not ONNX's: other
  engines may refuse it.
- **QuantizeLinear of NaN** is the least number of an integer type, as in ONNX Runtime; so are sums and products of quantized operators. Floating types
  of 8 bits keep NaN. DynamicQuantizeLinear has the zero point 255 if its least input is infinite.
- **DynamicQuantizeLinear of zeros** has the scale 1, as in ONNX Runtime. ONNX's own evaluator gives 1 / 255.
- **OneHot before opset 11.** Negative indices count from the end, as in ONNX Runtime and as in later opsets. The text of OneHot 9 asks for a line of
  off values.
- **TreeEnsembleClassifier with two classes.** If all leaves vote for one class only, their sum is the score of the second class, which is chosen above
  0.5 if no vote is negative, and above 0 otherwise, as in ONNX Runtime. If leaves vote for both, the larger score decides. One base value alone belongs to the first class.
"""
INTRODUCTION = f"""
What each operator takes and how closely its kernels agree. *Versions* are the opset versions that an operator has rows for: the highest
one that is not above the model's import applies, and later versions that only allow more types share a row. *Types* are those of the
first input (of the output, where there is none): *floats* are {", ".join(SETS[1][1])}, *integers* the eight from int8 to uint64, *halves*
float16 and bfloat16, *float8s* the five formats of eight bits, *bits* those of four and two, *complex* complex64 and complex128. Where
halves are not listed but floats are, a model in half precision is computed in float32 (`docs/decisions/0011-half-is-storage.md`).
*Tolerance* is rtol / atol of an optimized kernel against the reference, |a - b| <= rtol * |b| + atol * max|b|, of float32; all else is
exact, integer and quantized results too.
*Trains* says what Gradient, and so training, does with it: *yes*, it has a rule of differentiation; *0*, its result does not change with
small changes of its inputs, and nothing goes back through it; *-*, a gradient through it is refused.
*CPU* and *OpenCL* name the kernels besides the reference, which runs every operator on the CPU. *Node tests* counts ONNX's own backend
tests of the operator, those of its expansion into other operators included.
"""


def operator_rows(build):
    """{(domain, name): [row, ...]} as list_operators prints them."""
    rows = collections.defaultdict(list)
    for row in json.loads(subprocess.run([build / "list_operators"], check=True, capture_output=True, text=True).stdout):
        if row["domain"] != OWN:
            rows[row["domain"], row["name"]].append(row)
    return rows


def subject(case):
    """(domain, name) of the operator that a node test is about. A test of an expansion is about what was expanded."""
    base = onnx_cases.cases().get(re.sub(r"_expanded.*$", "", case.name))
    graph = (base or case).model.graph
    found = list(onnx_cases.operators_of(graph))
    words = case.name.replace("_", "").lower()
    named = [operator for operator in found if operator[1].lower() in words]
    return max(named, key=lambda operator: len(operator[1])) if named else found[-1]


def node_tests():
    """{(domain, name): (passed, all)}"""
    expected = onnx_cases.expectations()
    passed, total = collections.Counter(), collections.Counter()
    for name, case in onnx_cases.cases().items():
        operator = subject(case)
        total[operator] += 1
        passed[operator] += expected.get(name, ("",))[0] != "refused"
    return {operator: (passed[operator], total[operator]) for operator in total}


def types_text(rows):
    left = [dtype for dtype in dict.fromkeys(dtype for row in rows for dtype in row["dtypes"])]
    words = []
    for word, members in SETS:
        if set(members) <= set(left):
            words.append(word)
            left = [dtype for dtype in left if dtype not in members]
    return ", ".join(words + sorted(left))


def tolerance_text(rows):
    loosest = max(rows, key=lambda row: (row["rtol"], row["atol"]))
    return f"{loosest['rtol']:g} / {loosest['atol']:g}" if loosest["rtol"] or loosest["atol"] else "exact"


def kernels_text(rows, device):
    return ", ".join(dict.fromkeys(kernel for row in rows for kernel in row["kernels"][device])) or "-"


def tests_text(tests, operator):
    if operator not in tests:
        return "-"
    passed, total = tests[operator]
    return str(total) if passed == total else f"{passed} of {total}"


def table(domain, rows, tests):
    lines = ["| operator | versions | types | tolerance | trains | CPU | OpenCL | node tests |", "|---|---|---|---|---|---|---|---|"]
    rules = differentiated() if domain == "" else {}
    names = sorted({name for d, name in rows if d == domain} | {name for (d, name), (passed, _) in tests.items() if d == domain and passed} |
                   {name for d, name in LOADED if d == domain})
    for name in names:
        own = rows.get((domain, name))
        trains = rules.get(name, "-")
        columns = ["", "by the runtime", "", trains, "-", "-"] if own is None else [
            ", ".join(str(row["since"]) for row in own), types_text(own), tolerance_text(own), trains, kernels_text(own, "cpu"), kernels_text(own, "opencl")]
        lines.append(" | ".join([f"| {name}", *columns, tests_text(tests, (domain, name))]) + " |")
    return lines


def missing(rows, tests):
    """ONNX's operators that the library neither has nor passes a node test of, by domain."""
    found = collections.defaultdict(set)
    for schema in onnx.defs.get_all_schemas():
        operator = (schema.domain, schema.name)
        if operator not in rows and operator not in LOADED and not tests.get(operator, (0, 0))[0] and not schema.deprecated:
            found[schema.domain].add(schema.name)
    return found


def differentiated():
    """{operator: "yes" or "0"} of those that have a rule for Gradient, as the rows of src/graph/gradient stand in the source."""
    text = "".join(p.read_text() for p in (ROOT / "src" / "graph" / "gradient").glob("rules*.cc"))
    found = {name: "0" if rule == "nullptr" else "yes" for name, rule in re.findall(r'^    \{"(\w+)", (\w+)', text, re.M)}
    return {**found, "If": "yes"}  # its branches are taken apart before


def exceptions():
    return ["", "## What Gradient goes through", "",
            "The column *trains* says it, with the exceptions that each rule states when a model is loaded; `docs/decisions/0017-gradient.md`."]


def refusals():
    """The node tests that do not simply pass, by reason."""
    by_reason = collections.defaultdict(list)
    for name, (kind, _, reason) in sorted(onnx_cases.expectations().items()):
        by_reason[kind, reason].append(name)
    lines = ["| result | reason | tests |", "|---|---|---|"]
    for (kind, reason), names in sorted(by_reason.items()):
        lines.append(f"| {kind} | {reason} | {', '.join(names)} |")
    return lines


def generate(build):
    """Returns the Markdown."""
    rows, tests = operator_rows(build), node_tests()
    passed, total = sum(p for p, _ in tests.values()), sum(t for _, t in tests.values())
    out = ["<!-- Written by scripts/make_operators.py. Do not edit. -->", "# Operators", INTRODUCTION,
           f"Of the {total} node tests of onnx {onnx.__version__}, {passed} pass; the others stand at the end of this page, with the reasons."]
    for domain in sorted({domain for domain, _ in rows}):
        out += ["", f"## {TITLES.get(domain, domain)}", "", *table(domain, rows, tests)]
    out += exceptions()
    absent = [f"- {TITLES.get(domain, domain)}: {', '.join(sorted(names))}" for domain, names in sorted(missing(rows, tests).items())]
    if absent:
        head = "A model with one of these is refused when it is loaded, unless it brings or ONNX has a function of the name."
        out += ["", "## Not there", "", head, "", *absent]
    out += ["", "## Readings of the format", READINGS.rstrip()]
    out += ["", "## Parts of operators that are not there", "", "They are refused with EVN_ERROR_UNSUPPORTED, the node and this text.", "",
            "| src/ops | refused |", "|---|---|", *left_out()]
    out += ["", "## Node tests that do not give the stored output", "", *(f"- *{kind}*: {text}" for kind, text in onnx_cases.KINDS.items()), "", *refusals()]
    return "\n".join(out) + "\n"


def left_out():
    """What the shape rules refuse as not supported, as their sources say it, by file."""
    refusal = re.compile(r'EVN_ERROR_UNSUPPORTED,\s*"((?:[^"\\]|\\.)+)"')
    for path in sorted((ROOT / "src" / "ops").glob("*.cc")):
        texts = dict.fromkeys(re.sub(r"%(?:\.\d+)?(lld|d|s)", "...", text) for text in refusal.findall(path.read_text()))
        if texts:
            yield f"| {path.name} | {'; '.join(texts)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("output", nargs="?", default=str(OUTPUT))
    arguments = parser.parse_args()
    text = generate(arguments.build)
    if arguments.output == "-":
        sys.stdout.write(text)
    else:
        pathlib.Path(arguments.output).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
