#!/usr/bin/env python3
"""Writes the raw layer of each language from the public C headers.

usage: generate.py [LANGUAGE ...] [--check]

LANGUAGE  c (the library itself), go, java, lua, node, python, rust: those of bindings/languages; none: all
--check   writes nothing, and fails where a file is not what would be written
"""
import importlib
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

import description  # noqa: E402

LANGUAGES = sorted(path.stem for path in (HERE / "languages").glob("*.py") if path.stem != "__init__")


def generate(language, api):
    """{path in the repository: text} of a language."""
    return importlib.import_module(f"languages.{language}").generate(api)


def main(arguments):
    check = "--check" in arguments
    wanted = [argument for argument in arguments if argument != "--check"]
    for language in wanted:
        if language not in LANGUAGES:
            sys.exit(f"generate.py: there is no language {language}: {', '.join(LANGUAGES)}")
    try:
        api = description.read()
    except description.DescriptionError as error:
        sys.exit(f"generate.py: {error}")
    old = []
    for language in wanted or LANGUAGES:
        for path, text in generate(language, api).items():
            file = ROOT / path
            if check:
                if not file.exists() or file.read_text() != text:
                    old.append(path)
            else:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
    if old:
        sys.exit(f"generate.py: not what the headers say, run bindings/generate.py: {', '.join(old)}")


if __name__ == "__main__":
    main(sys.argv[1:])
