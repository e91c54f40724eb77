#!/usr/bin/env python3
"""Records `levada demo` in a terminal and writes demo.svg, which plays it twice as fast.

    pip install pyte
    docs/images/record.py target/release/levada

The picture has no scripts: each frame is a group that CSS shows in its turn.
"""

import fcntl
import html
import os
import pty
import struct
import sys
import termios
import time
from pathlib import Path

import pyte

COLUMNS, LINES = 100, 36
# A frame of the recording, and how long the picture shows it and the last one, in seconds.
EVERY, SHOWN, LAST = 2.0, 1.0, 12.0
CHARACTER, LINE, MARGIN = 7.83, 17, 14
COLOURS = {"green": "#7ccf7c", "red": "#ff7b72", "brown": "#e3c26f", "cyan": "#76c7d6"}

# A row is a list of texts with their colour and weight.
Row = tuple[tuple[str, bool, str], ...]


class Terminal:
    """A screen and its alternate screen, as programs of full screens use it."""

    def __init__(self) -> None:
        self.screens = [pyte.Screen(COLUMNS, LINES) for _ in range(2)]
        self.streams = [pyte.Stream(screen) for screen in self.screens]
        self.shown = 0

    def feed(self, text: str) -> None:
        text = text.replace("\x1b[?1049h", "\0" + "1").replace("\x1b[?1049l", "\0" + "0")
        first, *others = text.split("\0")
        self.streams[self.shown].feed(first)
        for part in others:
            self.shown = int(part[0])
            self.streams[self.shown].feed(part[1:])

    def rows(self) -> list[Row]:
        buffer = self.screens[self.shown].buffer
        return [self.row([buffer[y][x] for x in range(COLUMNS)]) for y in range(LINES)]

    @staticmethod
    def row(cells: list[pyte.screens.Char]) -> Row:
        runs: list[tuple[str, bool, str]] = []
        for cell in cells:
            style = (COLOURS.get(cell.fg, ""), cell.bold)
            if runs and (cell.data == " " or runs[-1][:2] == style):
                runs[-1] = (*runs[-1][:2], runs[-1][2] + cell.data)
            else:
                runs.append((*style, cell.data))
        runs[-1] = (*runs[-1][:2], runs[-1][2].rstrip())
        return tuple(run for run in runs if run[2])


def record(program: str) -> list[list[Row]]:
    """The frames of a run; ends with the program's exit code if it fails."""
    process, terminal = pty.fork()
    if process == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(program, [program, "demo"])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    screen, frames, due = Terminal(), [], time.monotonic() + EVERY / 4
    while True:
        try:
            output = os.read(terminal, 65536)
        except OSError:
            break
        if time.monotonic() > due:
            frames.append(screen.rows())
            due = time.monotonic() + EVERY
        screen.feed(output.decode(errors="replace"))
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if status != 0:
        sys.exit(status)
    frames.append(screen.rows())
    return [frame for frame in frames if any(frame)]


def drawn(row: Row) -> str:
    spans = []
    for colour, bold, text in row:
        style = f' fill="{colour}"' if colour else ""
        style += ' font-weight="bold"' if bold else ""
        text = html.escape(text, quote=False)
        spans.append(f"<tspan{style}>{text}</tspan>" if style else text)
    return "".join(spans)


def picture(frames: list[list[Row]]) -> str:
    total = (len(frames) - 1) * SHOWN + LAST
    names: dict[Row, str] = {}
    styles, groups = [], []
    for number, frame in enumerate(frames):
        last = number == len(frames) - 1
        begin, end = number * SHOWN / total * 100, (number + 1) * SHOWN / total * 100
        steps = f"0%{{opacity:{int(number == 0)}}}"
        steps += "" if number == 0 else f"{begin:.3f}%{{opacity:1}}"
        steps += "" if last else f"{end:.3f}%{{opacity:0}}"
        styles.append(f"@keyframes k{number}{{{steps}}}")
        styles.append(
            f"#f{number}{{opacity:{int(last)};animation:k{number} {total:g}s step-end infinite}}"
        )
        uses = [
            f'<use href="#{names.setdefault(row, f"r{len(names)}")}" y="{2 * MARGIN + y * LINE}"/>'
            for y, row in enumerate(frame)
            if row
        ]
        groups.append(f'<g id="f{number}">{"".join(uses)}</g>')
    texts = "".join(f'<text id="{name}">{drawn(row)}</text>' for row, name in names.items())
    width, height = int(COLUMNS * CHARACTER) + 2 * MARGIN, 2 * MARGIN + LINES * LINE + 4
    newline = "\n"
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" \
aria-label="A recording of levada demo, twice as fast as it happened">
<style>text{{font:13px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#d6dde4;\
white-space:pre}}{"".join(styles)}@media(prefers-reduced-motion){{g[id]{{animation:none}}}}</style>
<defs>{texts}</defs>
<rect width="{width}" height="{height}" rx="8" fill="#12181f"/>
<g transform="translate({MARGIN} 0)">{newline.join(groups)}</g>
</svg>
"""


if __name__ == "__main__":
    recorded = record(sys.argv[1])
    Path(__file__).with_name("demo.svg").write_text(picture(recorded))
