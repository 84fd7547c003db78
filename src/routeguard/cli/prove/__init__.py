"""`routeguard prove`: whether the guard holds, played out against the operator's own settings.

Offline, with a scripted provider: no request of this goes anywhere but to the ledger, and there into a namespace of
its own that is removed at the end.
"""

import dataclasses
import json
import logging
import secrets
import sys

from routeguard.cli.paper import Colour, Paper, err, out
from routeguard.cli.prove.findings import Outcome
from routeguard.cli.prove.run import CannotRun, Proof, proof
from routeguard.cli.settings_of import NoGuard, target
from routeguard.errors import ConfigError
from routeguard.policy import LedgerUnavailable

EXIT_HOLDS, EXIT_BREACH, EXIT_COULD_NOT_RUN = 0, 1, 2
SIGNS = {"held": "✓", "breach": "✗", "not run": "-"}
COLOURS: dict[str, Colour] = {"held": "green", "breach": "red", "not run": "dim"}
SEEDS = 1_000_000


def prove(app: str | None, *, as_json: bool, seed: int | None) -> int:
    """Play it, print what was expected and seen. 0 it holds, 1 a breach, 2 it could not be played."""
    # Broken on purpose, a guard has a lot to say; what matters is in the table.
    logging.getLogger("routeguard").addHandler(logging.NullHandler())
    logging.getLogger("routeguard").propagate = False
    seed = secrets.randbelow(SEEDS) if seed is None else seed
    try:
        settings = target(app).settings
        if settings.mode == "off":
            raise CannotRun("MODE=off: there is no guard")
        played = proof(settings, seed=seed, progress=err().progress)
    except (ConfigError, NoGuard, CannotRun, LedgerUnavailable) as error:
        problems = list(error.problems) if isinstance(error, ConfigError) else [str(error)]
        if as_json:
            print(json.dumps({"ok": False, "problems": problems, "rows": []}, indent=2))
        else:
            print(f"routeguard prove: {error}", file=sys.stderr)
        return EXIT_COULD_NOT_RUN
    if as_json:
        print(json.dumps(_report(played), indent=2))
    else:
        _print(played, out())
    if played.breaches:
        return EXIT_BREACH
    return EXIT_HOLDS if played.is_complete else EXIT_COULD_NOT_RUN


def _report(played: Proof) -> dict[str, object]:
    return {
        "ok": not played.breaches and played.is_complete,
        "ledger": played.ledger,
        "namespace": played.namespace,
        "seed": played.seed,
        "breaches": played.breaches,
        "problems": [],
        "rows": [dataclasses.asdict(outcome) for outcome in played.outcomes],
    }


def _print(played: Proof, paper: Paper) -> None:
    paper.table(
        ["", "proved", "expected", "seen"],
        [_row(outcome) for outcome in played.outcomes],
        [COLOURS[outcome.verdict] for outcome in played.outcomes],
    )
    run = [outcome for outcome in played.outcomes if outcome.verdict != "not run"]
    seconds = sum(outcome.seconds for outcome in played.outcomes)
    paper.print()
    paper.print(
        f"{len(run) - played.breaches} of {len(run)} hold · {len(played.outcomes) - len(run)} not run · "
        f"ledger {played.ledger} · seed {played.seed} · {seconds:.1f} s",
        colour="red" if played.breaches else None,
    )


def _row(outcome: Outcome) -> list[str]:
    seen = f"not run: {outcome.seen}" if outcome.verdict == "not run" else outcome.seen
    return [SIGNS[outcome.verdict], outcome.name, outcome.expected or "-", seen]
