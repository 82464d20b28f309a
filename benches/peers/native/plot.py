"""Bars by record size as SVG, in colours that are read on light and on dark ground."""

from html import escape

COLOURS = ["#2f81f7", "#8b949e", "#d29922", "#3fb950", "#db6d28", "#a371f7", "#e5534b", "#39a0a0", "#b08968", "#c061a8"]
TEXT = "#7d8590"
BAR, GAP, GROUP, HEIGHT, TOP, LEFT, LEGEND = 15, 2, 30, 220, 34, 44, 250


def text(x, y, words, anchor="middle", size=12):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{TEXT}">{escape(words)}</text>'


def bars(title, groups, series, limit):
    """An SVG of `groups`, {name: {series: value}}. `limit` names the value 1, at which a line is drawn; values above 1.5
    are cut there and carry their number, and so does what a group does not have a value for."""
    most = 1.5
    top = min(most, max(1.0, *(v for values in groups.values() for v in values.values())) * 1.04)
    group = len(series) * (BAR + GAP) + GROUP
    width = LEFT + group * len(groups)
    legend = TOP + HEIGHT + 40
    columns = max(1, (width - LEFT) // LEGEND)
    height = legend + 18 * -(-len(series) // columns) + 8

    def y(value):
        return TOP + HEIGHT * (1 - min(value, top) / top)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, sans-serif" role="img">',
        f"<title>{escape(title)}</title>",
        text(LEFT, 18, title, "start", 14),
    ]
    step = 0.25
    for k in range(int(top / step) + 1):
        at = y(k * step)
        wide = "1.5" if k * step == 1 else "0.5"
        dash = ' stroke-dasharray="5 4"' if k * step == 1 else ""
        out.append(
            f'<line x1="{LEFT}" x2="{width}" y1="{at:.1f}" y2="{at:.1f}" stroke="{TEXT}" stroke-width="{wide}"{dash}/>'
        )
        out.append(text(LEFT - 6, at + 4, f"{k * step:.2f}", "end", 11))
    out.append(text(width - 4, y(1) - 5, limit, "end", 11))
    for g, (name, values) in enumerate(groups.items()):
        x = LEFT + GROUP / 2 + g * group
        for k, one in enumerate(series):
            left = x + k * (BAR + GAP)
            if one not in values:
                continue
            value, at = values[one], y(values[one])
            out.append(
                f'<rect x="{left:.1f}" y="{at:.1f}" width="{BAR}" height="{TOP + HEIGHT - at:.1f}" '
                f'fill="{COLOURS[k % len(COLOURS)]}"><title>{escape(f"{one}, {name}: {value:.2f}")}</title></rect>'
            )
            out.append(text(left + BAR / 2, at - 3, f"{value:.2f}".replace("0.", ".", 1), "middle", 8))
        out.append(text(x + (group - GROUP) / 2, TOP + HEIGHT + 18, name))
    for k, one in enumerate(series):
        x, at = LEFT + k % columns * LEGEND, legend + k // columns * 18
        out.append(f'<rect x="{x}" y="{at - 10}" width="12" height="12" fill="{COLOURS[k % len(COLOURS)]}"/>')
        out.append(text(x + 18, at, one, "start"))
    return "\n".join([*out, "</svg>", ""])
