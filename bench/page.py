#!/usr/bin/env python3
"""Makes docs/benchmarks.md and its pictures of the pages of details, docs/benchmarks-*.md.

usage: page.py [--docs DIR] [--check]

To measure again: the command that a page of details names, with --markdown docs/benchmarks-NAME.md where it is compare.py's, then
this script. A new page of compare.py is found by itself. --check writes nothing and ends with 1 where a file is not what would be
written.
"""
import argparse
import pathlib
import re
import sys

import bars
import isa
import page_sources
from page_sources import PRECISIONS, fail, ratios_of

DOCS = pathlib.Path(__file__).resolve().parents[1] / "docs"
THREADS = (1, 2)
MARKS = "*†‡§¶"
UNMEASURED = "not measured"
FASTER = "left of 1: Evener is faster"
TO_BEST = f"to the best other engine; {FASTER}"
HEAD = """# Benchmarks

<!-- made by bench/page.py from benchmarks-*.md: measure a page again and run the script -->

Each number is Evener's time divided by that of the fastest other engine for the same model, on the same machine, in turns: **below
1 Evener is faster**, 0.8 is four fifths of the time. In bold is the geometric mean over the models; "worst" is the largest ratio,
with its model. A link leads to the page of details, which has times, versions, memory and failures; "not measured": there is none.

![Geometric means of all that was measured](benchmarks.svg)
"""
CLASSES_HEAD = """
## Networks on CPUs

A row is what the processor shows: float32 on one with AMX is computed with AVX-512. Below the numbers stand machine, date and
commit. A field is measured by `bench/compare.py --isa CLASS --threads 1,2 --markdown docs/benchmarks-NAME.md`, those of the other
columns with `--int8` or `--precision bf16`, and `bench/page.py` makes this page again. Classes:
%s.
"""


def ratio_text(ratios):
    label, worst = ratios.worst()
    return f"{ratios.mean():.2f}, worst {worst:.2f} ({label})"


class Notes:
    """What pages say beside machine, date and commit, each text under one mark."""

    def __init__(self):
        self.texts = []

    def mark(self, text):
        if not text:
            return ""
        if text not in self.texts:
            self.texts.append(text)
        return f" {self.sign(text)}"

    def sign(self, text):
        at = self.texts.index(text)
        return "\\*" if MARKS[at % len(MARKS)] == "*" else MARKS[at % len(MARKS)] * (1 + at // len(MARKS))

    def lines(self):
        return [f"{self.sign(text)} {text}\n" for text in self.texts]


def class_cell(found, notes):
    """A class and a precision: the newest page of it."""
    if not found:
        return UNMEASURED
    one = found[0]
    lines = []
    for threads in THREADS:
        counted = f"{threads} thread{'s' if threads > 1 else ''}"
        ratios = one.ratios.get(threads)
        label, worst = ratios.worst() if ratios else ("", 0)
        lines.append(f"{counted}: **{ratios.mean():.2f}**, worst {worst:.2f} ({label})" if ratios else f"{counted}: {UNMEASURED}")
    missing = one.peers()[1]
    if missing:
        lines.append(f"without {', '.join(missing)}")
    return "<br>".join(lines + [f"[{one.stamp()}]({one.source.path.name}){notes.mark(one.source.note)}"])


def class_table(pages):
    notes = Notes()
    lines = ["| | " + " | ".join(PRECISIONS) + " |", "|---" * (1 + len(PRECISIONS)) + "|"]
    for name, entry in isa.CLASSES.items():
        of_class = [page for page in pages if page.isa == name]
        row = [class_cell([page for page in of_class if page.precision == precision], notes) for precision in PRECISIONS]
        lines.append(f"| **{entry.title}** | " + " | ".join(row) + " |")
    return "\n".join([*lines, "", *notes.lines()])


def threads_of(pages):
    return [threads for threads in THREADS if any(threads in page.ratios for page in pages)]


def names_of(threads):
    return [f"{count} thread{'s' if count > 1 else ''}" for count in threads]


def picture_name(source):
    return source.path.with_suffix(".svg").name


def by_threads(ratios, order=None):
    """(names of the series, rows) of a picture. `ratios`: threads -> Ratios."""
    threads = sorted(ratios)
    labels = list(dict.fromkeys(label for count in threads for label in ratios[count].by_label))
    return names_of(threads), [(label, [ratios[count].by_label.get(label) for count in threads]) for label in labels]


def folded(summary, picture):
    return f"\n<details><summary>{summary}</summary>\n\n![{summary}]({picture})\n\n</details>\n"


def reproduce(source):
    return f"Made by `{source.command}`."


def sentence(names):
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def comparison_parts(page):
    """The text about one page of compare.py, and its picture."""
    peers, missing = page.peers()
    series, rows = by_threads(page.ratios)
    drawn = bars.draw(page.title(), [page.stamp(), TO_BEST], series, rows)
    count = max(len(ratios.by_label) for ratios in page.ratios.values())
    without = f"; {sentence(missing)} could not be kept to the class" if missing else ""
    body = (f"\n**{page.title()}**: [{page.stamp()}]({page.source.path.name}), {count} models, beside {sentence(peers)}{without}. "
            f"{reproduce(page.source)}\n")
    return body + folded(f"By model: {page.title()}, {page.machine}", picture_name(page.source)), {picture_name(page.source): drawn}


def language(source):
    """Language models: threads -> Ratios by model and work."""
    found = {}
    for table in source.find("model", "work", "to the best peer"):
        threads = re.match(r"(\d+) threads?\b", table.heading)
        if threads:
            labels = [f"{model}, {work}" for model, work in zip(table.column("model"), table.column("work"))]
            found[int(threads[1])] = ratios_of(source, table, labels, "to the best peer")
    if not found:
        fail(source.path, 'there is no table with the columns model, work, to the best peer below "1 thread" or "2 threads"')
    return found


def language_parts(source):
    ratios = language(source)
    works = list(dict.fromkeys(label.partition(", ")[2] for found in ratios.values() for label in found.by_label))
    lines = ["| | " + " | ".join(names_of(THREADS)) + " |", "|---" * (1 + len(THREADS)) + "|"]
    for work in ["", *works]:
        row = []
        for threads in THREADS:
            found = ratios[threads].by_label if threads in ratios else {}
            ending = f", {work}" if work else ""
            of_work = {label.removesuffix(ending): ratio for label, ratio in found.items() if label.endswith(ending)}
            row.append(ratio_text(page_sources.Ratios(of_work)) if of_work else UNMEASURED)
        lines.append(f"| {work or '**all**'} | " + " | ".join(row) + " |")
    series, rows = by_threads(ratios)
    drawn = bars.draw("Language models in 4 bits", [source.short_stamp(), TO_BEST], series, rows)
    body = (f"\n## Language models\n\nDecoders in 4 bits beside ONNX Runtime, onnxruntime-genai and llama.cpp: {source.link()}. "
            f"{command_with_threads(source)}\n\n" + "\n".join(lines) + "\n")
    return body + folded("By model and work", picture_name(source)), {picture_name(source): drawn}


def serving(source):
    """Ratios of requests per second, and those of the 99th percentile where requests arrive by themselves."""
    table = source.table("model", "clients", "to the best peer")
    labels = [f"{model}, {clients} client{'s' if clients != '1' else ''}"
              for model, clients in zip(table.column("model"), table.column("clients"))]
    is_open = [clients == "open loop" for clients in table.column("clients")]
    opened = {id(row) for row, its in zip(table.rows, is_open) if its}
    closed = ratios_of(source, table, labels, "to the best peer", lambda row: id(row) not in opened, more_is_better=True)
    return closed, ratios_of(source, table, table.column("model"), "to the best peer", lambda row: id(row) in opened)


def largest(source, columns, column, start):
    """The largest number of a column among the rows whose first cell ends with `start`."""
    table = source.table(*columns)
    found = [float(row[table.columns.index(column)]) for row in table.rows if row[0].endswith(start)]
    return max(found) if found else fail(source.path, f'no row of the table with {", ".join(columns)} ends with "{start}"')


def serving_parts(source):
    closed, arrivals = serving(source)
    ended = [largest(source, ("model", "cancels", "p99, ms"), "p99, ms", device) for device in ("CPU", "OpenCL")]
    joined = source.table("model", "quotient")
    gains = ", ".join(f"{gain} ({model})" for model, gain in zip(joined.column("model"), joined.column("quotient")))
    lines = ["| | |", "|---|---|",
             f"| requests per second of 1 to 16 clients, to the best peer: **above 1 is better** | {ratio_text(closed)} |",
             f"| 99th percentile of the latency where requests arrive at random, to the best peer | {ratio_text(arrivals)} |",
             "| from a cancellation to the end of the run, 99th percentile, at most "
             f"| {ended[0]:.2f} ms on the CPU, {ended[1]:.2f} ms by OpenCL |",
             f"| requests per second, joined to batches, to one by one: **above 1 is better** | {gains} |"]
    notes = [source.short_stamp(), "to the best other engine; right of 1: Evener answers more"]
    drawn = bars.draw("Requests per second", notes, ["requests"],
                      [(label, [ratio]) for label, ratio in closed.by_label.items()], more_is_better=True)
    body = (f"\n## Serving\n\nMany clients at once beside ONNX Runtime and OpenVINO: {source.link()}. {reproduce(source)} "
            "The page of details has the commands of the last two lines.\n\n" + "\n".join(lines) + "\n")
    return body + folded("By model and clients", picture_name(source)), {picture_name(source): drawn}


def gpu(source):
    """(networks, products): Ratios of the time to PyTorch's."""
    networks, products = source.table("network", "of its time"), source.table("product", "of its time")
    return (ratios_of(source, networks, networks.column("network"), "of its time"),
            ratios_of(source, products, products.column("product"), "of its time"))


def gpu_parts(source):
    networks, products = gpu(source)
    lines = ["| | |", "|---|---|", f"| networks, from host arrays to host arrays | {ratio_text(networks)} |",
             f"| products and convolutions on the device | {ratio_text(products)} |"]
    rows = [(label, [ratio]) for ratios in (networks, products) for label, ratio in ratios.by_label.items()]
    drawn = bars.draw("GPU, float32", [source.short_stamp(), f"to PyTorch; {FASTER}"], ["time"], rows)
    body = (f"\n## GPU\n\nOpenCL beside PyTorch on CUDA, float32: {source.link()}. {reproduce(source)}\n\n"
            + "\n".join(lines) + "\n")
    return body + folded("By network and product", picture_name(source)), {picture_name(source): drawn}


def command_with_threads(source):
    """The command of the first table, and what the headings of the others say of theirs."""
    more = re.findall(r"`(--threads \d+)`", " ".join(table.heading for table in source.tables))
    return f"Made by `{source.command}`" + "".join(f", and with `{option}`" for option in dict.fromkeys(more)) + "."


def further(sources):
    """Links to pages of other programs, of which nothing is summed up."""
    if not sources:
        return ""
    lines = [f"- {source.title}: {source.link()}. {reproduce(source)}" for source in sources]
    return "\n## Further pages\n\n" + "\n".join(lines) + "\n"


def overview(pages, of_language, of_gpu):
    """The picture of all geometric means, with the models between which they lie."""
    rows, ranges = [], {}

    def add(label, found):
        rows.append((label, [one and one.mean() for one in found]))
        ranges[label] = [one and one.span() for one in found]

    for page in pages:
        add(f"{page.title()} ({page.machine})", [page.ratios.get(threads) for threads in THREADS])
    for source in of_language:
        add("4-bit language models", [language(source).get(threads) for threads in THREADS])
    for source in of_gpu:
        add("float32, networks on a GPU", [gpu(source)[0]])
    notes = [TO_BEST, "geometric means; thin lines: the best to the worst model"]
    return bars.draw("Evener's time", notes, names_of(THREADS), rows, ranges=ranges)


# By the program that measured.
OTHERS = {"bench/language.py": language_parts, "bench/clients.py": serving_parts, "bench/gpu.py": gpu_parts}


def generate(docs):
    """File name -> text of all that is made of the pages of details in a folder."""
    sources = [page_sources.read(path) for path in sorted(docs.glob("benchmarks-*.md"))]
    pages = page_sources.comparisons(sources)
    if not pages:
        raise SystemExit(f"page.py: there is no page of compare.py in {docs.name}/benchmarks-*.md")
    by_program = {program: [source for source in sources if f"{program} " in f"{source.command} "] for program in OTHERS}
    summed = [page.source for page in pages] + sum(by_program.values(), [])
    made = {"benchmarks.svg": overview(pages, by_program["bench/language.py"], by_program["bench/gpu.py"])}
    text = HEAD + CLASSES_HEAD % ", ".join(f"`{name}`" for name in isa.CLASSES) + "\n" + class_table(pages)
    parts = [comparison_parts(page) for page in pages]
    parts += [OTHERS[program](source) for program, found in by_program.items() for source in found]
    for body, pictures in parts:
        text += body
        made.update(pictures)
    text += further([source for source in sources if source not in summed])
    return {"benchmarks.md": text, **made}


def differing(docs):
    """Names of files in a folder that are not what would be written, or that are pictures of no page."""
    made = generate(docs)
    stale = [name for name, text in made.items() if not (docs / name).exists() or (docs / name).read_text() != text]
    return stale + sorted(path.name for path in docs.glob("benchmarks*.svg") if path.name not in made)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--docs", type=pathlib.Path, default=DOCS, metavar="DIR", help="where the pages are")
    parser.add_argument("--check", action="store_true", help="write nothing, name the files that are not current")
    arguments = parser.parse_args()
    if arguments.check:
        stale = differing(arguments.docs)
        print("\n".join(f"not current: {name}" for name in stale), end="\n" if stale else "")
        return 1 if stale else 0
    made = generate(arguments.docs)
    for path in arguments.docs.glob("benchmarks*.svg"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (arguments.docs / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
