"""What a server or a framework cannot give, whatever guards it, and what to do about it.

Data for whoever is shown an application, and for `docs/servers.md`. Each row was measured over real sockets; what can
be asserted without waiting for a clock is, in `tests/matrix` or in the test that the row's comment names.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Caveat:
    """One limit of a server or a framework."""

    #: Its name, for people.
    about: str
    #: What it is imported as.
    module: str
    #: One sentence.
    limit: str
    #: One sentence.
    remedy: str


CAVEATS: Final = (
    Caveat(
        "daphne",
        "daphne",
        "It reads the whole upload before it calls the application, so `MAX_BODY` and `BODY_TIMEOUT` come too "
        "late to save memory.",
        "Bound the body in the proxy in front (nginx: `client_max_body_size`), or use another server.",
    ),
    Caveat(
        "daphne",
        "daphne",
        "It has no lifespan: a configuration that Starlette or FastAPI finds broken does not stop the start, it "
        "answers 503.",
        "Run `routeguard check`, or `manage.py check`, before you deploy.",
    ),
    Caveat(
        "daphne",
        "daphne",
        "It leaves the connection of a stream that raised open.",
        "Catch what the provider call raises and send a last event that says so.",
    ),
    Caveat(
        "hypercorn",
        "hypercorn",
        "It answers `Expect: 100-continue` before the application is asked, so a body that is too large is sent "
        "all the same, 8 MB of it at most.",
        "Nothing; the client still reads its 413.",
    ),
    Caveat(
        "hypercorn",
        "hypercorn",
        "On Python 3.12 or newer, told to stop, it waits for its streams for ever, whatever `--graceful-timeout` says.",
        "Lower `MAX_STREAM` below the time after which your platform kills; what the guard cuts then is kept.",
    ),
    Caveat(
        "hypercorn",
        "hypercorn",
        "Over HTTP/2 it leaves a stream open whose application raised after the start, as one does that `MAX_STREAM` "
        "cuts: the client waits for its own timeout.",
        "Let the proxy in front speak HTTP/2, and hypercorn HTTP/1.1.",
    ),
    Caveat(
        "granian",
        "granian",
        "On SIGTERM it abandons what runs after the last byte, and kills streams at `--workers-kill-timeout` "
        "without a word: their money stays charged, their slots until the lease ends.",
        "Do nothing that matters after the last byte, and give `--workers-kill-timeout` more than your longest stream.",
    ),
    Caveat(
        "gunicorn",
        "gunicorn",
        "Its ASGI worker is killed at `--graceful-timeout` without a word: the money of running streams stays "
        "charged, their slots until the lease ends.",
        "Give `--graceful-timeout` more than your longest stream.",
    ),
    Caveat(
        "gunicorn",
        "gunicorn",
        "Under its ASGI worker a Starlette or FastAPI stream goes on for 3 s after its client left, and is then "
        "cancelled.",
        "Lower `--asgi-disconnect-grace-period`.",
    ),
    Caveat(
        "uvicorn",
        "uvicorn",
        "Told to stop, it waits for its streams for ever.",
        "Set `--timeout-graceful-shutdown`; what it cuts then is kept, and in the ledger before it exits.",
    ),
    # By hand: the parent stops its children and is content.
    Caveat(
        "uvicorn",
        "uvicorn",
        "With `--workers` it exits with 0 when a broken configuration keeps its workers from starting.",
        "Run `routeguard check` before you deploy; without `--workers` it exits with 3.",
    ),
    # tests/sockets/test_connections.py
    Caveat(
        "uvicorn",
        "uvicorn",
        "With httptools nobody learns that the client of a *pipelined* request left: its stream runs on, at most "
        "to `MAX_STREAM`.",
        "Nothing behind a proxy, which does not pipeline; else `--http h11`.",
    ),
    # tests/django/test_django_views.py
    Caveat(
        "Django",
        "django",
        "A `StreamingHttpResponse` over a plain generator is read to its end before the first byte is sent, so "
        "the whole answer is paid for even if the client has left.",
        "Stream from an `async def` generator.",
    ),
    Caveat(
        "Django",
        "django",
        "The guard stands in `asgi.py`: under a WSGI server, and under `runserver` without daphne, nothing is guarded.",
        'Serve `asgi.py`, and let `manage.py check` see it with `ASGI_APPLICATION` and `"routeguard.django"` in '
        "`INSTALLED_APPS`.",
    ),
    Caveat(
        "Starlette and FastAPI",
        "starlette",
        'Behind `@app.middleware("http")`, and in FastAPI\'s event streams, a stream that raised looks whole to '
        "its client.",
        "The ledger is not misled; for the client, send a last event that says so.",
    ),
    Caveat(
        "Starlette and FastAPI",
        "starlette",
        "A view that returns a whole answer is not told that its client has left, and runs to its end.",
        "Stream, or ask `request.is_disconnected()` between calls.",
    ),
    Caveat(
        "Litestar",
        "litestar",
        "It answers OPTIONS by itself; a request that is no preflight is charged like any other.",
        "Guard the methods that cost: `METHODS=POST`.",
    ),
    Caveat(
        "Litestar",
        "litestar",
        "On gunicorn's ASGI worker a stream's request is over only when its client closes the connection, and "
        "background tasks wait for that.",
        "The money does not wait; for the tasks use another server.",
    ),
)
