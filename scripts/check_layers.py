#!/usr/bin/env python3
"""Fails when a folder of src/ includes from a folder that the layers do not allow.

usage: check_layers.py REPOSITORY
"""
import pathlib
import re
import sys

BASE = ["base"]
CORE = BASE + ["core"]
OPS = CORE + ["ops"]
MEMORY = OPS + ["memory"]
DEVICE = MEMORY + ["device"]
GRAPH = DEVICE + ["graph"]
RUNTIME = GRAPH + ["model", "quant", "config", "runtime"]
# folder -> folders that it may include from (itself is always allowed)
ALLOWED = {
    "base": [],
    "core": BASE,
    "ops": CORE,
    "memory": ["base", "core", "ops"],
    "device": MEMORY,
    "graph": DEVICE,
    "model": DEVICE,
    "quant": GRAPH,
    "config": CORE,
    "backends/cpu": DEVICE,
    "backends/opencl": DEVICE,
    "runtime": GRAPH + ["model", "quant", "config"],
    "api": RUNTIME,
    "cli": [],
    "modules": DEVICE,
}


def folder_of(path):
    for name in ALLOWED:
        if path == name or path.startswith(name + "/"):
            return name
    return None


def main():
    root = pathlib.Path(sys.argv[1])
    bad = 0
    for file in sorted(root.glob("src/**/*")):
        if file.suffix not in (".h", ".cc", ".c"):
            continue
        inside = str(file.relative_to(root / "src"))
        folder = folder_of(inside)
        if folder is None:
            folder = "/".join(inside.split("/")[:2])
            allowed = DEVICE if folder.startswith("backends/") else []
        else:
            allowed = ALLOWED[folder]
        for number, line in enumerate(file.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not match or match[1].startswith("evener/") or "/" not in match[1]:
                continue
            used = folder_of(match[1]) or "/".join(match[1].split("/")[:2])
            if used != folder and used not in allowed:
                print(f"src/{inside}:{number}: {folder} must not include {match[1]}")
                bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
