"""What the site is made from: how comments of headers are read, links, the examples that its starts show. tests/site looks at the site itself."""
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SITE = ROOT / "docs" / "site"
sys.path.insert(0, str(SITE))

import assemble  # noqa: E402
import read_comments  # noqa: E402

LINE = "-" * 30


def converted(text, header="little.h", names=("evn_do", "EVN_ONE", "evn_kind")):
    return read_comments.convert(header, text, set(names))


def test_sections_become_groups_that_end():
    text = converted(f"/* {LINE} first -- */\ntypedef int evn_kind;\n/* {LINE} second part -- */\ntypedef int evn_other;\n")
    assert re.findall(r"@defgroup (\w+) (.*)", text) == [("little_h_first", "First"), ("little_h_second_part", "Second part")]
    assert text.count("@{") == text.count("@}") == 2


def test_comments_stand_by_what_they_are_of():
    text = converted(f"""/* What the file is. */
/* {LINE} part -- */

/* What a call came to. */
typedef int32_t evn_kind;
enum {{
  EVN_ONE = 1, /* the first,
                  and more */
  /* Said of the second. */
  EVN_TWO = 2
}};

/* Does it.
 *   one, two  both
 *   three     no parameter of it
 * Returns EVN_ONE. @since 0.2 */
EVN_API evn_kind evn_do(int one, int two);
EVN_API evn_kind evn_undo(int two);

EVN_API evn_kind evn_alone(void);
#define EVN_MANY 8
#define EVN_FEW 2 /* how few */
""")
    assert text.startswith("/* What the file is. */\n")
    assert "/** What a call came to. */\ntypedef int32_t evn_kind;" in text
    assert '/** The values of @ref evn_kind. */\nenum {' in text
    assert "EVN_ONE = 1, /**< the first,\n * and more */" in text and "/** Said of the second. */\n  EVN_TWO" in text
    do = text[text.index("/** Does it."):text.index("evn_do(")]
    assert "@param one both" in do and "@param two both" in do and "- <b>three</b> no parameter of it" in do
    assert 'Returns @ref EVN_ONE "EVN_ONE".' in do and re.search(r"\n \* @since 0\.2", do)
    undo = text[text.index("evn_do("):text.index("evn_undo(")]
    assert "@param two" not in undo.replace("@param two both", "", 1) and "<b>one, two</b>" in undo
    assert "*/" not in text[text.index("evn_undo("):text.index("evn_alone(")]
    assert "EVN_MANY 8 /**< @par Value\n8 */" in text and "EVN_FEW 2 /**< how few */" in text


def test_what_is_special_to_doxygen_is_not():
    assert read_comments.inline(r'a<b> & "c" \d @e #f 100% g::h --i', set()) == (
        r'a&lt;b&gt; &amp; &quot;c&quot; \\d \@e \#f 100\% g\::h \-\-i')
    assert read_comments.inline("`a<b>` of evn_do and evn_do_more", {"evn_do"}) == '<code>a&lt;b&gt;</code> of @ref evn_do "evn_do" and evn_do_more'


def test_cpp_headers_are_read_where_they_declare_and_not_in_functions():
    text = converted(f"""// What the file is.
namespace evener {{
inline namespace EVENER_SPANS {{
// {LINE} things --

// A thing.
class Thing {{
 public:
  // Makes one.
  template <typename T, typename = std::enable_if_t<f<T>(1, 2)>>
  explicit Thing(T t) {{
    // Not for readers.
    call();  // nor this
  }}
  int size() const {{ return 1; }}  // in bytes
}};

}}  // inline namespace
}}  // namespace evener
""", "thing.hpp")
    assert "/** A thing. */\nclass Thing" in text and "/** Makes one. */" in text and "/**< in bytes */" in text
    assert "// Not for readers." in text and "// nor this" in text and "EVENER_SPANS" not in text
    assert "template <typename T>\n" in text and text.count("@{") == text.count("@}") == 1
    assert text.index("@}") < text.index("}  // namespace evener")


@pytest.mark.parametrize("header", [*assemble.C_HEADERS, *assemble.CPP_HEADERS])
def test_code_of_headers_stays_as_it_is(header):
    def code(text):
        text = re.sub(r"^#ifdef __cplusplus\n.*?^#endif$", "", text, flags=re.M | re.S)
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        return "".join(re.sub(r"//.*", "", read_comments.without_restrictions(text)).split())
    text = (assemble.INCLUDE / header).read_text()
    shown = read_comments.convert(header, text, read_comments.names_of(assemble.INCLUDE))
    wanted = code(text.replace("inline namespace EVENER_SPANS {", "").replace("}  // inline namespace\n", ""))
    assert code(shown) == wanted and len(wanted) > 500
    assert shown.count("@{ */") == shown.count("/** @} */") > 0


def test_all_headers_are_in_the_reference():
    assert sorted(assemble.C_HEADERS) == sorted(path.name for path in assemble.INCLUDE.glob("*.h"))
    assert sorted(assemble.CPP_HEADERS) == sorted(path.name for path in assemble.INCLUDE.glob("*.hpp"))
    script = (ROOT / "scripts" / "docs").read_text()
    assert "'include/evener/%s ' " + " ".join(assemble.C_HEADERS) + ")" in script


def test_links_lead_to_what_the_site_has():
    def line(text):
        return assemble.rewritten(text, "docs/placement.md")
    assert line("[a](memory.md#limits) ![b](placement.svg) [c](https://example.org)") == "[a](memory.md#limits) ![b](placement.svg) [c](https://example.org)"
    assert line("[the keys](../config/schema.yaml)") == "the keys (`config/schema.yaml`)"
    assert line("[`config/schema.yaml`](../config/schema.yaml)") == "`config/schema.yaml`"
    assert line("[`config/examples/`](../config/examples)") == "`config/examples`"
    assert line("see [c](c-api.md)") == "see [c](reference/c/index.md)"
    assert line("```c\n[a](../src/x.cc)\n```\n`[a](b.md)`") == "```c\n[a](../src/x.cc)\n```\n`[a](b.md)`"
    with pytest.raises(SystemExit, match="links to nowhere.md, which is not there"):
        line("[a](nowhere.md)")


STARTS = assemble.start_pages()


def test_starts_are_of_all_languages():
    assert [fields["language"] for _, fields in STARTS] == ["C", "C++", "Python", "Rust", "Go", "LuaJIT", "Java", "Node"]
    bindings = {path.name for path in (ROOT / "bindings").iterdir() if path.is_dir() and (path / "README.md").is_file()}
    shown = {fields["example"].split("/")[1] for _, fields in STARTS} | {"python"}
    assert len(bindings) > 3 and not bindings - shown, "a language without a page in docs/site/starts"


@pytest.mark.parametrize("fields", [fields for _, fields in STARTS], ids=[path.stem for path, _ in STARTS])
def test_a_start_shows_an_example_that_tests_run(fields):
    if not (ROOT / fields["example"]).is_file():
        assert fields["language"] in ("Java", "Node"), f"{fields['example']} is not there"
        return
    runner = ROOT / fields["run_by"]
    assert fields["runs"] in runner.read_text() and fields["runs"].rpartition("/")[2].rpartition(" ")[2] in fields["example"]
    # The runner itself is run: by ctest, whose tests in Python lie in these folders, or by scripts/test.
    if runner.suffix == ".py":
        assert f"evn_pytest({runner.parent.name} {runner.parent.relative_to(ROOT)}" in (ROOT / "cmake" / "python_tests.cmake").read_text()
    else:
        assert f" {fields['run_by']} " in (ROOT / "scripts" / "test").read_text()


def test_the_pages_shown_are_there_and_placed():
    index = (SITE / "index.md").read_text()
    listed = set(re.findall(r"^(?:[\w ]+<)?([\w/-]+)>?$", "\n".join(re.findall(r"```\{toctree\}\n(.*?)```", index, re.S)), re.M))
    top = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"c-api"}
    assert len(top) > 20 and not {name for name in top - listed if not name.startswith("benchmarks-")}


def test_the_script_knows_its_options(tmp_path):
    def run(*arguments):
        return subprocess.run([str(ROOT / "scripts" / "docs"), *arguments], capture_output=True, text=True)
    assert "usage: scripts/docs [-o FOLDER] [--check]" in run("--help").stdout
    assert run("--nothing").returncode == 1 and run("-o").returncode == 1


def test_without_doxygen_the_script_says_so(tmp_path):
    for tool in ("bash", "dirname", "basename", "cat", "sed", "realpath"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    done = subprocess.run(["bash", str(ROOT / "scripts" / "docs")], capture_output=True, text=True, env={"PATH": str(tmp_path)})
    assert done.returncode == 77 and done.stderr.splitlines()[-1] == "there is no doxygen"


def test_a_folder_of_something_else_is_not_replaced(tmp_path):
    (tmp_path / "mine").write_text("kept")
    script = (ROOT / "scripts" / "docs").read_text()
    assert script.index("no site that this script has made") < script.index('rm -rf "$OUTPUT"')
    if shutil.which("doxygen") and (ROOT / "build" / "docs-venv").is_dir():
        done = subprocess.run([str(ROOT / "scripts" / "docs"), "-o", str(tmp_path)], capture_output=True, text=True)
        assert done.returncode == 1 and "no site that this script has made" in done.stderr
    assert (tmp_path / "mine").read_text() == "kept"


def test_warnings_are_errors():
    assert re.search(r"^WARN_AS_ERROR +\S+ FAIL_ON_WARNINGS$", (SITE / "Doxyfile").read_text(), re.M)
    assert re.search(r"-m sphinx .*-W ", (ROOT / "scripts" / "docs").read_text()) and "suppress_warnings" not in (SITE / "conf.py").read_text()
