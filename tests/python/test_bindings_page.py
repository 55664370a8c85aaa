"""docs/bindings.md against the headers and against the sources: which function of the C API each language's safe layer reaches."""
import ast
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bindings"))

import description  # noqa: E402

API = description.read()
BINDINGS = ROOT / "bindings"
ROWS = [[cell.strip() for cell in line.strip("|\n").split("|")]
        for line in (ROOT / "docs" / "bindings.md").read_text().splitlines() if line.startswith("| `evn_")]
RAW = ("_raw.py", "raw.lua", "Raw.java")


def source(*patterns):
    """The hand-written sources that match one of the patterns below the repository."""
    paths = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    assert paths, patterns
    return "\n".join(path.read_text() for path in paths if path.name not in RAW and not path.name.endswith("_test.go"))


SOURCES = {"C++": source("include/evener/*.hpp"), "Go": source("bindings/go/*.go"),
           "Java": source("bindings/java/src/main/*/**/*.java", "bindings/java/src/main/native/glue.c"), "Lua": source("bindings/lua/evener/*.lua"),
           "Node": source("bindings/node/lib/*.js"), "Python": source("bindings/python/evener/*.py"), "Rust": source("bindings/rust/evener/src/*.rs")}


def cpp_names():
    """Classes and structs, `Type::function` of their functions, and functions; names that are private too."""
    names, owner = set(), None
    for line in SOURCES["C++"].splitlines():
        if found := re.match(r"(?:class|struct) (\w+)[^;]*$", line):
            owner = found[1]
            names.add(owner)
        elif line.startswith("}"):
            owner = None
        elif owner and (found := re.match(r"  (?:template <[^>]*> )?(?:[\w:<>,&*]+ )+(\w+)\(", line)):
            names.add(f"{owner}::{found[1]}")
        elif found := re.match(r"inline (?:[\w:<>,&*]+ )*(?:(\w+)::)?(\w+)\(", line):
            names.add(f"{found[1]}::{found[2]}" if found[1] else found[2])
    return names


def go_names():
    """Exported functions, and `Type.Method` of exported methods."""
    methods = re.findall(r"^func \(\w+ \*?([A-Z]\w*)\) ([A-Z]\w*)\(", SOURCES["Go"], re.M)
    return {f"{owner}.{method}" for owner, method in methods} | set(re.findall(r"^func ([A-Z]\w*)[\[(]", SOURCES["Go"], re.M))


def java_names():
    """Public types, `Type.method` of their public methods, those that owners inherit included."""
    names, owner = set(), None
    for line in SOURCES["Java"].splitlines():
        if found := re.match(r"public (?:final |abstract )?(?:class|record|interface|enum) (\w+)", line):
            owner = found[1]
            names.add(owner)
            if "extends NativeObject" in line:
                names.add(f"{owner}.close")
        elif found := re.match(r"  public (?:static )?[\w<>\[\], .]+ (\w+)\(", line):
            names.add(f"{owner}.{found[1]}")
    assert "NativeObject.close" in names
    return names


def lua_names():
    """Functions of tables, and what owned.class gives each class."""
    classes = re.findall(r'^local (\w+) = owned\.class\("', SOURCES["Lua"], re.M)
    assert len(classes) > 7 and "function class.close(self)" in SOURCES["Lua"]
    return {f"{name}.close" for name in classes} | set(re.findall(r"^function (\w+\.\w+)\(", SOURCES["Lua"], re.M))


def node_names():
    """Classes and their methods and getters, those of Owned included; functions of native.js, which index.js hands on."""
    names, owner, owned = {"open", "version", "describePasses"}, None, set()
    for line in SOURCES["Node"].splitlines():
        if found := re.match(r"class (\w+)(?: extends (\w+))?", line):
            owner = found[1]
            names.add(owner)
            if found[2] == "Owned":
                owned.add(owner)
        elif found := re.match(r"  (?:static |async\*? |get )*(\w+)\(.*\) \{$", line):
            names.add(f"{owner}.{found[1]}")
    assert "Owned.close" in names and len(owned) > 7
    exported = set(re.search(r"module\.exports = \{(.*)\}", (BINDINGS / "node" / "lib" / "index.js").read_text())[1].split(", "))
    return {name for name in names if name.split(".")[0] in exported} | {f"{name}.close" for name in owned & exported}


def python_names():
    """Classes, their methods and properties, those of their bases included, and functions."""
    tree = ast.parse(SOURCES["Python"].replace("from __future__", "# "))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}

    def members(node):
        own = {item.name for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))}
        return own.union(*(members(classes[base.id]) for base in node.bases if isinstance(base, ast.Name) and base.id in classes))
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return set(classes) | functions | {f"{name}.{member}" for name, node in classes.items() for member in members(node)}


def rust_names():
    """Public types, `Type::function` of public functions, and functions."""
    names, owner = {"sys::api"}, None
    for line in SOURCES["Rust"].splitlines():
        if found := re.match(r"(?:unsafe )?impl(?:<.*?>)? (?:.* for )?(\w+)", line):
            owner = found[1]
        elif found := re.match(r"    pub (?:unsafe )?fn (\w+)", line):
            names.add(f"{owner}::{found[1]}")
        elif found := re.match(r"pub (?:fn|struct|enum) (\w+)", line):
            names.add(found[1])
    return names


NAMES = {"C++": cpp_names(), "Go": go_names(), "Java": java_names(), "Lua": lua_names(), "Node": node_names(), "Python": python_names(),
         "Rust": rust_names()}


def is_in(language, pattern):
    return re.search(pattern, SOURCES[language], re.M) is not None


def go_uses(name):
    glue = (BINDINGS / "go" / "glue.c").read_text()
    return f'dlsym(library, "evn_{name}")' in glue or f"table->{name}" in glue or is_in("Go", rf"\bC\.evn_{name}\(")


def java_uses(name):
    words = name.split("_")
    method = words[0] + "".join(word.capitalize() for word in words[1:])
    opening = {"get_api": '"evn_get_api"', "abi_layout": "table->abi_layout"}
    return opening[name] in SOURCES["Java"] if name in opening else is_in("Java", rf"\bRaw(?:\.|::){method}\b")


def lua_uses(name):
    names = {"get_api": "opened.evn_get_api", "abi_layout": "out[0].abi_layout", "version_number": "opened.evn_version_number"}
    return is_in("Lua", rf"\b{re.escape(names.get(name, 'api.' + name))}\b")


def node_uses(name):
    by_hand = (BINDINGS / "node" / "addon" / "operator.cc").read_text()
    return is_in("Node", rf"\bapi\.{name}(?:_promised)?\b") or re.search(rf"(?<![.\w])api->{name}\(", by_hand) is not None


def rust_uses(name):
    return "evener_sys::api()" in SOURCES["Rust"] if name == "get_api" else is_in("Rust", rf"\bapi(?:\(\)\?)?\s*\.{name}\b|^    evn_\w+: {name},$")


USES = {"C++": lambda name: is_in("C++", rf"\bevn_{name}\b"), "Go": go_uses, "Java": java_uses, "Lua": lua_uses,
        "Node": node_uses, "Python": lambda name: is_in("Python", rf"\bevn_{name}\b"),
        "Rust": rust_uses}
LANGUAGES = tuple(USES)  # in the order of the columns


def test_the_page_of_bindings_has_every_function_once():
    assert [row[0] for row in ROWS] == [f"`{function.name}`" for function in API.functions] + ["`evn_get_api`"]
    assert all(len(row) == 1 + len(LANGUAGES) for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[row[0].strip("`") for row in ROWS])
def test_the_page_of_bindings_is_what_the_sources_reach(row):
    name = row[0].strip("`").removeprefix("evn_")
    for language, cell in zip(LANGUAGES, row[1:]):
        reached = re.match(r"`([\w.:]+)`(?:, dropped)?$", cell)
        assert reached or re.match(r"no: \S+ \S+", cell), f"{language}: neither a name nor a reason: {cell}"
        assert USES[language](name) == bool(reached), f"{language}: {cell}, but the sources say otherwise"
        if reached:
            assert reached[1] in NAMES[language], f"{language} has no {reached[1]}"
