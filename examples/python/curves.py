"""A picture of how a training went, as the examples draw it."""
COLORS = ("#c0392b", "#7f8c8d", "#2471a3", "#229954")


def line(values, color):
    most = max(max(values), 1e-12)
    points = " ".join(f"{40 + 540 * i / max(1, len(values) - 1):.1f},{20 + 240 * (1 - v / most):.1f}" for i, v in enumerate(values))
    return f'<polyline fill="none" stroke="{color}" stroke-width="2" points="{points}"/>'


def draw(path, **rows):
    """Writes an SVG file: each row of values over the whole training, from 0 to its largest."""
    lines = "".join(line(values, color) for values, color in zip(rows.values(), COLORS))
    names = "".join(f'<text x="{40 + 560 / len(rows) * i:.0f}" y="285" fill="{color}">{name.replace("_", " ")}, up to {max(values):.4g}</text>'
                    for i, ((name, values), color) in enumerate(zip(rows.items(), COLORS)))
    path.write_text('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 620 300" font-family="sans-serif" font-size="13"><rect width="620" height="300" fill="#fff"/>'
                    f'<path d="M40 20V260H580" fill="none" stroke="#999"/>{lines}{names}</svg>\n')
