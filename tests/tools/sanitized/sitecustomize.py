"""Imported by each Python that sanitized.py starts: compilers, git and the command, which it runs, get no runtime preloaded; other
Pythons do."""
import os
import pathlib
import sys

os.environ.pop("LD_PRELOAD", None)
sys.executable = str(pathlib.Path(__file__).with_name("python"))
