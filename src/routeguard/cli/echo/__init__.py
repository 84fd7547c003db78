"""`routeguard check --echo`: run where the application runs, it shows what the edge really sends, and whom to trust."""

import json
import os
import sys
import threading
from typing import Final

from routeguard.cli.echo.page import EchoServer, commands
from routeguard.cli.echo.verdict import Arrived, Candidate, Verdict, judge
from routeguard.cli.paper import Colour, Paper, err, out

EXIT_FINE, EXIT_WARNINGS, EXIT_ERRORS = 0, 1, 2
PORT_BY_DEFAULT: Final = 8_000
#: An open page that shows headers is not left running.
LIFE_SECONDS: Final = 600.0
URL: Final = "https://YOUR-APPLICATION"
COLOURS: Final[dict[str, Colour]] = {"holds": "green", "forged": "red", "absent": "dim", "changes": "yellow"}
MEANS: Final = {
    "holds": "shows the same address under forgery",
    "forged": "shows what the visitor wrote",
    "absent": "shows no address",
    "changes": "does not show the same address twice",
}


class Echo:
    """The two requests, and what they say together."""

    def __init__(self, paper: Paper) -> None:
        self._paper = paper
        self._lock = threading.Lock()
        self._plain: Arrived | None = None
        self._forged: Arrived | None = None
        self.verdict: Verdict | None = None
        self.done = threading.Event()

    def hear(self, asked: str, arrived: Arrived) -> str:
        """Take note of a request; what to tell the visitor."""
        with self._lock:
            if self.verdict is not None:
                return self.verdict.says
            if asked == "plain":
                self._plain = arrived
            elif asked == "forged":
                self._forged = arrived
            else:
                return "This is routeguard check --echo. Its terminal shows the two commands to run."
            self._show(asked, arrived)
            if self._plain is None or self._forged is None:
                return f"Now the other command, with ?{'plain' if asked == 'forged' else 'forged'}."
            self.verdict = judge(self._plain, self._forged, os.environ)
            return self.verdict.says

    def answered(self) -> None:
        """A visitor has been told. The process may end once the last one has."""
        if self.verdict is not None:
            self.done.set()

    def _show(self, asked: str, arrived: Arrived) -> None:
        self._paper.print(f"{asked}: the connection is from {arrived.peer}", colour="bold")
        for name, value in arrived.headers:
            self._paper.print(f"  {name.decode()}: {_printable(value)}")
        if not arrived.headers:
            self._paper.print("  no address header")
        # Into a platform's log, too, while it happens.
        self._paper.stream.flush()


def serve_echo(*, port: int | None, as_json: bool) -> int:
    """Serve the page until both requests have come, or for ten minutes; then say whom to trust."""
    given = os.environ.get("PORT", "")
    port = port if port is not None else int(given) if given.isdecimal() else PORT_BY_DEFAULT
    paper = err() if as_json else out()
    echo = Echo(paper)
    try:
        server = EchoServer(port, echo.hear, echo.answered)
    except (OSError, OverflowError) as error:
        print(f"routeguard check --echo: port {port} cannot be used: {error}", file=sys.stderr)
        return EXIT_ERRORS
    plain, forged = commands(URL)
    paper.print(f"listening on port {server.server_port}. From outside, by the public address, run:")
    paper.print(f"\n{plain}\n\n{forged}\n")
    paper.print(f"It stops after both, or in {LIFE_SECONDS / 60:.0f} minutes. Only address headers are shown.")
    # Whoever waits for this line on a pipe must not wait for the end.
    paper.stream.flush()
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        echo.done.wait(LIFE_SECONDS)
    except KeyboardInterrupt:
        pass
    finally:
        server.shutdown()
        server.server_close()
    return _conclude(echo.verdict, paper, as_json=as_json)


def _conclude(verdict: Verdict | None, paper: Paper, *, as_json: bool) -> int:
    if as_json:
        print(json.dumps(_report(verdict), indent=2))
    elif verdict is None:
        print("routeguard check --echo: the two requests did not come", file=sys.stderr)
    else:
        _print(verdict, paper)
    if verdict is None:
        return EXIT_ERRORS
    return EXIT_FINE if verdict.recommended is not None else EXIT_WARNINGS


def _report(verdict: Verdict | None) -> dict[str, object]:
    if verdict is None:
        return {"ok": False, "problems": ["the two requests did not come"], "sources": [], "recommended": None}
    return {
        "ok": verdict.recommended is not None,
        "problems": [],
        "sources": [{"source": one.source, "address": one.address, "result": one.result} for one in verdict.candidates],
        "recommended": verdict.recommended,
        "says": verdict.says,
    }


def _print(verdict: Verdict, paper: Paper) -> None:
    paper.print()
    rows = [_row(candidate) for candidate in verdict.candidates]
    paper.table(["source", "address", "with forged headers"], rows, [COLOURS[one.result] for one in verdict.candidates])
    paper.print()
    paper.print(verdict.says, colour="green" if verdict.recommended else "yellow")


def _row(candidate: Candidate) -> list[str]:
    return [candidate.source, candidate.address or "-", MEANS[candidate.result]]


def _printable(value: bytes) -> str:
    """What a stranger sent, without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in value.decode("latin-1"))[:500]
