"""The observe mode: every request passes, and what enforcing would have refused is counted.

Money is reserved and settled as in `enforce`, also past the cap. A body that is too large or not readable passes
untouched and is counted at `MAX_BODY`. Pause and the edge secret still refuse. Where the ledger does not answer, the
request passes unrecorded.
"""

from collections.abc import Callable

from routeguard.admitted import Admission
from routeguard.attempt import Attempt
from routeguard.body import check_headers
from routeguard.clients import UNKNOWN
from routeguard.errors import Rejected
from routeguard.guard import Guard
from routeguard.policy import NANOSECONDS, Reservation
from routeguard.replay import BodyTooLarge, Receive, Replay, read_body
from routeguard.usage import Usage


async def observe(guard: Guard, attempt: Attempt, receive: Receive) -> None:
    """Every check of `Guard.screen`, none of which refuses; fills in the attempt.

    Raises:
        Rejected: The edge secret is wrong, or the service is paused.
        ClientGone: The client left before its body was complete.
    """
    guard.check_edge(attempt)
    await guard.check_paused()
    bytes_max = guard.rules.body.bytes_max
    attempt.input_bytes = bytes_max
    attempt.receive = Replay(receive, [])
    head = None
    try:
        head = check_headers(attempt.scope["headers"], target_bytes=attempt.target_bytes, rules=guard.rules.body)
    except Rejected as rejected:
        _note(guard, attempt, rejected)
    for check in guard.observed_checks(attempt):
        _try(guard, attempt, check)
    try:
        await guard.check_admit(attempt.scope)
    except Rejected as rejected:
        _note(guard, attempt, rejected)
    if head is None:
        return
    began_ns = guard.clock.monotonic_ns()
    try:
        body, messages = await read_body(receive, bytes_max=bytes_max - attempt.target_bytes)
    except BodyTooLarge as problem:
        attempt.receive = Replay(receive, problem.read)
        _note(guard, attempt, guard.refusals.too_large())
        return
    attempt.receive = Replay(receive, messages)
    if guard.clock.monotonic_ns() - began_ns > guard.rules.body_timeout_seconds * NANOSECONDS:
        _note(guard, attempt, guard.refusals.too_slow())
    try:
        guard.check_body(attempt, body, head)
    except Rejected as rejected:
        _note(guard, attempt, rejected)


def unrecorded(guard: Guard, attempt: Attempt) -> Admission:
    """An admission that no ledger knows of: the application reports into it as always, and nothing is charged.

    It is what observing passes a request with when nothing could be reserved. With none at all, an application that
    relies on its admission would fail for the ledger's sake.
    """
    return Admission(
        Reservation(attempt.id, 0, "released"),
        client=attempt.client or UNKNOWN,
        path=attempt.path,
        request_id=attempt.request_id,
        namespace=guard.rules.namespace,
        calls_per_request=guard.rules.calls_per_request,
        price=_nothing,
        watcher=guard,
        input_bytes=attempt.input_bytes,
        wall_ns=guard.clock.wall_ns(),
        exempt=attempt.exempt,
    )


def _nothing(usage: Usage, admission: Admission, *, model: str | None) -> int:
    return 0


def _try(guard: Guard, attempt: Attempt, check: Callable[[], None]) -> None:
    try:
        check()
    except Rejected as rejected:
        _note(guard, attempt, rejected)


def _note(guard: Guard, attempt: Attempt, rejected: Rejected) -> None:
    """Count the first reason only: it is the one that would have been answered."""
    if attempt.would_reject is None:
        attempt.would_reject = rejected.reason
