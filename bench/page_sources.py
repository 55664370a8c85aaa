"""What page.py reads: the pages docs/benchmarks-*.md, whose tables programs of this folder have written."""
import dataclasses
import math
import pathlib
import re
import statistics

import isa
from report import FEATURES, UNMEASURABLE

STAMP = re.compile(r"^<!-- measured at ([0-9a-f]{7,40}), (\d{4}-\d\d-\d\d), (.+) -->$", re.M)
BEST = (("amx_int8", "avx512_amx"), ("avx512_bf16", "avx512_bf16"), ("avx512_vnni", "avx512_vnni"), ("avx512f", "avx512"),
        ("avx_vnni", "avx2_vnni"), ("avx2", "avx2"))
PRECISIONS = ("float32", "8 bits", "bfloat16")
ROUNDING = 0.01  # of a mean of ratios that are given with two digits


def fail(path, why):
    raise SystemExit(f"page.py: {path.name}: {why}")


@dataclasses.dataclass
class Ratios:
    """Ratios to the best of the other engines, by what was measured."""
    by_label: dict
    more_is_better: bool = False

    def mean(self):
        return math.exp(statistics.mean(math.log(ratio) for ratio in self.by_label.values()))

    def worst(self):
        """(label, ratio)."""
        return (min if self.more_is_better else max)(self.by_label.items(), key=lambda entry: entry[1])

    def span(self):
        return min(self.by_label.values()), max(self.by_label.values())


@dataclasses.dataclass
class Table:
    """A table in Markdown, and the headings that it stands below."""
    heading: str
    columns: list
    rows: list      # of cells

    def column(self, name):
        return [row[self.columns.index(name)] for row in self.rows]


@dataclasses.dataclass
class Source:
    """A page of details."""
    path: pathlib.Path
    title: str
    commit: str
    date: str
    machine: str
    command: str
    note: str = ""          # what the page says beside commit, date and machine that they were measured on
    tables: list = dataclasses.field(default_factory=list)

    def stamp(self):
        return f"{self.machine}, {self.date}, {self.commit}"

    def link(self):
        return f"[{self.stamp()}]({self.path.name})"

    def short_stamp(self):
        """For a picture, which is narrow."""
        return f"{self.machine.split(', ')[0]}, {self.date}, {self.commit}"

    def find(self, *columns, heading=None):
        """The tables that have all of these columns."""
        return [table for table in self.tables if set(columns) <= set(table.columns) and heading in (None, table.heading)]

    def table(self, *columns):
        found = self.find(*columns)
        return found[0] if found else fail(self.path, f"there is no table with the columns {', '.join(columns)}")


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables_of(text, path):
    """All tables of a page."""
    found, heading, table, in_code = [], "", None, False
    for line in text.splitlines():
        in_code ^= line.startswith("```")
        if in_code or not line.startswith("|"):
            table = None
            if line.startswith("#") and not in_code:
                heading = line.lstrip("# ")
        elif table is None:
            table = Table(heading, cells(line), [])
            found.append(table)
        elif not set(line) <= set("|-: "):
            table.rows.append(cells(line))
            if len(table.rows[-1]) != len(table.columns):
                fail(path, f"a row of {len(table.rows[-1])} cells below {len(table.columns)} columns: {line[:80]}")
    return found


def processor(text):
    """A processor's name without its features, which follow it in a stamp."""
    parts = text.replace("(R)", "").split(", ")
    name = ", ".join(part for part in parts if part not in FEATURES)
    return re.sub(r"\s+Processor\b", "", name), [part for part in parts if part in FEATURES]


def command_of(text):
    """The command that made the first table."""
    made = re.search(r"^Made by `([^`]+)`", text, re.M) or re.search(r"^    ((?:\w+=\S.*? )?bench/\w+\.py.*)$", text, re.M)
    return made[1] if made else None


def read(path):
    """A page of details; SystemExit names what is missing in it."""
    text = path.read_text()
    stamp = STAMP.search(text)
    if not stamp:
        fail(path, "it does not say at which commit, when and on what it was measured (<!-- measured at ... -->)")
    command = command_of(text)
    if not command:
        fail(path, "it does not say which command made it (Made by `bench/...`)")
    said = re.search(r"^(?:Measured at commit|Regenerated last by commit) (.*)$", text, re.M)
    notes = [said[1].partition(f"{stamp[3]}.")[2].strip()] if said else []
    if said and "not committed" in said[1]:
        notes.append("There were changes that were not committed.")
    title = re.search(r"^# (.+)$", text, re.M)
    return Source(path, title[1] if title else path.stem, stamp[1], stamp[2], stamp[3], command, " ".join(note for note in notes if note), tables_of(text, path))


class Comparison:
    """A page of compare.py: a class of instruction sets, a precision, and the ratios for each number of threads."""

    def __init__(self, source):
        self.source = source
        self.machine, features = processor(source.machine)
        options = source.command.split()
        kept = re.search(r"--isa[ =](\w+)", source.command)
        kept = kept[1] if kept else ""
        self.isa = kept or next((name for feature, name in BEST if feature in features), "")
        if self.isa not in isa.CLASSES:
            fail(source.path, f'"{kept or source.machine}" is of no class of instruction sets; there are: {", ".join(isa.CLASSES)}')
        self.is_kept = bool(kept)
        self.precision = "8 bits" if "--int8" in options else "bfloat16" if "--precision" in options else "float32"
        self.ratios = {}
        for table in source.tables:
            threads = re.fullmatch(r"model, (\d+) threads", table.columns[0])
            if threads and re.fullmatch(rf"{threads[1]} threads?", table.heading):  # not those with subnormal numbers kept
                self.ratios[int(threads[1])] = self.read_ratios(table)
        if not self.ratios:
            fail(source.path, "there is no table of ratios to the best other engine (| model, 1 threads | best other | ...)")

    def read_ratios(self, table):
        found, said = {}, None
        for label, _, ratio, *_ in table.rows:
            try:
                value = float(ratio)
            except ValueError:
                fail(self.source.path, f'{label}: "{ratio}" is no ratio')
            if label.startswith("geometric mean"):
                said = value
            else:
                found[label] = value
        ratios = Ratios(found)
        if not found or said is None or abs(said / ratios.mean() - 1) > ROUNDING:
            fail(self.source.path, f"{table.columns[0]}: the geometric mean is given as {said}, its {len(found)} ratios have "
                                   f"{ratios.mean() if found else None}")
        return ratios

    def peers(self):
        """The engines that were compared with, and those that could not be kept to the class."""
        times = next((table for table in self.source.find("model", "Evener") + self.source.find("model", "Evener, bf16")), None)
        names = [name for name in times.columns[1:] if not name.startswith("Evener")] if times else []
        if not names:
            fail(self.source.path, "there is no table of the times of other engines (| model | Evener | ...)")
        out = [name for name in names if set(times.column(name)) == {UNMEASURABLE}]
        return [name for name in names if name not in out], out

    def stamp(self):
        return f"{self.machine}, {self.source.date}, {self.source.commit}"

    def title(self):
        return f"{self.precision}, {isa.CLASSES[self.isa].title}"


def comparisons(sources):
    """Those of compare.py, by precision and class, the newest first."""
    found = [Comparison(source) for source in sources if source.command.startswith("bench/compare.py")]
    order = list(isa.CLASSES)
    found.sort(key=lambda one: one.source.path.name)
    found.sort(key=lambda one: one.source.date, reverse=True)
    return sorted(found, key=lambda one: (PRECISIONS.index(one.precision), order.index(one.isa)))


def ratios_of(source, table, labels, column, keep=lambda row: True, more_is_better=False):
    """A column of ratios; empty cells were not measured."""
    found = {}
    for label, row in zip(labels, table.rows):
        cell = row[table.columns.index(column)]
        if cell and keep(row):
            try:
                found[label] = float(cell)
            except ValueError:
                fail(source.path, f'{label}: "{cell}" is no ratio')
    return Ratios(found, more_is_better) if found else fail(source.path, f'the column "{column}" has no ratio')
