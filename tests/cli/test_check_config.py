"""`evener check-config --load`: patterns of several models, and what it prints of each."""
import pytest
from command import COMMAND, CONFIG, evener, save, value
from onnx import helper

if not COMMAND:
    pytest.skip("EVENER_COMMAND is not set", allow_module_level=True)


def test_check_config_looks_at_the_patterns_of_each_model_alone(conv, add, tmp_path):
    config = tmp_path / "c.yaml"
    models = "models:\n  first: {path: conv.onnx, keep_fp32: ['conv*']}\n  second: {path: add.onnx, keep_fp32: ['%s']}\n"
    config.write_text(models % "add*")
    assert "matches no node" not in evener("check-config", "--load", config)[1]
    for common in ("", "session: {keep_fp32: ['conv*']}\n"):
        config.write_text(common + models % "conv*")
        _, err = evener("check-config", "--load", config, code=CONFIG)
        assert 'model "second": keep_fp32 "conv*" matches no node of the model' in err and "first" not in err
        assert err.count("matches no node of") == 1


def memory_lines(text):
    """What an explanation, or check-config, prints of the memory of the CPU, without the bytes that change while other sessions live."""
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("  cpu: arena "))
    return [lines[at].split(",")[0], *lines[at + 1:at + 3]]


@pytest.mark.parametrize("extra", ["", "devices: {cpu: {type: cpu, memory_limit: 64MiB}}\n", "session: {memory: small}\n"])
def test_check_config_prints_placement_and_memory_as_explain_does(conv, tmp_path, extra):
    config = tmp_path / "c.yaml"
    config.write_text(extra + "models:\n  first: {path: conv.onnx}\n")
    checked = evener("check-config", "--load", config)[0]
    explained = evener("explain", conv, "--config", config)[0]
    placement = next(line for line in explained.splitlines() if line.startswith("placement: "))
    assert "  " + placement in checked.splitlines()
    assert memory_lines(checked) == memory_lines(explained)


def test_names_of_nodes_do_not_change_what_check_config_prints(tmp_path):
    name = "node\nmemory:\nplacement: 9 nodes on mars"
    save(tmp_path / "a.onnx", [helper.make_node("Softmax", ["x"], ["c"], name=name), helper.make_node("Softmax", ["c"], ["y"], name=name + "2")],
         [value("x", [8, 8])], [value("y", [8, 8])])
    config = tmp_path / "c.yaml"
    config.write_text("models:\n  first: {path: a.onnx}\n")
    lines = evener("check-config", "--load", config)[0].splitlines()
    assert "  placement: 2 nodes on cpu" in lines and not any(line.startswith("placement: 9") for line in lines)
    assert any(line.startswith("  cpu: arena ") for line in lines)
