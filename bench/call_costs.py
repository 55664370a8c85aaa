#!/usr/bin/env python3
"""What a call costs from each language: a run of one node into given outputs, above the same call from C.

usage: call_costs.py [LANGUAGE ...] [--build FOLDER] [--count N] [--turns N]

LANGUAGE  c, go, java, lua, node, python, rust; none: all whose toolchains are here (c is always run: it is what the others are compared with)
--count   calls of a turn (default 100,000), behind a fifth of that which is not measured
--turns   how often each language's program is run, all in turns (default 10: a million calls of each)

Printed are medians of nanoseconds over the turns, and of the differences to C's in the same turn. Each program opens the library by its own
binding: bench/calls has C, Lua, Python, Java and Node, bindings/rust/evener/examples/call_cost.rs Rust, bindings/go/examples/callcost Go.
"""
import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from onnx import TensorProto, helper

ROOT = pathlib.Path(__file__).resolve().parents[1]
CALLS = ROOT / "bench" / "calls"
BINDINGS = ROOT / "bindings"
LIMITS = {"rust": 100, "lua": 100, "go": 300, "java": 300, "node": 600, "python": 3000}  # what is aimed at, in ns above C


def run(command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"call_costs.py: {command[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Programs:
    """The command that runs each language's program, without its arguments MODEL and COUNT; None where the toolchain is missing."""

    def __init__(self, build, folder):
        self.library, self.folder = build / "libevener.so", folder
        self.environment = dict(os.environ, EVENER_LIBRARY=str(self.library), PYTHONPATH=str(BINDINGS / "python"),
                                LUA_PATH=f"{BINDINGS}/lua/?.lua;;", GOFLAGS="-buildvcs=false", GOTOOLCHAIN="local", CGO_ENABLED="1",
                                GOCACHE=os.environ.get("GOCACHE", str(ROOT / "build" / "go")))

    def c(self):
        program = self.folder / "cost"
        run(["cc", "-O2", "-std=gnu11", f"-I{ROOT / 'include'}", CALLS / "cost.c", "-o", program, "-ldl"])
        return [program, self.library]

    def python(self):
        return [sys.executable, CALLS / "cost.py"]

    def lua(self):
        return ["luajit", CALLS / "cost.lua"] if shutil.which("luajit") else None

    def rust(self):
        if not shutil.which("cargo"):
            return None
        target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "build" / "rust"))
        run(["cargo", "build", "--release", "--locked", "-p", "evener", "--example", "call_cost"], cwd=BINDINGS / "rust",
            env=dict(self.environment, CARGO_TARGET_DIR=str(target)))
        return [target / "release" / "examples" / "call_cost"]

    def go(self):
        if not shutil.which("go"):
            return None
        program = self.folder / "go_cost"
        run(["go", "build", "-o", program, "./examples/callcost"], cwd=BINDINGS / "go", env=self.environment)
        return [program]

    def java(self):
        if not shutil.which("javac"):
            return None
        home = pathlib.Path(shutil.which("javac")).resolve().parents[1]
        run(["sh", BINDINGS / "java" / "src" / "main" / "native" / "build.sh", home, self.folder / "java"])
        glue, = (self.folder / "java").glob("*/libevener_java.so")
        target = self.folder / "java" / "classes" / "evener" / "native" / glue.parent.name
        target.mkdir(parents=True)
        shutil.copy(glue, target)
        classes = self.folder / "java" / "classes"
        run(["javac", "-d", classes, *(BINDINGS / "java" / "src" / "main" / "java").rglob("*.java"), CALLS / "Cost.java"])
        return ["java", "-cp", classes, "Cost"]

    def node(self):
        if not shutil.which("node"):
            return None
        run(["node", BINDINGS / "node" / "build.mjs"])
        return ["node", CALLS / "cost.mjs"]


def tiny_model(path):
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "double", value[:1], value[1:])
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("languages", nargs="*")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=10)
    arguments = parser.parse_args()
    known = [name for name in vars(Programs) if not name.startswith("_")]
    for name in arguments.languages:
        if name not in known:
            sys.exit(f"call_costs.py: there is no language {name}: {', '.join(known)}")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model = folder / "double.onnx"
        tiny_model(model)
        programs = Programs(arguments.build.resolve(), folder)
        commands = {name: getattr(programs, name)() for name in ["c", *(name for name in arguments.languages or known if name != "c")]}
        for name in [name for name, command in commands.items() if command is None]:
            print(f"{name}: its toolchain is not here")
            del commands[name]
        times = {name: [] for name in commands}
        for _ in range(arguments.turns):
            for name, command in commands.items():
                times[name].append(float(run([*command, model, arguments.count], env=programs.environment)))
    print(f"{'language':10} {'ns a call':>10} {'above C':>9} {'aim':>7}")
    for name, all_times in times.items():
        above = statistics.median(mine - c for mine, c in zip(all_times, times["c"]))
        print(f"{name:10} {statistics.median(all_times):10.0f} {above:9.0f} {LIMITS.get(name, ''):>7}")


if __name__ == "__main__":
    main()
