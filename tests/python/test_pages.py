"""scripts/check_pages.py: which pages are older than what they measure, said of small repositories."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import check_pages  # noqa: E402


class Repository:
    def __init__(self, folder):
        self.folder = folder
        self.git("init", "-q")

    def git(self, *arguments):
        options = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
        return subprocess.run(["git", *options, *arguments], cwd=self.folder, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, path, text):
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", path)
        return self.git("rev-parse", "HEAD")

    def warning(self):
        return check_pages.warning(self.folder, "docs/page.md", ("src",))


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "origin").mkdir()
    made = Repository(tmp_path / "origin")
    made.commit("src/a.cc", "1")
    return made


def stamped(commit):
    return f"<!-- measured at {commit} on a machine -->\n# Numbers\n"


def test_a_page_as_young_as_its_code_is_not_named(repository):
    repository.commit("docs/page.md", stamped(repository.git("rev-parse", "HEAD")))
    repository.commit("README.md", "of nothing that the page measures")
    assert repository.warning() is None


def test_a_page_older_than_its_code_is_named_with_how_many_commits(repository):
    repository.commit("docs/page.md", stamped(repository.git("rev-parse", "HEAD")))
    repository.commit("src/a.cc", "2")
    repository.commit("src/b.cc", "3")
    assert "2 later commits" in repository.warning()


def test_a_page_without_a_stamp_is_named(repository):
    assert "no such page" in repository.warning()
    repository.commit("docs/page.md", "# Numbers\n")
    assert "does not say" in repository.warning()


def test_an_unknown_commit_is_said_to_be_one(repository):
    repository.commit("docs/page.md", stamped("0123456789abcdef"))
    assert "unknown here" in repository.warning()


def test_a_shallow_clone_is_said_to_be_one(repository, tmp_path):
    repository.commit("docs/page.md", stamped(repository.git("rev-parse", "HEAD")))
    repository.commit("src/a.cc", "2")
    subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{repository.folder}", str(tmp_path / "shallow")], check=True)
    assert "the clone is shallow" in check_pages.warning(tmp_path / "shallow", "docs/page.md", ("src",))


def test_what_pages_measure_is_there():
    for page, measured in check_pages.PAGES.items():
        assert (ROOT / page).exists()
        assert all((ROOT / path).exists() for path in measured), page
