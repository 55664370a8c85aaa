"""What compare.py prints, and the page that it writes."""
import dataclasses
import datetime
import math
import os
import pathlib
import platform
import statistics
import subprocess
import sys

import isa

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
MEASURED = ("src", "include", "bindings/python/evener", "bench", "cmake", "CMakeLists.txt", "CMakePresets.json")  # a page is about these
PEAK_UNITS = {"fma": "GFLOPS of float32 multiply-adds", "int8": "GOPS of products of bytes and their sums",
              "bf16": "GFLOPS of products of bfloat16 and their sums"}
UNMEASURABLE = "not measurable here"
FEATURES = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")  # that a page tells of a processor
HEADER = """
| model | engine | threads | median ms | ratio to {reference} | of peak | load ms | first run ms | memory MiB |
|---|---|---:|---:|---:|---:|---:|---:|---:|"""


@dataclasses.dataclass
class Row:
    engine: str
    failure: str = ""
    median: float = 0.0
    ratio: float = 0.0
    load: float = 0.0
    first: float = 0.0
    memory: float = None
    bound: float = None      # what `memory` should stay below, as the engine itself counts; None where it does not say
    reads_onnx: bool = True  # itself, not after a converter
    rounds: list = dataclasses.field(default_factory=list)  # seconds of a run, by round
    is_peer: bool = True
    cosine: float = None     # the least of the outputs', to the reference's; None where it is not asked for


@dataclasses.dataclass
class Yardstick:
    """What the machine could do while a model was measured."""
    multiply_adds: int = 0                                 # of a run; 0: not known
    peaks: list = dataclasses.field(default_factory=list)  # before and after: {"flops", "read_bytes", "unit"}

    kernels: dict = dataclasses.field(default_factory=dict)  # kernel -> (seconds, floating-point operations), of some runs

    def share(self, row):
        """The share of the peak of multiply-adds that a row's time is; None where it is not known."""
        if row.failure or not self.multiply_adds or not self.peaks:
            return None
        return 2 * self.multiply_adds / row.median / statistics.mean(peak["flops"] for peak in self.peaks)


def mebibytes(memory):
    return "-" if memory is None else f"{memory / 2**20:.0f}"


def percent(share):
    return "-" if share is None else f"{share:.0%}"


def line(label, row, threads, yardstick):
    if row.failure:
        return f"| {label} | {row.engine} | {threads} | FAILED: {row.failure.replace('|', '/')} | | | | | |"
    return (f"| {label} | {row.engine} | {threads} | {row.median * 1e3:.3f} | {row.ratio:.2f} | {percent(yardstick.share(row))} "
            f"| {row.load * 1e3:.1f} | {row.first * 1e3:.1f} | {mebibytes(row.memory)} |")


def ratio_to_best(rows, partner):
    """(the fastest of the other engines, the partner's median ratio to it), or None."""
    fine = {row.engine: row for row in rows if not row.failure}
    others = [row for name, row in fine.items() if name != partner and row.is_peer]
    if partner not in fine or not others:
        return None
    best = min(others, key=lambda row: row.median)
    return best.engine, statistics.median(mine / other for mine, other in zip(fine[partner].rounds, best.rounds))


def megabytes(memory):
    return "-" if memory is None else f"{memory / 2**20:.1f}"


def start_line(label, rows, partner):
    """A line of starting_and_memory, or None."""
    fine = {row.engine: row for row in rows if not row.failure}
    others = [row for name, row in fine.items() if name != partner]
    readers = [row for row in others if row.reads_onnx]
    if partner not in fine or not readers:
        return None
    mine = fine[partner]
    ratio = (mine.load + mine.first) / min(row.load + row.first for row in readers)
    smallest = min((row.memory for row in others if row.memory is not None), default=None)
    return f"| {label} | {ratio:.2f} | {megabytes(mine.memory)} | {megabytes(mine.bound)} | {megabytes(smallest)} |"


def processor():
    """The processor's name, and what it has for inner products."""
    name, features = platform.processor() or platform.machine(), ""
    try:
        fields = dict(entry.split(":", 1) for entry in pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines())
        fields = {key.strip(): value.strip() for key, value in fields.items()}
        name = fields.get("model name", name)
        features = "".join(f", {flag}" for flag in FEATURES if flag in fields.get("flags", "").split())
    except OSError:
        pass
    return f"{name}{features}"


def machine():
    """The processor, and how many cores this process may use."""
    return f"{processor()}, {len(os.sched_getaffinity(0))} cores"


def commit():
    """The short hash of the commit that is checked out, and whether what is measured has been changed since; ("unknown", False) without
    git."""
    def git(*command):
        return subprocess.run(["git", *command], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD"), bool(git("status", "--porcelain", "--untracked-files=no", "--", *MEASURED))
    except (OSError, subprocess.CalledProcessError):
        return "unknown", False


def stamp():
    """The lines of a page that tell which commit made it: one for programs (scripts/check_pages.py), one for readers."""
    found, changed = commit()
    date = datetime.date.today().isoformat()
    also = ", with changes that were not committed" if changed else ""
    return f"<!-- measured at {found}, {date}, {processor()} -->\n\nMeasured at commit {found}{also}, {date}, on {processor()}.\n"


def shown_arguments(arguments):
    """The command line without the options that name places on this machine."""
    places, shown = ("--models", "--cache", "--markdown", "--peak", "--command"), []
    for before, argument in zip([""] + arguments, arguments):
        if before not in places and argument.split("=")[0] not in places:
            shown.append(argument)
    return " ".join(shown)


def configuration():
    """Lines about what Evener was configured with."""
    path = os.environ.get("EVENER_COMPARE_CONFIG")
    if not path:
        return ["Evener has its default configuration (`EVENER_COMPARE_CONFIG` is not set)."]
    return ["Evener's configuration (`EVENER_COMPARE_CONFIG`):", "", "```yaml", *pathlib.Path(path).read_text().rstrip().splitlines(), "```"]


def page(reports):
    """The page of one report, or of one and another in which subnormal numbers are kept."""
    text = reports[0].markdown()
    for other in reports[1:]:
        text += f"\n{other.subnormals()}\n{other.tables()}"
    return text


class Report:
    """All rows of a run of compare.py."""

    def __init__(self, known, engines, missing, rounds, seconds, limit=None, keep=False, reference=None):
        self.keep = keep  # floats below 2^-126, in engines that can
        self.known, self.engines, self.missing = known, engines, missing
        self.rounds, self.seconds = rounds, seconds
        self.limit = limit or isa.Unlimited()
        self.reference = reference or engines[0]  # with whose outputs those of others are compared
        self.unmeasurable = [name for name in missing if self.limit.missing(name) and not known[name].missing()]
        self.machine = machine()
        self.rows = {}  # threads -> model -> rows
        self.yardsticks = {}  # (threads, model) -> Yardstick

    def add(self, threads, label, rows, yardstick=None):
        self.rows.setdefault(threads, {})[label] = rows
        self.yardsticks[threads, label] = yardstick or Yardstick()

    def against_best(self, threads):
        """A table: for each model the best of the other engines, our ratio to it, and both shares of the peak."""
        partner = self.partner()
        lines = [f"\n| model, {threads} threads | best other | {partner} to it | share of peak | the other's |", "|---|---|---:|---:|---:|"]
        ratios = []
        for label, rows in self.rows[threads].items():
            found = ratio_to_best(rows, partner)
            if found is None:
                continue
            shares = {row.engine: percent(self.yardsticks[threads, label].share(row)) for row in rows}
            ratios.append(found[1])
            lines.append(f"| {label} | {self.known[found[0]].title} | {found[1]:.2f} | {shares[partner]} | {shares[found[0]]} |")
        if not ratios:
            return ""
        mean = math.exp(statistics.mean(math.log(ratio) for ratio in ratios))
        lines.append(f"| geometric mean of {len(ratios)} | | {mean:.3f} | | |")
        lines += self.peak_lines(threads)
        return "\n".join(lines) + "\n"

    def starting_and_memory(self, threads, partner):
        """A table: the partner's load and first run to those of the fastest other that reads ONNX, and its memory to bounds."""
        lines = [start_line(label, rows, partner) for label, rows in self.rows[threads].items()]
        lines = [line for line in lines if line is not None]
        if not lines:
            return ""
        return "\n".join([f"\nLoad and first run of {partner} to the fastest of the others that read ONNX themselves; peak of memory, MiB, 1.05 x weights "
                          "as they are held + arena + 4, and the smallest of the others:\n",
                          "| model | load + first run | memory | bound | smallest other |", "|---|---:|---:|---:|---:|"] + lines) + "\n"

    def against_float(self, threads):
        """A table: our time on quantized networks over that on the float ones, by instruction set, and the cosine to the reference."""
        pairs = {name: name.replace("int8", "fp32") for name in self.engines if name.startswith("evener_int8")}
        pairs = {name: partner for name, partner in pairs.items() if partner in self.engines}
        if not pairs:
            return ""
        heads = [name.partition(":")[2] or "all" for name in pairs]
        counted = f"{threads} thread{'s' if threads > 1 else ''}"
        lines = [f"\nOur time on the quantized network over that on the float one, {counted}; the cosine to {self.known[self.reference].title}'s output:\n", f"| model | {' | '.join(heads)} | cosine |", "|---|" + "---:|" * (len(heads) + 1)]
        for label, rows in self.rows[threads].items():
            found = {row.engine: row for row in rows}
            cells = []
            for name, partner in pairs.items():
                fine = partner in found and not found[name].failure and not found[partner].failure
                cells.append(f"{statistics.median(a / b for a, b in zip(found[name].rounds, found[partner].rounds)):.2f}" if fine else "-")
            cosine = min((found[name].cosine for name in pairs if found[name].cosine is not None), default=None)
            lines.append(f"| {label} | {' | '.join(cells)} | {'-' if cosine is None else f'{cosine:.5f}'} |")
        return "\n".join(lines) + "\n"

    def cosines(self, threads):
        """A table of the cosines to the reference's output of models in a lower precision."""
        if not self.is_low():
            return ""
        names = [name for name in self.engines if self.known[name].cosine is not None]
        reference = self.known[self.reference].title
        lines = [f"\nThe least cosine of an output to {reference}'s in float32, which is to be {self.known[names[0]].cosine} and more:\n",
                 "| model | " + " | ".join(self.known[name].title for name in names) + " |", "|---|" + "---:|" * len(names)]
        for label, rows in self.rows[threads].items():
            found = {row.engine: row.cosine for row in rows}
            lines.append(f"| {label} | " + " | ".join("-" if found[name] is None else f"{found[name]:.6f}" for name in names) + " |")
        return "\n".join(lines) + "\n"

    def peak_lines(self, threads):
        peaks = [peak for (count, _), yardstick in self.yardsticks.items() if count == threads for peak in yardstick.peaks]
        if not peaks:
            return []
        flops = sorted(peak["flops"] / 1e9 for peak in peaks)
        reads = sorted(peak["read_bytes"] / 1e9 for peak in peaks)
        return [f"\nThe peak, measured beside each model: {flops[0]:.0f} to {flops[-1]:.0f} {peaks[0].get('unit', PEAK_UNITS['fma'])}, "
                f"{reads[0]:.0f} to {reads[-1]:.0f} GB/s read from memory."]

    def kernels(self):
        """A table: the kernels in which each model spends its time, with their share of the peak."""
        lines = []
        for (threads, label), yardstick in self.yardsticks.items():
            total = sum(seconds for seconds, _ in yardstick.kernels.values())
            if threads != 1 or not total or not yardstick.peaks:
                continue
            peak = statistics.mean(entry["flops"] for entry in yardstick.peaks)
            cells = []
            for name, (seconds, flops) in sorted(yardstick.kernels.items(), key=lambda entry: -entry[1][0])[:6]:
                if seconds / total >= 0.02:
                    cells.append(f"{name} {seconds / total:.0%} ({flops / seconds / peak:.0%})")
            lines.append(f"| {label} | {', '.join(cells)} |")
        if not lines:
            return ""
        return "\n".join(["\n## Where the time goes\n", "Kernels with their part of the time of a run with one thread, from 2 % on, and in brackets their "
                          "operations over time as a share of the peak (Winograd's are those of the direct method).\n",
                          "| model | kernels |", "|---|---|"] + lines) + "\n"

    def failures(self):
        return [(threads, label, row) for threads, models in self.rows.items() for label, rows in models.items() for row in rows
                if row.failure]

    def table(self, threads, title, text):
        """One line a model, one column an engine."""
        shown = self.engines + self.unmeasurable
        lines = [f"\n{title}\n", "| model | " + " | ".join(self.known[name].title for name in shown) + " |", "|---|" + "---:|" * len(shown)]
        for label, rows in self.rows[threads].items():
            cells = ["failed" if row.failure else text(row) for row in rows] + [UNMEASURABLE] * len(self.unmeasurable)
            lines.append(f"| {label} | " + " | ".join(cells) + " |")
        return "\n".join(lines) + "\n"

    def partner(self):
        """The engine of ours whose ratio to the best of the others is given."""
        return next((name for name in self.engines if not self.known[name].is_peer), None)

    def is_low(self):
        return any(self.known[name].options.get("precision") for name in self.engines if not self.known[name].is_peer)

    def is_int8(self):
        return not self.is_low() and any(self.known[name].cosine is not None for name in self.engines)

    def work(self):
        if self.is_low():
            return f"{self.known[self.reference].title} computes in float32, batch 1."
        return "Models of 8 bits, batch 1." if self.is_int8() else "All compute in float32, batch 1."

    def origin(self):
        if self.is_int8():
            return ("Skeletons have noise for weights (`scripts/fetch_models.py skeletons8 embeddings`); EfficientNet-Lite0, BERT-base and "
                    "the decoder are quantized by ONNX Runtime's tool, those named _evener by Evener's (`bench/models/quantized.py`). Texts: 128 tokens; gpt_kv: one step "
                    "after 64. Outputs are compared by their cosine.")
        return ("Trained models (`bench/models/zoo.py`, fetched by `scripts/fetch_models.py ocr photo more faces web people`) have pieces of real pictures and "
                "recordings for inputs, as their tests do; those of `scripts/fetch_models.py minilm skeletons`, whose weights are noise "
                "with the moments of the real ones but for minilm_l3, have noise. bert: 128 tokens; gpt_kv: one step after 64; "
                "lstm_gru: 200 steps.")

    def subnormals(self):
        """What each engine makes of floats below 2^-126."""
        texts = {}
        for name in self.engines:
            texts.setdefault(self.known[name].subnormals[self.keep], []).append(self.known[name].title)
        said = "; ".join(f"{', '.join(dict.fromkeys(titles))}: {text}" for text, titles in texts.items())
        return f"Floats below 2^-126 (subnormal numbers): {said}."

    def head(self):
        reference = self.known[self.reference].title
        what = " of 8 bits" if self.is_int8() else " of bfloat16" if self.is_low() else ""
        lines = ["# Benchmarks" + (f" with {self.limit.title}" if self.limit.name else "") + what, "", stamp(),
                 f"Made by `bench/compare.py {shown_arguments(sys.argv[1:])}` on {datetime.date.today().isoformat()}.", "",
                 f"Machine: {self.machine}, {platform.system()} {platform.release().split('-')[0]}. It is shared: only ratios within a "
                 "line mean something.", "",
                 f"Each engine has a process of its own, they take turns of {self.seconds} s for {self.rounds} rounds, and one that "
                 f"waits is stopped. {self.work()} Outputs are compared with those of {reference}; a wrong one is "
                 f"a failure, not a time. {self.origin()}", ""]
        for name in self.engines:
            rtol, atol = self.known[name].tolerance
            if self.known[name].cosine is not None:
                lines.append(f"- {self.known[name].title}: {self.known[name].versions()}")
                continue
            lines.append(f"- {self.known[name].title}: {self.known[name].versions()}; outputs within rtol {rtol:g}, atol {atol:g} x largest")
        lines += [f"- {self.known[name].title}: not compared: {why}" for name, why in self.missing.items()]
        if self.limit.method:
            lines += ["", self.limit.method]
        lines += ["", self.subnormals(), "", *configuration()]
        return "\n".join(lines) + "\n"

    def markdown(self):
        return self.head() + self.tables()

    def tables(self):
        reference = self.known[self.engines[0]].title
        kept = ", subnormal numbers kept" if self.keep else ""
        text = ""
        for threads in self.rows:
            text += f"\n## {threads} thread{'s' if threads > 1 else ''}{kept}\n"
            text += self.table(threads, f"Median ms of a run (median ratio to {reference}; below 1 is faster):",
                               lambda row: f"{row.median * 1e3:.2f} ({row.ratio:.2f})")
            text += self.table(threads, "Load ms / first run ms / peak of memory above the loaded library, MiB:",
                               lambda row: f"{row.load * 1e3:.0f} / {row.first * 1e3:.1f} / {mebibytes(row.memory)}")
            partner = self.partner()
            text += self.starting_and_memory(threads, partner)
            text += self.against_best(threads)
            text += self.against_float(threads) + self.cosines(threads)
        text += "" if self.keep else self.kernels()
        failures = self.failures()
        if failures:
            text += f"\n## Failures{kept}\n\n"
            text += "\n".join(f"- {label}, {self.known[row.engine].title}, {threads} threads: {row.failure}"
                              for threads, label, row in failures) + "\n"
        return text
