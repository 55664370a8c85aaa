#!/usr/bin/env python3
"""Fails when a source file of src/ is longer than 500 lines; warns of functions above 60 lines and of more than 7 parameters.

usage: check_sizes.py REPOSITORY [--warnings]
"""
import pathlib
import re
import sys

MOST_LINES = 500
MOST_FUNCTION_LINES = 60
MOST_PARAMETERS = 7
CONTAINER = re.compile(r"^(?:template <.*> ?)?(?:namespace|struct|class|union|enum|extern \"C\")\b")


def indent_of(line):
    return len(line) - len(line.lstrip())


def functions(lines):
    """(number of the first line, its text up to the brace, how many lines) of each function body, in a file that clang-format has written:
    a function stands in a namespace, where nothing is indented, or in a class, where members are by two."""
    begin, depth, end = None, 0, -1  # first line of a declaration; indentation of what may stand here; line where its body ends
    for at, line in enumerate(lines):
        if at <= end or not line.strip() or line.lstrip().startswith(("//", "#")):
            begin = begin if at > end else None
            continue
        if line.startswith(" " * depth + "}"):
            depth, begin = 0, None
            continue
        if indent_of(line) == depth and begin is None:
            begin = at
        if begin is None or not line.rstrip().endswith("{"):
            is_whole = indent_of(line) == depth and line.count("(") == line.count(")")  # an enumerator, a label
            if line.rstrip().endswith((";", "{}")) or (is_whole and line.rstrip().endswith(("}", ",", ":"))):
                begin = None
            continue
        head = " ".join(part.strip() for part in lines[begin:at + 1])
        if CONTAINER.match(head):
            depth = 0 if head.startswith(("namespace", "extern")) else indent_of(lines[begin]) + 2
            begin = None
            continue
        end = next((k for k in range(at + 1, len(lines)) if re.match(" " * depth + r"\}", lines[k]) and indent_of(lines[k]) == depth), len(lines))
        if "(" in head and "=" not in head.split("(")[0]:
            yield begin + 1, head, end - at - 1
        begin = None


def parameters(head):
    """How many parameters the list behind the name has."""
    begin = head.index("(")
    depth, count, empty = 0, 1, True
    for character in head[begin:]:
        if character in "(<{[":
            depth += 1
        elif character in ")>}]":
            depth -= 1
            if depth == 0:
                break
        elif character == "," and depth == 1:
            count += 1
        elif character != " ":
            empty = False
    return 0 if empty else count


def main():
    root = pathlib.Path(sys.argv[1])
    bad, warnings = 0, []
    for file in sorted((root / "src").rglob("*")):
        if file.suffix not in (".h", ".cc", ".c"):
            continue
        lines = file.read_text().splitlines()
        name = file.relative_to(root)
        if len(lines) > MOST_LINES:
            print(f"{name}: {len(lines)} lines, more than {MOST_LINES}")
            bad += 1
        for number, head, count in functions(lines):
            if count > MOST_FUNCTION_LINES:
                warnings.append(f"{name}:{number}: a function of {count} lines")
            if parameters(head) > MOST_PARAMETERS:
                warnings.append(f"{name}:{number}: {parameters(head)} parameters")
    if "--warnings" in sys.argv:
        print("\n".join(warnings))
    if warnings and "--warnings" not in sys.argv:
        print(f"src: {len(warnings)} functions are longer than {MOST_FUNCTION_LINES} lines or have more than {MOST_PARAMETERS} parameters (check_sizes.py --warnings lists them)")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
