"""C and C++ sources are as clang-format writes them (.clang-format, the version of scripts/requirements.txt); the public headers are laid out by
hand."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORMATTER = pathlib.Path(sys.executable).parent / "clang-format"
FOLDERS = ("src", "tests", "bench", "examples")


def files():
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".h", ".cc", ".c")]
    found += [path for path in sorted((ROOT / "bindings" / "node" / "addon").iterdir()) if not path.name.startswith("raw")]
    assert len(found) > 900
    return [str(path) for path in found if not any(part.startswith("build") for part in path.relative_to(ROOT).parts)]


def test_sources_are_formatted():
    assert FORMATTER.exists(), "pip install -r scripts/requirements.txt brings clang-format"
    done = subprocess.run([FORMATTER, "--dry-run", "-Werror", *files()], capture_output=True, text=True)
    wrong = sorted({line.split(":")[0].removeprefix(str(ROOT) + "/") for line in done.stderr.splitlines() if "[-Wclang-format-violations]" in line})
    assert done.returncode == 0, f"run {FORMATTER} -i {' '.join(wrong)}"


def test_public_headers_keep_the_limit_of_lines():
    headers = sorted((ROOT / "include").rglob("*.h*"))
    assert len(headers) >= 7
    long = [f"{path.relative_to(ROOT)}:{number}" for path in headers for number, line in enumerate(path.read_text().splitlines(), 1) if len(line) > 132]
    assert not long
