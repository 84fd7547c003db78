"""One request on its way to an admission: what the checks have found so far."""

import re
from dataclasses import dataclass, field

from routeguard.admitted import Admission
from routeguard.limiter import RateTicket
from routeguard.replay import Replay, Scope
from routeguard.time_limit import TimeLimit, time_limit

SANE_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


@dataclass(slots=True)
class Attempt:
    """One request on its way to an admission."""

    scope: Scope
    #: Configured pattern that guards it.
    path: str
    #: Id of the reservation it may become.
    id: str
    #: What the client sent as its request id, where that is sane, else our own.
    request_id: str
    #: Raw bytes of path and query, which may carry a prompt too.
    target_bytes: int
    #: Keyed hash of the client; None until it is known.
    client: str | None = None
    exempt: bool = False
    ticket: RateTicket | None = None
    #: Reading the body has begun, so that a client that asked was told to go on.
    body_begun: bool = False
    #: The body was read to its end: nothing is left to drain.
    body_complete: bool = False
    response_started: bool = False
    admission: Admission | None = None
    #: Time for what the request is doing now.
    time_limit: TimeLimit = field(default_factory=time_limit)
    #: What the application's `receive` becomes.
    receive: Replay | None = None
    #: Reason of the first check that would have refused it, in the observe mode.
    would_reject: str | None = None
    #: What the request is counted at when its body could not be read.
    input_bytes: int = 0
    media_parts: int = 0

    @classmethod
    def of(cls, scope: Scope, path: str, *, reservation_id: str) -> "Attempt":
        """The attempt of a request that `path` guards. Checks nothing."""
        raw_path = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogateescape")
        request_id = reservation_id
        for name, value in scope["headers"]:
            if name == b"x-request-id" and SANE_REQUEST_ID.fullmatch(value):
                request_id = value.decode("ascii")
        return cls(scope, path, reservation_id, request_id, len(raw_path) + len(scope.get("query_string", b"")))
