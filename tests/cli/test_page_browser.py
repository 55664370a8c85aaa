"""The page of `evener explain --html` in a browser without a window: Chromium, with no network, wide and narrow."""
import json
import pathlib
import re
import shutil
import subprocess

import pytest
from command import COMMAND, evener

if not COMMAND:
    pytest.skip("EVENER_COMMAND is not set", allow_module_level=True)

BROWSER = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)

# Runs behind the page's own script: what is drawn and filled in goes into the title, which --dump-dom prints. Pixels are counted by colour.
LOOK = """<script>
addEventListener("load", () => setTimeout(() => {
  const colours = (canvas) => {
    const seen = {}, pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    for (let i = 0; i < pixels.length; i += 4) {
      if (pixels[i + 3] === 0) continue;
      const key = [pixels[i], pixels[i + 1], pixels[i + 2]].join(",");
      seen[key] = (seen[key] || 0) + 1;
    }
    return Object.entries(seen).sort((a, b) => b[1] - a[1]).slice(0, 12);
  };
  // What the next frame would do: without a window there may be none for long.
  if (!view.moved) fitGraph(false);
  drawGraph();
  if (TRACE) drawTimeline();
  const graph = document.getElementById("graph"), timeline = document.getElementById("timeline");
  const boxes = GRAPH.boxes.map((box) => [box.name, view.x + view.scale * (box.x - BOX_WIDTH / 2), view.x + view.scale * (box.x + BOX_WIDTH / 2)]);
  select(boxNamed("sub_1"), true);
  document.title = "LOOK" + JSON.stringify({
    width: innerWidth, overflow: document.documentElement.scrollWidth - innerWidth, canvas: graph.clientWidth, boxes,
    graph: colours(graph), timeline: timeline ? colours(timeline) : [], lanes: LANES.length,
    details: document.getElementById("details").innerText, memory: document.getElementById("memory").innerText }) + "KOOL";
}, 300));
</script>"""


def look(page, tmp_path, width):
    """What the page shows in a window of that width, and what the browser complains of."""
    text = pathlib.Path(page).read_text()
    assert text.rstrip().endswith("</html>")
    copy = tmp_path / f"look{width}.html"
    copy.write_text(text.replace("</body>", LOOK + "</body>"))
    done = subprocess.run([BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
                           f"--user-data-dir={tmp_path / 'profile'}", "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=5000",
                           f"--window-size={width},1400", "--enable-logging=stderr", "--dump-dom", copy.as_uri()],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    found = re.search(r"LOOK(\{.*\})KOOL", done.stdout, re.S)
    assert found, done.stdout[-2000:] + done.stderr[-2000:]
    unescaped = found.group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&nbsp;", " ").replace("&amp;", "&")
    return json.loads(unescaped), [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")
@pytest.mark.parametrize("width", [1280, 520])
def test_a_browser_draws_graph_timeline_and_tables(conv, tmp_path, width):
    evener("explain", conv, "--html", tmp_path / "page.html", "--run")
    seen, complaints = look(tmp_path / "page.html", tmp_path, width)
    assert complaints == []
    assert seen["width"] == width and seen["overflow"] <= 0
    assert {name for name, _, _ in seen["boxes"]} >= {"conv_1", "sub_1", "x", "y"}
    # The graph lies within its canvas as long as nobody has moved it, and more than its background is drawn.
    assert all(left >= 0 and right <= seen["canvas"] for _, left, right in seen["boxes"]), seen["boxes"]
    assert len(seen["graph"]) > 3 and len(seen["timeline"]) > 3 and seen["lanes"] >= 1
    assert "sub_1" in seen["details"] and "float32[1,4,8,8]" in seen["details"]
    assert "cpu" in seen["memory"]


@pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")
def test_the_page_asks_for_nothing_and_runs_no_script_of_names(conv, tmp_path):
    page = tmp_path / "page.html"
    evener("explain", conv, "--html", page, "--run")
    # A policy that let a picture or a script be fetched would be seen here: the browser says what it has refused.
    page.write_text(page.read_text().replace("</body>", "<img src='https://example.com/x.png'></body>"))
    _, complaints = look(page, tmp_path, 1280)
    assert any("Content Security Policy" in line for line in complaints), complaints
