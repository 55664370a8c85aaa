"""The generated layer: that ctypes lays structs out as the compiler does. tests/python/test_bindings.py says that it is up to date."""
import ctypes
import pathlib
import shutil
import subprocess

from evener import _raw

PYTHON = pathlib.Path(__file__).resolve().parents[1]
INCLUDE = PYTHON.parents[1] / "include"


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
