"""`evener check-config --load`: patterns of several models."""
import pytest
from command import COMMAND, CONFIG, evener

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
