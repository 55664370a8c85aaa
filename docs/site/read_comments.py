#!/usr/bin/env python3
"""Prints a public header with its comments as doxygen reads them: the headers themselves have plain ones, for people.

usage: read_comments.py HEADER      (doxygen's INPUT_FILTER)

What becomes of the comments:
  a line of dashes with a name     a group, up to the next such line
  before a declaration             the text of that declaration; in C also of the functions that follow without an empty line
  behind a declaration             the text of what stands before it: a field, a constant, a handle
  indented "name  text" in these   the parameter of that name, or an item of a list where there is none
  `code`                           code
  a name of the C API              a link to it
"""
import html
import pathlib
import re
import sys

SECTION = re.compile(r"(?:/\*|//) -{20,} (?P<name>[\w -]+?) --(?: \*/)?$", re.M)
ITEM = re.compile(r"^ {1,4}(\w[\w ()]*?(?:, \w+)*)\s{2,}(\S.*)$")
SCOPE = re.compile(r"\s*(?:inline\s+)?(?:namespace|class|struct|enum|union|extern|typedef\s+struct)\b")


def group_of(header, section):
    return re.sub(r"\W+", "_", f"{header} {section}")


def names_of(folder):
    """What a comment may link to: all names of the C API that its headers declare."""
    text = "\n".join(path.read_text() for path in sorted(folder.glob("*.h")))
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    patterns = (r"^EVN_API[^;(]*?\b(evn_\w+)\(", r"^\} (evn_\w+);", r"^typedef [^;{]*?\(\*(evn_\w+)\)", r"^typedef [^;{(]*?(evn_\w+);",
                r"\b(EVN_\w+) = ", r"^#define (EVN_\w+) ")
    return {name for pattern in patterns for name in re.findall(pattern, text, re.M)} - {"EVN_API"}


def inline(text, names):
    """One piece of prose: what is special to doxygen is not, code is code, names are links."""
    made = []
    for at, part in enumerate(re.split(r"`([^`\n]+)`", text)):
        if at % 2:
            made.append(f"<code>{escape(part)}</code>")
            continue
        for word_at, word in enumerate(re.split(r"\b((?:evn|EVN)_\w*[A-Za-z0-9])\b", part)):
            made.append(f'@ref {word} "{word}"' if word_at % 2 and word in names else escape(word))
    return "".join(made)


def escape(text):
    text = re.sub(r"[\\#%]|@(?!since\b)", lambda found: f"\\{found[0]}", text)
    return html.escape(text, quote=False).replace('"', "&quot;").replace("--", "\\-\\-").replace("::", "\\::")


def lines_of(comment):
    """The lines of a comment without stars or slashes; indentation is kept."""
    if comment.startswith("//"):
        return [re.sub(r"^\s*// ?", "", line).rstrip() for line in comment.split("\n")]
    lines = comment[2:-2].split("\n")
    starred = any(re.match(r"^ \*", line) for line in lines[1:])
    return [lines[0].strip()] + [(re.sub(r"^ ?\*? ?", "", line, count=1) if starred else line.strip()).rstrip() for line in lines[1:]]


def text_of(comment, names, parameters=()):
    """The lines of doxygen's comment."""
    made, in_item = [], False
    for line in lines_of(comment):
        item = ITEM.match(line)
        if item:
            name, text = item.groups()
            known = [one.strip() for one in name.split(",")]
            if made and made[-1] and not in_item:
                made.append("")
            if all(one in parameters for one in known):
                made += [f"@param {one} {inline(text, names)}" for one in known[:-1]]
                made.append(f"@param {known[-1]} {inline(text, names)}")
            else:
                made.append(f"- <b>{escape(name)}</b> {inline(text, names)}")
            in_item = True
        elif in_item and line.startswith("   "):
            made.append("  " + inline(line.strip(), names))
        else:
            if in_item and line:
                made.append("")
            in_item = False
            made.append(inline(line.strip(), names))
    # What came when is a paragraph of its own; in one with text, Sphinx would break that apart.
    return [line for text in made for line in re.sub(r" ?(@since [\d.]+)", r"\n\n\1\n", text).strip("\n").split("\n")]


def block(lines, indent="", behind=False):
    """doxygen's comment of these lines, which takes as many lines."""
    start = "/**< " if behind else "/** "
    return start + ("\n" + indent + " * ").join(line.replace("*/", "* /") for line in lines) + " */"


def parameters_of(declaration):
    found = re.search(r"\b\w+\((.*)\)\s*(?:const)?\s*(?:noexcept)?\s*;?\s*$", " ".join(declaration.split()))
    return {match[1] for part in found[1].split(",") if (match := re.search(r"(\w+)(?:\[\w*\])*\s*(?:=.*)?$", part))} if found else set()


def tokens(text, line_comments):
    """(kind, text) of the text: comments (with their further lines, where they begin with slashes), lines of the preprocessor, code."""
    comment = r"/\*.*?\*/" + (r"|//[^\n]*(?:\n[ \t]*//(?! -{20})[^\n]*)*" if line_comments else "")
    pattern = re.compile(rf"(?P<comment>{comment})|(?P<line>^#(?:\\\n|[^\n])*)|(?P<text>\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])+')|(?P<code>[{{}};\n]|[^{{}};\n/\"'#]+|.)", re.M | re.S)
    return [(match.lastgroup, match[0]) for match in pattern.finditer(text)]


class Writer:
    def __init__(self, header, text, names, is_cpp):
        self.header, self.names, self.is_cpp = header, names, is_cpp
        self.made, self.group, self.last = [], None, None
        self.scopes = []  # for each brace that is open, whether what it holds are declarations
        self.statement = ""  # since the last ; { or }
        self.line_has_code = False
        self.said = None  # C: the comment that the functions which follow share
        self.parts = tokens(text, is_cpp)

    def write(self):
        for at, (kind, text) in enumerate(self.parts):
            if kind == "comment":
                self.comment(at, text)
            elif kind == "line":
                self.preprocessor(at, text)
            else:
                self.code(at, kind, text)
        return "".join(self.made) + (f"\n/** @}} */\n" if self.group else "")

    def begin(self, name):
        """Begins a group, which ends the one before."""
        end = "/** @} */\n" if self.group else ""
        self.group = group_of(self.header, name)
        self.made.append(f"\n{end}/** @defgroup {self.group} {name[0].upper()}{name[1:]}\n * @{{ */\n")
        self.said = None

    def following(self, at):
        """The code behind a token up to its end: a declaration."""
        made = ""
        for kind, text in self.parts[at + 1:]:
            if kind == "comment":
                continue
            made += text
            if text in ("{", ";") or (kind == "line" and made.strip()):
                break
        return made

    def comment(self, at, text):
        section = SECTION.match(text)
        if section:
            self.begin(section["name"])
        elif not all(self.scopes) or self.group is None and not self.is_cpp or self.is_cpp and not self.scopes:
            self.made.append(text)
        elif self.line_has_code and "".join(self.made).rpartition("\n")[2].strip() == "}":
            self.made.append(text)  # of a brace, says what ends
        elif self.line_has_code:
            self.made.append(block(text_of(text, self.names), behind=True))
        else:
            self.said = text
            # A comment behind an empty line, or before one, says something of what follows as a whole.
            declaration = self.following(at)
            lines = text_of(text, self.names, parameters_of(declaration))
            self.made.append(block(lines, "  " * len(self.scopes)))

    def preprocessor(self, at, text):
        behind = re.search(r"/\*(.*?)\*/", text)
        if behind and text.startswith("#define"):
            text = text.replace(behind[0], block(text_of(behind[0], self.names), behind=True))
        elif number := re.match(r"#define EVN_\w+ (-?\d+)$", text):
            text += f" /**< @par Value\n{number[1]} */"
        self.made.append(text)
        self.line_has_code, self.statement, self.said = False, "", None

    def code(self, at, kind, text):
        if text == "\n":
            if not self.line_has_code and self.made and self.made[-1].endswith("\n"):
                self.said = None  # an empty line
            self.line_has_code = False
        elif text.strip():
            if not self.line_has_code and not self.is_cpp and not self.scopes:
                self.shared(at, text)
            self.line_has_code = True
        if text == "}" and self.is_cpp and self.group and len(self.scopes) == 1:
            self.made.append("/** @} */\n")  # a group ends in the namespace where it began
            self.group = None
        if text == "{":
            self.scopes.append(bool(SCOPE.match(re.sub(r"template <.*>(?= *(?:class|struct))", "", self.statement))))
        elif text == "}" and self.scopes:
            self.scopes.pop()
        self.statement = "" if text in ("{", "}", ";") else self.statement + text
        self.made.append(text)
        if text == "{" and self.is_cpp and len(self.scopes) == 1:
            behind = next((text for kind, text in self.parts[at + 1:] if text.strip()), "")
            if not SECTION.match(behind):
                self.begin(pathlib.Path(self.header).stem)

    def shared(self, at, text):
        """Declarations of C that have no comment directly before them, and follow one that has."""
        if self.statement.strip():
            return  # goes on with a declaration
        before = "".join(self.made).rstrip(" ")
        if before.endswith("*/\n") and not before.rsplit("\n", 2)[-2].strip().endswith("@{ */") and not re.search(r"/\*\*<[^\n]*\n$", before):
            return
        if text.startswith("EVN_API") and self.said is not None:
            self.made.append(block(text_of(self.said, self.names, parameters_of(text + self.following(at)))) + "\n")
        elif text.startswith("enum "):
            typedef = re.search(r"typedef \w+ (evn_\w+);[^;]*$", before)
            of = f"The values of @ref {typedef[1]}." if typedef else "Constants."
            self.made.append(f"/** {of} */\n")


def without_restrictions(text):
    """The text of a header in C++ without what only restricts its templates, "typename = ...", which says nothing to a reader."""
    while (start := re.search(r",\s*typename = ", text)) is not None:
        end, depth = start.end(), 0
        while depth or text[end] not in ",>":
            depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(text[end], 0)
            end += 1
        text = text[:start.start()] + text[end:]
    return text


def convert(header, text, names):
    is_cpp = header.endswith(".hpp")
    if is_cpp:  # the inline namespace says with which spans it was compiled, and is no part of a name
        text = re.sub(r"^inline namespace EVENER_SPANS \{$", "", text, flags=re.M).replace("}  // inline namespace\n", "\n")
        text = without_restrictions(text)
    else:
        text = re.sub(r"^#ifdef __cplusplus\n.*?^#endif$", "", text, flags=re.M | re.S)
    return Writer(header, text, names, is_cpp).write()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    path = pathlib.Path(sys.argv[1])
    sys.stdout.write(convert(path.name, path.read_text(), names_of(path.parent) if path.suffix == ".h" else set()))


if __name__ == "__main__":
    main()
