"""ONNX's backend node tests, and the committed list of those that do not give the stored output: expected.txt beside this file."""
import functools
import pathlib
import warnings

import numpy
from onnx.backend.test.case.node import collect_testcases

EXPECTED = pathlib.Path(__file__).with_name("expected.txt")
COUNT = 1884  # of onnx 1.23.2
KINDS = {
    "refused": "the library refuses it with EVN_ERROR_UNSUPPORTED and a message that has the text of the third column",
    "random": "the stored output is a random stream: compared by shape, dtype, mean and spread; counts as passed",
}


@functools.lru_cache(maxsize=None)
def cases():
    """All of them, by name."""
    numpy.random.seed(1)  # for those that draw their inputs
    with warnings.catch_warnings(), numpy.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return {case.name: case for case in collect_testcases(None)}


def expectations(path=EXPECTED):
    """{name: (kind, text of the message, reason)} of the tests that do not simply pass. Without a reason of its own the message is it."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        name, kind, message, *reason = (field.strip() for field in line.split("|"))
        if name in found or kind not in KINDS or len(reason) > 1 or not any([message, *reason]):
            raise SystemExit(f"{path.name}: not a line of this list: {line}")
        found[name] = (kind, message, reason[0] if reason else message)
    return found


def operators_of(graph):
    """(domain, name) of the nodes, those of inner graphs included."""
    for node in graph.node:
        yield ("" if node.domain == "ai.onnx" else node.domain, node.op_type)
        for attribute in node.attribute:
            yield from operators_of(attribute.g)
