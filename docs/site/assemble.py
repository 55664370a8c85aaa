#!/usr/bin/env python3
"""Puts together what Sphinx makes the site from: the pages of docs/ and of this folder, the shown examples, and the pages of the reference.

usage: assemble.py FOLDER C CPP      (C and CPP: folders of what doxygen has made of the headers, in which values and namespaces are set right)

Links of a page to files that are not part of the site, as to sources, become the text that they have and the file's path: a reader of the
site may be without a network and without the sources.
"""
import os
import pathlib
import re
import shutil
import sys

SITE = pathlib.Path(__file__).resolve().parent
ROOT = SITE.parents[1]
DOCS = ROOT / "docs"
INCLUDE = ROOT / "include" / "evener"
sys.path[:0] = [str(SITE), str(ROOT / "scripts"), str(ROOT / "bindings")]

import description  # noqa: E402
import make_c_api  # noqa: E402
import read_comments  # noqa: E402

C_HEADERS = (*description.HEADERS, description.TABLE)
CPP_HEADERS = ("evener.hpp", "core.hpp", "tensor.hpp", "session.hpp", "request.hpp", "state.hpp", "event.hpp", "operator.hpp", "quantizer.hpp", "trainer.hpp")
ASSETS = (".svg", ".png")
# The C API's page in Markdown is for readers of the repository; here it is made by doxygen.
REPLACED = {"docs/c-api.md": "reference/c/index.md"}
LINK = re.compile(r"`[^`]*`|!?\[(?P<text>(?:`[^`]*`|[^\[\]`])*)\]\((?P<target>[^()\s]+)\)")
# Pages that a page lists itself, or that follow from one: what it gets at its end.
LISTS = {"decisions/README.md": "[0-9]*", "notes/README.md": "[a-z]*", "benchmarks.md": "benchmarks-*"}


def start_pages():
    """(page, {key: value}) for each language: what stands between the lines of dashes at a page's top."""
    made = []
    for path in sorted((SITE / "starts").glob("*.md")):
        head = re.match(r"---\n(.*?)\n---\n", path.read_text(), re.S)
        fields = dict(line.split(": ", 1) for line in head[1].splitlines())
        made.append((path, fields))
    return sorted(made, key=lambda page: int(page[1]["order"]))


def is_in_site(path):
    """Whether a path of the repository is a page or a picture of the site."""
    return path.startswith("docs/") and not path.startswith("docs/site/") and path.endswith((".md", *ASSETS)) and (ROOT / path).is_file()


def rewritten(text, path):
    """The text of the page of a path of the repository, with links that lead to what the site has."""
    folder = pathlib.PurePosixPath(path).parent

    def link(found):
        said, target = found["text"], found["target"]
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        file, _, anchor = target.partition("#")
        meant = os.path.normpath(folder / file)
        if meant in REPLACED:
            return f"[{said}]({os.path.relpath('docs/' + REPLACED[meant], folder)})"
        if is_in_site(meant) or meant.startswith("docs/reference/"):
            return found[0]
        if not (ROOT / meant).exists():
            raise SystemExit(f"assemble.py: {path} links to {target}, which is not there")
        return f"`{meant}`" if said.strip("`").rstrip("/") in (meant, file) else f"{said} (`{meant}`)"

    made, fence = [], None
    for line in text.split("\n"):
        mark = re.match(r"\s*(```+|~~~+)", line)
        if mark and fence is None:
            fence = mark[1]
        elif mark and line.strip().startswith(fence) and not line.strip().strip(fence[0]):
            fence = None
        elif fence is None:
            # Code between backticks stays as it is, but for a link around it; so do pictures.
            line = LINK.sub(lambda found: link(found) if found[0].startswith("[") else found[0], line)
        made.append(line)
    return "\n".join(made)


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def toctree(names, caption=None, options=()):
    lines = ["```{toctree}", *([f":caption: {caption}"] if caption else []), *options, "", *names, "```", ""]
    return "\n".join(lines)


def guides(folder):
    for path in sorted(DOCS.rglob("*")):
        name = path.relative_to(DOCS).as_posix()
        if name.startswith("site/") or f"docs/{name}" in REPLACED or not path.is_file():
            continue
        if path.suffix == ".md":
            text = rewritten(path.read_text(), f"docs/{name}")
            if name in LISTS:
                text += "\n\n" + toctree([LISTS[name]], options=(":hidden:", ":glob:"))
            write(folder, name, text)
        elif path.suffix in ASSETS:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / name)


def starts(folder):
    """A page for each language whose example is there, and the list of all."""
    built, absent = [], []
    for path, fields in start_pages():
        example = ROOT / fields["example"]
        if not example.is_file():
            absent.append(f"- {fields['language']}: not in this edition, as `{fields['example']}` is not there.")
            continue
        shown = f"```{{literalinclude}} /{fields['example']}\n:language: {fields['code']}\n```"
        text = path.read_text().split("\n---\n", 1)[1]
        if text.count("{{ example }}") != 1:
            raise SystemExit(f"assemble.py: {path.name} does not show its example once")
        note = f"This is `{fields['example']}`. The project's tests run it: `{fields['run_by']}`.\n\n"
        write(folder, f"starts/{path.name}", rewritten(text, f"docs/starts/{path.name}").replace("{{ example }}", note + shown))
        write(folder, fields["example"], example.read_text())
        built.append(path.stem)
    text = (SITE / "starts.md").read_text()
    write(folder, "starts/index.md", text + "\n" + toctree(built, options=(":maxdepth: 1",)) + "\n" + "\n".join(absent) + "\n")


def plain(text):
    """Prose of a header whose underscores and stars mean themselves, but for the two stars around the names of items."""
    pieces = re.split(r"(`[^`]*`|^- \*\*[\w ]+\*\*)", text, flags=re.M)
    return "".join(piece if at % 2 else re.sub(r"[_*<>\[\]]", lambda found: "\\" + found[0], piece) for at, piece in enumerate(pieces))


def reference(folder, language, headers, title, intro):
    for header in headers:
        text = (INCLUDE / header).read_text()
        top = re.match(r"/\*.*?\*/|(?://[^\n]*\n)+", text, re.S)[0].strip()
        converted = read_comments.convert(header, text, set())
        parts = [f"# {header}", "", plain(make_c_api.prose(read_comments.lines_of(top))), ""]
        for group, name in re.findall(r"@defgroup (\w+) (.*)$", converted, re.M):
            parts += [f"## {name}", "", f"```{{doxygengroup}} {group}", f":project: {language}", ":content-only:", ":members:", ":undoc-members:", "```", ""]
        if header == "core.hpp":
            parts += ["## Owners of objects", "", "Runtimes, devices, tensors, models, sessions and the like are owners of one object of the library each:", "",
                      "```{doxygenclass} evener::detail::Object", f":project: {language}", ":members:", ":undoc-members:", "```", ""]
        write(folder, f"reference/{language}/{header.replace('.', '-')}.md", "\n".join(parts))
    pages = [header.replace(".", "-") for header in headers]
    write(folder, f"reference/{language}/index.md", f"# {title}\n\n{intro}\n\n" + toctree(pages, options=(":maxdepth: 2",)))


def give_values(xml):
    """Has the constants of enums say their values."""
    for path in sorted(xml.glob("group__*.xml")):
        text = re.sub(r"(<name>EVN_\w+)(</name>\s*<initializer>)(= -?\d+)(?=</initializer>)", r"\1 \3\2\3", path.read_text())
        path.write_text(text)


def qualify(xml):
    """Has enums, functions and types that a group lists say their namespace, as classes do: Sphinx would name them without it."""
    for path in sorted(xml.glob("group__*.xml")):
        text = re.sub(r'(<memberdef kind="(?:enum|function|typedef|variable)".*?<name>)(?=\w)', r"\1evener::", path.read_text(), flags=re.S)
        path.write_text(text)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__.strip())
    give_values(pathlib.Path(sys.argv[2]))
    qualify(pathlib.Path(sys.argv[3]))
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True)
    guides(folder)
    starts(folder)
    reference(folder, "c", C_HEADERS, "The C API", "All functions, structs and constants, from the headers in `include/evener/`. What holds for all of them stands first in "
              "[evener.h](evener-h.md); [](../../abi.md) says what stays as it is from version to version.")
    reference(folder, "cpp", CPP_HEADERS, "The C++ API", "Owners, exceptions and views over the C API, in headers alone: `#include <evener/evener.hpp>` has all of them.")
    shutil.copyfile(SITE / "index.md", folder / "index.md")
    shutil.copyfile(SITE / "conf.py", folder / "conf.py")
    shutil.copytree(SITE / "static", folder / "static")


if __name__ == "__main__":
    main()
