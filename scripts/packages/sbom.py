"""SPDX 2.3 documents of what is inside a binary package: its files, and the works that are linked into them."""
import hashlib
import json
import pathlib
import re
import shutil
import subprocess

from . import common

RUNTIME_LICENSE = "GPL-3.0-or-later WITH GCC-exception-3.1"


class Component:
    """A work of others in a binary package, and into which files it is linked."""

    def __init__(self, name, version, license, files, purl="", relation="STATIC_LINK"):
        self.name, self.version, self.license, self.files, self.purl, self.relation = name, version, license, files, purl, relation


def owner(path):
    """The package that has installed a file, or nothing: where there is no dpkg, or it was installed by hand."""
    path = str(pathlib.Path(path).resolve())
    if shutil.which("dpkg-query"):
        for name in (path, path.removeprefix("/usr")):  # dpkg knows a file by the name that it had before /lib became a link
            done = subprocess.run(["dpkg-query", "-S", name], capture_output=True, text=True)
            if done.returncode == 0:
                return done.stdout.split(": ")[0].split(",")[0]
    return None


def origin(path):
    """The source package, the version and the purl of an installed file, as dpkg knows them; only its name where dpkg does not."""
    package = owner(path)
    if package is None:
        return pathlib.Path(path).stem, "NOASSERTION", ""
    source, version = common.run(["dpkg-query", "-W", "-f", "${source:Package} ${source:Version}", package]).split()
    return source, version, f"pkg:deb/debian/{source}@{version}?arch=source"


def linked(packaging):
    """What is linked statically into each binary of the build, by file name: found as the build's own files say it."""
    cache = packaging.cache
    yaml = origin(cache["YAML_CPP_ARCHIVE"])
    components = [Component("yaml-cpp", yaml[1], "MIT", {"libevener.so", "libevener.a"}, yaml[2])]
    compiler = packaging.tool("CMAKE_CXX_COMPILER")
    runtime = common.run([compiler, "-print-file-name=libstdc++.a"]).strip()
    components.append(Component("libstdc++", common.run([compiler, "-dumpfullversion"]).strip(), RUNTIME_LICENSE, {"libevener.so", "libevener.a", "evener.node"}, origin(runtime)[2]))
    components.append(Component("libgcc", components[-1].version, RUNTIME_LICENSE, {"libevener.so", "evener.node"}, components[-1].purl))
    if (packaging.libraries / "libevener_openblas.so").exists():
        blas = origin(cache["OPENBLAS_ARCHIVE"])
        components.append(Component("OpenBLAS", blas[1], "BSD-3-Clause", {"libevener_openblas.so"}, blas[2]))
    return components


def base_name(name):
    """libevener.so for libevener.so.0.2.0."""
    return re.sub(r"(\.so)(\.\d+)*$", r"\1", pathlib.PurePosixPath(name).name)


def spdx_id(text):
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text)


def document(packaging, name, folder, components, version=None):
    """The document, as text, of the package `name` whose files lie in a folder. Only components count whose files are in it."""
    version = version or packaging.version
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and "DEBIAN" not in path.relative_to(folder).parts)
    files, ids, sums = [], {}, []
    for number, path in enumerate(paths):
        body = path.read_bytes()
        sums.append(hashlib.sha1(body).hexdigest())
        inside = path.relative_to(folder).as_posix()
        ids.setdefault(base_name(inside), f"SPDXRef-File-{number}-{spdx_id(path.name)}")
        files.append({"SPDXID": f"SPDXRef-File-{number}-{spdx_id(path.name)}", "fileName": f"./{inside}", "fileTypes": ["BINARY" if body[:4] == b"\x7fELF" else "OTHER"],
                      "checksums": [{"algorithm": "SHA1", "checksumValue": sums[-1]}, {"algorithm": "SHA256", "checksumValue": hashlib.sha256(body).hexdigest()}],
                      "licenseConcluded": "NOASSERTION", "licenseInfoInFiles": ["NOASSERTION"], "copyrightText": "NOASSERTION"})
    verification = hashlib.sha1("".join(sorted(sums)).encode()).hexdigest()
    main = f"SPDXRef-Package-{spdx_id(name)}"
    inside = [component for component in components if component.files & ids.keys()]
    licenses = sorted({"Apache-2.0", *(component.license for component in inside if component.relation == "STATIC_LINK")})
    packages = [{"SPDXID": main, "name": name, "versionInfo": version, "supplier": "Organization: Evener", "downloadLocation": "NOASSERTION",
                 "filesAnalyzed": True, "packageVerificationCode": {"packageVerificationCodeValue": verification},
                 "licenseInfoFromFiles": ["NOASSERTION"], "licenseConcluded": " AND ".join(f"({text})" if " " in text else text for text in licenses),
                 "licenseDeclared": "Apache-2.0", "copyrightText": "NOASSERTION", "hasFiles": [file["SPDXID"] for file in files]}]
    relations = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": main}]
    for component in inside:
        identity = f"SPDXRef-Package-{spdx_id(component.name)}"
        entry = {"SPDXID": identity, "name": component.name, "versionInfo": component.version, "supplier": "NOASSERTION", "downloadLocation": "NOASSERTION",
                 "filesAnalyzed": False, "licenseConcluded": component.license, "licenseDeclared": component.license, "copyrightText": "NOASSERTION"}
        if component.purl:
            entry["externalRefs"] = [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": component.purl}]
        packages.append(entry)
        for file in sorted(component.files & ids.keys()):
            relations.append({"spdxElementId": ids[file], "relationshipType": component.relation, "relatedSpdxElement": identity})
    return json.dumps({
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"{name}-{version}",
        "documentNamespace": f"urn:spdx:{name}-{version}-{verification}",
        "creationInfo": {"created": common.timestamp(), "creators": [f"Tool: evener-scripts-package-{packaging.version}", "Organization: Evener"]},
        "packages": packages, "files": files, "relationships": relations}, indent=1) + "\n"
