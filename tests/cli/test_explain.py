"""evener explain: assertions of a placement."""
import json
import os

import pytest
from command import COMMAND, DEVICE, FAILURE, USAGE, evener, save, value
from onnx import helper

if not COMMAND:
    pytest.skip("EVENER_COMMAND is not set", allow_module_level=True)


@pytest.mark.parametrize("assertion", ["all=cpu", "op(Conv)=cpu", "name(conv_*)=cpu", "name(s?b_1)=cpu", "op(Sub)=cpu",
                                       "name(relu_1)=cpu"])
def test_assertions_that_hold_end_with_0(conv, assertion):
    out, err = evener("explain", conv, "--assert", assertion, "--assert", "all=cpu")
    assert "conv_1" in out and err == ""


def test_assertions_that_do_not_hold_name_nodes_devices_and_reasons(conv):
    out, err = evener("explain", conv, "--assert", "op(Conv)!=cpu", "--assert", "all=cpu", "--assert", "name(*)!=cpu", code=FAILURE)
    reason = next(node["reason"] for node in json.loads(evener("explain", conv, "--json")[0])["nodes"] if node["op"] == "Conv")
    assert "conv_1" in out
    assert "evener: --assert op(Conv)!=cpu: 1 of 1 nodes contradict it\n" in err
    assert f"\n  conv_1 (Conv) is on cpu: {reason}\n" in err
    assert "all=cpu" not in err and "name(*)!=cpu: " in err


def test_devices_are_named_as_the_configuration_names_them(add, tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text("devices:\n  host: {type: cpu, threads: 1}\n")
    for device in ("host", "cpu"):
        evener("explain", add, "--config", config, "--assert", f"all={device}")
        evener("explain", add, "--config", config, "--assert", f"op(Add)!={device}", code=FAILURE)
    _, err = evener("explain", add, "--config", config, "--assert", "all=npu", code=DEVICE)
    assert 'there is no device "npu"' in err and "host" in err


def test_an_assertion_that_matches_no_node_is_an_error(conv):
    for assertion in ("op(Gemm)=cpu", "op(Gemm)!=cpu", "name(conv)=cpu", "op(conv)=cpu"):
        assert f"--assert {assertion}: no node" in evener("explain", conv, "--assert", assertion, code=FAILURE)[1]


def test_at_most_20_nodes_are_named_and_the_rest_counted(tmp_path):
    nodes = [helper.make_node("Softmax", [f"v{i}"], [f"v{i + 1}"], name=f"n{i}") for i in range(25)]
    model = save(tmp_path / "m.onnx", nodes, [value("v0", [2, 3])], [value("v25", [2, 3])])
    _, err = evener("explain", model, "--assert", "all!=cpu", code=FAILURE)
    assert "25 of 25 nodes contradict it" in err and "\n  n19 (Softmax) is on cpu" in err and "n20" not in err
    assert err.endswith("\n  and 5 more\n")


@pytest.mark.parametrize("assertion, place, wanted", [
    ("", 1, "op(NAME), name(GLOB) or all"), ("Conv=gpu", 1, "op(NAME), name(GLOB) or all"), ("op(Conv=gpu", 8, ")"),
    ("op(Conv", 8, ")"), ("op()=gpu", 4, "a name"), ("name()=gpu", 6, "a name"), ("op(Conv)", 9, "= or !="), ("all", 4, "= or !="),
    ("op(Conv)gpu", 9, "= or !="), ("alle=cpu", 4, "= or !="), ("op(Conv)x=cpu", 9, "= or !="), ("all=", 5, "the name of a device"),
    ("all!=", 6, "the name of a device"),
    ("all=my device", 7, "a character of a device's name"), ("op(Conv)==gpu", 10, "a character of a device's name")])
def test_wrong_assertions_are_usage_errors_with_the_place(conv, assertion, place, wanted):
    out, err = evener("explain", conv, "--assert", assertion, code=USAGE)
    assert out == "" and f"--assert {assertion}: {wanted} was expected at character {place};" in err


def test_names_may_have_brackets_signs_of_equality_and_control_characters(tmp_path):
    node = helper.make_node("Softmax", ["x"], ["y"], name="a)=(b\x1b[31m")
    model = save(tmp_path / "m.onnx", [node], [value("x", [2, 3])], [value("y", [2, 3])])
    evener("explain", model, "--assert", "name(a)=(b*)=cpu")
    _, err = evener("explain", model, "--assert", "name(a)=(b*)!=cpu", code=FAILURE)
    assert "a)=(b\\x1b[31m (Softmax) is on cpu" in err and "\x1b" not in err


def opencl_config(tmp_path):
    if "opencl:0" not in evener("devices", "--json")[0] and os.environ.get("EVN_REQUIRE_OPENCL") != "1":
        pytest.skip("no OpenCL device")
    config = tmp_path / "two.yaml"
    config.write_text("devices:\n  gpu: {type: opencl}\n"
                      "placement:\n  default: cpu\n  rules:\n    - {match: {op: Conv}, device: gpu}\n")
    return config


def test_assertions_tell_devices_apart(conv, tmp_path):
    config = opencl_config(tmp_path)
    evener("explain", conv, "--config", config, "--assert", "op(Conv)=gpu", "--assert", "op(Sub)!=gpu", "--assert", "op(Sub)=cpu")
    _, err = evener("explain", conv, "--config", config, "--assert", "all=gpu", code=FAILURE)
    assert "sub_1 (Sub) is on cpu: " in err and "conv_1" not in err
