#!/usr/bin/env python3
"""Fails when a folder of src/ includes from a folder that the layers do not allow, a room of src/runtime from a later room, or its README says
something else.

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
    "runtime": GRAPH + ["model", "quant", "config", "zip"],
    "api": RUNTIME,
    "train": RUNTIME + ["api"],
    "zip": [],
    "cli": ["zip"],
    "modules": DEVICE,
}
# The rooms of runtime/, the lowest first: a room includes from those before it.
ROOMS = ["objects", "loaded", "placement", "lower", "run", "rows", "session", "cost", "request", "split", "state", "batch", "dispatch", "loss", "replay", "stages",
         "live", "report", "quantize", "assembly"]
MOST_README_LINES = 15
LAYERS_WITH_SUBFOLDERS = ["base", "ops", "graph", "runtime", "backends/cpu"]  # whose folders have READMEs of their own


def add_backends(root):
    for folder in sorted((root / "src/backends").iterdir()):
        ALLOWED["backends/" + folder.name] = DEVICE


def folder_of(path):
    for name in ALLOWED:
        if path == name or path.startswith(name + "/"):
            return name
    return None


def check_readme(root, folder, allowed):
    """Returns what is wrong with a folder's README.md: it has at most 15 lines, one of which names all that the folder may include."""
    file = root / "src" / folder / "README.md"
    if not file.exists():
        return f"src/{folder}/README.md is missing"
    lines = file.read_text().splitlines()
    if len(lines) > MOST_README_LINES:
        return f"src/{folder}/README.md has {len(lines)} lines, more than {MOST_README_LINES}"
    named = [line.split(".")[0] for line in lines if line.startswith("May include: ")]
    if len(named) != 1 or set(re.findall(r"`([a-z/]+)`", named[0])) - {"src/"} != set(allowed):
        return f"src/{folder}/README.md: one line must be: May include: {', '.join(f'`{name}`' for name in allowed)}."
    return None


def check_rooms(source):
    """Returns what is wrong with the includes among the rooms of runtime/: those of later rooms."""
    wrong = []
    rooms = {path.name for path in (source / "runtime").iterdir() if path.is_dir()}
    if rooms != set(ROOMS):
        wrong.append(f"ROOMS of check_layers.py and the folders of src/runtime differ: {', '.join(sorted(rooms ^ set(ROOMS)))}")
    for file in sorted((source / "runtime").glob("*/**/*")):
        if file.suffix not in (".h", ".cc"):
            continue
        room = file.relative_to(source).parts[1]
        for number, line in enumerate(file.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+"runtime/([a-z]+)/', line)
            if not match or not {room, match[1]} <= set(ROOMS) or ROOMS.index(match[1]) <= ROOMS.index(room):
                continue
            wrong.append(f"{file.relative_to(source.parent)}:{number}: runtime/{room} must not include from runtime/{match[1]}, a later room")
    return wrong


def check_subfolder(source, folder):
    """Returns what is wrong with the README.md of a folder inside a layer: a line names which of its neighbours' headers it includes."""
    used = set()
    for file in folder.rglob("*"):
        if file.suffix in (".h", ".cc", ".c"):
            for path in re.findall(r'#\s*include\s+"([^"]+)"', file.read_text()):
                neighbour = (source / path).parent
                if neighbour != folder and neighbour.parent == folder.parent:
                    used.add(neighbour.name)
    readme = folder / "README.md"
    name = readme.relative_to(source.parent)
    if not readme.exists():
        return f"{name} is missing"
    lines = readme.read_text().splitlines()
    wanted = "Includes of its neighbours: " + (", ".join(f"`{name}`" for name in sorted(used)) or "nothing") + "."
    if len(lines) > MOST_README_LINES or wanted not in lines:
        return f"{name}: at most {MOST_README_LINES} lines, of which one must be: {wanted}"
    return None


def main():
    root = pathlib.Path(sys.argv[1])
    add_backends(root)
    bad = 0
    for folder, allowed in ALLOWED.items():
        wrong = check_readme(root, folder, allowed)
        if wrong is not None:
            print(wrong)
            bad += 1
    for layer in LAYERS_WITH_SUBFOLDERS:
        for folder in sorted(path for path in (root / "src" / layer).iterdir() if path.is_dir()):
            wrong = check_subfolder(root / "src", folder)
            if wrong is not None:
                print(wrong)
                bad += 1
    for wrong in check_rooms(root / "src"):
        print(wrong)
        bad += 1
    for file in sorted(root.glob("src/**/*")):
        if file.suffix not in (".h", ".cc", ".c"):
            continue
        inside = str(file.relative_to(root / "src"))
        folder = folder_of(inside)
        if folder is None:
            folder = "/".join(inside.split("/")[:2])
            allowed = []
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
