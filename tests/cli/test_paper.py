"""Colours and signs only where somebody sees them."""

import io

import pytest

from routeguard.cli.paper import BAR, Paper


class Terminal(io.TextIOWrapper):
    """A stream that says it is one."""

    def __init__(self, *, encoding: str = "utf-8", is_terminal: bool = True) -> None:
        self._bytes = io.BytesIO()
        super().__init__(self._bytes, encoding=encoding, newline="")
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def written(self) -> str:
        self.flush()
        return self._bytes.getvalue().decode(self.encoding)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")


@pytest.mark.parametrize(
    ("is_terminal", "variable", "coloured"),
    [(True, None, True), (False, None, False), (True, ("NO_COLOR", "1"), False), (True, ("TERM", "dumb"), False)],
)
def test_colours_are_for_terminals_that_want_them(
    is_terminal: bool, variable: tuple[str, str] | None, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        monkeypatch.setenv(*variable)
    stream = Terminal(is_terminal=is_terminal)

    Paper.on(stream).print("warning", colour="red")

    assert stream.written() == ("\x1b[31mwarning\x1b[0m\n" if coloured else "warning\n")


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("utf-8", "✓ a · b… ä\n"),
        ("latin-1", "+ a | b... ä\n"),
        ("ascii", "+ a | b... ?\n"),
    ],
)
def test_signs_a_stream_cannot_write_become_letters(encoding: str, shown: str) -> None:
    stream = Terminal(encoding=encoding)

    Paper.on(stream).print("✓ a · b… ä")

    assert stream.written() == shown


def test_what_is_too_wide_for_its_column_goes_on_below() -> None:
    stream = Terminal()
    paper = Paper.on(stream)

    paper.table(["", "name", "seen"], [["✓", "stampede", "ten of forty are admitted " * 4]], [None])

    lines = stream.written().splitlines()
    assert all(len(line.replace("\x1b[1m", "").replace("\x1b[0m", "")) <= 60 for line in lines)
    assert len(lines) == 4
    assert {len(line) - len(line.lstrip()) for line in lines[2:]} == {len("✓  stampede  ")}


def test_the_bar_is_drawn_over_itself_and_wiped_at_the_end() -> None:
    stream = Terminal()
    paper = Paper.on(stream)

    paper.progress(1, 4, "midnight")
    paper.progress(4, 4, "")

    first, last = stream.written().split("\r")[1:3]
    assert first.startswith("█" * (BAR // 4) + "░" * (BAR - BAR // 4) + " 1/4 midnight")
    assert last.strip() == ""


def test_there_is_no_bar_where_nobody_looks() -> None:
    stream = Terminal(is_terminal=False)

    Paper.on(stream).progress(1, 4, "midnight")

    assert stream.written() == ""
