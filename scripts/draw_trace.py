#!/usr/bin/env python3
"""Draws one run of a trace as a picture: what each thread and device did when, and the memory of each device.

usage: draw_trace.py TRACE.json -o PICTURE.svg [--run N]

TRACE.json comes from `evener trace` or evn_session_trace_stop. Chrome and Perfetto show more (names, arguments, zoom); this is for
documents. Without --run: the last run.
"""
import argparse
import collections
import html
import json
import pathlib
import sys

WIDTH, LEFT, BAR, GAP, GRAPH = 1000, 130, 18, 6, 44  # pixels
COLOURS = {"run": "#d9d9d9", "prepare": "#bdbdbd", "enqueue": "#fdd0a2", "wait": "#f0f0f0", "kernel": "#6baed6", "copy": "#e6550d"}
MEMORY = "#74c476"


def pick_run(events, number):
    runs = sorted((event for event in events if event.get("cat") == "run"), key=lambda event: event["ts"])
    if not runs:
        raise SystemExit("draw_trace.py: the trace has no run")
    if not -len(runs) <= number < len(runs):
        raise SystemExit(f"draw_trace.py: there is no run {number}: the trace has {len(runs)}")
    return runs[number]["ts"], runs[number]["ts"] + runs[number]["dur"]


def rows_of(events, begin, end):
    """(label, events) of each thread: runs on a row of their own, above what they consist of."""
    names = {(event["name"], event["pid"], event["tid"]): event["args"]["name"] for event in events if event["ph"] == "M"}
    rows = collections.OrderedDict()
    for event in sorted((e for e in events if e["ph"] == "X"), key=lambda e: (e["pid"], e["tid"], e["cat"] != "run", e["ts"])):
        if event["ts"] >= end or event["ts"] + event["dur"] <= begin:
            continue
        process = names.get(("process_name", event["pid"], 0), str(event["pid"]))
        thread = names.get(("thread_name", event["pid"], event["tid"]), str(event["tid"]))
        label = f"{process}: {'run' if event['cat'] == 'run' else thread}"
        rows.setdefault(label, []).append(event)
    return list(rows.items())


def memory_of(events, begin, end):
    """Per device the steps (time, bytes)."""
    steps = collections.OrderedDict()
    for event in sorted((e for e in events if e["ph"] == "C"), key=lambda e: e["ts"]):
        known = steps.setdefault(event["name"], [])
        value = event["args"]["current_bytes"] + event["args"]["arena_bytes"]
        if event["ts"] <= begin:
            known[:] = [(begin, value)]
        elif event["ts"] < end:
            known.append((event["ts"], value))
    return {name: known for name, known in steps.items() if known}


def draw(trace, number=-1):
    events = trace["traceEvents"]
    begin, end = pick_run(events, number)
    scale = (WIDTH - LEFT - 10) / (end - begin)
    out, y = [], 24

    def x_of(time):
        return LEFT + (min(max(time, begin), end) - begin) * scale

    def text(x, at, words, anchor="start"):
        out.append(f'<text x="{x:.1f}" y="{at:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>')

    for i in range(6):
        time = begin + (end - begin) * i / 5
        text(x_of(time), 12, f"{(time - begin) / 1000:.2f} ms", "start" if i == 0 else "end" if i == 5 else "middle")
    for label, row in rows_of(events, begin, end):
        text(LEFT - 6, y + BAR - 5, label, "end")
        for event in row:
            x, x_end = x_of(event["ts"]), x_of(event["ts"] + event["dur"])
            colour = COLOURS.get(event["cat"], "#9e9ac8")
            out.append(f'<rect x="{x:.2f}" y="{y}" width="{max(x_end - x, 0.3):.2f}" height="{BAR}" fill="{colour}"><title>'
                       f'{html.escape(event["name"])}, {event["dur"]:.1f} us</title></rect>')
        y += BAR + GAP
    for name, steps in memory_of(events, begin, end).items():
        most = max(value for _, value in steps) or 1
        points = [(LEFT, y + GRAPH)]
        for (time, value), (until, _) in zip(steps, steps[1:] + [(end, 0)]):
            height = y + GRAPH - value / most * (GRAPH - 4)
            points += [(x_of(time), height), (x_of(until), height)]
        points.append((x_of(end), y + GRAPH))
        out.append(f'<polygon points="{" ".join(f"{x:.1f},{at:.1f}" for x, at in points)}" fill="{MEMORY}"/>')
        text(LEFT - 6, y + 16, name, "end")
        text(LEFT - 6, y + 32, f"{most / 2**20:.1f} MiB", "end")
        y += GRAPH + GAP
    x = LEFT
    for name, colour in COLOURS.items():
        out.append(f'<rect x="{x}" y="{y + 4}" width="12" height="12" fill="{colour}" stroke="#888"/>')
        text(x + 16, y + 14, name)
        x += 90
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 24}" font-family="sans-serif" font-size="11">'
            '<rect width="100%" height="100%" fill="white"/>')
    return "\n".join([head, *out, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("-o", dest="picture", type=pathlib.Path, required=True, metavar="PICTURE.svg")
    parser.add_argument("--run", type=int, default=-1, metavar="N", help="counted from 0; -1, the default, is the last")
    arguments = parser.parse_args()
    try:
        trace = json.loads(arguments.trace.read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"draw_trace.py: {arguments.trace}: {error}")
    arguments.picture.write_text(draw(trace, arguments.run))


if __name__ == "__main__":
    main()
