"""Runs drawn cases of one operator and judges each: counted when Evener gives what every judge that runs it gives, or what the one gives
that disagreements.py says is right."""
import dataclasses
import functools
import json
import os
import subprocess
import zlib

import evener
import numpy
import onnx

from . import judges
from .disagreements import DISAGREEMENTS, HALF, SATURATES, TOLERANCES, may_saturate
from .draw import GENERATORS, Draw
from .training import TRAINING

BATCH = 16
NEWEST = 28  # the newest opset of ai.onnx that is drawn
OLDEST = 7
MOST_DROPPED = 1 / 3  # of the drawn cases of an operator
NO_JUDGE = "no judge runs it"
_HOPELESS = ("NOT_IMPLEMENTED", "not currently registered", "INVALID_GRAPH", "Unrecognized", "is not a registered", "Type Error")
OF_TYPES = ("BitCast", "Cast", "CastLike", "DequantizeLinear", "QuantizeLinear")  # a type is their subject
STANDS_FOR = ("float16", "bfloat16", "int4", "uint4", "float4_e2m1fn")
# |a - b| <= rtol * |b| + atol * max|b| + absolute, where there is a third number
BY_DTYPE = {"float32": (1e-4, 1e-5), "float64": (1e-6, 1e-7)}
# Half precision: the library and the judges compute in float32 and round once, each to the nearest. Beside what they differ by in float32 they
# differ by no more than the ulp between two neighbours, and below the normal numbers by the least one.
ULPS = {"float16": (2 ** -10, 2 ** -24), "bfloat16": (2 ** -7, 2 ** -133)}


def tolerance_of(case, dtype):
    """For an output of this dtype: that of the case, of the operator, or of the dtype."""
    base = case.tolerance or TOLERANCES.get((case.op, "float32" if dtype in ULPS else dtype)) or BY_DTYPE.get("float32" if dtype in ULPS else dtype, (0, 0))
    rtol, atol, absolute = [*base, 0][:3]
    more = ULPS.get(dtype, (0, 0))
    return rtol + more[0], atol, absolute + more[1]


def operator_rows(build):
    """{(domain, name): {since: row}} of the library's tables, as the test tool list_operators of a build folder prints them."""
    rows = {}
    for row in json.loads(subprocess.run([os.path.join(build, "list_operators")], check=True, capture_output=True, text=True).stdout):
        if row["merge"]:
            rows["", "If"] = {OLDEST: {"dtypes": ["bool"]}}  # which the library has as merges of two branches
        else:
            rows.setdefault((row["domain"], row["name"]), {})[row["since"]] = row
    return rows


def cpu_kernels(build):
    """{name: row} of the CPU's optimized kernels, as the test tool list_operators prints them."""
    rows = json.loads(subprocess.run([os.path.join(build, "list_operators"), "--kernels"], check=True, capture_output=True, text=True).stdout)
    return {row["name"]: row for row in rows}


@dataclasses.dataclass
class Count:
    """What became of the drawn cases of one operator."""

    counted: int = 0
    drawn: int = 0
    by_judge: dict = dataclasses.field(default_factory=lambda: {"onnx": 0, "ort": 0})
    disagreed: dict = dataclasses.field(default_factory=dict)  # reason -> cases
    dropped: dict = dataclasses.field(default_factory=dict)  # reason -> cases that nothing was compared with
    failures: list = dataclasses.field(default_factory=list)

    def line(self):
        return (f"{self.counted} counted, onnx {self.by_judge['onnx']}, ort {self.by_judge['ort']}, {sum(self.disagreed.values())} where they "
                f"disagree, {sum(self.dropped.values())} of {self.drawn} dropped")

    def drop(self, reason):
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def too_many_dropped(self):
        """"", or why the cases that were compared say too little: more than a third of those drawn were compared with nothing."""
        dropped = sum(self.dropped.values())
        reasons = "; ".join(f"{cases}: {reason}" for reason, cases in sorted(self.dropped.items(), key=lambda item: -item[1]))
        return f"{dropped} of {self.drawn} drawn cases were compared with nothing ({reasons})" if dropped > self.drawn * MOST_DROPPED else ""


def dtypes_of(row):
    """Of input 0: those of the table, and the two of 16 bits where a model in them is widened to float32."""
    found = {*row["dtypes"], *(("float16", "bfloat16") if "float32" in row["dtypes"] else ())}
    return sorted(found - {"string"})  # in the same order in every process; strings are drawn by name


def opsets_of(domain, name, rows):
    """The versions of ONNX from the oldest that the library has; those before OLDEST as OLDEST."""
    newest = NEWEST if domain == "" else max(rows)
    versions = {s.since_version for s in onnx.defs.get_all_schemas_with_history() if (s.domain, s.name) == (domain, name) and not s.deprecated} or set(rows)
    floor = OLDEST if domain == "" else 1
    return sorted({max(version, floor) for version in versions if min(rows) <= max(version, floor) <= newest})


def difference(actual, wanted, tolerance):
    """"" or how an output is wrong."""
    if wanted.dtype.kind in "OUS" and actual.dtype.kind == "O":
        same = actual.shape == wanted.shape and actual.tolist() == wanted.tolist()
        return "" if same else f"is {actual.shape}{actual.ravel()[:8].tolist()}, not {wanted.shape}{wanted.ravel()[:8].tolist()}"
    if actual.shape != wanted.shape or actual.dtype != wanted.dtype:
        return f"is {actual.dtype}{list(actual.shape)}, not {wanted.dtype}{list(wanted.shape)}"
    if wanted.dtype.kind in "iub" or wanted.dtype.name in ("int4", "uint4", "int2", "uint2"):
        unlike = (actual != wanted).ravel()
        if tolerance[2]:
            unlike &= (numpy.abs(actual.astype("int64") - wanted.astype("int64")) > tolerance[2]).ravel()
        return f"is {actual.ravel()[unlike][:8]}, not {wanted.ravel()[unlike][:8]} at {numpy.flatnonzero(unlike)[:8]}" if unlike.any() else ""
    a, b = actual.astype("float64"), wanted.astype("float64")
    rtol, atol, absolute = tolerance
    finite = numpy.isfinite(b)
    with numpy.errstate(all="ignore"):
        bound = rtol * numpy.abs(b) + atol * numpy.abs(b[finite]).max(initial=0) + absolute
        right = (a == b) | (numpy.isnan(a) & numpy.isnan(b)) | (finite & (numpy.abs(a - b) <= bound))
    if right.all():
        return ""
    at = tuple(int(i) for i in numpy.argwhere(~right)[0])
    return f"is {a[at]:.9g}, not {b[at]:.9g} at {list(at)}"


def as_own(own, array, in_float32):
    """What a judge computes or hands out in float32, in the type that it stands for."""
    stands_for = in_float32 or own.dtype.name in STANDS_FOR
    with numpy.errstate(over="ignore"):
        return array.astype(own.dtype) if stands_for and array.dtype == "float32" else array


def differences(actual, wanted, tolerance):
    wanted = [w if w.dtype == a.dtype or not judges_bytes(a, w) else w.view(a.dtype) for a, w in zip(actual, wanted)]
    found = [(index, difference(a, w, tolerance(w.dtype.name))) for index, (a, w) in enumerate(zip(actual, wanted))]
    return "; ".join(f"output {index} {why}" for index, why in found if why)


def judges_bytes(own, given):
    """A judge gives types that numpy has not as plain integers of their size."""
    return own.dtype.type.__module__ == "ml_dtypes" and given.dtype.kind in "iuV" and own.dtype.itemsize == given.dtype.itemsize


def widened(case, dtypes):
    """As the library understands half precision where the operator itself has none: everything in float32, rounded at the end."""
    if case.inputs and case.inputs[0] is not None and case.inputs[0].dtype.name in HALF and case.inputs[0].dtype.name not in dtypes:
        inputs = [x.astype("float32") if x is not None and x.dtype.name in HALF else x for x in case.inputs]
        return dataclasses.replace(case, inputs=inputs)
    return case


def wide_case(case):
    """The case in float32, for a judge that lacks its type; None where that is another case: a type is an attribute or the operator's
    subject, or a value is none of float32."""
    if case.nodes is not None or case.op in OF_TYPES or any(key in case.attributes for key in ("to", "dtype", "output_dtype")):
        return None
    narrow = case.domain == "ai.onnx.ml"  # whose operators answer in float32 whatever their input is
    if case.op == "OneHot":  # of which ONNX Runtime has some types: integers that are exact in these
        inputs = [x.astype(dtype) for x, dtype in zip(case.inputs, ("int64", "int64", "float32"))]
        return dataclasses.replace(case, inputs=inputs) if numpy.array_equal(inputs[2].astype(case.inputs[2].dtype), case.inputs[2]) else None
    inputs = []
    for x in case.inputs:
        if x is None or not (x.dtype.name in (*HALF, "float64") or narrow and x.dtype.kind in "iu"):
            inputs.append(x)
            continue
        with numpy.errstate(over="ignore"):
            wide = x.astype("float32")
        if (numpy.isfinite(wide) != numpy.isfinite(x.astype("float64"))).any() or ((wide == 0) != (x == 0)).any():
            return None
        inputs.append(wide)
    return dataclasses.replace(case, inputs=inputs) if any(a is not b for a, b in zip(inputs, case.inputs)) else None


def is_half(case):
    return any(x is not None and x.dtype.name in HALF for x in case.inputs)


@functools.lru_cache(maxsize=None)
def schema_of(domain, name, opset):
    try:
        return onnx.defs.get_schema(name, opset, domain)
    except onnx.defs.SchemaError:
        return None


@functools.lru_cache(maxsize=None)
def older_version(domain, name, opset):
    """The version before that of `opset`, where the newer one has but more types: text, attributes, inputs and outputs are the same."""
    new = schema_of(domain, name, opset)
    old = schema_of(domain, name, new.since_version - 1) if new is not None and new.since_version > 1 else None
    if old is None:
        return None

    def meaning(schema):
        return (schema.doc, [(i.name, i.option) for i in (*schema.inputs, *schema.outputs)],
                {key: (a.type, a.required, a.default_value.SerializeToString()) for key, a in schema.attributes.items()})
    return old.since_version if meaning(new) == meaning(old) else None


def older(case):
    """The case at the oldest version that means the same, or None."""
    opset = case.opset
    while (version := older_version(case.domain, case.op, opset)) is not None:
        opset = version
    floor = OLDEST if case.domain == "" else 1
    return dataclasses.replace(case, opset=max(opset, floor)) if opset != case.opset else None


class Trials:
    """The three engines, and what ONNX Runtime is known not to have."""

    def __init__(self, rows):
        self.rows = rows
        self.own = judges.Evener()
        self.others = [judges.Reference(), judges.OnnxRuntime()]
        self.hopeless = set()

    def run(self, domain, name, wanted, seed=1):
        """A Count with at least `wanted` counted cases, or as many as three times as many draws give."""
        rng = numpy.random.default_rng([zlib.crc32(f"{domain}.{name}".encode()), seed])
        count, rows, drawn = Count(), self.rows[domain, name], 0
        opsets = opsets_of(domain, name, rows)
        while count.counted < wanted and drawn < 3 * wanted + 5 * BATCH and len(count.failures) < 10:
            opset = opsets[(drawn // BATCH) % len(opsets)]
            row = rows[max(since for since in rows if since <= opset)]
            cases = [GENERATORS[domain, name](Draw(rng, domain, name, opset, dtypes_of(row))) for _ in range(BATCH)]
            drawn += BATCH
            count.drawn = drawn
            self.judge(cases, count, row["dtypes"])
        return count

    def judge(self, cases, count, dtypes):
        own = self.results(self.own, cases)
        for case, outputs in zip(cases, own):
            if case.check is not None:
                checked(case, outputs, count)
        own = [outputs for case, outputs in zip(cases, own) if case.check is None]
        cases = [case for case in cases if case.check is None]
        reference, ort = self.others
        others = {"onnx": self.results(reference, [widened(case, dtypes) for case in cases])}
        # What is computed in float32 and rounded once is what half precision means here; ONNX Runtime rounds on the way in some kernels.
        wide = {index: case for index, original in enumerate(cases) if is_half(original) and (case := wide_case(original)) is not None}
        others["ort"] = self.results(ort, [wide.get(index, case) for index, case in enumerate(cases)])
        substitutes = self.substitutes(cases, wide, others)
        for index, case in enumerate(cases):
            given = {name: results[index] for name, results in others.items() if not isinstance(results[index], Exception)}
            in_float32 = index in wide
            if index in substitutes:
                given["ort"], in_float32 = substitutes[index]
            verdict(case, own[index], given, count, in_float32)

    def substitutes(self, cases, wide, others):
        """What ONNX Runtime gives where it lacks the version or the type, {index: (outputs, whether they are computed in float32)}: an
        older version that means the same; float32 where there is no other judge; the type itself where float32 was tried."""
        lacking = [index for index in range(len(cases)) if isinstance(others["ort"][index], Exception)]
        given = {}

        def attempt(tried, in_float32):
            results = self.results(self.others[1], list(tried.values()))
            given.update({index: (outputs, in_float32(index)) for index, outputs in zip(tried, results) if not isinstance(outputs, Exception)})

        attempt({index: case for index in lacking if (case := older(wide.get(index, cases[index]))) is not None}, wide.__contains__)
        attempt({index: cases[index] for index in lacking if index in wide and index not in given}, lambda _: False)
        alone = [index for index in lacking if index not in wide and index not in given and isinstance(others["onnx"][index], Exception)]
        attempt({index: case for index in alone if (case := wide_case(older(cases[index]) or cases[index])) is not None}, lambda _: True)
        return given

    def results(self, judge, cases):
        """For each case its outputs, or the error. All of them in one model where it takes that."""
        chosen = [index for index, case in enumerate(cases) if (judge.name, *key_of(case)) not in self.hopeless]
        results = [judges.Unsupported("known")] * len(cases)
        if not chosen:
            return results
        try:
            some = [cases[index] for index in chosen]
            model, feeds = judges.model_of(some)
            for index, outputs in zip(chosen, judges.split(some, judge.run(model, feeds))):
                results[index] = outputs
        except (evener.Error, judges.Unsupported):
            for index in chosen:
                results[index] = self.single(judge, cases[index])
        return results

    def single(self, judge, case):
        try:
            return judges.split([case], judge.run(*judges.model_of([case])))[0]
        except (evener.Error, judges.Unsupported) as error:
            if judge.name == "ort" and any(text in str(error) for text in _HOPELESS):
                self.hopeless.add((judge.name, *key_of(case)))
            return error


def checked(case, own, count):
    """Counts a case that says itself what it gives."""
    wrong = str(own) if isinstance(own, Exception) else case.check(own)
    if wrong:
        count.failures.append(f"{case.describe()}: {wrong}")
    else:
        count.counted += 1


def key_of(case):
    return (case.op, case.opset, *(None if x is None else x.dtype.name for x in case.inputs), *(case.attributes.get(k) for k in ("to", "dtype")))


def verdict(case, own, given, count, in_float32=False):
    """Counts a case, or says in count.failures what is wrong. `given`: the judges' outputs by their names; `in_float32`: ONNX Runtime's are
    computed in float32 whatever the case's type."""
    if isinstance(own, Exception):
        count.failures.append(f"{case.describe()}: {own}" + (f" ({' and '.join(given)} run it)" if given else ""))
        return
    if not given:
        count.drop(NO_JUDGE)
        return
    rule = next((r for r in DISAGREEMENTS if case.op in r.ops and r.applies(case)), None)
    if rule is not None:
        count.disagreed[rule.reason] = count.disagreed.get(rule.reason, 0) + 1
        given = {name: outputs for name, outputs in given.items() if name in rule.right}
        if not given:
            count.drop(rule.reason)
            return
    if case.domain == TRAINING:  # the reference computes in float64, or in float32, as numpy's rules of attributes have it
        given = {name: [array.astype(a.dtype) for a, array in zip(own, outputs)] for name, outputs in given.items()}
    given = {name: [as_own(a, array, in_float32 and name == "ort") for a, array in zip(own, outputs)] for name, outputs in given.items()}
    wrong = {}
    for name, outputs in given.items():
        single = in_float32 and name == "ort"
        why = differences(own, outputs, lambda dtype: tolerance_of(case, "float32" if single and dtype == "float64" else dtype))
        if why:
            wrong[name] = why
    if list(wrong) == ["ort"] and may_saturate(case):
        count.disagreed[SATURATES] = count.disagreed.get(SATURATES, 0) + 1
        if len(given) == 1:
            count.drop(SATURATES)
            return
        del wrong["ort"], given["ort"]
    if wrong:
        agreeing = [name for name in given if name not in wrong]
        count.failures.append(f"{case.describe()}: {'; '.join(f'{n}: {w}' for n, w in wrong.items())}" + (f" (as {agreeing[0]})" if agreeing else ""))
        return
    count.counted += 1
    for name in given:
        count.by_judge[name] += 1
