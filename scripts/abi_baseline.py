#!/usr/bin/env python3
"""Writes tests/abi/baseline-MAJOR.MINOR.txt, what the C ABI of this version is: functions with their signatures and symbol versions,
the layouts of structs, the values of enums, the names of events. docs/abi.md says which of it may change, and tests/abi compares.

usage: abi_baseline.py [OUTPUT]      (OUTPUT "-": standard output)

Sizes and offsets are those of the C compiler ($CC, else cc). A file that is there already must be kept to: where something of it has
gone or changed, nothing is written. A version that nobody has yet may be recorded anew once its file has been removed.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
HEADERS = ("evener.h", "quantize.h", "request.h", "state.h", "event.h", "opencl.h", "train.h", "api.h")
BASELINES = ROOT / "tests" / "abi"
COMMENT = re.compile(r"/\*.*?\*/", re.S)
POINTER = re.compile(r"^(?P<result>[^()]*?)\(\*(?P<name>\w+)\)\((?P<parameters>.*)\)$")


def spaced(text):
    """One spelling of a type: single spaces, stars beside each other."""
    return re.sub(r"\s*\*\s*", " *", re.sub(r"\s+", " ", text)).replace("* *", "**").replace("( *", "(*").strip()


def parameters(text):
    """The types of a list of parameters, whose names are no part of the ABI."""
    text = spaced(text)
    return "void" if text == "void" else ", ".join(spaced(re.sub(r"\w+$", "", part.strip())) for part in text.split(","))


def signature(result, arguments):
    return f"{spaced(result)} ({parameters(arguments)})"


def field(text):
    """(name, type) of a field of a struct."""
    text = spaced(text)
    pointer = POINTER.match(text)
    if pointer:
        return pointer["name"], signature(pointer["result"], pointer["parameters"])
    match = re.match(r"^(.*?)(\w+)((?:\[\w+\])*)$", text)
    return match[2], spaced(match[1]) + match[3]


class Declarations:
    """What the headers declare, without comments."""

    def __init__(self, text):
        text = re.sub(r"\\\n", " ", COMMENT.sub(" ", text))
        self.macros = [name for name in re.findall(r"^#define (EVN_\w+) +\S", text, re.M)
                       if not re.search(r"_INIT$|^EVN_API$|^EVN_VERSION_", name)]
        text = re.sub(r"^#.*$", "", text, flags=re.M)
        self.functions = {name: signature(result, arguments)
                          for result, name, arguments in re.findall(r"EVN_API\s+([^;(]*?)(evn_\w+)\(([^;]*)\);", text)}
        text = re.sub(r"EVN_API[^;]*;", "", text)
        self.structs = {name: [field(part) for part in body.split(";") if part.strip()]
                        for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", text, re.S)}
        self.enums = [name for body in re.findall(r"\benum \{(.*?)\}", text, re.S) for name in re.findall(r"(EVN_\w+) =", body)]
        self.handles = re.findall(r"typedef struct \w+ \*(\w+);", text)
        self.callbacks = {name: signature(result, arguments)
                          for result, name, arguments in re.findall(r"typedef ([^;{}]*?)\(\*(\w+)\)\(([^;]*)\);", text)}
        self.types = {name: kind for kind, name in re.findall(r"^typedef (\w+) (evn_\w+);", text, re.M)}


def layout_lines(declarations, include, headers):
    """Lines of structs, enums and macros, as a compiled program gives them."""
    body = []
    for name, fields in declarations.structs.items():
        body.append(f'printf("struct {name} %zu\\n", sizeof({name}));')
        body += [f'printf("field {name}.{part} %zu %zu {kind}\\n", offsetof({name}, {part}), sizeof((({name} *)0)->{part}));'
                 for part, kind in fields]
    body += [f'printf("enum {name} %lld\\n", (long long){name});' for name in declarations.enums]
    body += [f'printf("macro {name} %.17g\\n", (double){name});' for name in declarations.macros]
    lines = [f'#include "evener/{name}"' for name in headers]
    program = "\n".join([*lines, "#include <stdio.h>", "int main(void) {", *body, "return 0;", "}", ""])
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "layout.c"
        source.write_text(program)
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", f"-I{include}", str(source), "-o", f"{folder}/layout"], check=True)
        return subprocess.run([f"{folder}/layout"], check=True, capture_output=True, text=True).stdout.splitlines()


def symbol_versions(text):
    """name -> the node of the linker's version script that has it."""
    nodes = re.findall(r"^(\w[\w.]*) \{\n\s*global:(.*?)(?:local:.*?)?\}", re.sub(r"#.*", "", text), re.S | re.M)
    return {name: node for node, names in nodes for name in re.findall(r"\bevn_\w+", names)}


def event_names(header):
    """The names of log records that the header promises."""
    text = re.search(r"const char \*event;\s*/\*(.*?)\*/", header, re.S)[1]
    return re.findall(r'"([a-z_]+\.[a-z_]+)"', text)


def logged_names(root=ROOT):
    """The names of log records that the sources write."""
    text = "".join(path.read_text() for path in sorted((root / "src").rglob("*.cc")))
    return {name for call in re.findall(r"LogEvent\(([^\n]*)", text) for name in re.findall(r'"([a-z_]+\.[a-z_]+)"', call)}


def trace_names(root=ROOT):
    """(events, categories) of the JSON of a trace that are not called by what the model has."""
    text = (root / "src" / "runtime" / "report" / "trace_render.cc").read_text()
    names = re.findall(r'case TraceKind::\w+: return "(\w+)', text)
    calls = "\n".join(re.findall(r"^.*(?:\bopen(?:_span)?\(|category = ).*$", text, re.M))
    return names, re.findall(r'"([a-z]+)"', calls)


def generate(root=ROOT, headers=HEADERS):
    """The lines of the baseline."""
    include = root / "include"
    text = "".join((include / "evener" / name).read_text() for name in headers)
    declarations = Declarations(text)
    nodes = symbol_versions((root / "src" / "api" / "library" / "evener.map").read_text())
    lines = [f"function {name} {nodes.get(name, 'none')} {kind}" for name, kind in declarations.functions.items()]
    lines += [f"callback {name} {kind}" for name, kind in declarations.callbacks.items()]
    lines += [f"type {name} {kind}" for name, kind in declarations.types.items()]
    lines += [f"handle {name}" for name in declarations.handles]
    lines += layout_lines(declarations, include, headers)
    lines += [f"event {name}" for name in event_names(text)]
    names, categories = trace_names(root)
    lines += [f"trace-event {name}" for name in names]
    lines += [f"trace-category {name}" for name in dict.fromkeys(categories)]
    return lines


def read(lines):
    """(kind, name) -> the rest of a line."""
    out = {}
    for line in lines:
        if line and not line.startswith("#"):
            kind, name, *rest = line.split(" ", 2)
            out[kind, name] = rest[0] if rest else ""
    return out


def breaks(old, new):
    """What a client of `old` does not find in `new`, or finds otherwise; both are lines of baselines."""
    old, new = read(old), read(new)
    found = []
    for (kind, name), value in old.items():
        now = new.get((kind, name))
        if now is None:
            found.append(f"{kind} {name} has gone")
        elif kind == "struct":
            sized = ("field", f"{name}.struct_size") in old
            if int(now) < int(value) or (int(now) != int(value) and not sized):
                found.append(f"struct {name} had {value} bytes and has {now}" + ("" if sized else "; without struct_size it never grows"))
        elif now != value:
            found.append(f"{kind} {name} was: {value}; is: {now}")
    sizes = {name: int(value) for (kind, name), value in old.items() if kind == "struct"}
    nodes = {value.split(" ")[0] for (kind, _), value in old.items() if kind == "function"}
    for (kind, name), value in new.items():
        if (kind, name) in old:
            continue
        owner = name.split(".")[0]
        if kind == "field" and owner in sizes and int(value.split(" ")[0]) < sizes[owner]:
            found.append(f"field {name} is new and does not stand behind the others")
        if kind == "function" and value.split(" ")[0] in nodes | {"none"}:
            found.append(f"function {name} is new and has the symbol version {value.split(' ')[0]}: evener.map needs a node of this version")
    return found


def version(root=ROOT):
    return re.search(r"project\(evener VERSION (\d+)\.(\d+)\.", (root / "CMakeLists.txt").read_text()).groups()


def baseline_path(number):
    return BASELINES / f"baseline-{'.'.join(number)}.txt"


def main():
    lines = generate()
    text = f"# The C ABI of {'.'.join(version())}, written by scripts/abi_baseline.py. Do not edit.\n" + "\n".join(lines) + "\n"
    if sys.argv[1:] == ["-"]:
        sys.stdout.write(text)
        return
    output = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else baseline_path(version())
    if output.exists():
        # What is added to a version that is being made may stand under its own node.
        lost = [line for line in breaks(output.read_text().splitlines(), lines) if "is new and has the symbol version" not in line]
        if lost:
            raise SystemExit(f"{output.name} is not kept to:\n" + "\n".join(lost))
    output.write_text(text)


if __name__ == "__main__":
    main()
