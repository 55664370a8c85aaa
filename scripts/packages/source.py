"""evener-VERSION.tar.gz: the commit's files, which build without git and without a network."""
import gzip
import subprocess

from . import common

ABOUT = "the source archive of the commit"


def missing():
    return "" if common.in_git() else "a checkout of git"


def make(packaging):
    name = f"evener-{packaging.version}"
    target = packaging.out / f"{name}.tar.gz"
    # Permissions are those of the index and not of the checkout; times are the commit's.
    done = subprocess.run(["git", "-C", str(common.SOURCE), "-c", "tar.umask=0022", "archive", "--format=tar", f"--prefix={name}/", "HEAD"],
                          capture_output=True)
    if done.returncode != 0:
        raise common.Failure(f"git archive: {done.stderr.decode(errors='replace').strip()}")
    with open(target, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(done.stdout)
    return [target]
