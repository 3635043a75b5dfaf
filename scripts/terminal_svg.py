# SPDX-License-Identifier: Apache-2.0
"""A picture of a terminal's screen, from what `tmux capture-pane -e -p` prints, for scripts/screenshots."""
import re
from html import escape

# Browsers join several plain spaces in an SVG into one.
NO_BREAK_SPACE = "\u00a0"
CELL_WIDTH, CELL_HEIGHT, MARGIN = 8.4, 18, 12
# Background, text, and the eight colours of a terminal: black, red, green, yellow, blue, magenta, cyan, white.
LIGHT = ("#ffffff", "#24292f", ("#24292f", "#cf222e", "#116329", "#7d5600", "#0969da", "#8250df", "#1b7c83", "#6e7781"))
DARK = ("#0d1117", "#e6edf3", ("#484f58", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#b1bac4"))


def applied(style, codes):
    """The style after the numbers of one escape sequence; colours beyond the first sixteen keep the text's colour."""
    style, numbers = dict(style), [int(code or 0) for code in codes.split(";")]
    for number in numbers if 38 not in numbers and 48 not in numbers else []:
        if number == 0:
            style = {}
        elif number in (1, 2, 7):
            style[number] = True
        elif number == 22:
            style.pop(1, None)
            style.pop(2, None)
        elif number == 27:
            style.pop(7, None)
        elif number == 39:
            style.pop("colour", None)
        elif 30 <= number <= 37 or 90 <= number <= 97:
            style["colour"] = number % 10
    return style


def runs(line, style):
    """[(text, style)] of one line, and the style that the next line begins with."""
    found = []
    for index, piece in enumerate(re.split(r"\x1b\[([0-9;]*)m", line)):
        if index % 2:
            style = applied(style, piece)
        elif piece:
            found.append((piece, style))
    return found, style


def drawn(text, style, place, palette):
    """One run of text as SVG, stretched to whole cells, so that any font keeps the columns."""
    background, foreground, colours = palette
    x, y = place
    width = len(text) * CELL_WIDTH
    colour = colours[style["colour"]] if "colour" in style else foreground
    box = f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{CELL_HEIGHT}" fill="{colour}"/>' if 7 in style else ""
    weight = ' font-weight="bold"' if 1 in style else ""
    faint = ' opacity="0.65"' if 2 in style else ""
    return (f'{box}<text x="{x:.1f}" y="{y + 14}" textLength="{width:.1f}" fill="{background if 7 in style else colour}"{weight}{faint}>'
            f'{escape(text).replace(" ", NO_BREAK_SPACE)}</text>')


def svg(screen, columns, palette):
    lines, style, parts = screen.rstrip("\n").split("\n"), {}, []
    for row, line in enumerate(lines):
        found, style = runs(line, style)
        column = 0
        for text, of_run in found:
            if text.strip() or 7 in of_run:
                parts.append(drawn(text, of_run, (MARGIN + column * CELL_WIDTH, MARGIN + row * CELL_HEIGHT), palette))
            column += len(text)
    width, height = columns * CELL_WIDTH + 2 * MARGIN, len(lines) * CELL_HEIGHT + 2 * MARGIN
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}">\n'
            f'<rect width="100%" height="100%" rx="8" fill="{palette[0]}"/>\n'
            '<g font-family="ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14">\n'
            + "\n".join(parts) + "\n</g>\n</svg>\n")
