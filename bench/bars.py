"""Pictures of ratios: horizontal bars from 1 on, to the left what is less, on a logarithmic axis. A label stands above its bars, so
that the picture is narrow enough for a small screen; its colours follow the reader's choice of a light or a dark background."""
import html
import math

WIDTH, EDGE = 420, 14
LABEL, BAR, GAP = 17, 8, 8      # heights; GAP is between two labels' bars
TICKS = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)
TICK_ROOM = 34                  # pixels that a tick's number needs
NUMBER = 38                     # pixels of a ratio in the column of its series
STYLE = """<style>
  .paper { fill: #ffffff; }
  text { fill: #1b1b1b; font: 13px sans-serif; stroke: #ffffff; stroke-width: 4px; stroke-linejoin: round; paint-order: stroke; }
  .title { font-size: 15px; font-weight: bold; }
  .small { font-size: 12px; fill: #4a4d52; }
  .grid { stroke: #d4d4d4; stroke-width: 1; }
  .one { stroke: #1b1b1b; stroke-width: 1.5; }
  .range { stroke: #4a4d52; stroke-width: 1.5; }
  .better { fill: #0072b2; }
  .worse { fill: #d55e00; }
  .second { opacity: 0.55; }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #16181c; }
    text { fill: #e8e8e8; stroke: #16181c; }
    .small { fill: #b8bcc4; }
    .grid { stroke: #3c4046; }
    .one { stroke: #e8e8e8; }
    .range { stroke: #b8bcc4; }
    .better { fill: #56b4e9; }
    .worse { fill: #e69f00; }
  }
</style>"""


class Axis:
    """Pixels of ratios."""

    def __init__(self, values):
        self.low, self.high = min(0.7, *values), max(1.4, *values)

    def x(self, ratio):
        share = math.log(ratio / self.low) / math.log(self.high / self.low)
        return EDGE + share * (WIDTH - 2 * EDGE)

    def ticks(self):
        """Round ratios whose numbers do not touch; 1 is always one of them."""
        found = [1.0]
        for tick in sorted(TICKS, key=lambda tick: abs(math.log(tick))):
            if self.low <= tick <= self.high and all(abs(self.x(tick) - self.x(other)) >= TICK_ROOM for other in found):
                found.append(tick)
        return sorted(found)


def text(x, y, words, kind="", anchor="start"):
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>'


def line(kind, x0, y0, x1, y1):
    return f'<line class="{kind}" x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}"/>'


def legend(series, y):
    """What the bars of a label are, where there are several."""
    parts, x = [], EDGE
    for index, name in enumerate(series if len(series) > 1 else []):
        parts.append(f'<rect class="better{" second" if index else ""}" x="{x}" y="{y - 9}" width="22" height="{BAR}"/>')
        parts.append(text(x + 28, y, name, "small"))
        x += 120
    return parts


def draw(title, notes, series, rows, more_is_better=False, ranges=None):
    """A picture. `rows`: (label, ratios); a ratio for each of `series`, None where there is none, or a single one that is of no
    series. `ranges`: label -> for each ratio the least and the largest of those whose mean it is, or None."""
    spans = [end for of_label in (ranges or {}).values() for span in of_label if span for end in span]
    axis = Axis([ratio for _, ratios in rows for ratio in ratios if ratio is not None] + spans)
    head = 30 + 17 * len(notes) + (20 if len(series) > 1 else 0) + 18
    height = head + len(rows) * (LABEL + BAR * len(series) + GAP) + 8
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" '
             f'aria-label="{html.escape(title)}">', STYLE, f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
             text(EDGE, 22, title, "title")]
    parts += [text(EDGE, 40 + 17 * at, note, "small") for at, note in enumerate(notes)]
    parts += legend(series, 40 + 17 * len(notes) + 2)
    for tick in axis.ticks():
        parts.append(line("grid", axis.x(tick), head, axis.x(tick), height - 8))
        parts.append(text(axis.x(tick), head - 5, f"{tick:g}", "small", "middle"))
    parts.append(line("one", axis.x(1), head, axis.x(1), height - 8))
    y = head
    for label, ratios in rows:
        parts.append(text(EDGE, y + LABEL - 4, label))
        for back, ratio in enumerate(reversed(ratios)):
            shown = "-" if ratio is None else f"{ratio:.2f}"
            parts.append(text(WIDTH - EDGE - NUMBER * back, y + LABEL - 4, shown, anchor="end"))
        y += LABEL
        for index, ratio in enumerate(ratios):
            if ratio is not None:
                left, right = sorted((axis.x(1), axis.x(ratio)))
                kind = "better" if ratio == 1 or (ratio > 1) == more_is_better else "worse"
                parts.append(f'<rect class="{kind}{" second" if index else ""}" x="{left:.1f}" y="{y:.1f}" '
                             f'width="{max(right - left, 1):.1f}" height="{BAR - 1}"/>')
                span = (ranges or {}).get(label, [None] * len(ratios))[index]
                if span:
                    parts.append(line("range", axis.x(span[0]), y + BAR / 2 - 0.5, axis.x(span[1]), y + BAR / 2 - 0.5))
            y += BAR
        y += GAP + BAR * (len(series) - len(ratios))
    return "\n".join(parts + ["</svg>", ""])
