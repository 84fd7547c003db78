"""A metered client inside a guarded request: which calls are made, and what the request is charged."""

import json

import anyio
import anyio.lowlevel
import pytest

from routeguard import BudgetExceeded
from tests.driver import Client
from tests.guarding import guarded, parts
from tests.meter.in_request import refused, run
from tests.meter.played import ASYNC, COMPLETION, HI, Caller, Kind, Played, calling, chat_stream, every_kind, whole


@every_kind
async def test_a_whole_answer_is_charged_what_it_reports(kind: Kind) -> None:
    caller = Caller(kind, whole())

    charged = await run(caller.post)

    assert (charged["settled"], charged["kept"], charged["open"]) == ("0.01", "0", "0")


@every_kind
async def test_a_stream_is_charged_what_it_reports(kind: Kind) -> None:
    caller = Caller(kind, chat_stream())

    charged = await run(caller.stream)

    assert (charged["settled"], charged["kept"]) == ("0.01", "0")


async def test_several_answers_are_paid_for_each() -> None:
    caller = Caller(ASYNC, whole({**COMPLETION, "usage": None}))

    charged = await run(lambda: caller.post({"model": "m", "messages": HI, "n": 3, "max_tokens": 100}))

    assert charged["kept"] == "0.03"


@pytest.mark.parametrize(("answers", "charged"), [(1, ("0.0001", "0")), (2, ("0", "0.02"))])
async def test_who_leaves_when_the_first_of_several_answers_is_whole_is_charged_for_all(
    answers: int, charged: tuple[str, str]
) -> None:
    choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}
    event = {"object": "chat.completion.chunk", "model": "m", "choices": [choice]}
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    chunk = f"data: {json.dumps({**event, 'usage': usage})}\n\n".encode()
    caller = Caller(ASYNC, Played([chunk] * 2, "text/event-stream"))
    body = {"model": "m", "messages": HI, "stream": True, "n": answers, "max_tokens": 100}

    found = await run(lambda: caller.stream(body, chunks=1))

    assert (found["settled"], found["kept"]) == charged


@every_kind
async def test_a_call_over_the_reservation_is_never_sent(kind: Kind) -> None:
    caller = Caller(kind)

    refusal = await refused(lambda: caller.post({"model": "m", "messages": HI, "n": 2}))

    assert (refusal.reason, caller.sent) == ("reservation", [])
    assert "ROUTEGUARD_SYSTEM_PROMPT" in str(refusal)


@every_kind
async def test_one_call_more_than_the_request_may_make_is_never_sent(kind: Kind) -> None:
    caller = Caller(kind)

    async def twice() -> None:
        await caller.post({"model": "m", "messages": HI, "max_tokens": 1})
        await caller.post({"model": "m", "messages": HI, "max_tokens": 1})

    refusal = await refused(twice)

    assert (refusal.reason, len(caller.sent)) == ("calls_per_request", 1)
    assert "ROUTEGUARD_CALLS_PER_REQUEST" in str(refusal)


@pytest.mark.parametrize("status", [401, 403, 404, 429])
@every_kind
async def test_a_call_the_provider_refused_is_released_and_not_counted(kind: Kind, status: int) -> None:
    caller = Caller(kind, whole({"error": {}}, status=status), whole())

    async def retrying() -> None:
        assert (await caller.post()).status_code == status
        assert (await caller.post()).status_code == 200

    charged = await run(retrying)

    assert (charged["settled"], charged["kept"]) == ("0.01", "0")


@pytest.mark.parametrize("error", ["ConnectError", "ConnectTimeout", "PoolTimeout"])
@every_kind
async def test_a_call_that_never_left_is_released_and_not_counted(kind: Kind, error: str) -> None:
    raised = getattr(kind.library, error)("no way")
    caller = Caller(kind, Played(raises=raised), whole())

    async def retrying() -> None:
        with pytest.raises(type(raised)):
            await caller.post()
        await caller.post()

    charged = await run(retrying)

    assert (charged["settled"], charged["kept"]) == ("0.01", "0")


@pytest.mark.parametrize("status", [307, 400, 408, 409, 413, 500, 503, 529])
async def test_any_other_failure_is_kept_at_the_worst_case_of_the_call(status: int) -> None:
    caller = Caller(ASYNC, whole({"error": {}}, status=status))

    charged = await run(
        lambda: caller.post({"model": "m", "messages": HI, "max_tokens": 400}), calls_per_request=2, budget="9/day"
    )

    assert (charged["settled"], charged["kept"]) == ("0", "0.04")


@pytest.mark.parametrize("error", ["ReadTimeout", "ReadError", "WriteError", "RemoteProtocolError", "CloseError"])
@every_kind
async def test_a_connection_that_broke_is_kept(kind: Kind, error: str) -> None:
    raised = getattr(kind.library, error)("gone")
    caller = Caller(kind, Played(raises=raised))

    async def call() -> None:
        with pytest.raises(type(raised)):
            await caller.post()

    charged = await run(call)

    assert (charged["settled"], charged["kept"]) == ("0", "0.1")


@every_kind
async def test_a_stream_that_breaks_before_its_usage_is_kept(kind: Kind) -> None:
    played = chat_stream(usage=None, done=False, breaks=kind.library.ReadError("gone"))
    caller = Caller(kind, played)

    async def call() -> None:
        with pytest.raises(kind.library.ReadError):
            await caller.stream()

    charged = await run(call)

    assert (charged["settled"], charged["kept"]) == ("0", "0.1")


# httpx leaves its own generator to the collector when a caller breaks off, and trio minds.
ignores_httpx = pytest.mark.filterwarnings("ignore:.*BoundAsyncStream:pytest.PytestUnraisableExceptionWarning")


@ignores_httpx
@every_kind
async def test_a_caller_who_leaves_before_the_usage_is_charged_the_worst_case(kind: Kind) -> None:
    caller = Caller(kind, chat_stream())

    charged = await run(lambda: caller.stream(chunks=2))

    assert (charged["settled"], charged["kept"]) == ("0", "0.1")


@ignores_httpx
@every_kind
async def test_a_caller_who_leaves_at_the_usage_is_charged_what_it_says(kind: Kind) -> None:
    played = chat_stream()
    caller = Caller(kind, played)
    body = {"model": "m", "messages": HI, "stream": True, "stream_options": {"include_usage": True}}

    charged = await run(lambda: caller.stream(body, chunks=len(played.chunks) - 1))

    assert (charged["settled"], charged["kept"]) == ("0.01", "0")


@every_kind
async def test_a_compressed_answer_is_not_read_and_we_ask_for_a_plain_one(kind: Kind) -> None:
    caller = Caller(kind, whole(headers={"content-encoding": "br, identity"}))

    async def call() -> None:
        await caller.stream({"model": "m", "messages": HI})

    charged = await run(call)

    assert caller.sent[0].headers["accept-encoding"] == "identity"
    assert (charged["settled"], charged["kept"]) == ("0", "0.1")


async def test_calls_at_once_share_the_reservation_and_not_one_too_many_is_sent() -> None:
    caller = Caller(ASYNC, whole({**COMPLETION, "usage": None}))
    refusals: list[BudgetExceeded] = []

    async def one() -> None:
        try:
            await caller.post()
        except BudgetExceeded as refusal:
            refusals.append(refusal)

    async def many() -> None:
        async with anyio.create_task_group() as tools:
            for _ in range(7):
                tools.start_soon(one)

    charged = await run(many, calls_per_request=3)

    assert (len(caller.sent), len(refusals)) == (3, 4)
    assert charged["kept"] == "0.3"


async def test_a_failed_request_keeps_the_whole_reservation_whatever_the_meter_knows() -> None:
    caller = Caller(ASYNC, whole())
    guard = guarded(calling(caller.post, status=502))

    await Client().call(guard)

    assert (await parts(guard))["kept"] == "0.1"
