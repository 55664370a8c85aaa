#!/usr/bin/env python3
"""Chooses what a build of some operators has in it (EVN_OPERATORS, docs/packaging.md): reads the operators of ONNX files, adds those that rewrites make
of them (src/graph/passes/operators.txt), and finds the files that define these operators and their kernels. Needs nothing but Python.

usage: select_operators.py --cmake FILE --header FILE [SPEC ...]    SPEC: an .onnx file, a pattern of such files, or the name of an operator
"""
import argparse
import glob
import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[1] / "src"
# Files of kernels for bytes that are quantized, and the operators that make or take those: without any, MaxPool of bytes is the reference kernel's.
OF_BYTES = re.compile(r"quantized_\w+_kernels\.cc$")
QUANTIZING = re.compile(r"QLinear|Quantize|Integer|QGemm|ByteTable")
TABLES = ("ops/*.cc", "ops/training/*.cc", "backends/cpu/*/*_kernels.cc", "backends/opencl/kernels/*.cc", "backends/opencl/training/*.cc")


def fields(data):
    """The fields of a message of Protocol Buffers: numbers and values, bytes as they are."""
    def varint(at):
        value = shift = 0
        while True:
            byte = data[at]
            value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
            if byte < 128:
                return value, at
            if shift > 63:
                raise ValueError("a number of more than ten bytes")
    at = 0
    while at < len(data):
        key, at = varint(at)
        if key & 7 == 2:
            size, at = varint(at)
            if at + size > len(data):
                raise ValueError("a field goes beyond its message")
            yield key >> 3, data[at:at + size]
            at += size
        elif key & 7 in (1, 5):
            yield key >> 3, None
            at += 8 if key & 7 == 1 else 4
        elif key & 7 == 0:
            value, at = varint(at)
            yield key >> 3, value
        else:
            raise ValueError(f"wire type {key & 7}")


def node_operators(node):
    for number, value in fields(node):
        if number == 4:
            yield bytes(value).decode()
        elif number == 5:
            for inner, body in fields(value):
                if inner in (6, 11):  # AttributeProto.g and graphs
                    yield from graph_operators(body)


def graph_operators(graph):
    for number, value in fields(graph):
        if number == 1:
            yield from node_operators(value)


def model_operators(path):
    """The names of the operators of a model, those in branches, bodies and functions too."""
    found = set()
    try:
        for number, value in fields(memoryview(pathlib.Path(path).read_bytes())):
            if number == 7:
                found.update(graph_operators(value))
            elif number == 25:  # FunctionProto: its nodes, and its own name is no operator
                for inner, body in fields(value):
                    if inner == 7:
                        found.update(node_operators(body))
    except (ValueError, IndexError, TypeError, UnicodeDecodeError) as error:
        raise SystemExit(f"select_operators.py: {path} is no ONNX model: {error}")
    if not found:
        raise SystemExit(f"select_operators.py: {path} has no operators: it is no ONNX model")
    return found


def tables():
    """Each file of the tables, and the operators' names in it: texts, and constants of src/ops that stand for texts."""
    constants = {}
    for header in [*SOURCE.glob("ops/*.h"), *SOURCE.glob("ops/training/*.h")]:
        constants.update(re.findall(r"\bconst(?:expr)? char (k\w+)\[\] = \"(\w+)\"", header.read_text()))
    found = {}
    for pattern in TABLES:
        for path in sorted(SOURCE.glob(pattern)):
            text = path.read_text()
            words = set(re.findall(r'"([A-Z]\w*)"', text))
            found[path] = words | {constants[name] for name in set(re.findall(r"\bk[A-Z]\w*", text)) & constants.keys()}
    return found


def defined(files):
    """The files with rows of operators (src/ops), and the names in them."""
    return {path: names for path, names in files.items() if SOURCE / "ops" in (path.parent, path.parent.parent)}


def rewrites():
    """Rows of operators.txt: a pass, lists of operators of which one must be there as a whole, what it makes."""
    rows = []
    for line in (SOURCE / "graph/passes/operators.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, needs, makes = (part.strip() for part in line.split("|"))
            rows.append((name, [set(group.split("+")) for group in needs.split()], set(makes.split())))
    return rows


def closure(names):
    """With what rewrites make, and the rewrites that find something."""
    names = set(names)
    while True:
        kept = [row for row in rewrites() if any(group == {"*"} or group <= names for group in row[1])]
        more = names.union(*(row[2] for row in kept))
        if more == names:
            return names, [row[0] for row in kept]
        names = more


def write(path, text):
    path = pathlib.Path(path)
    if not path.exists() or path.read_text() != text:  # else all that includes it would be compiled again
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--header", required=True)
    parser.add_argument("specs", nargs="*", metavar="SPEC")
    options = parser.parse_args()
    files = tables()
    known = set().union(*(names for path, names in defined(files).items() if path.parent.name == "ops")) | {"Gradient"}
    wanted, models = set(), []
    for spec in options.specs:
        if re.fullmatch(r"[A-Z]\w*", spec) and not pathlib.Path(spec).exists():
            if spec not in known:
                raise SystemExit(f"select_operators.py: there is no operator {spec}")
            wanted.add(spec)
            continue
        found = sorted(glob.glob(spec, recursive=True))
        if not found:
            raise SystemExit(f"select_operators.py: no file is {spec}")
        for path in found:
            wanted |= model_operators(path)
            models.append(str(pathlib.Path(path).resolve()))
    passes = [row[0] for row in rewrites() if not row[0].startswith("(")] + ["gradient"]
    kept_files, kept_passes, left_out = list(files), passes, set()
    if options.specs:
        wanted, kept_passes = closure(wanted)
        wanted = {name.removeprefix("@") for name in wanted}
        if "Gradient" in wanted:
            raise SystemExit("select_operators.py: Gradient becomes other operators, any of the library's: a build that differentiates has them all")
        quantizes = any(QUANTIZING.search(name) for name in wanted)
        kept_files = [path for path, names in files.items() if names & wanted and (quantizes or not OF_BYTES.search(path.name))]
        present = set().union(*(names for path, names in defined(files).items() if path in kept_files))
        kept_passes = [name.strip("()") for name in kept_passes]
        left_out = {name for path, names in defined(files).items() if path not in kept_files for name in names} - present
        if "gradient" not in kept_passes:
            left_out.add("Gradient")
        print(f"EVN_OPERATORS: {len(wanted)} operators, {sum(path.parent.name == 'ops' for path in kept_files)} of "
              f"{sum(path.parent.name == 'ops' for path in files)} families, {sum(name in passes for name in kept_passes)} rewrites: {' '.join(sorted(wanted))}", file=sys.stderr)
    rows = "".join(f'"{name}", ' for name in sorted(left_out))
    lines = [f"inline constexpr bool kKeeps_{name} = {'true' if name in kept_passes else 'false'};" for name in passes]
    write(options.header, "// Made by scripts/select_operators.py.\n#pragma once\n\n#include <string_view>\n\nnamespace evn {\n\n// Operators that this build lacks; a null ends them.\n"
          f"inline constexpr const char* kLeftOut[] = {{{rows}nullptr}};\n\n// Which passes find something, and whether there are gradients.\n" + "\n".join(lines) + "\n\n// Whether the build has the operator.\n"
          "constexpr bool keeps_operator(std::string_view name) {\n  for (const char* const left_out : kLeftOut) {\n"
          "    if (left_out != nullptr && name == left_out) return false;\n  }\n  return true;\n}\n\n}  // namespace evn\n")
    write(options.cmake, "# Made by scripts/select_operators.py.\nset(EVN_KEPT_FILES\n" + "".join(f"  {path}\n" for path in kept_files) + ")\n"
          "set(EVN_READ_MODELS\n" + "".join(f'  "{path}"\n' for path in models) + ")\n")


if __name__ == "__main__":
    main()
