"""evener-sys-VERSION.crate and evener-VERSION.crate, by cargo package, from a copy of bindings/rust. Nothing is fetched that cargo has not."""
import os
import shutil

from . import common

ABOUT = "the crates evener-sys and evener"


def missing():
    return common.without("cargo")


def make(packaging):
    copy = packaging.folder("crates")
    for path in common.sources("bindings/rust"):
        target = copy / "rust" / (common.SOURCE / path).relative_to(common.SOURCE / "bindings" / "rust")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(common.SOURCE / path, target)
    for crate in ("evener-sys", "evener"):
        shutil.copyfile(common.SOURCE / "LICENSE", copy / "rust" / crate / "LICENSE")
    command = ["cargo", "package", "--workspace", "--no-verify", "--allow-dirty", "--target-dir", copy / "target"]
    environment = {key: value for key, value in os.environ.items() if key not in ("CARGO_TARGET_DIR", "RUSTFLAGS")}
    try:
        common.run([*command, "--offline"], cwd=copy / "rust", env=environment)
    except common.Failure:  # cargo has not fetched the dependencies yet, which it needs to know
        common.run(command, cwd=copy / "rust", env=environment)
    made = []
    for crate in ("evener-sys", "evener"):
        name = f"{crate}-{packaging.version}.crate"
        found = copy / "target" / "package" / name
        if not found.exists():
            raise common.Failure(f"cargo package made no {name}: bindings/rust/{crate}/Cargo.toml has another version than CMakeLists.txt")
        made.append(shutil.copyfile(found, packaging.out / name))
    return made
