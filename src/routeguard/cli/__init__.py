"""The command line: what is in force, whether it holds, and what steers a guard that shares its ledger."""

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence

from routeguard import __version__
from routeguard.cli import bookkeeping

EXIT_ERRORS = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. 0 is fine, 1 means warnings or a breach, 2 means errors."""
    _open_what_is_closed()
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read has seen enough; the interpreter must not try to write the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_ERRORS
    except Exception:  # noqa: BLE001 - printed, and the exit code is what it is about
        # The interpreter's own exit code for it is 1, which would be warnings or a breach.
        traceback.print_exc()
        return EXIT_ERRORS
    return code


def _open_what_is_closed() -> None:
    """A job may be started with its output closed; what it does, and its exit code, are the same."""
    # typeshed leaves the None out that https://docs.python.org/3/library/sys.html#sys.__stdout__ names.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for as long as the process runs


def _run(arguments: Sequence[str] | None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    # What follows `--` is the server's own command line, for `check` to look at.
    ours, server = (given[: given.index("--")], given[given.index("--") + 1 :]) if "--" in given else (given, None)
    chosen = _parser().parse_args(ours)
    match chosen.command:
        case "check" if chosen.echo:
            from routeguard.cli.echo import serve_echo

            return serve_echo(port=chosen.port, as_json=chosen.json)
        case "check":
            from routeguard.cli.check import check

            return check(chosen.app, as_json=chosen.json, server=server)
        case "prove":
            from routeguard.cli.prove import prove

            return prove(chosen.app, as_json=chosen.json, seed=chosen.seed)
        case "ledger":
            return bookkeeping.keep_books(chosen)
        case "demo":
            return _demo()
    from routeguard.cli.steer import steer

    return steer(chosen.command, chosen.app)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="routeguard", description="Caps what a public AI route can cost.")
    parser.add_argument(
        "--version", action="version", help="say which routeguard this is", version=f"routeguard {__version__}"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser(
        "check",
        help="say what is in force, where each setting comes from, and what is wrong",
        epilog="Exit codes: 0 fine, 1 warnings, 2 errors. To have the server's own options looked at, append them: "
        "routeguard check shop:app -- uvicorn shop:app --workers 4",
    )
    check.add_argument("app", nargs="?", metavar="module:app", help="the application to look into")
    check.add_argument("--json", action="store_true", help="print JSON")
    check.add_argument("--echo", action="store_true", help="serve a page that shows which address headers arrive")
    check.add_argument("--port", type=int, default=None, help="port of --echo; by default PORT, else 8000")
    prove = commands.add_parser(
        "prove",
        help="play stampede, cancel, midnight and the like against your settings",
        epilog="Exit codes: 0 everything holds, 1 a breach, 2 it could not be played. Calls neither your application "
        "nor a provider.",
    )
    prove.add_argument("app", nargs="?", metavar="module:app", help="the application whose settings to take")
    prove.add_argument("--json", action="store_true", help="print JSON")
    prove.add_argument("--seed", type=int, default=None, help="play in the same order again")
    commands.add_parser("demo", help="serve the demo of a checkout")
    for name, does in (
        ("status", "show the budgets and streams of a running guard"),
        ("pause", "have every guard that shares the ledger refuse"),
        ("resume", "end the pause"),
    ):
        steered = commands.add_parser(
            name,
            help=does,
            epilog="Needs a ledger that processes share (sqlite://, redis://). Exit codes: 0 done, 2 not done.",
        )
        steered.add_argument("app", nargs="?", metavar="module:app", help="the application with the guard")
    bookkeeping.add_commands(commands.add_parser("ledger", help="verify, adjust and export what was charged"))
    return parser


def _demo() -> int:
    sys.path.insert(0, os.getcwd())
    try:
        demo = importlib.import_module("examples.fastapi_app.__main__")
    except ModuleNotFoundError:
        print("routeguard demo: the demo lives in a checkout of the repository; run `make demo` there", file=sys.stderr)
        return 2
    demo.main()
    return 0
