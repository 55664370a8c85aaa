"""The generated layer: that ctypes lays structs out as the compiler does. tests/python/test_bindings.py says that it is up to date."""
import ctypes
import pathlib
import shutil
import subprocess

import pytest

from evener import _library, _raw

PYTHON = pathlib.Path(__file__).resolve().parents[1]
INCLUDE = PYTHON.parents[1] / "include"


def test_structs_are_laid_out_as_in_c(tmp_path):
    compiler = shutil.which("cc")
    assert compiler, "this test needs a C compiler"
    lines = ["#include <stddef.h>", '#include "evener/quantize.h"', '#include "evener/request.h"', '#include "evener/state.h"', '#include "evener/opencl.h"', '#include "evener/train.h"']
    structs = [kind for kind in vars(_raw).values()
               if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and hasattr(kind, "_fields_")]
    assert set(structs) == set(_raw.STRUCTS)
    for kind in structs:
        lines.append(f'_Static_assert(sizeof({kind.__name__}) == {ctypes.sizeof(kind)}, "size");')
        for field, _ in kind._fields_:
            lines.append(f'_Static_assert(offsetof({kind.__name__}, {field}) == {getattr(kind, field).offset}, "{field}");')
    source = tmp_path / "layout.c"
    source.write_text("\n".join(lines) + "\n")
    done = subprocess.run([compiler, "-std=c11", f"-I{INCLUDE}", "-fsyntax-only", str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def layout_of(change):
    """An evn_abi_layout of another library: the opened one's answers, with those of one place changed."""
    def layout(structure, field, offset, size, error):
        status = _library.library().evn_abi_layout(structure, field, offset, size, error)
        return change(structure, field, offset, size, status)
    return layout


def test_a_library_whose_structs_lie_elsewhere_is_found():
    assert _raw.difference(_library.library().evn_abi_layout) is None

    def grown(structure, field, offset, size, status):
        if field is None:
            size.value += 8
        return status
    assert _raw.difference(layout_of(grown)) is None

    def moved(structure, field, offset, size, status):
        if (structure, field) == (b"evn_run_options", b"timeout_ns"):
            offset.value += 8
        return status
    assert _raw.difference(layout_of(moved)) == "evn_run_options.timeout_ns is expected at byte 8 with 8 bytes, and found at byte 16 with 8"

    def shrunk(structure, field, offset, size, status):
        if (structure, field) == (b"evn_error", None):
            size.value -= 8
        return status
    assert "evn_error is expected at byte 0" in _raw.difference(layout_of(shrunk))

    def older(structure, field, offset, size, status):
        return 1 if field == b"skipped_outputs" else status
    assert _raw.difference(layout_of(older)).endswith("found nowhere")


@pytest.mark.parametrize("version, lacks, says", [(0x000200, "", "expected ABI 0.3.0, found 0.2.0"), (0x010000, "", "found 1.0.0"),
                                                  (0x000300, "evn_state_fork", "found 0.3.0, .*evn_state_fork"), (0x000300, "evn_version_number", "is no Evener library")])
def test_a_library_that_does_not_fit_is_an_error_with_both_versions(tmp_path, version, lacks, says):
    compiler = shutil.which("cc")
    assert compiler, "this test needs a C compiler"
    lines = [f"int {name}(void) {{ return {version if name == 'evn_version_number' else 0}; }}" for name in _raw.FUNCTIONS if name != lacks]
    source, library = tmp_path / "other.c", tmp_path / "libother.so"
    source.write_text("\n".join(lines) + "\n")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    with pytest.raises(OSError, match=f"libother.so.*{says}"):
        _library._open(str(library))
