"""What the commands print on: colours and signs where a terminal shows them, plain text everywhere else."""

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TextIO

Colour = Literal["red", "yellow", "green", "dim", "bold"]

#: SGR codes (ECMA-48 §8.3.117).
CODES: Final = {"red": "31", "yellow": "33", "green": "32", "dim": "2", "bold": "1"}
#: What stands for a sign where the terminal does not know it.
PLAIN: Final = str.maketrans({"·": "|", "…": "...", "✓": "+", "✗": "x", "█": "#", "░": ".", "→": "->"})
#: Wide enough for a table, where nobody says how wide it is.
COLUMNS_ELSEWHERE: Final = 120
COLUMN_GAP: Final = 2
#: A narrower column would be one word a line.
COLUMN_MIN: Final = 16
BAR: Final = 24


@dataclass(frozen=True, slots=True)
class Paper:
    """One stream, and what it can show."""

    stream: TextIO
    #: A person is looking.
    is_terminal: bool
    has_colours: bool
    has_signs: bool
    columns: int

    @classmethod
    def on(cls, stream: TextIO) -> "Paper":
        """What this stream can show. `NO_COLOR` (https://no-color.org) and `TERM=dumb` mean no colours."""
        is_terminal = stream.isatty()
        has_colours = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        columns = shutil.get_terminal_size((COLUMNS_ELSEWHERE, 24)).columns if is_terminal else COLUMNS_ELSEWHERE
        return cls(stream, is_terminal, has_colours, _shows_signs(stream), columns)

    def print(self, text: str = "", *, colour: Colour | None = None) -> None:
        """One line."""
        self.stream.write(self.shown(text, colour) + "\n")

    def shown(self, text: str, colour: Colour | None = None) -> str:
        """The text as this paper can show it."""
        if not self.has_signs:
            text = text.translate(PLAIN)
            encoding = self.stream.encoding or "ascii"
            text = text.encode(encoding, "replace").decode(encoding, "replace")
        return f"\x1b[{CODES[colour]}m{text}\x1b[0m" if colour is not None and self.has_colours else text

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]], colours: Sequence[Colour | None]) -> None:
        """Rows under their head; what is too wide for its column goes on below.

        Args:
            head: The titles.
            rows: As many cells each.
            colours: One a row, for its first cell.
        """
        widths = self._widths([head, *rows])
        self._row(head, widths, "bold")
        for row, colour in zip(rows, colours, strict=True):
            self._row(row, widths, colour)

    def progress(self, done: int, total: int, doing: str) -> None:
        """A bar that is drawn over itself; nothing where nobody is looking."""
        if not self.is_terminal:
            return
        filled = BAR * done // max(total, 1)
        line = f"{'█' * filled}{'░' * (BAR - filled)} {done}/{total} {doing}" if done < total else ""
        self.stream.write("\r" + self.shown(line.ljust(self.columns - 1)) + ("\r" if not line else ""))
        self.stream.flush()

    def _row(self, cells: Sequence[str], widths: Sequence[int], colour: Colour | None) -> None:
        wrapped = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, widths, strict=True)]
        for number in range(max(map(len, wrapped))):
            lines = [lines[number] if number < len(lines) else "" for lines in wrapped]
            padded = [line.ljust(width) for line, width in zip(lines, widths, strict=True)]
            first = self.shown(padded[0], colour if lines[0] else None)
            rest = (" " * COLUMN_GAP).join(map(self.shown, padded[1:]))
            self.stream.write(f"{first}{' ' * COLUMN_GAP}{rest}".rstrip() + "\n")

    def _widths(self, rows: Sequence[Sequence[str]]) -> list[int]:
        """As wide as the cells, and where that is too much the widest columns share what is left."""
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        room = self.columns - COLUMN_GAP * (len(widths) - 1)
        while sum(widths) > room and max(widths) > COLUMN_MIN:
            widest = max(range(len(widths)), key=widths.__getitem__)
            widths[widest] -= 1
        return widths


def _shows_signs(stream: TextIO) -> bool:
    try:
        "·…✓✗█░".encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def out() -> Paper:
    """Standard output."""
    return Paper.on(sys.stdout)


def err() -> Paper:
    """Standard error."""
    return Paper.on(sys.stderr)
