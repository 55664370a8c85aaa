"""Makes the Python binding, the examples, the list of models and the helpers of this folder importable."""
import pathlib
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
for folder in ("bindings/python", "examples/python", "tests/models", "bench", "bench/models"):
    sys.path.insert(0, str(REPOSITORY / folder))
