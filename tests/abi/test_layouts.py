"""evn_abi_layout: the library knows every struct and field of the headers, where a compiler puts them, and no others."""

import ctypes
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import abi_baseline  # noqa: E402

LIBRARY = ctypes.CDLL(os.environ["EVENER_LIBRARY"])
LIBRARY.evn_abi_layout.restype = ctypes.c_int32
LIBRARY.evn_abi_layout.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
RECORDED = abi_baseline.read(abi_baseline.generate())


def layout(structure, field):
    """(status, offset, size); 77 where nothing was written."""
    offset, size = ctypes.c_size_t(77), ctypes.c_size_t(77)
    status = LIBRARY.evn_abi_layout(structure, field, ctypes.byref(offset), ctypes.byref(size), None)
    return status, offset.value, size.value


def test_every_struct_and_field_is_where_a_compiler_puts_it():
    count = 0
    for (kind, name), value in RECORDED.items():
        if kind == "struct" and name != "evn_api":
            assert layout(name.encode(), None) == (0, 0, int(value)), name
        elif kind == "field" and not name.startswith("evn_api."):
            structure, field = name.split(".")
            offset, size = map(int, value.split(" ")[:2])
            assert layout(structure.encode(), field.encode()) == (0, offset, size), name
        else:
            continue
        count += 1
    assert count > 250


@pytest.mark.parametrize("structure, field", [(b"evn_nothing", None), (b"", None), (b"struct_size", None), (b"evn_error", b"evn_log_field"),
                                              (b"evn_error", b""), (b"evn_error", b"nothing"), (b"evn_error", b"key"), (None, None), (None, b"key")])
def test_what_there_is_not_is_an_error(structure, field):
    assert layout(structure, field) == (1, 77, 77)


def test_the_outs_must_be_there():
    size = ctypes.c_size_t()
    assert LIBRARY.evn_abi_layout(b"evn_error", None, None, ctypes.byref(size), None) == 1
    assert LIBRARY.evn_abi_layout(b"evn_error", None, ctypes.byref(size), None, None) == 1
