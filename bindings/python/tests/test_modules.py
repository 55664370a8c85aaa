"""Modules of the package import each other in one direction, also where an import stands in a function."""

import ast
import pathlib

import evener

FOLDER = pathlib.Path(evener.__file__).parent


def imports_of(path):
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            found |= {node.module} if node.module else {alias.name for alias in node.names}
    return found


def test_no_module_imports_itself_by_way_of_others():
    graph = {path.stem: imports_of(path) for path in FOLDER.glob("*.py")}
    assert len(graph) > 8
    while leaves := [name for name, used in graph.items() if not used & graph.keys()]:
        for name in leaves:
            del graph[name]
    assert not graph, f"these import each other: {graph}"
