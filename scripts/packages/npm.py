"""evener-VERSION.tgz and evener-linux-x64-VERSION.tgz, for npm install: what bindings/node/build.mjs --package makes, archived as npm pack does."""
import json
import os
import sys

from . import common, sbom

ABOUT = "the npm packages evener and @evener/linux-x64"


def missing():
    return common.without("node")


def make(packaging):
    packaging = packaging.portable
    if not packaging.triplet.startswith("x86_64-"):
        print(f"npm: not made, there is no platform package for {packaging.triplet}", file=sys.stderr)
        return []
    folder = packaging.folder("npm")
    environment = dict(os.environ, CXX=packaging.tool("CMAKE_CXX_COMPILER"), CXXFLAGS=" ".join(["-s", f"-ffile-prefix-map={common.SOURCE}=.", *sum(packaging.compile_flags, [])]),
                       EVENER_ADDON_FOLDER=str(folder / "addon"))
    common.run(["node", common.SOURCE / "bindings" / "node" / "build.mjs", "--package", packaging.libraries / "libevener.so", folder], env=environment)
    made = []
    for package in ("evener", "linux-x64"):
        about = json.loads((folder / package / "package.json").read_text())
        if about["version"] != packaging.version:
            raise common.Failure(f"{about['name']} has version {about['version']}, and CMakeLists.txt {packaging.version}")
        if package != "evener":
            (folder / package / "evener.spdx.json").write_text(sbom.document(packaging, "evener-linux-x64", folder / package, sbom.linked(packaging)))
        files = [(f"package/{path.relative_to(folder / package)}", path) for path in (folder / package).rglob("*") if path.is_file()]
        name = about["name"].lstrip("@").replace("/", "-")
        made.append(common.write_tar_gz(packaging.out / f"{name}-{packaging.version}.tgz", files))
    return made
