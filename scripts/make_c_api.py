#!/usr/bin/env python3
"""Writes docs/c-api.md, the reference of the C API, from the comments and declarations of include/evener/evener.h, quantize.h,
request.h, state.h, event.h, opencl.h, train.h and api.h.

usage: make_c_api.py [OUTPUT]      (OUTPUT "-": standard output)
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
HEADERS = [ROOT / "include" / "evener" / name for name in ("evener.h", "quantize.h", "request.h", "state.h", "event.h", "opencl.h", "train.h", "api.h")]
OUTPUT = ROOT / "docs" / "c-api.md"

SECTION = re.compile(r"/\* -{20,} (?P<name>[\w -]+?) -- \*/\n")
COMMENT = re.compile(r"/\*(?P<text>.*?)\*/[ \t]*\n", re.S)
NAME = re.compile(r"EVN_API [^(]*?\b(evn_\w+)\(|typedef [^;{]*?\(\*(evn_\w+)\)|^} (evn_\w+);|typedef struct \w+ \*(evn_\w+);|typedef \w+ (evn_\w+);"
                  r"|enum \{\s*(EVN_\w+)|#define (EVN_\w+)", re.M)


def comment_lines(text):
    """The lines of a comment without stars; indentation is kept."""
    return [re.sub(r"^ ?\* ?", "", line, count=1).rstrip() if at else line.strip() for at, line in enumerate(text.split("\n"))]


def prose(lines):
    """Markdown of a comment: indented `name  text` lines become a list, and what is indented further goes on with its item."""
    out, in_list = [], False
    for line in lines:
        item = re.match(r"^ {1,3}(\w[\w ()]*?)\s{2,}(\S.*)$", line)
        if item:
            name, text = item.groups()
            if not in_list:
                out.append("")
            out.append(f"- **{name}** {text}")
            in_list = True
        elif in_list and line.startswith("   "):
            out.append("  " + line.strip())
        else:
            if in_list and line:
                out.append("")
            in_list = False
            out.append(line.strip())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip()


def blocks(text):
    """Splits a section at blank lines outside of comments and braces."""
    out, depth, current, inside = [], 0, [], False
    for line in text.split("\n"):
        code = re.sub(r"/\*.*?\*/", "", line)
        if not line.strip() and not inside and depth == 0:
            if current:
                out.append("\n".join(current))
            current = []
            continue
        current.append(line)
        if inside:
            inside = "*/" not in line
        else:
            inside = "/*" in code
            code = code.split("/*")[0]
            depth += code.count("{") - code.count("}")
    if current:
        out.append("\n".join(current))
    return out


def render(block):
    """One block of the header: the comment before its declarations, a heading of their names, and the declarations."""
    comment = ""
    match = COMMENT.match(block + "\n")
    if match:
        comment = prose(comment_lines(match["text"]))
        block = (block + "\n")[match.end():].rstrip("\n")
    if not block.strip():
        return comment + "\n" if comment else ""
    names = []
    for found in NAME.finditer(block):
        name = next(filter(None, found.groups()))
        if name not in names and not name.endswith("_INIT"):
            names.append(name)
    heading = ", ".join(f"`{name}`" for name in names[:4]) + (", ..." if len(names) > 4 else "")
    parts = [f"### {heading}"] if names else []
    parts += [comment] if comment else []
    parts.append(f"```c\n{block}\n```")
    return "\n\n".join(parts) + "\n"


def sections(text):
    """What stands at the top of a header, and its sections by name."""
    body = text[:text.index("#ifdef __cplusplus\n}\n#endif")]
    pieces = SECTION.split(body)
    return prose(comment_lines(COMMENT.match(body)["text"])), list(zip(pieces[1::2], pieces[2::2]))


def generate(texts):
    """Returns the Markdown for the texts of headers. What stands at the top of a later one goes into its first section."""
    out = ["<!-- Written by scripts/make_c_api.py from include/evener/evener.h, quantize.h, request.h, state.h, event.h, opencl.h and api.h. Do not edit. -->", "# The C API", ""]
    for number, text in enumerate(texts):
        top, parts = sections(text)
        out += [top, ""] if number == 0 else []
        for name, section in parts:
            out += [f"## {name.strip().capitalize()}", ""]
            out += [top, ""] if number > 0 else []
            out += [rendered for rendered in map(render, blocks(section)) if rendered]
            top = ""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).rstrip() + "\n"


def main():
    text = generate([header.read_text() for header in HEADERS])
    if sys.argv[1:] == ["-"]:
        sys.stdout.write(text)
    else:
        (pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT).write_text(text)


if __name__ == "__main__":
    main()
