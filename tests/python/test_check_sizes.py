"""scripts/check_sizes.py: files that are too long fail, long functions and parameter lists are warned of."""

import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "check_sizes.py"
BODY = "  use(1);\n"


def check(tmp_path, text):
    (tmp_path / "src").mkdir(exist_ok=True)
    (tmp_path / "src" / "a.cc").write_text(text)
    done = subprocess.run([sys.executable, SCRIPT, tmp_path, "--warnings"], capture_output=True, text=True)
    return done.returncode, done.stdout.strip()


def test_a_file_of_500_lines_passes_and_of_501_fails(tmp_path):
    assert check(tmp_path, "// x\n" * 500) == (0, "")
    assert check(tmp_path, "// x\n" * 501) == (1, "src/a.cc: 501 lines, more than 500")


def test_functions_of_namespaces_and_classes_are_counted(tmp_path):
    member = "namespace evn {\n\nclass A {\n public:\n  A() {}\n  void f() {\n" + "    use(1);\n" * 61 + "  }\n};\n\n}  // namespace evn\n"
    assert check(tmp_path, member) == (0, "src/a.cc:6: a function of 61 lines")
    free = "A::A(int a)\n    : a_(a) {\n" + BODY * 61 + "}\nvoid g() {\n" + BODY * 60 + "}\n"
    assert check(tmp_path, free) == (0, "src/a.cc:1: a function of 61 lines")


def test_a_lambda_or_a_table_is_no_function(tmp_path):
    text = "void f() {\n  each([&](int a, int b) {\n" + "    use(1);\n" * 20 + "  });\n}\nconst int kRows[] = {\n" + "    1,\n" * 100 + "};\n"
    assert check(tmp_path, text) == (0, "")


def test_parameters_are_counted_at_the_top_level(tmp_path):
    fits = "void f(std::map<int, int> a, int b, int (*c)(int, int), int d, int e, int f, int g) {\n  use(1);\n}\n"
    assert check(tmp_path, fits) == (0, "")
    assert check(tmp_path, fits.replace("int g)", "int g,\n       int h)")) == (0, "src/a.cc:1: 8 parameters")
