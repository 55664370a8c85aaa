"""The generated layer: that it is up to date, and that ctypes lays structs out as the compiler does."""
import ctypes
import importlib.util
import pathlib
import shutil
import subprocess

import pytest

from evener import _raw

PYTHON = pathlib.Path(__file__).resolve().parents[1]
INCLUDE = PYTHON.parents[1] / "include"


def generator():
    spec = importlib.util.spec_from_file_location("generate", PYTHON / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_raw_layer_is_what_the_generator_makes_of_the_header():
    text = generator().generate(b"".join((INCLUDE / "evener" / name).read_bytes() for name in ("evener.h", "quantize.h", "request.h", "state.h", "event.h", "opencl.h")))
    assert (PYTHON / "evener" / "_raw.py").read_text() == text, "run bindings/python/generate.py"


def test_a_declaration_that_the_generator_cannot_read_is_an_error():
    with pytest.raises(SystemExit, match="cannot read"):
        generator().generate(b"typedef union evn_either { int32_t a; } evn_either;\n")


def test_structs_are_laid_out_as_in_c(tmp_path):
    compiler = shutil.which("cc")
    assert compiler, "this test needs a C compiler"
    lines = ["#include <stddef.h>", '#include "evener/quantize.h"', '#include "evener/request.h"', '#include "evener/state.h"', '#include "evener/opencl.h"']
    structs = [kind for kind in vars(_raw).values()
               if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and kind is not ctypes.Structure]
    assert len(structs) > 5
    for kind in structs:
        lines.append(f'_Static_assert(sizeof({kind.__name__}) == {ctypes.sizeof(kind)}, "size");')
        for field, _ in kind._fields_:
            lines.append(f'_Static_assert(offsetof({kind.__name__}, {field}) == {getattr(kind, field).offset}, "{field}");')
    source = tmp_path / "layout.c"
    source.write_text("\n".join(lines) + "\n")
    done = subprocess.run([compiler, "-std=c11", f"-I{INCLUDE}", "-fsyntax-only", str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
