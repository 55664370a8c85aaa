"""bench/page.py: docs/benchmarks.md and its pictures are what the pages of details give, and what it does with pages that are not
as they should be."""
import pathlib
import re
import sys
import xml.etree.ElementTree

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "bench"))

import bars  # noqa: E402
import compare  # noqa: E402
import isa  # noqa: E402
import page  # noqa: E402
import page_sources  # noqa: E402
import report  # noqa: E402

DOCS = REPOSITORY / "docs"
MACHINE = "AMD EPYC, avx2, avx512f, avx512_vnni, avx512_bf16"


def table(threads, ratios, mean):
    rows = "".join(f"| {label} | ncnn | {ratio} | - | - |\n" for label, ratio in ratios.items())
    return (f"| model, {threads} threads | best other | evener to it | share of peak | the other's |\n|---|---|---:|---:|---:|\n"
            f"{rows}| geometric mean of {len(ratios)} | | {mean} | | |\n")


def details(command="bench/compare.py --threads 1", machine=MACHINE, date="2026-01-02", ncnn="2.00 (2.00)", body=None):
    return (f"# Benchmarks\n\n<!-- measured at 0123abc, {date}, {machine} -->\n\n"
            f"Measured at commit 0123abc, {date}, on {machine}.\n\nMade by `{command}` on {date}.\n\n"
            "## 1 thread\n\n| model | Evener | OpenVINO | ncnn |\n|---|---:|---:|---:|\n"
            f"| net | 1.00 (1.00) | 2.00 (2.00) | {ncnn} |\n\n"
            + (table(1, {"net": "0.50", "other": "0.72"}, "0.600") if body is None else body))


def written(folder, **pages):
    for name, text in pages.items():
        (folder / f"benchmarks-{name}.md").write_text(text)
    return page.generate(folder)


def test_the_page_and_its_pictures_are_what_the_pages_of_details_give():
    assert page.differing(DOCS) == [], "run bench/page.py"


def test_links_and_pictures_of_the_page_exist():
    text = (DOCS / "benchmarks.md").read_text()
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert len(targets) > 10 and not [target for target in targets if not (DOCS / target).exists()]
    for path in DOCS.glob("benchmarks*.svg"):
        assert f"({path.name})" in text
        words = [part for part in xml.etree.ElementTree.parse(path).iter() if part.tag.endswith("text")]
        most = {"title": 42, "small": 58, None: 44}  # letters that fit into the picture's width
        assert not [word.text for word in words if len(word.text) > most[word.get("class")]], path.name


def test_a_page_that_was_measured_again_makes_the_summary_old(tmp_path):
    for name, text in written(tmp_path, one=details()).items():
        (tmp_path / name).write_text(text)
    assert page.differing(tmp_path) == []
    (tmp_path / "benchmarks-one.md").write_text(details(body=table(1, {"net": "0.50", "other": "0.50"}, "0.500")))
    assert page.differing(tmp_path) == ["benchmarks.md", "benchmarks.svg", "benchmarks-one.svg"]
    (tmp_path / "benchmarks-gone.svg").write_text("")
    assert page.differing(tmp_path)[-1] == "benchmarks-gone.svg"


def test_each_class_and_precision_has_its_newest_page_or_is_not_measured(tmp_path):
    slower = table(1, {"net": "1.00"}, "1.000")
    kept = details("bench/compare.py --isa avx512_vnni --int8")
    half = details("bench/compare.py --precision bf16", MACHINE + ", amx_int8")
    made = written(tmp_path, old=details(), new=details(date="2026-02-03", body=slower), kept=kept, half=half)["benchmarks.md"]
    lines = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in made.splitlines() if line.startswith("| **")]
    rows = {name: cells for name, *cells in lines}
    assert list(rows) == [entry.title for entry in isa.CLASSES.values()]
    missing = "not measured"
    assert rows["AVX2"] == rows["AVX-VNNI"] == rows["AVX-512"] == [missing] * 3
    assert rows["AVX512-BF16"] == ["1 thread: **1.00**, worst 1.00 (net)<br>2 threads: not measured<br>"
                                   "[AMD EPYC, 2026-02-03, 0123abc](benchmarks-new.md)", missing, missing]
    assert rows["AVX-512 VNNI"][0] == missing and "**0.60**, worst 0.72 (other)" in rows["AVX-512 VNNI"][1]
    assert rows["AMX"][2].startswith("1 thread: **0.60**")
    assert "benchmarks-old.md" in made


def test_subnormal_numbers_kept_are_another_table(tmp_path):
    more = "\n## 1 thread, subnormal numbers kept\n\n" + table(1, {"net": "3.00"}, "3.000")
    assert "**0.60**" in written(tmp_path, one=details() + more)["benchmarks.md"]


def test_engines_that_could_not_be_kept_to_a_class_are_named(tmp_path):
    made = written(tmp_path, one=details("bench/compare.py --isa avx2", ncnn=report.UNMEASURABLE))["benchmarks.md"]
    assert "beside OpenVINO" in made and "<br>without ncnn<br>" in made and "ncnn could not be kept to the class" in made


def test_what_a_page_says_of_how_it_was_measured_is_passed_on(tmp_path):
    note = "Engines had other settings then."
    made = written(tmp_path, one=details().replace(f"on {MACHINE}.\n", f"on {MACHINE}. {note}\n"))["benchmarks.md"]
    assert "(benchmarks-one.md) \\* |" in made and f"\\* {note}" in made
    text = details().replace("Measured at commit 0123abc", "Measured at commit 0123abc, with changes that were not committed")
    made = written(tmp_path, one=text)
    assert "There were changes that were not committed." in made["benchmarks.md"]


def test_a_page_that_compare_writes_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["compare.py", "--isa", "avx512", "--threads", "2"])
    monkeypatch.setattr(report, "processor", lambda: MACHINE)
    names = [engine.name for engine in compare.DEFAULT_ENGINES]
    made = report.Report(compare.ENGINES, names, {}, 5, 0.5)
    made.add(2, "net", [report.Row(name, "", 0.01, 1.0, 0.5, 0.02, rounds=[0.01 if name == "evener" else 0.02],
                                   is_peer=compare.ENGINES[name].is_peer) for name in names])
    (tmp_path / "benchmarks-one.md").write_text(made.markdown())
    one, = page_sources.comparisons([page_sources.read(tmp_path / "benchmarks-one.md")])
    assert (one.isa, one.precision, one.machine, one.ratios[2].by_label) == ("avx512", "float32", "AMD EPYC", {"net": 0.5})
    assert one.peers() == (["ONNX Runtime", "OpenVINO", "MNN", "ncnn"], [])


def test_pages_of_other_programs_are_linked(tmp_path):
    made = written(tmp_path, one=details(), other=details("bench/other.py --all").replace("# Benchmarks", "# Something else"))
    stamp = f"[{MACHINE}, 2026-01-02, 0123abc](benchmarks-other.md)"
    assert made["benchmarks.md"].endswith(f"\n## Further pages\n\n- Something else: {stamp}. Made by `bench/other.py --all`.\n")
    assert "benchmarks-other.svg" not in made


@pytest.mark.parametrize("text, why", [
    (details().replace("<!-- measured", "<!-- made"), "does not say at which commit"),
    (details().replace("Made by", "By"), "does not say which command"),
    (details(machine="POWER9"), '"POWER9" is of no class'),
    (details("bench/compare.py --isa avx3"), '"avx3" is of no class'),
    (details(body=""), "no table of ratios"),
    (details().replace("| OpenVINO | ncnn |", "| Evener, float32 | - |").replace("| model | Evener |", "| network | Evener |"),
     "no table of the times of other engines"),
    (details(body=table(1, {"net": "fast"}, "0.600")), 'net: "fast" is no ratio'),
    (details(body=table(1, {"net": "0.50"}, "0.600")), "the geometric mean is given as 0.6, its 1 ratios have 0.5"),
    (details(body=table(1, {"net": "0.50"}, "0.600").replace("| net |", "| net | more |")), "a row of 6 cells below 5 columns"),
    (details("bench/language.py"), "no table with the columns model, work, to the best peer"),
    (details("bench/clients.py"), "no table with the columns model, clients, to the best peer"),
])
def test_a_page_that_cannot_be_read_is_named_with_what_is_wrong(text, why, tmp_path):
    with pytest.raises(SystemExit, match=re.escape(why)) as raised:
        written(tmp_path, fine=details(), wrong=text)
    assert str(raised.value).startswith("page.py: benchmarks-wrong.md: ")


def test_bars_start_at_one_and_say_by_colour_and_side_which_is_better():
    rows = [("a <b>", [0.5, 2.0]), ("c", [None, 1.0])]
    tree = xml.etree.ElementTree.fromstring(bars.draw("Title", ["note"], ["1 thread", "2 threads"], rows))
    below = [part for part in tree.iter() if part.tag.endswith("rect") and float(part.get("y", 0)) > 70]  # the legend
    drawn = [(part.get("class"), float(part.get("x")), float(part.get("width"))) for part in below]
    (_, left, width), (_, right, _), *_ = drawn
    assert [kind for kind, _, _ in drawn] == ["better", "worse second", "better second"]
    assert left + width == pytest.approx(right, abs=0.2)
    words = [part.text for part in tree.iter() if part.tag.endswith("text")]
    assert "a <b>" in words and {"0.50", "2.00", "-", "1.00"} <= set(words)
    better = bars.draw("Title", [], ["requests"], [("a", [2.0]), ("b", [0.5])], more_is_better=True)
    assert better.index('<rect class="better"') < better.index('<rect class="worse"')


def test_numbers_of_the_axis_do_not_touch():
    for values in ([0.05, 12.0], [0.99, 1.01], [0.27, 2.18]):
        axis = bars.Axis(values)
        places = [axis.x(tick) for tick in axis.ticks()]
        assert len(places) > 2 and all(b - a >= bars.TICK_ROOM for a, b in zip(places, places[1:])) and 1.0 in axis.ticks()
