"""The raw layers of the bindings are what the headers say, and what the description of the headers does not know is an error."""
import ctypes
import importlib
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bindings"))

import description  # noqa: E402
import generate  # noqa: E402
from languages import java  # noqa: E402

API = description.read()


@pytest.mark.parametrize("language", generate.LANGUAGES)
def test_a_raw_layer_is_what_the_headers_say(language):
    for path, text in generate.generate(language, API).items():
        assert (ROOT / path).read_text() == text, f"run bindings/generate.py {language}"


def test_check_says_which_file_is_old(tmp_path):
    for name in ("bindings", "include", "src/api"):
        source, target = ROOT / name, tmp_path / name
        for path in source.rglob("*"):
            if path.suffix in (".py", ".h", ".rs", ".lua", ".c", ".cc", ".java", ".js", ".ts") and not {"target", "node_modules"} & set(path.parts):
                copy = target / path.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(path.read_bytes())
    command = [sys.executable, str(tmp_path / "bindings" / "generate.py"), "--check"]
    assert subprocess.run(command, capture_output=True, text=True).returncode == 0
    header = tmp_path / "include" / "evener" / "state.h"
    header.write_text(header.read_text().replace("EVN_STATE_INT8 = 4", "EVN_STATE_INT8 = 8"))
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and all(name in done.stderr for name in ("_raw.py", "raw/constants.rs", "raw_constants.lua", "go/raw_constants.h", "Numbers.java", "addon/raw_structs.cc", "layouts.h"))
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


def test_javas_layout_is_that_of_ctypes():
    sys.path.insert(0, str(ROOT / "bindings" / "python" / "evener"))
    raw = importlib.import_module("_raw")
    sys.path.pop(0)
    layouts = java.Layouts(API)
    assert len(layouts.structs) > 25
    for name, struct in layouts.structs.items():
        offsets, size, alignment = layouts.of(struct)
        made = getattr(raw, name)
        assert (offsets, size, alignment) == ({field: getattr(made, field).offset for field in offsets}, ctypes.sizeof(made), ctypes.alignment(made)), name


def test_javas_layer_takes_what_later_headers_may_have():
    header = (TYPES + "enum { EVN_KIND_A = 1, EVN_KIND_2D = 2 };\n"
              "typedef struct evn_part { uint8_t a[3]; double b; int16_t c; } evn_part;\n"
              "typedef struct evn_more { bool a; evn_part part[2]; size_t size; evn_thing thing; } evn_more;\n"
              "EVN_API int16_t evn_do(uint16_t a, int8_t env, float b, bool c, const evn_part *const *native, evn_thing thing);\n")
    table = ("typedef struct evn_api { uint32_t struct_size; uint32_t api_version; int16_t (*do)(uint16_t a, int8_t env, float b, bool c,"
             " const evn_part *const *native, evn_thing thing); } evn_api;\nEVN_API evn_kind evn_get_api(uint32_t version, const evn_api **api);\n")
    api = description.read_texts([("little.h", header)], table)
    files = java.generate(api)
    assert java.Layouts(api).of(api.of(description.Struct)[1]) == ({"a": 0, "part": 8, "size": 56, "thing": 64}, 72, 8)
    assert "static native short do_(short a, byte env, float b, boolean c, long native_, long thing);" in files["bindings/java/src/main/java/evener/Raw.java"]
    assert "Java_evener_Raw_do_1(" in files["bindings/java/src/main/native/raw_runs.c"]
    assert "  _2D(2)," in files["bindings/java/src/main/java/evener/Kind.java"]


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
    assert '{"share", kDouble,' in made["bindings/node/addon/raw_structs.cc"] and "  share?: number;" in made["bindings/node/lib/raw_structs.d.ts"]


def test_no_generated_file_is_left_that_is_not_made_any_more():
    made = {path for language in generate.LANGUAGES for path in generate.generate(language, API)}
    found = {str(path.relative_to(ROOT)) for folder in ("bindings", "src/api") for path in (ROOT / folder).rglob("*")
             if path.suffix in (".h", ".c", ".cc", ".py", ".rs", ".lua", ".java", ".js", ".ts") and not {"target", "node_modules"} & set(path.parts)
             and "Generated by bindings/generate.py from" in path.open(errors="replace").readline()}
    assert found == made
