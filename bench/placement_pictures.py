#!/usr/bin/env python3
"""Makes the pictures of docs/placement.md: a graph whose convolutions the CPU and an OpenCL device share, one run of it, and the page of
`evener explain --html` (in Chromium, where it is installed).

usage: placement_pictures.py [FOLDER]      EVENER_COMMAND: the `evener` command; FOLDER: docs
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "bench" / "models"))
import networks  # noqa: E402

CONFIG = """version: 1
devices:
  cpu: {type: cpu, threads: 1}
  gpu: {type: opencl}
placement:
  default: cpu
  rules:
    - {match: {op: Conv}, split: [gpu, cpu]}
    - {match: {op: MaxPool}, device: gpu}
"""


def main():
    command = os.environ.get("EVENER_COMMAND", str(REPOSITORY / "build" / "release" / "evener"))
    to = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY / "docs"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "simple_cnn.onnx").write_bytes(networks.filled_skeleton("simple_cnn"))
        (folder / "c.yaml").write_text(CONFIG)
        common = [str(folder / "simple_cnn.onnx"), "--config", str(folder / "c.yaml"), "--shape", "input=64,1,28,28"]
        picture = subprocess.run([command, "explain", *common, "--svg"], check=True, capture_output=True, text=True).stdout
        (to / "placement.svg").write_text(picture)
        subprocess.run([command, "trace", *common, "-o", str(folder / "trace.json")], check=True, capture_output=True)
        subprocess.run([sys.executable, str(REPOSITORY / "scripts" / "draw_trace.py"), str(folder / "trace.json"), "-o", str(to / "placement-run.svg")],
                       check=True)
        browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if browser is None:
            print("without Chromium there is no picture of the page", file=sys.stderr)
            return
        subprocess.run([command, "explain", *common, "--html", str(folder / "page.html"), "--run"], check=True, capture_output=True)
        subprocess.run([browser, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=3000",
                        "--window-size=1000,1080", f"--screenshot={to / 'placement-page.png'}", (folder / "page.html").as_uri()], check=True,
                       capture_output=True)


if __name__ == "__main__":
    main()
