"""The C API as plain data, read from the public headers: what the raw layers of all languages are made from.

    api = description.read()            of include/evener
    api.items                           Typedef, Enum, Handle, Struct, Callback, Macro, in the order of the headers
    api.functions                       Function, in the order of the headers
    api.table                           Function, in the order of evn_api: how a library that was opened is called

The headers are regular C11. What this does not understand is a DescriptionError with file, line and text: a declaration that a
language would lack in silence is worse than none.
"""
import dataclasses
import hashlib
import pathlib
import re
import typing

INCLUDE = pathlib.Path(__file__).resolve().parents[1] / "include" / "evener"
HEADERS = ("evener.h", "quantize.h", "request.h", "state.h", "event.h", "opencl.h", "train.h")
TABLE = "api.h"

SCALARS = ("bool", "char", "size_t", "float", "double", "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t",
           "uint32_t", "uint64_t")
SECTION = "/* ----------"
NAN = '__builtin_nan("")'
DECLARATOR = re.compile(r"^(?P<const>const )?(?P<base>\w+) ?(?P<stars>(?:\* ?(?:const ?)?)*)(?P<name>\w+)?(?P<dims>(?:\[\w+\])*)$")


KNOWN_LINES = (  # of the preprocessor, which declare nothing
    r"#ifdef __cplusplus\n(?:extern \"C\" \{|\})\n#endif(?=\n|$)",
    r"#if defined\(__GNUC__\)\n#define EVN_API .*\n#else\n#define EVN_API\n#endif(?=\n|$)",
    r"#ifndef EVENER_\w+_H\n#define EVENER_\w+_H(?=\n|$)",
    r"#include [<\"][\w./]+[>\"](?=\n|$)",
    r"#endif(?=\n*$)",
)


class DescriptionError(Exception):
    """A header has something that is not understood."""


@dataclasses.dataclass(frozen=True)
class Type:
    """A C type. `pointees`: for each star, from the innermost on, whether what it points to is const."""

    base: str
    pointees: tuple = ()
    dims: tuple = ()  # of an array, the outermost first: numbers or names of constants

    @property
    def is_text(self):
        return self.base == "char" and self.pointees == (True,)


@dataclasses.dataclass(frozen=True)
class Named:
    """A parameter or a field."""

    name: str
    type: Type
    doc: str = ""


@dataclasses.dataclass(frozen=True)
class Constant:
    name: str
    value: int
    doc: str = ""


@dataclasses.dataclass(frozen=True)
class Macro:
    """A macro with a number, or the initializer of a struct: nested lists of words, `struct` says of which."""

    name: str
    value: typing.Union[int, float, None]  # a float is a NaN
    doc: str = ""
    struct: typing.Optional[str] = None
    initializer: tuple = ()
    plain: bool = False  # a number as it stands, not an expression

    @property
    def is_nan(self):
        return isinstance(self.value, float)


@dataclasses.dataclass(frozen=True)
class Typedef:
    name: str
    type: Type
    doc: str = ""


@dataclasses.dataclass(frozen=True)
class Enum:
    """`type`: the typedef directly before it, whose values these are; None: flags and other constants that are a uint32_t."""

    type: typing.Optional[str]
    constants: tuple
    doc: str = ""


@dataclasses.dataclass(frozen=True)
class Handle:
    name: str
    doc: str = ""


@dataclasses.dataclass(frozen=True)
class Struct:
    name: str
    fields: tuple
    doc: str = ""


@dataclasses.dataclass(frozen=True)
class Function:
    """A function, or the type of a callback."""

    name: str
    result: Type
    parameters: tuple
    doc: str = ""


class Callback(Function):
    """The type of a pointer to a function."""


@dataclasses.dataclass
class Description:
    items: list
    headers: list  # per item, the header that it stands in
    functions: list
    table: list
    digest: str  # of the declarations: the same as long as no more than comments and layout change

    def of(self, kind):
        return [item for item in self.items if type(item) is kind]


def clean(comment):
    """The text of a comment without stars; lines stay, and what they are indented by beyond the first."""
    lines = comment[2:-2].split("\n")
    out = [lines[0].strip()] + [re.sub(r"^\s*\*? ?", "", line) if re.match(r"^ \*", line) else line.strip() for line in lines[1:]]
    return "\n".join(line.rstrip() for line in out).strip()


def without_comments(text):
    return " ".join(re.sub(r"/\*.*?\*/", " ", text, flags=re.S).split())


def initializer(text):
    """The words of "{a, {b, c}}" as nested tuples."""
    words = re.findall(r"[{}]|[^{},\s][^{},]*", text)
    stack = [[]]
    for word in words:
        if word == "{":
            stack.append([])
        elif word == "}":
            if len(stack) < 2:
                raise DescriptionError(f"braces do not fit: {text}")
            inner = tuple(stack.pop())
            stack[-1].append(inner)
        else:
            stack[-1].append(word.strip())
    if len(stack) != 1 or len(stack[0]) != 1:
        raise DescriptionError(f"braces do not fit: {text}")
    return stack[0][0]


class Reader:
    """Reads one header after the other; what one has declared is known to those behind it."""

    def __init__(self):
        self.items, self.functions, self.table = [], [], []
        self.types = {"void", *SCALARS}
        self.numbers = {}
        self.names = set()

    def read(self, name, text):
        self.header, self.text, self.at = name, text, 0
        doc = ""
        while self.at < len(text):
            if match := re.compile(r"\s+").match(text, self.at):
                self.at = match.end()
            elif text.startswith("/*", self.at):
                comment = self.take(r"/\*.*?\*/", "a comment that does not end")
                doc = "" if comment.startswith(SECTION) else clean(comment)
            elif text.startswith("#", self.at):
                self.preprocessor(doc)
                doc = ""
            else:
                declaration = self.take(r"(?:/\*.*?\*/|\{(?:/\*.*?\*/|[^{}])*\}|[^;{}])*?;", "a declaration that does not end")
                behind = re.compile(r"[ \t]*(/\*.*?\*/)", re.S).match(text, self.at)
                if behind and not behind[1].startswith(SECTION):
                    self.at = behind.end()
                    doc = clean(behind[1])
                self.declaration(declaration[:-1], doc)
                # The functions of a group stand under one comment, without an empty line between them.
                if not re.compile(r"[ \t]*\nEVN_API ").match(text, self.at):
                    doc = ""

    def take(self, pattern, otherwise):
        match = re.compile(pattern, re.S).match(self.text, self.at)
        if not match:
            self.fail(otherwise, self.text[self.at:])
        self.at = match.end()
        return match[0]

    def fail(self, what, text):
        line = self.text.count("\n", 0, self.at) + 1
        raise DescriptionError(f"{self.header}:{line}: {what}: {' '.join(text.split())[:100]}")

    def preprocessor(self, doc):
        text = self.text
        for known in KNOWN_LINES:
            if match := re.compile(known).match(text, self.at):
                self.at = match.end()
                return
        line = self.take(r"#(?:\\\n|[^\n])*", "a line of the preprocessor").replace("\\\n", " ")
        behind = re.search(r"/\*.*?\*/", line)
        match = re.match(r"^#define (EVN_\w+) (.*?)\s*$", without_comments(line))
        if not match:
            self.fail("cannot read", line)
        self.macro(match[1], match[2], clean(behind[0]) if behind else doc)

    def macro(self, name, value, doc):
        self.declare(name)
        if value.startswith("{"):
            words = initializer(value)
            size = re.fullmatch(r"sizeof\((\w+)\)", words[0]) if words and isinstance(words[0], str) else None
            if not size or size[1] not in self.types:
                self.fail("an initializer of no struct", value)
            self.items.append(Macro(name, None, doc, size[1], words))
            return
        if value == NAN:
            self.items.append(Macro(name, float("nan"), doc))
            return
        plain = re.fullmatch(r"-?\d+", value) is not None
        text = re.sub(r"\bUINT32_MAX\b", str(2**32 - 1), value.replace("(uint32_t)", ""))
        text = re.sub(r"\bEVN_\w+\b", lambda found: str(self.numbers.get(found[0], found[0])), text)
        if not re.fullmatch(r"-?[\d\s|<()]+", text):
            self.fail("a macro that is no number", f"{name} {value}")
        try:
            self.numbers[name] = eval(text, {"__builtins__": {}})  # digits, | and << alone
        except SyntaxError:
            self.fail("a macro that is no number", f"{name} {value}")
        self.items.append(Macro(name, self.numbers[name], doc, plain=plain))

    def declare(self, name):
        if name in self.names:
            self.fail("declared twice", name)
        self.names.add(name)

    def declaration(self, text, doc):
        plain = without_comments(text)
        if re.match(r"^enum \{.*\}$", plain):
            self.enum(text, doc)
        elif match := re.match(r"^typedef struct (\w+) \{.*\} \1$", plain):
            self.struct(match[1], text, doc)
        elif match := re.match(r"^typedef struct \w+ \*(\w+)$", plain):
            self.add_type(Handle(match[1], doc))
        elif match := re.match(r"^typedef (.+?) ?\(\*(\w+)\)\((.*)\)$", plain):
            made = Callback(match[2], self.result(match[1]), self.parameters(match[3]), doc)
            if match[2] != "evn_get_api_function":
                self.add_type(made)
        elif match := re.match(r"^typedef (\w+) (\w+)$", plain):
            self.add_type(Typedef(match[2], self.named(f"{match[1]} {match[2]}").type, doc))
        elif match := re.match(r"^EVN_API (.+?) ?(\w+)\((.*)\)$", plain):
            self.declare(match[2])
            self.functions.append(Function(match[2], self.result(match[1]), self.parameters(match[3]), doc))
        else:
            self.fail("cannot read", plain)

    def add_type(self, item):
        self.declare(item.name)
        self.types.add(item.name)
        self.items.append(item)

    def result(self, text):
        return self.named(f"{text} result" if not text.endswith("*") else f"{text}result", True).type

    def named(self, text, may_be_void=False):
        """A parameter, field or result."""
        match = DECLARATOR.match(" ".join(text.split()))
        if not match or match["name"] is None:
            self.fail("cannot read", text)
        base, stars = match["base"], re.findall(r"\* ?(const)?", match["stars"])
        if base not in self.types:
            self.fail("unknown type", text)
        if base == "void" and not stars and not may_be_void:
            self.fail("void is no value", text)
        pointees = [match["const"] is not None] + [star == "const" for star in stars]
        dims = tuple(re.findall(r"\[(\w+)\]", match["dims"]))
        for dim in dims:
            if not dim.isdigit() and dim not in self.numbers:
                self.fail("an array of unknown length", text)
        return Named(match["name"], Type(base, tuple(pointees[:len(stars)]), dims))

    def parameters(self, text):
        return () if text.strip() == "void" else tuple(self.named(part) for part in text.split(","))

    def entries(self, body, separator):
        """(text, doc) of what stands between separators: the doc is the comment behind, or the one before."""
        found, before, text = [], "", ""
        for piece in re.findall(r"/\*.*?\*/|\n|[^/\n,;]+|[,;/]", body, re.S):
            if piece.startswith("/*"):
                if text.strip():
                    before = clean(piece)  # behind the last one, which has no separator
                elif found and found[-1][2]:
                    found[-1][1], found[-1][2] = clean(piece), False
                else:
                    before = clean(piece)
            elif piece == "\n":
                if found:
                    found[-1][2] = False
                text += " "
            elif piece == separator:
                found.append([text.strip(), before, True])
                text, before = "", ""
            elif piece == "," and separator == ";":
                text += piece  # of the parameters of a function
            elif piece in (",", ";", "/"):
                self.fail("cannot read", body)
            else:
                text += piece
        if text.strip():
            if separator == ";":
                self.fail("a field that does not end", text)
            found.append([text.strip(), before, False])
        return [(" ".join(text.split()), doc) for text, doc, _ in found]

    def enum(self, text, doc):
        constants = []
        for entry, said in self.entries(text[text.index("{") + 1:text.rindex("}")], ","):
            match = re.fullmatch(r"(EVN_\w+) = (-?\d+)", entry)
            if not match:
                self.fail("an enum's entry without a name and a value", entry)
            self.declare(match[1])
            self.numbers[match[1]] = int(match[2])
            constants.append(Constant(match[1], int(match[2]), said))
        last = self.items[-1] if self.items else None
        self.items.append(Enum(last.name if isinstance(last, Typedef) else None, tuple(constants), doc))

    def struct(self, name, text, doc):
        fields = []
        for entry, said in self.entries(text[text.index("{") + 1:text.rindex("}")], ";"):
            if match := re.match(r"^(.+?) ?\(\*(\w+)\)\((.*)\)$", entry):
                if name != "evn_api":
                    self.fail("a function in a struct other than evn_api", entry)
                self.table.append(Function(match[2], self.result(match[1]), self.parameters(match[3]), said))
            else:
                field = self.named(entry)
                fields.append(dataclasses.replace(field, doc=said))
        if name == "evn_api":
            if [field.name for field in fields] != ["struct_size", "api_version"]:
                self.fail("evn_api does not begin with struct_size and api_version", text)
            self.types.add(name)
            return
        self.add_type(Struct(name, tuple(fields), doc))


def digest_of(texts):
    """A number of the declarations of the headers, without their comments and layout."""
    text = re.sub(r"/\*.*?\*/", " ", "".join(texts), flags=re.S).replace("\\\n", " ")
    macros = re.findall(r"^#define (EVN_\w+) (-?\d+)\s*$", text, flags=re.M)
    text = re.sub(r"^#ifdef __cplusplus\n.*?^#endif$", "", text, flags=re.M | re.S)
    text = re.sub(r"^#.*$", "", text, flags=re.M).replace("*const *", "**")
    return hashlib.sha256(repr((macros, text.split())).encode()).hexdigest()[:16]


def read_texts(headers, table=None):
    """The description of headers: [(name, text)], and of the text of api.h."""
    reader = Reader()
    header_of = []
    for name, text in headers:
        reader.read(name, text)
        header_of += [name] * (len(reader.items) - len(header_of))
    functions = list(reader.functions)
    if table is not None:
        items = list(reader.items)
        reader.read(TABLE, table)
        if reader.items != items or [made.name for made in reader.functions[len(functions):]] != ["evn_get_api"]:
            raise DescriptionError(f"{TABLE}: declares more than evn_api and evn_get_api")
        declared = {made.name: (made.result, made.parameters) for made in functions}
        listed = {"evn_" + entry.name: (entry.result, entry.parameters) for entry in reader.table}
        for name in declared.keys() ^ listed.keys():
            raise DescriptionError(f"{TABLE}: {name} is in the headers or in evn_api, and not in both")
        for name, signature in declared.items():
            if signature != listed[name]:
                raise DescriptionError(f"{TABLE}: {name} has another signature in evn_api than in its header")
    return Description(reader.items, header_of, functions, reader.table, digest_of([text for _, text in headers]))


def read():
    """The description of the headers of this repository."""
    return read_texts([(name, (INCLUDE / name).read_text()) for name in HEADERS], (INCLUDE / TABLE).read_text())
