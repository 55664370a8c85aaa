"""Makes the Python binding, the examples, the list of models and the helpers of this folder importable."""
import pathlib
import re
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
for folder in ("bindings/python", "examples/python", "tests/models", "bench", "bench/models"):
    sys.path.insert(0, str(REPOSITORY / folder))
sys.path.append(str(REPOSITORY / "bindings/python/tests"))  # gate.py

# Where ONNX Runtime is the judge of sums of 8-bit products, or of a network of them. On x86 without VNNI it adds two products in 16 bits,
# which saturates; "session.x64quantprecision" is no remedy for int8 activations and for weights that are no constants.
SUMS_OF_BYTES = re.compile(
    r"test_an_operator_agrees_with_onnx_runtime\[(QGemm-uint8-int8|QAttention-(int8|past)|MatMulIntegerToFloat-uint8-int8|DynamicQuantize\w+-int8)|"
    r"test_half_precision_is_what_float32_gives_rounded\[QAttention-(int8|past)|"
    r"test_a_network_of_quantized_operators_matches_onnx_runtime\[channel-uint8|test_an_lstm_becomes_whole_numbers_where_it_is_asked_for|"
    r"test_deep_nestings_are_saved|test_outputs_that_no_node_of_a_branch_makes|test_onnx_runtime_runs_what_was_made_of_graphs_in_graphs|test_names_are_unique_in_all_graphs|"
    r"test_sentences_are_as_near_to_each_other_as_before|test_whole_numbers_give_the_labels_of_onnx_runtime")


def pytest_collection_modifyitems(items):
    from differential.disagreements import ort_saturates
    concerned = [item for item in items if SUMS_OF_BYTES.search(item.name)]
    if concerned and ort_saturates():
        for item in concerned:
            item.add_marker(pytest.mark.skip(reason="this CPU has no VNNI, without which the judge's sums of 8-bit products saturate"))
