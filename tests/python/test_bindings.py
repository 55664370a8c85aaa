"""The raw layers of the bindings are what the headers say, and what the description of the headers does not know is an error."""
import ast
import json
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bindings"))

import description  # noqa: E402
import generate  # noqa: E402

API = description.read()


@pytest.mark.parametrize("language", generate.LANGUAGES)
def test_a_raw_layer_is_what_the_headers_say(language):
    for path, text in generate.generate(language, API).items():
        assert (ROOT / path).read_text() == text, f"run bindings/generate.py {language}"


def test_check_says_which_file_is_old(tmp_path):
    for name in ("bindings", "include"):
        source, target = ROOT / name, tmp_path / name
        for path in source.rglob("*"):
            if path.suffix in (".py", ".h", ".rs", ".lua", ".cc", ".js", ".ts") and "target" not in path.parts:
                copy = target / path.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(path.read_bytes())
    command = [sys.executable, str(tmp_path / "bindings" / "generate.py"), "--check"]
    assert subprocess.run(command, capture_output=True, text=True).returncode == 0
    header = tmp_path / "include" / "evener" / "state.h"
    header.write_text(header.read_text().replace("EVN_STATE_INT8 = 4", "EVN_STATE_INT8 = 8"))
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and all(name in done.stderr for name in ("_raw.py", "raw/constants.rs", "raw_constants.lua", "raw_constants.h", "addon/raw_structs.cc"))
    done = subprocess.run([*command, "cobol"], capture_output=True, text=True)
    assert done.returncode != 0 and "there is no language cobol" in done.stderr


# What the description has is what simple searches find in the headers.
TEXTS = [(description.INCLUDE / name).read_text() for name in description.HEADERS]
DECLARED = re.sub(r"/\*.*?\*/", " ", "\n".join(TEXTS), flags=re.S)


def test_every_function_and_constant_is_there():
    assert [function.name for function in API.functions] == re.findall(r"^EVN_API[^;(]*?\b(evn_\w+)\(", DECLARED, re.M)
    enums = [constant.name for item in API.of(description.Enum) for constant in item.constants]
    macros = [macro.name for macro in API.of(description.Macro)]
    assert len(enums) > 100 and set(enums) == set(re.findall(r"\b(EVN_\w+) = ", DECLARED))
    assert set(macros) == set(re.findall(r"^#define (EVN_\w+) ", DECLARED, re.M)) - {"EVN_API"}


def test_every_type_is_there():
    kinds = (description.Struct, description.Handle, description.Callback, description.Typedef)
    patterns = (r"^\} (evn_\w+);", r"^typedef [^;{]*?\(\*(evn_\w+)\)", r"^typedef [^;{(]*?(evn_\w+);")
    searched = {name for pattern in patterns for name in re.findall(pattern, DECLARED, re.M)}
    assert {item.name for kind in kinds for item in API.of(kind)} == searched and len(searched) > 60


def test_docs_stand_by_what_they_are_of():
    constants = {constant.name: constant.doc for item in API.of(description.Enum) for constant in item.constants}
    assert constants["EVN_ERROR_TIMEOUT"] == "the run's time ended"
    assert constants["EVN_ERROR_FORKED"].startswith("a forked child cannot use this") and constants["EVN_LOG_DEBUG"] == ""
    structs = {item.name: {field.name: field.doc for field in item.fields} for item in API.of(description.Struct)}
    assert structs["evn_runtime_options"]["log_user"] == "handed to log_callback"
    assert structs["evn_run_options"]["skipped_outputs"].startswith("nullable: a byte for each output")
    functions = {function.name: function.doc for function in API.functions}
    assert functions["evn_session_find_output"] == functions["evn_session_find_input"] != ""
    assert {name for name, doc in functions.items() if not doc} == {"evn_value_release", "evn_model_release"}


def test_the_table_has_every_function_in_its_own_order():
    assert {"evn_" + entry.name for entry in API.table} == {function.name for function in API.functions}
    assert [entry.name for entry in API.table][:2] == ["status_name", "version"]


TYPES = "typedef struct evn_thing_handle *evn_thing;\ntypedef int32_t evn_kind;\n"
UNKNOWN = {
    "a union": "typedef union evn_either { int32_t a; } evn_either;",
    "an enum with a name": "enum evn_kinds { EVN_ONE = 1 };",
    "a constant without a value": "enum { EVN_ONE };",
    "a constant that is computed": "enum { EVN_ONE = 1 << 2 };",
    "a struct that is not typedefed": "struct evn_open { int32_t a; };",
    "a typedef of a struct by value": "typedef struct evn_other evn_mine;",
    "a bit field": "typedef struct evn_bits { uint32_t a : 3; } evn_bits;",
    "two fields in one": "typedef struct evn_pair { int32_t a, b; } evn_pair;",
    "a field of an unknown type": "typedef struct evn_odd { evn_nothing a; } evn_odd;",
    "a field of void": "typedef struct evn_odd { void a; } evn_odd;",
    "an array of unknown length": "typedef struct evn_odd { int32_t a[EVN_MANY]; } evn_odd;",
    "a struct in a struct": "typedef struct evn_odd { struct { int32_t a; } b; } evn_odd;",
    "a function in a struct": "typedef struct evn_odd { void (*a)(void); } evn_odd;",
    "a field that does not end": "typedef struct evn_odd { int32_t a } evn_odd;",
    "a type of int": "EVN_API int evn_do(void);",
    "a parameter without a name": "EVN_API evn_kind evn_do(int32_t);",
    "any number of parameters": "EVN_API evn_kind evn_do(evn_kind kind, ...);",
    "a function without EVN_API": "evn_kind evn_do(void);",
    "a function with a body": "EVN_API evn_kind evn_do(void) { return 0; }",
    "a variable": "extern int32_t evn_count;",
    "a macro with parameters": "#define EVN_TWICE(a) ((a) + (a))\n",
    "a macro that is no number": "#define EVN_NAME \"name\"\n",
    "a macro that is a call": "#define EVN_NAME __import__(1)\n",
    "an initializer of nothing known": "#define EVN_NAME {sizeof(evn_nothing), 0}\n",
    "a condition": "#if EVN_ONE\n#endif\n",
    "another line of the preprocessor": "#pragma once\n",
    "a comment that does not end": "/* so",
    "a declaration that does not end": "typedef int32_t evn_count",
    "a name twice": "typedef int32_t evn_kind;",
    "an attribute": "EVN_API __attribute__((cold)) evn_kind evn_do(void);",
    "a typedef of a pointer": "typedef int32_t *evn_count;",
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_is_not_known_is_an_error(what):
    with pytest.raises(description.DescriptionError, match=r"^little\.h:\d+: "):
        description.read_texts([("little.h", TYPES + UNKNOWN[what])])


def test_what_is_known_is_read():
    api = description.read_texts([("little.h", TYPES + """
/* Does it. */
EVN_API evn_kind evn_do(const char *const *names, const evn_thing *things, void **out);
#define EVN_MANY 3 /* how many */
typedef struct evn_some {
  uint32_t struct_size;
  char text[EVN_MANY][4]; /* a text
                             that goes on */
} evn_some;
#define EVN_SOME_INIT {sizeof(evn_some), {{0}}}
""")])
    function, = api.functions
    assert function.doc == "Does it." and [p.type.pointees for p in function.parameters] == [(True, True), (True,), (False, False)]
    struct, = api.of(description.Struct)
    assert struct.fields[1].type.dims == ("EVN_MANY", "4") and struct.fields[1].doc == "a text\nthat goes on"
    number, init = api.of(description.Macro)
    assert (number.value, number.doc) == (3, "how many") and init.initializer == ("sizeof(evn_some)", (("0",),))


def test_a_table_that_differs_from_the_headers_is_an_error():
    header = "EVN_API uint32_t evn_count(uint32_t base);\n"
    tail = "EVN_API uint32_t evn_get_api(uint32_t version, const evn_api **api);\n"
    table = "typedef struct evn_api {{ uint32_t struct_size; uint32_t api_version; {} }} evn_api;\n" + tail
    good = table.format("uint32_t (*count)(uint32_t base);")
    assert description.read_texts([("little.h", header)], good).table[0].name == "count"
    for entry in ("", "uint32_t (*count)(int32_t base);", "uint32_t (*count)(uint32_t base); uint32_t (*more)(void);"):
        with pytest.raises(description.DescriptionError, match="api.h: evn_"):
            description.read_texts([("little.h", header)], table.format(entry))


# docs/bindings.md: which function each safe layer reaches.
ROWS = [[cell.strip() for cell in line.strip("|\n").split("|")]
        for line in (ROOT / "docs" / "bindings.md").read_text().splitlines() if line.startswith("| `evn_")]


def source(folder, pattern):
    return "\n".join(path.read_text() for path in sorted((ROOT / "bindings" / folder).glob(pattern)) if path.name not in ("_raw.py", "raw.lua"))


LANGUAGES = ("Lua", "Node", "Python", "Rust")  # in the order of the columns
SOURCES = {"Lua": source("lua/evener", "*.lua"), "Node": source("node/lib", "*.js"), "Python": source("python/evener", "*.py"), "Rust": source("rust/evener/src", "*.rs")}


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
    exported = set(re.search(r"module\.exports = \{(.*)\}", (ROOT / "bindings" / "node" / "lib" / "index.js").read_text())[1].split(", "))
    return {name for name in names if name.split(".")[0] in exported} | {f"{name}.close" for name in owned & exported}


NAMES = {"Lua": lua_names(), "Node": node_names(), "Python": python_names(), "Rust": rust_names()}


def is_used(language, name):
    if language == "Python":
        return re.search(rf"\bevn_{name}\b", SOURCES[language]) is not None
    if language == "Node":
        return re.search(rf"\bapi\.{name}(?:_promised)?\b", SOURCES[language]) is not None
    if language == "Lua":
        names = {"get_api": "opened.evn_get_api", "version_number": "opened.evn_version_number"}
        return re.search(rf"\b{re.escape(names.get(name, 'api.' + name))}\b", SOURCES[language]) is not None
    if name == "get_api":
        return "evener_sys::api()" in SOURCES[language]
    return re.search(rf"\bapi(?:\(\)\?)?\s*\.{name}\b|^    evn_\w+: {name},$", SOURCES[language], re.M) is not None


def test_the_page_of_bindings_has_every_function_once():
    assert [row[0] for row in ROWS] == [f"`{function.name}`" for function in API.functions] + ["`evn_get_api`"]
    assert all(len(row) == 1 + len(LANGUAGES) for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[row[0].strip("`") for row in ROWS])
def test_the_page_of_bindings_is_what_the_sources_reach(row):
    name = row[0].strip("`").removeprefix("evn_")
    for language, cell in zip(LANGUAGES, row[1:]):
        reached = re.match(r"`([\w.:]+)`(?:, dropped)?$", cell)
        assert reached or re.match(r"no: \S+ \S+", cell), f"{language}: neither a name nor a reason: {cell}"
        assert is_used(language, name) == bool(reached), f"{language}: {cell}, but the sources say otherwise"
        if reached:
            assert reached[1] in NAMES[language], f"{language} has no {reached[1]}"


RUST = ROOT / "bindings" / "rust"


def test_the_crates_have_the_librarys_version():
    version = re.search(r"project\(evener VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    for crate in ("evener", "evener-sys"):
        assert f'version = "{version}"' in (RUST / crate / "Cargo.toml").read_text()
    assert f'evener-sys = {{ version = "={version}"' in (RUST / "evener" / "Cargo.toml").read_text()


def test_the_readme_of_the_crate_shows_the_example():
    assert (RUST / "evener" / "examples" / "classify.rs").read_text() in (RUST / "evener" / "README.md").read_text()


LUA = ROOT / "bindings" / "lua"


def test_luas_readme_shows_the_example_and_names_the_files():
    text = (LUA / "README.md").read_text()
    assert (LUA / "examples" / "classify.lua").read_text() in text
    files = [*LUA.glob("*.lua"), *LUA.glob("evener/*.lua")]
    assert len(files) > 14 and not [path.name for path in files if f"`{path.name}`" not in text]


NODE = ROOT / "bindings" / "node"


def test_nodes_readme_shows_the_example_and_names_the_files():
    text = (NODE / "README.md").read_text()
    assert (NODE / "examples" / "classify.mjs").read_text() in text
    files = [*NODE.glob("lib/*.[jt]s"), *NODE.glob("addon/*")]
    assert len(files) > 25 and not [path.name for path in files if f"`{path.name}`" not in text]


def test_nodes_addon_has_no_generated_file_that_is_not_made_any_more():
    made = {pathlib.Path(path).name for path in generate.generate("node", API)}
    assert {path.name for folder in ("addon", "lib") for path in (NODE / folder).glob("raw*")} == made


def test_nodes_generator_copes_with_what_it_does_not_know():
    """A function that is like others is there for JavaScript; another is named with the reason, and a new field is an option."""
    texts = [[name, (description.INCLUDE / name).read_text()] for name in description.HEADERS]
    more = ("EVN_API evn_status evn_event_like(const char *name, uint32_t *offset, evn_error *error);\n"
            "EVN_API evn_status evn_event_odd(void **memory, evn_error *error);\n")
    texts[-2][1] = texts[-2][1].replace("#ifdef __cplusplus\n}", more + "#ifdef __cplusplus\n}")
    texts[0][1] = texts[0][1].replace("} evn_run_options;", "  double share; /* how much */\n} evn_run_options;")
    table = (description.INCLUDE / "api.h").read_text().replace("} evn_api;", "".join(
        re.sub(r"EVN_API evn_status evn_(\w+)\(", r"  evn_status (*\1)(", line) + "\n" for line in more.splitlines()) + "} evn_api;")
    made = generate.generate("node", description.read_texts([tuple(each) for each in texts], table))
    assert "static napi_value event_like(Call& c) {" in made["bindings/node/addon/raw_runs.cc"]
    assert "// evn_event_odd: the parameter memory" in made["bindings/node/addon/raw_entries.cc"]
    assert '{"share", kDouble,' in made["bindings/node/addon/raw_structs.cc"] and "  share?: number;" in made["bindings/node/lib/raw.d.ts"]


def test_nodes_packages_have_the_librarys_version_and_no_script():
    version = re.search(r"project\(evener VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    main, *platforms = [json.loads(path.read_text()) for path in (NODE / "package.json", *NODE.glob("npm/*/package.json"))]
    assert main["version"] == version and main["optionalDependencies"] == {platform["name"]: version for platform in platforms}
    for package in (main, *platforms):
        assert package["version"] == version and "scripts" not in package and "dependencies" not in package and "gypfile" not in package


def test_what_node_exports_is_typed_and_the_same_everywhere():
    """index.js, index.mjs and index.d.ts name the same things, and the types have each method."""
    names = re.search(r"module\.exports = \{(.*)\}", (NODE / "lib" / "index.js").read_text())[1].split(", ")
    assert re.search(r"export const \{(.*)\}", (NODE / "index.mjs").read_text())[1].split(", ") == names
    types = (NODE / "index.d.ts").read_text()
    assert set(re.findall(r"^export (?:class|function) (\w+)", types, re.M)) | {"constants"} == set(names)
    typed, owner = set(), None
    for line in types.splitlines():
        if found := re.match(r"export class (\w+)", line):
            owner = found[1]
        elif found := re.match(r"  (?:static |readonly )*(\w+)[(<?:]", line):
            typed.add(f"{owner}.{found[1]}")
    missing = {name for name in NAMES["Node"] if "." in name and not name.endswith(".constructor")} - typed
    assert not missing, missing


def test_lua_runs_all_its_tests():
    named = re.search(r"or \{(.*)\}\)", (LUA / "tests" / "run.lua").read_text())[1]
    assert set(re.findall(r'"(\w+)"', named)) == {path.stem.removeprefix("test_") for path in (LUA / "tests").glob("test_*.lua")}


def test_files_of_the_bindings_have_at_most_500_lines_those_that_are_made_600_and_no_build_script():
    files = [*LUA.rglob("*.lua"), *(ROOT / "bindings" / "go").glob("*.[ch]"), *(ROOT / "bindings" / "go").glob("*.go"), *NODE.glob("*.*s"), *NODE.glob("lib/*"), *NODE.glob("addon/*"), *NODE.glob("tests/*"), *RUST.glob("evener*/**/*.rs"), *(ROOT / "bindings").glob("*.py"), *(ROOT / "bindings" / "languages").glob("*.py")]
    assert len(files) > 20
    lines = {path: path.read_text().splitlines() for path in files}
    assert not [path for path, text in lines.items() if len(text) > (600 if "Generated by" in text[0] else 500)]
    assert not [path for path in files if path.name == "build.rs"]
