"""The reference page `docs/settings.md`, made from the table.

`python -m routeguard.settings.reference > docs/settings.md` writes it.
"""

import sys
from typing import Final

from routeguard.settings.table import PREFIX, TABLE

_HEAD: Final = f"""# Settings

Every setting is an environment variable with the prefix `{PREFIX}`.
It is also a keyword argument of `RouteGuard`, in lower case without the prefix: `max_body="64kB"`.
Django also reads `settings.ROUTEGUARD`, a dict with the names without prefix, in any case.
A keyword wins over the environment, the environment over Django, and Django over the default.
An empty environment variable and a keyword that is `None` count as not set.
Two hooks exist as keywords only: `client=` (who is asking, when you know it) and `admit=` (your own check).

- Sizes: `64kB` is 64,000 bytes, `64KiB` is 65,536, `512` is bytes.
- Durations: `500ms`, `10s`, `5m`, `1h`; a Python number is seconds.
- Money: USD with at most nine decimals, with or without `$`.
- Lists: comma-separated text, or a Python list.
- `unlimited` must be written out, and only budgets, rates and parallel limits take it.
- Every limit is inclusive.

All problems of a configuration are reported at once, and the server does not start.
A `{PREFIX}…` name that is not in this table is a problem too.
Only the names that Kubernetes sets for a Service called routeguard are ignored, with a warning.
With `MODE=off` nothing has to be complete, and what is written is still read.

"""


def reference() -> str:
    """The page, whole."""
    lines = ["| variable | default | meaning |", "|---|---|---|"]
    for row in TABLE.values():
        default = row.shown if row.default is None else f"`{row.default}`"
        meaning = row.meaning.replace("|", "\\|")
        lines.append(f"| `{row.name}` | {default} | {meaning} |")
    return _HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
