"""Draws cases until a kernel of the CPU has run some of them, and judges these."""
import dataclasses
import zlib

import evener
import numpy

from . import judges, kernels
from .draw import GENERATORS, Draw
from .trial import BATCH, Count, dtypes_of, opsets_of, verdict

# Half of an ulp of what operands are rounded to, over the value.
ROUNDOFF = {"bf16": 2.0 ** -8, "fp16": 2.0 ** -11}
FLOAT32 = 2.0 ** -24
PART = {"bf16": 0, "fp16": 32}  # products that are summed in the type of the operands, before float32 sums go on
MOST_TRIES = 6    # draws for a case, of those that are made for a kernel
MOST_DRAWN = 40  # of an operator's own


def reach(trials, row, wanted, seed=1):
    """A Count of at least `wanted` cases that the kernel of a row of trial.cpu_kernels ran, or of as many as some times as many draws give."""
    rng = numpy.random.default_rng([zlib.crc32(f"kernel {row['name']}".encode()), seed])
    count = Count()
    if row["name"] in kernels.REACHES:
        while count.counted < wanted and count.drawn < MOST_TRIES * wanted and not count.failures:
            single(trials, kernels.drawn(row["name"], rng), row, count)
        return count
    key = row["domain"], row["operator"]
    versions, opsets = trials.rows[key], opsets_of(*key, trials.rows[key])
    while count.counted < wanted and count.drawn < MOST_DRAWN * wanted and not count.failures:
        opset = opsets[-1 - count.drawn // BATCH % len(opsets)]
        table = versions[max(since for since in versions if since <= opset)]
        cases = [GENERATORS[key](Draw(rng, *key, opset, dtypes_of(table))) for _ in range(BATCH)]
        batch(trials, cases, row["name"], count, table["dtypes"])
        count.drawn += BATCH
    return count


def batch(trials, cases, kernel, count, dtypes):
    """Judges those of the cases that the kernel ran."""
    cases = [case for case in cases if case.check is None]
    _, ran = trials.own.run_explained(*judges.model_of(cases))
    met = {name for name, used in ran if used == kernel}
    trials.judge([case for index, case in enumerate(cases) if f"n{index}" in met], count, dtypes)


def single(trials, case, row, count):
    """Judges a case that stands for itself, if the kernel ran some node of it."""
    count.drawn += 1
    precision = row["operands"] if row["operands"] != "fp32" else None
    try:
        own, ran = trials.own.run_explained(*judges.model_of([case]), precision)
    except evener.Error as error:
        own, ran = error, [("", row["name"])]
    if all(kernel != row["name"] for _, kernel in ran):
        count.drop(f"run by {', '.join(sorted({kernel for _, kernel in ran}))}")
        return
    given = {}
    for judge in trials.others if case.nodes is None else trials.others[1:]:
        outputs = trials.single(judge, case)
        if not isinstance(outputs, Exception):
            given[judge.name] = outputs
    if precision is not None and "ort" in given:
        case = dataclasses.replace(case, tolerance=(0, 0, bound(trials, case, ROUNDOFF[precision], PART[precision])))
    verdict(case, own, given, count)


def terms(case):
    """How many products a sum has."""
    return int(numpy.prod(case.inputs[1].shape[1:])) if case.op == "Conv" else case.inputs[0].shape[-1]


def recurrent_bound(case, u):
    """What the products of one step may be off by, whose states are 1 at most: gates are no steeper than that, and what steps add to it has
    either sign. tests/backends/cpu/bfloat/bfloat_recurrent_test.cc rounds as the kernels do, and is stricter."""
    x, w, r = (numpy.abs(case.inputs[i]).astype("float64") for i in range(3))
    h = max([1.0, *(float(numpy.abs(given).max(initial=0)) for given in case.inputs[5:7] if given is not None)])
    return (2 * u + u * u) * (x.max(initial=0) * w.sum(axis=2).max() + h * r.sum(axis=2).max())


def bound(trials, case, u, part):
    """How far products of rounded operands may be from the exact ones, by element: each operand is off by no more than u of itself, so a
    product by (1 + u)^2 - 1 of itself, and a sum by as much of the sum of magnitudes; to that come the roundings of float32 sums, here and
    in the judge, and those of the first `part` products of each sum. Attention's is kernels.attention_bound."""
    if case.op == "Attention":
        return kernels.attention_bound(case, u)
    if case.op in ("LSTM", "GRU", "RNN"):
        return recurrent_bound(case, u)
    magnitudes = dataclasses.replace(case, inputs=[numpy.abs(x) for x in case.inputs])
    return (2 * u + u * u + 2 * terms(case) * FLOAT32 + part * u) * trials.single(trials.others[1], magnitudes)[0].astype("float64")
