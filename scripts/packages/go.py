"""The Go module of bindings/go as a module proxy has it: the folder go-proxy, which GOPROXY=file://FOLDER/go-proxy reads."""
import json
import re

from . import common

ABOUT = "the Go module, in the layout of a module proxy"


def missing():
    return ""


def make(packaging):
    root = common.SOURCE / "bindings" / "go"
    module = re.search(r"^module (\S+)$", (root / "go.mod").read_text(), re.M)[1]
    version = f"v{packaging.version}"
    folder = packaging.out / "go-proxy" / module / "@v"
    folder.mkdir(parents=True, exist_ok=True)
    # Names of the module's files begin with module@version/; times in a module's zip count for nothing.
    files = [(f"{module}@{version}/{(common.SOURCE / path).relative_to(root)}", (common.SOURCE / path).read_bytes(), 0o644)
             for path in common.sources("bindings/go")]
    files.append((f"{module}@{version}/LICENSE", (common.SOURCE / "LICENSE").read_bytes(), 0o644))
    archive = common.write_zip(folder / f"{version}.zip", sorted(files))
    (folder / f"{version}.mod").write_bytes((root / "go.mod").read_bytes())
    (folder / f"{version}.info").write_text(json.dumps({"Version": version, "Time": common.timestamp()}) + "\n")
    (folder / "list").write_text(f"{version}\n")
    return [archive, *(folder / name for name in (f"{version}.mod", f"{version}.info", "list"))]
