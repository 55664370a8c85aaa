#!/usr/bin/env python3
"""Writes what a build without some parts of the library (src/api/features.txt, docs/packaging.md) is made of: a list of the files of src/api/ that
it leaves out, a header of constants, and in the place of those files functions that refuse with EVN_ERROR_UNSUPPORTED. Needs nothing but Python.

usage: select_features.py --cmake FILE --header FILE --source FILE [PART ...]      (parts that stay)
"""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bindings"))
sys.path.insert(0, str(ROOT / "scripts"))
import c_declarations  # noqa: E402
import description  # noqa: E402
from select_operators import write  # noqa: E402

API = ROOT / "src" / "api"


def rows():
    """Parts, in the order of the file: name -> the option that leaves it out, the files with its functions."""
    found = {}
    for line in (API / "features.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, option, files, _ = (part.strip() for part in line.split("|"))
            found[name] = option, files.split()
    return found


def functions_of(file):
    """The functions of the C API that a file of src/api/ defines."""
    return re.findall(r"^evn_status (evn_\w+)\(", (API / file).read_text(), re.M)


def refusal(function, option):
    """The definition of a function that refuses. What such a function never made can be released as NULL alone."""
    writer = c_declarations.Declarations()
    *given, last = function.parameters
    if last.type.base == "evn_error":
        result = f'evn::refuse_left_out("{function.name}", "{option}", {last.name})'
    elif function.name.endswith("_release") and not given:
        result = f"{last.name} == nullptr ? EVN_OK : EVN_ERROR_INVALID_HANDLE"
    else:
        raise SystemExit(f"select_features.py: {function.name} has no error and releases nothing: it cannot be left out")
    unused = "".join(f"  static_cast<void>({parameter.name});\n" for parameter in given)
    return f"{writer.function(function.name, function)} {{\n{unused}  return {result};\n}}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--header", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("parts", nargs="*", metavar="PART")
    options = parser.parse_args()
    parts = rows()
    for name in options.parts:
        if name not in parts:
            raise SystemExit(f"select_features.py: there is no part {name}; there are: {', '.join(parts)}")
    left_out = {name: row for name, row in parts.items() if name not in options.parts}
    api = {function.name: function for function in description.read().functions}
    refusals = [refusal(api[function], option) for option, files in left_out.values() for file in files for function in functions_of(file)]
    constants = "".join(f"inline constexpr bool kHas_{name} = {'true' if name in options.parts else 'false'};\n" for name in parts)
    write(options.header, f"// Made by scripts/select_features.py from src/api/features.txt.\n#pragma once\n\nnamespace evn {{\n\n{constants}\n}}  // namespace evn\n")
    write(options.source, '// Made by scripts/select_features.py: the functions that this build leaves out.\n#include "api/left_out.h"\n'
          '#include "evener/api.h"\n\nextern "C" {\n\n' + "\n".join(refusals) + '\n}  // extern "C"\n')
    switches = "".join(f"set(EVN_HAS_{name} {'ON' if name in options.parts else 'OFF'})\n" for name in parts)
    write(options.cmake, "# Made by scripts/select_features.py.\n" + switches + "set(EVN_LEFT_OUT_API\n" + "".join(f"  {(API / file).resolve()}\n" for _, files in left_out.values() for file in files) + ")\n")


if __name__ == "__main__":
    main()
