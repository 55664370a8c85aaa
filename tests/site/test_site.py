"""The site that scripts/docs has made, in the folder EVENER_SITE: it has all of the API, needs no network, and fits its windows."""
import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse
import zlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bindings"), str(ROOT / "docs" / "site")]

import assemble  # noqa: E402
import description  # noqa: E402

if not os.environ.get("EVENER_SITE"):
    pytest.skip("EVENER_SITE names no folder: scripts/docs --check does", allow_module_level=True)
SITE = pathlib.Path(os.environ["EVENER_SITE"]).resolve()
BROWSER = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)


class Page(html.parser.HTMLParser):
    """What a page loads, where it leads, and which places it has."""

    def __init__(self, path):
        super().__init__()
        self.loads, self.links, self.ids = [], [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if "id" in attributes:
            self.ids.add(attributes["id"])
        if tag == "a" and "href" in attributes:
            self.links.append(attributes["href"])
        elif tag == "link" and attributes.get("rel") not in ("search", "index", "next", "prev", "author", "genindex"):
            self.loads.append(attributes["href"])
        self.loads += [attributes[name] for name in ("src", "data", "poster") if name in attributes]
        self.loads += re.findall(r"url\((.*?)\)", attributes.get("style", ""))


PAGES = {path.relative_to(SITE).as_posix(): Page(path) for path in sorted(SITE.rglob("*.html"))}


def test_nothing_comes_from_elsewhere():
    assert len(PAGES) > 100
    loads = [(name, address) for name, page in PAGES.items() for address in page.loads]
    assert len(loads) > 1000 and not [load for load in loads if re.match(r"\s*[\"']?(https?:)?//", load[1])]
    sheets = [path for path in SITE.rglob("*.css")]
    assert sheets
    for path in sheets:
        for address in re.findall(r"url\(\s*[\"']?([^)\"']+)|@import\s+[\"']([^\"']+)", path.read_text()):
            assert not re.match(r"(https?:)?//", "".join(address)), f"{path.name}: {address}"
    for path in SITE.rglob("*.js"):  # what a script would fetch, beside the address of a page that it links to
        assert not re.search(r"(?:fetch|import|importScripts)\(\s*[\"'`](?:https?:)?//", path.read_text()), path.name


def test_what_is_loaded_and_linked_is_there():
    wrong = []
    for name, page in PAGES.items():
        for address in page.loads + page.links:
            parts = urllib.parse.urlsplit(address)
            if parts.scheme or address.startswith("//"):
                continue
            target = (SITE / name).parent / urllib.parse.unquote(parts.path) if parts.path else SITE / name
            file = target.resolve().relative_to(SITE.resolve()).as_posix()
            if not target.is_file():
                wrong.append(f"{name}: {address}")
            elif parts.fragment and address in page.links and file in PAGES:
                if urllib.parse.unquote(parts.fragment) not in PAGES[file].ids:
                    wrong.append(f"{name}: {address}")
    assert not wrong


def inventory():
    """{(domain:kind, name)} of all that the site documents."""
    data = (SITE / "objects.inv").read_bytes()
    text = zlib.decompress(data[[match.end() for match in re.finditer(rb"\n", data)][3]:]).decode()
    return {(match[2], match[1]) for match in re.finditer(r"^(.+?) (\S+:\S+) -?\d+ \S+ .*$", text, re.M)}


def test_the_reference_has_every_name_of_the_c_headers():
    api, seen = description.read(), inventory()
    wanted = {("c:function", function.name) for function in api.functions} | {("c:function", "evn_get_api")}
    for struct in api.of(description.Struct):
        wanted |= {("c:struct", struct.name)} | {("c:member", f"{struct.name}.{field.name}") for field in struct.fields}
    wanted |= {("c:struct", "evn_api")} | {("c:member", f"evn_api.{entry.name}") for entry in api.table}
    for kind in (description.Handle, description.Callback, description.Typedef):
        wanted |= {("c:type", item.name) for item in api.of(kind)}
    wanted |= {("c:macro", macro.name) for macro in api.of(description.Macro)}
    assert len(wanted) > 500 and not sorted(wanted - seen)
    values = {name.rpartition(".")[2] for kind, name in seen if kind == "c:enumerator"}
    assert {constant.name for item in api.of(description.Enum) for constant in item.constants} == values


def test_the_reference_has_what_the_headers_say():
    text = " ".join(re.sub(r"<[^>]*>", "", (SITE / "reference/c/evener-h.html").read_text()).split())
    for said in ("a file cannot be read or written", "threads of the CPU device, the caller included", "nullable; copied. What it has of user",
                 "Every object is a typed opaque handle", "Values are appended, never renumbered", "Since 0.2" if "Since 0.2" in text else "0.2"):
        assert said in text, said


def test_the_reference_has_every_name_of_the_cpp_headers():
    seen = {name for kind, name in inventory() if kind.startswith("cpp:")}
    wanted = set()
    for header in assemble.CPP_HEADERS:
        text = re.sub(r"^namespace detail \{.*?^\}  // namespace detail$", "", (assemble.INCLUDE / header).read_text(), flags=re.M | re.S)
        text = re.sub(r"//.*", "", text)
        for kind, name, body in re.findall(r"^(class|struct) (\w+)[^;{\n]*\{\n(.*?)^\};", text, re.M | re.S):
            public = re.sub(r"^ (?:private|protected):\n.*?(?=^ public:|\Z)", "", body, flags=re.M | re.S)
            public = public if kind == "struct" else public[public.find(" public:"):]
            methods = set(re.findall(r"^  (?! )(?:[\w:<>,&*\[\] ]+[&* ])(\w+)\(", public, re.M)) - {"operator", name, "return", "if", "requires", "decltype"}
            wanted |= {f"evener::{name}"} | {f"evener::{name}::{method}" for method in methods if not method.startswith("evn_") and not re.search(rf"friend [^;{{]*\b{method}\(", public)}
        wanted |= {f"evener::{name}" for name in re.findall(r"^enum class (\w+)", text, re.M)}
    assert len(wanted) > 150 and not sorted(wanted - seen)


def test_every_guide_and_language_is_there():
    guides = [path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in (ROOT / "docs").rglob("*.md")
              if "site" not in path.parts and path.name != "c-api.md"]
    assert len(guides) > 100 and not set(guides) - set(PAGES)
    languages = (SITE / "starts/index.html").read_text()
    for path, fields in assemble.start_pages():
        is_there = (ROOT / fields["example"]).is_file()
        assert (f"starts/{path.stem}.html" in PAGES) == is_there
        assert is_there or fields["example"] in languages
        if is_there:
            shown = re.sub(r"\s+", "", html.unescape(re.sub(r"<[^>]*>", "", (SITE / f"starts/{path.stem}.html").read_text())))
            assert re.sub(r"\s+", "", (ROOT / fields["example"]).read_text()) in shown


# A page that shows others in a frame of a width, one after the other, and takes down what each says of itself.
FRAMES = """<!DOCTYPE html><body><script>
const pages = PAGES, seen = [];
let at = 0, frame = null, timer = 0;
function next() {
  clearTimeout(timer);
  if (frame) frame.remove();
  if (at === pages.length) { document.title = "LOOK" + JSON.stringify(seen) + "KOOL"; return; }
  frame = document.createElement("iframe");
  frame.style = "width:WIDTHpx;height:900px;border:0";
  frame.src = pages[at++];
  document.body.append(frame);
  timer = setTimeout(() => { seen.push({page: frame.src, silent: true}); next(); }, 20000);
}
addEventListener("message", (event) => { seen.push(event.data); next(); });
next();
</script></body>"""

# What a page says of itself: how wide it is, and what it has that sticks out of it.
SAYS = """<script>addEventListener("load", () => setTimeout(() => {
  const root = document.documentElement, out = [];
  for (const element of document.querySelectorAll("article *")) {
    const box = element.getBoundingClientRect();
    if (box.width === 0 || box.right <= root.clientWidth + 1) continue;
    // What scrolls within the article does so in itself; what scrolls the whole of the article, as the theme lets it, sticks out.
    let around = element.parentElement;
    while (around.tagName !== "ARTICLE" && !["auto", "scroll", "hidden"].includes(getComputedStyle(around).overflowX)) around = around.parentElement;
    if (around.tagName === "ARTICLE") out.push(element.tagName + " " + element.textContent.slice(0, 60));
  }
  parent.postMessage({page: location.pathname, width: innerWidth, overflow: root.scrollWidth - root.clientWidth, out: out.slice(0, 5),
                      back: getComputedStyle(document.body).backgroundColor}, "*");
}, 10));</script>"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser") / "site"
    shutil.copytree(SITE, folder)
    for name in PAGES:
        path = folder / name
        text = path.read_text()
        assert "</body>" in text, name
        path.write_text(text.replace("</body>", SAYS + "</body>"))
    return folder


def browse(address, *options):
    """The page that the browser has after its scripts, without a network, and what it complains of."""
    profile = pathlib.Path(os.environ.get("TMPDIR", "/tmp"))
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", *options,
               "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--dump-dom", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=profile)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")
@pytest.mark.parametrize("width, scheme", [(400, "light"), (400, "dark"), (1400, "light"), (1400, "dark")])
def test_no_page_is_wider_than_its_window(copy, tmp_path, width, scheme):
    wanted = [name for name in PAGES if scheme == "light" or name in ("index.html", "bindings.html", "reference/c/evener-h.html")]
    page = copy / f"frames-{width}-{scheme}.html"
    page.write_text(FRAMES.replace("PAGES", json.dumps(wanted)).replace("WIDTH", str(width)))
    text, complaints = browse(page.as_uri(), f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=3000000",
                              f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}", "--window-size=1500,1000")
    found = re.search(r"LOOK(\[.*?\])KOOL", text, re.S)
    assert found, text[:2000]
    seen = json.loads(html.unescape(found[1]))
    assert len(seen) == len(wanted) and not [one for one in seen if one.get("silent")]
    assert {one["width"] for one in seen} == {width}
    wide = [one for one in seen if one["overflow"] > 0 or one["out"]]
    assert not wide, [(pathlib.Path(one["page"]).name, one["overflow"], one["out"]) for one in wide]
    light = [sum(map(int, re.findall(r"\d+", one["back"])[:3])) for one in seen]
    assert all(value < 150 for value in light) if scheme == "dark" else all(value > 600 for value in light)
    assert not complaints


@pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")
@pytest.mark.parametrize("word, page", [("evn_session_run", "evener-h.html"), ("quarantine", "0074-quarantine.html"), ("LuaJIT", "starts/lua.html")])
def test_the_search_finds_pages_without_a_network(tmp_path, word, page):
    text, _ = browse(f"{(SITE / 'search.html').as_uri()}?q={word}", f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=20000")
    results = re.search(r'<div id="search-results">.*?</ul>', text, re.S)
    assert results and page in results[0], results and results[0][:2000]
