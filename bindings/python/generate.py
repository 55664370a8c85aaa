#!/usr/bin/env python3
"""Writes evener/_raw.py, the ctypes layer, from include/evener/evener.h and the headers beside it.

usage: generate.py [HEADER [OUTPUT]]      (OUTPUT "-": standard output)

A header is regular C11: enums, typedefs of integers, handles, structs, callbacks and functions. Anything else is an
error, so that a declaration this script does not understand cannot be lost.
"""
import hashlib
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
HEADERS = [HERE.parents[1] / "include" / "evener" / name for name in ("evener.h", "quantize.h", "request.h", "state.h", "event.h", "opencl.h")]
OUTPUT = HERE / "evener" / "_raw.py"

SCALARS = {
    "bool": "c_bool", "char": "c_char", "size_t": "c_size_t", "float": "c_float", "double": "c_double",
    "int8_t": "c_int8", "int16_t": "c_int16", "int32_t": "c_int32", "int64_t": "c_int64",
    "uint8_t": "c_uint8", "uint16_t": "c_uint16", "uint32_t": "c_uint32", "uint64_t": "c_uint64",
}
DECLARATOR = re.compile(r"^(?P<type>(?:const\s+|struct\s+)*\w+)\s*(?P<stars>\**)\s*(?P<name>\w+)?(?P<dims>(?:\[\w+\])*)$")


def strip_header(text):
    """Returns the integer macros and the declarations, without comments and preprocessor lines."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S).replace("\\\n", " ")
    macros = re.findall(r"^#define (EVN_\w+) (-?\d+)\s*$", text, flags=re.M)
    text = re.sub(r'^#ifdef __cplusplus\n.*?^#endif$', "", text, flags=re.M | re.S)
    text = re.sub(r"^#.*$", "", text, flags=re.M)
    text = text.replace("*const *", "**")  # ctypes has no const
    return macros, text


def split_declarations(text):
    """Splits at the semicolons outside of braces."""
    depth, start, out = 0, 0, []
    for at, char in enumerate(text):
        depth += (char == "{") - (char == "}")
        if char == ";" and depth == 0:
            out.append(" ".join(text[start:at].split()))
            start = at + 1
    if text[start:].strip():
        raise SystemExit(f"unfinished declaration: {text[start:].strip()[:80]}")
    return out


class Generator:
    def __init__(self):
        self.lines = []
        self.types = dict(SCALARS)
        self.functions = []

    def emit(self, line=""):
        self.lines.append(line)

    def ctype(self, base, stars):
        """The ctypes name of `base` with a number of pointer stars. A `char *` that is not const is a buffer to be filled."""
        const = base.startswith("const ")
        base = base.replace("const ", "").replace("struct ", "").strip()
        if base == "void":
            if not stars:
                return "None"
            inner, stars = "c_void_p", stars - 1
        elif base == "char" and stars and const:
            inner, stars = "c_char_p", stars - 1
        elif base in self.types:
            inner = self.types[base]
        else:
            raise SystemExit(f"unknown type: {base}")
        return "POINTER(" * stars + inner + ")" * stars

    def parse(self, declaration):
        """One parameter or field: (name, ctypes name)."""
        match = DECLARATOR.match(declaration.strip())
        if not match:
            raise SystemExit(f"cannot read: {declaration}")
        kind = self.ctype(match["type"], len(match["stars"]))
        for dim in reversed(re.findall(r"\[(\w+)\]", match["dims"])):
            kind = f"{kind} * {dim}" if " " not in kind else f"({kind}) * {dim}"
        return match["name"], kind

    def parameters(self, text):
        return [] if text.strip() == "void" else [self.parse(part)[1] for part in text.split(",")]

    def enum(self, body):
        for entry in filter(None, (part.strip() for part in body.split(","))):
            name, value = (part.strip() for part in entry.split("="))
            self.emit(f"{name} = {int(value)}")
        self.emit()

    def struct(self, name, body):
        fields = [self.parse(field) for field in body.split(";") if field.strip()]
        self.types[name] = name
        self.emit()
        self.emit(f"class {name}(Structure):")
        self.emit("    _fields_ = [")
        for field, kind in fields:
            self.emit(f'        ("{field}", {kind}),')
        self.emit("    ]")
        self.emit()

    def declaration(self, text):
        if match := re.match(r"^enum \{(.*)\}$", text):
            self.enum(match[1])
        elif match := re.match(r"^typedef struct (\w+) \{(.*)\} \1$", text):
            self.struct(match[1], match[2])
        elif match := re.match(r"^typedef struct \w+ \*(\w+)$", text):
            self.types[match[1]] = match[1]
            self.emit()
            self.emit(f"class {match[1]}(c_void_p):")
            self.emit('    """A handle: a slot and a generation, not an address."""')
            self.emit()
        elif match := re.match(r"^typedef (\w+) (\**)\(\*(\w+)\)\((.*)\)$", text):
            kinds = ", ".join([self.ctype(match[1], len(match[2]))] + self.parameters(match[4]))
            self.types[match[3]] = match[3]
            self.emit(f"{match[3]} = CFUNCTYPE({kinds})")
        elif match := re.match(r"^typedef (\w+) (\w+)$", text):
            self.types[match[2]] = match[2]
            self.emit(f"{match[2]} = {self.ctype(match[1], 0)}")
        elif match := re.match(r"^EVN_API ((?:const )?\w+) ?(\**)(\w+)\((.*)\)$", text):
            self.functions.append((match[3], self.ctype(match[1], len(match[2])), self.parameters(match[4])))
        else:
            raise SystemExit(f"cannot read: {text}")

    def table(self):
        self.emit()
        self.emit("# name -> (result, parameters)")
        self.emit("FUNCTIONS = {")
        for name, result, parameters in self.functions:
            one_line = f'    "{name}": ({result}, [{", ".join(parameters)}]),'
            if len(one_line) <= 132:
                self.emit(one_line)
                continue
            self.emit(f'    "{name}": ({result}, [')
            for parameter in parameters:
                self.emit(f"        {parameter},")
            self.emit("    ]),")
        self.emit("}")


BIND = '''

def bind(library):
    """Gives every function of a loaded library its types. AttributeError: the library lacks one."""
    for name, (result, parameters) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = parameters
    return library
'''


def generate(header_bytes):
    """Returns the text of _raw.py for a header."""
    text = header_bytes.decode()
    macros, text = strip_header(text)
    generator = Generator()
    for name, value in macros:
        generator.emit(f"{name} = {value}")
    for declaration in split_declarations(text):
        generator.declaration(declaration)
    generator.table()
    digest = hashlib.sha256(repr((macros, text.split())).encode()).hexdigest()
    head = [
        f"# Generated by bindings/python/generate.py from include/evener/evener.h (declarations {digest[:16]}). Do not edit.",
        '"""The C API as ctypes sees it: constants, structs and function types, nothing more."""',
        "from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int8, c_int16,  # noqa: F401",
        "                    c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p)",
        "",
    ]
    body = re.sub(r"\n{3,}", "\n\n", "\n".join(head + generator.lines) + BIND)
    body = re.sub(r"\n+(?=class |def )", "\n\n\n", body)
    return re.sub(r'(?<=\n)(    \]|    """.*""")\n+(?=\S)', r"\1\n\n\n", body)


def main():
    headers = [pathlib.Path(sys.argv[1])] if len(sys.argv) > 1 else HEADERS
    text = generate(b"".join(header.read_bytes() for header in headers))
    if len(sys.argv) > 2 and sys.argv[2] == "-":
        sys.stdout.write(text)
    else:
        (pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else OUTPUT).write_text(text)


if __name__ == "__main__":
    main()
