"""com.microsoft's Tokenizer against ONNX Runtime."""
import evener
import numpy
import pytest
from common import onnx_runtime
from onnx import helper

TEXTS = (["a b c", "de f"], [" a  b ", ""], ["I love computer science !", "x"], ["a1b22c", "xx"], ["aab bc, d", "abxab"], ["héé!x", "é è"],
         ["ab_c1, d!  Ee", "abab aab"], ["", "  "], ["xaayz", "foo  bar"])
MODES = ({"separators": [" "]}, {"separators": ["[0-9]"]}, {"separators": ["[0-9]+", " "]}, {"separators": ["b", ",", " "]},
         {"separators": ["ab", "a"]}, {"separators": ["a", "ab"]}, {"separators": [""]}, {"separators": [" ", "  "]},
         {"tokenexp": "[a-zA-Z0-9_]+"}, {"tokenexp": "a|ab"}, {"tokenexp": "a*"}, {"tokenexp": "[0-9]"}, {"tokenexp": "[^ ]+ [^ ]+"},
         {"tokenexp": "\\w+"}, {"tokenexp": ".b|[a-z]+"})


def model(rank, **attributes):
    node = helper.make_node("Tokenizer", ["x"], ["y"], "n", domain="com.microsoft", **{"mark": 0, "pad_value": "#", "mincharnum": 1, **attributes})
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", 8, [None] * rank)], [helper.make_tensor_value_info("y", 8, None)])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, ir_version=8, opset_imports=imports).SerializeToString()


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_tokens_are_those_of_onnx_runtime(mode):
    for mark in (0, 1):
        for least in (1, 2) if mode != {"separators": [""]} else (1,):
            for rank in (1, 2):
                content = model(rank, mark=mark, mincharnum=least, **mode)
                session, oracle = evener.Runtime().session(content), onnx_runtime(content)
                for texts in TEXTS:
                    x = numpy.array([texts] * rank if rank == 2 else texts, dtype=object)
                    wanted, = oracle.run(None, {"x": x})
                    actual = session.run({"x": x})["y"]
                    assert (actual.shape, actual.tolist()) == (wanted.shape, wanted.tolist()), (mark, least, texts)


@pytest.mark.parametrize("attributes, why", [
    ({"separators": [" "], "mincharnum": 0}, "mincharnum"), ({}, "separators"), ({"separators": [" "], "tokenexp": "x"}, "separators"),
    ({"separators": [""], "mincharnum": 2}, "mincharnum"), ({"separators": ["("]}, "("), ({"tokenexp": "[a"}, "[")], ids=str)
def test_what_makes_no_sense_is_refused_while_loading(attributes, why):
    with pytest.raises(evener.Error) as caught:
        evener.Runtime().session(model(1, **attributes))
    assert caught.value.status == evener.Status.INVALID_MODEL and caught.value.node == "n"
    assert why in str(caught.value)
