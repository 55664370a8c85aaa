"""evener-lua-VERSION.tar.gz: the modules of bindings/lua, for a folder on LUA_PATH."""
from . import common

ABOUT = "the modules for LuaJIT, as an archive"


def missing():
    return ""


def make(packaging):
    name = f"evener-lua-{packaging.version}"
    root = common.SOURCE / "bindings" / "lua"
    files = [(f"{name}/{(common.SOURCE / path).relative_to(root)}", common.SOURCE / path)
             for path in common.sources("bindings/lua") if "tests" not in path.parts]
    files += [(f"{name}/{text}", common.SOURCE / text) for text in ("LICENSE", "NOTICE")]
    return [common.write_tar_gz(packaging.out / f"{name}.tar.gz", files)]
