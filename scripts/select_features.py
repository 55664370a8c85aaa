#!/usr/bin/env python3
"""Writes what a build without some features of the C API (EVN_FEATURES, docs/packaging.md) is made of: a list of the files of src/api/ that it
leaves out, a header of constants, and in the place of those files functions that refuse with EVN_ERROR_UNSUPPORTED. Needs nothing but Python.

usage: select_features.py --cmake FILE --header FILE --source FILE [FEATURE ...]
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
    """Features, in the order of the file: name -> the files with their functions."""
    found = {}
    for line in (API / "features.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, files, _ = (part.strip() for part in line.split("|"))
            found[name] = files.split()
    return found


def functions_of(file):
    """The functions of the C API that a file of src/api/ defines."""
    return re.findall(r"^evn_status (evn_\w+)\(", (API / file).read_text(), re.M)


def refusal(function, feature):
    """The definition of a function that refuses. What a feature never made can be released as NULL alone."""
    writer = c_declarations.Declarations()
    *given, last = function.parameters
    if last.type.base == "evn_error":
        result = f'evn::refuse_left_out("{function.name}", "{feature}", {last.name})'
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
    parser.add_argument("features", nargs="*", metavar="FEATURE")
    options = parser.parse_args()
    features = rows()
    for name in options.features:
        if name not in features:
            raise SystemExit(f"select_features.py: there is no feature {name}; there are: {', '.join(features)}")
    left_out = {name: files for name, files in features.items() if name not in options.features}
    api = {function.name: function for function in description.read().functions}
    refusals = [refusal(api[function], name) for name, files in left_out.items() for file in files for function in functions_of(file)]
    constants = "".join(f"inline constexpr bool kHas_{name} = {'true' if name in options.features else 'false'};\n" for name in features)
    write(options.header, f"// Made by scripts/select_features.py from src/api/features.txt.\n#pragma once\n\nnamespace evn {{\n\n{constants}\n}}  // namespace evn\n")
    write(options.source, '// Made by scripts/select_features.py: the functions of features that this build lacks.\n#include "api/left_out.h"\n'
          '#include "evener/api.h"\n\nextern "C" {\n\n' + "\n".join(refusals) + '\n}  // extern "C"\n')
    switches = "".join(f"set(EVN_HAS_{name} {'ON' if name in options.features else 'OFF'})\n" for name in features)
    write(options.cmake, "# Made by scripts/select_features.py.\n" + switches + "set(EVN_LEFT_OUT_API\n" + "".join(f"  {API / file}\n" for files in left_out.values() for file in files) + ")\n")


if __name__ == "__main__":
    main()
