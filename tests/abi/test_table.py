"""evn_get_api from outside, as a host meets it that opens the library: the table has every exported function, at its place."""

import ctypes
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = os.environ["EVENER_LIBRARY"]
sys.path.insert(0, str(ROOT / "scripts"))

import abi_baseline  # noqa: E402

OK, INVALID_ARGUMENT, VERSION = 0, 1, 15
POINTER_SIZE = ctypes.sizeof(ctypes.c_void_p)


def opened():
    library = ctypes.CDLL(LIBRARY)
    library.evn_get_api.restype = ctypes.c_int32
    library.evn_get_api.argtypes = [ctypes.c_uint32, ctypes.POINTER(ctypes.c_void_p)]
    return library


def table(library, version):
    """(status, address); the address is 77 where nothing was written."""
    address = ctypes.c_void_p(77)
    return library.evn_get_api(version, address), address.value


def header_version():
    text = (ROOT / "include" / "evener" / "evener.h").read_text()
    major, minor, patch = (int(re.search(rf"#define EVN_VERSION_{part} (\d+)", text)[1]) for part in ("MAJOR", "MINOR", "PATCH"))
    return major << 16 | minor << 8 | patch


def members():
    """(name, offset) of the functions of evn_api, as the compiler lays them out."""
    rows = [(name.split(".")[1], int(value.split(" ")[0])) for (kind, name), value in abi_baseline.read(abi_baseline.generate()).items()
            if kind == "field" and name.startswith("evn_api.")]
    assert rows[:2] == [("struct_size", 0), ("api_version", 4)]
    return rows[2:]


def test_the_table_has_each_exported_function_where_dlsym_finds_it():
    library = opened()
    status, address = table(library, header_version())
    assert status == OK
    shown = subprocess.run(["nm", "-D", "--extern-only", "--defined-only", LIBRARY], check=True, capture_output=True, text=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in shown.splitlines() if " T " in line}
    rows = members()
    assert {f"evn_{name}" for name, _ in rows} == exported - {"evn_get_api"}
    for name, offset in rows:
        found = ctypes.cast(getattr(library, f"evn_{name}"), ctypes.c_void_p).value
        assert ctypes.c_void_p.from_address(address + offset).value == found, name


def test_the_table_says_its_size_and_version():
    library = opened()
    _, address = table(library, header_version())
    assert ctypes.c_uint32.from_address(address).value == 8 + POINTER_SIZE * len(members())
    assert ctypes.c_uint32.from_address(address + 4).value == library.evn_version_number() == header_version()


def test_a_version_that_does_not_fit_gets_no_table():
    library = opened()
    for version in (header_version() + 1, header_version() + (1 << 8), 1 << 16, 2**32 - 1, (2 << 8) - 1, 1 << 8, 0):
        assert table(library, version) == (VERSION, 77), hex(version)
    assert library.evn_get_api(header_version(), None) == INVALID_ARGUMENT


def test_every_struct_with_a_macro_has_a_function():
    text = "".join((ROOT / "include" / "evener" / name).read_text() for name in abi_baseline.HEADERS)
    macros = {name.lower() for name in re.findall(r"#define (EVN_\w+_INIT)\b", text)}
    functions = set(re.findall(r"EVN_API void (evn_\w+_init)\(", text))
    sized = {f"{name}_init" for name, fields in abi_baseline.Declarations(text).structs.items() if fields[0][0] == "struct_size"}
    assert len(macros) > 10 and macros == functions == sized - {"evn_log_record_init", "evn_api_init"}
    table_of_structs = (ROOT / "src" / "api" / "structs.h").read_text()
    assert {f"{name}_init" for name in re.findall(r"EVN_STRUCT\((evn_\w+),", table_of_structs)} == functions
