"""What compare.py prints, and the page that it writes."""
import dataclasses
import datetime
import os
import pathlib
import platform
import sys

HEADER = """
| model | engine | threads | median ms | ratio to {reference} | load ms | first run ms | memory MiB |
|---|---|---:|---:|---:|---:|---:|---:|"""


@dataclasses.dataclass
class Row:
    engine: str
    failure: str = ""
    median: float = 0.0
    ratio: float = 0.0
    load: float = 0.0
    first: float = 0.0
    memory: float = None


def mebibytes(memory):
    return "-" if memory is None else f"{memory / 2**20:.0f}"


def line(label, row, threads):
    if row.failure:
        return f"| {label} | {row.engine} | {threads} | FAILED: {row.failure.replace('|', '/')} | | | | |"
    return (f"| {label} | {row.engine} | {threads} | {row.median * 1e3:.3f} | {row.ratio:.2f} | {row.load * 1e3:.1f} "
            f"| {row.first * 1e3:.1f} | {mebibytes(row.memory)} |")


def machine():
    """The processor's name, what it has for inner products, and how many cores this process may use."""
    name, features = platform.processor() or platform.machine(), ""
    try:
        fields = dict(entry.split(":", 1) for entry in pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines())
        fields = {key.strip(): value.strip() for key, value in fields.items()}
        name = fields.get("model name", name)
        known = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")
        features = "".join(f", {flag}" for flag in known if flag in fields.get("flags", "").split())
    except OSError:
        pass
    return f"{name}{features}, {len(os.sched_getaffinity(0))} cores"


def shown_arguments(arguments):
    """The command line without the options that name places on this machine."""
    places, shown = ("--models", "--cache", "--markdown"), []
    for before, argument in zip([""] + arguments, arguments):
        if before not in places and argument.split("=")[0] not in places:
            shown.append(argument)
    return " ".join(shown)


class Report:
    """All rows of a run of compare.py."""

    def __init__(self, known, engines, missing, rounds, seconds):
        self.known, self.engines, self.missing = known, engines, missing
        self.rounds, self.seconds = rounds, seconds
        self.machine = machine()
        self.rows = {}  # threads -> model -> rows

    def add(self, threads, label, rows):
        self.rows.setdefault(threads, {})[label] = rows

    def failures(self):
        return [(threads, label, row) for threads, models in self.rows.items() for label, rows in models.items() for row in rows
                if row.failure]

    def table(self, threads, title, text):
        """One line a model, one column an engine."""
        lines = [f"\n{title}\n", "| model | " + " | ".join(self.known[name].title for name in self.engines) + " |",
                 "|---|" + "---:|" * len(self.engines)]
        for label, rows in self.rows[threads].items():
            cells = ["failed" if row.failure else text(row) for row in rows]
            lines.append(f"| {label} | " + " | ".join(cells) + " |")
        return "\n".join(lines) + "\n"

    def head(self):
        reference = self.known[self.engines[0]].title
        lines = ["# Benchmarks", "",
                 f"Made by `bench/compare.py {shown_arguments(sys.argv[1:])}` on {datetime.date.today().isoformat()}.", "",
                 f"Machine: {self.machine}, {platform.system()} {platform.release().split('-')[0]}. It is shared: only ratios within a "
                 "line mean something.", "",
                 f"Each engine has a process of its own, they take turns of {self.seconds} s for {self.rounds} rounds, and one that "
                 f"waits is stopped. All compute in float32, batch 1. Outputs are compared with those of {reference}; a wrong one is "
                 "a failure, not a time. Network weights are noise with the moments of the real ones "
                 "(`scripts/fetch_models.py ocr skeletons`). bert: 128 tokens; gpt_kv: one step after 64; lstm_gru: 200 steps.", ""]
        for name in self.engines:
            rtol, atol = self.known[name].tolerance
            lines.append(f"- {self.known[name].title}: {self.known[name].versions()}; outputs within rtol {rtol:g}, atol {atol:g} x largest")
        lines += [f"- {self.known[name].title}: not compared: {why}" for name, why in self.missing.items()]
        return "\n".join(lines) + "\n"

    def markdown(self):
        reference = self.known[self.engines[0]].title
        text = self.head()
        for threads in self.rows:
            text += f"\n## {threads} thread{'s' if threads > 1 else ''}\n"
            text += self.table(threads, f"Median ms of a run (median ratio to {reference}; below 1 is faster):",
                               lambda row: f"{row.median * 1e3:.2f} ({row.ratio:.2f})")
            text += self.table(threads, "Load ms / first run ms / peak of memory above the loaded library, MiB:",
                               lambda row: f"{row.load * 1e3:.0f} / {row.first * 1e3:.1f} / {mebibytes(row.memory)}")
        failures = self.failures()
        if failures:
            text += "\n## Failures\n\n"
            text += "\n".join(f"- {label}, {self.known[row.engine].title}, {threads} threads: {row.failure}"
                              for threads, label, row in failures) + "\n"
        return text
