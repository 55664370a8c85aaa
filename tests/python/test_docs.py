"""The documentation that says what code says: pieces of code stand in their files, the C API's reference is the header's, the page
of operators the library's."""
import os
import pathlib
import re
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "scripts"))

import make_c_api  # noqa: E402
import make_operators  # noqa: E402

HEADERS = [header.read_text() for header in make_c_api.HEADERS]
PIECES = [(page.name, path, code) for page in sorted((REPOSITORY / "docs").glob("*.md"))
          for path, code in re.findall(r"<!-- from: (\S+) -->\n```\w+\n(.*?)```", page.read_text(), re.S)]


@pytest.mark.parametrize("page, path, code", PIECES, ids=[f"{page}-{at}" for at, (page, _, _) in enumerate(PIECES)])
def test_a_piece_of_code_stands_in_its_file(page, path, code):
    assert code in (REPOSITORY / path).read_text()


def test_both_guides_show_code():
    assert {page for page, _, _ in PIECES} >= {"adding-an-operator.md", "adding-a-backend.md"}


def test_paths_in_the_guides_exist():
    for page in ("adding-an-operator.md", "adding-a-backend.md"):
        text = (REPOSITORY / "docs" / page).read_text()
        paths = re.findall(r"`((?:src|tests|docs|scripts)/[\w./-]+)`", text)
        assert len(paths) > 5
        assert not [path for path in paths if not (REPOSITORY / path).exists()], page


def test_the_reference_of_the_c_api_is_the_headers():
    assert make_c_api.OUTPUT.read_text() == make_c_api.generate(HEADERS), "run scripts/make_c_api.py"


def test_the_page_of_operators_is_what_the_library_says():
    build = pathlib.Path(os.environ.get("EVENER_BUILD") or REPOSITORY / "build" / "release")
    assert make_operators.OUTPUT.read_text() == make_operators.generate(build), "run scripts/make_operators.py"


def test_the_reference_has_every_function_once_with_its_comment():
    text = make_c_api.generate(HEADERS)
    functions = re.findall(r"EVN_API[^;(]*?\b(evn_\w+)\(", "".join(HEADERS))
    assert len(functions) > 30
    headings = re.findall(r"`(evn_\w+)`", "\n".join(re.findall(r"^### .*$", text, re.M)))
    assert not [name for name in functions if headings.count(name) != 1]
    declared = re.findall(r"^EVN_API[^;]*;", "\n".join(HEADERS), re.M)
    assert not [line for line in declared if line not in text]


def test_parameters_become_a_list():
    header = "/* A library. */\n/* " + "-" * 40 + " part -- */\n\n"
    header += "/* Does it.\n *   one  the first,\n *        still\n *   two  the other\n * Ends. */\n"
    header += "EVN_API int evn_do(int one, int two);\n\n#ifdef __cplusplus\n}\n#endif\n"
    text = make_c_api.generate([header])
    assert "### `evn_do`\n\nDoes it.\n\n- **one** the first,\n  still\n- **two** the other\n\nEnds.\n\n```c\nEVN_API int" in text
