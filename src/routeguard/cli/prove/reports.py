"""Rows about what an application says of its calls, and what is charged for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from routeguard.admitted import SCOPE_KEY, Admission
from routeguard.cli.prove.application import QUESTION
from routeguard.cli.prove.findings import Findings, NotRun
from routeguard.cli.prove.stage import UNKNOWN_OVERHEAD_TOKENS, Bench, Stage
from routeguard.money import ceil_div, format_usd
from routeguard.replay import Receive, Scope, Send
from routeguard.usage import Usage

#: A report is a part of the ceiling this small, so that several fit into it.
PARTS: Final = 8
#: Nano-USD of a token, at $10, $20, $5 and $12 for a million.
INPUT, OUTPUT, CACHED, WRITTEN = 10_000, 20_000, 5_000, 12_000
OUTPUT_TOKENS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Told:
    """What an application says of a request before it answers, and what has to be charged."""

    name: str
    tell: Callable[[Admission], None]
    nanousd: int
    status: int = 200
    #: It fails instead of answering.
    raises: bool = False


async def reports(stage: Stage, found: Findings) -> None:
    """Reports that add up, that repeat, that contradict each other, and that cannot be used."""
    if stage.ceiling < PARTS:
        raise NotRun("the ceiling of a request cannot be divided")
    wrong = []
    # The last one teaches the guard a higher ceiling.
    telling = _Telling()
    async with stage.bench(telling) as bench:
        cases = [*_of_one_request(stage), _of_a_stranger(bench), *_unusable(stage), *_of_a_failure(stage)]
        for case in cases:
            charged = await telling.charged(bench, case)
            if charged != case.nanousd:
                wrong.append(f"{case.name}: ${format_usd(charged)} instead of ${format_usd(case.nanousd)}")
    found.true(f"{len(cases)} ways to report charged as they must be", otherwise="; ".join(wrong) or None)


async def tokens(stage: Stage, found: Findings) -> None:
    """Usage of each kind, at prices of the proof's own, added up by hand."""
    settings = stage.priced(
        price_in=10, price_out=20, price_cached_in=5, price_cache_write=12, max_output_tokens=OUTPUT_TOKENS_MAX
    )
    wrong = []
    usages = _usages()
    telling = _Telling()
    async with stage.bench(telling, settings=settings) as bench:
        for name, (usage, nanousd) in usages.items():
            charged = await telling.charged(bench, Told(name, partial(_report, usage=usage), nanousd))
            if charged != nanousd:
                wrong.append(f"{name}: ${format_usd(charged)} instead of ${format_usd(nanousd)}")
    found.true(f"{len(usages)} kinds of usage at their price", otherwise="; ".join(wrong) or None)


class _Telling:
    """An application that says what it is told to, and answers with a status."""

    def __init__(self) -> None:
        self._told: Told | None = None

    async def charged(self, bench: Bench, told: Told) -> int:
        """What is charged for one request of which this is said, in nano-USD."""
        self._told = told
        before = (await bench.quiet()).charged_nanousd
        await bench.ask()
        return (await bench.quiet()).charged_nanousd - before

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._told is not None, "nobody asks before it is known what to say"
        self._told.tell(scope[SCOPE_KEY])
        if self._told.raises:
            raise RuntimeError("a bug of the application")
        await send({"type": "http.response.start", "status": self._told.status, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _report(admission: Admission, *, usage: Mapping[str, object]) -> None:
    admission.report(usage)


def _of_one_request(stage: Stage) -> list[Told]:
    part = stage.ceiling // PARTS
    usd, twice = format_usd(part), format_usd(2 * part)

    def two_of_the_whole(admission: Admission) -> None:
        admission.report(cost_usd=usd)
        admission.report(cost_usd=usd)

    def one_call_twice(admission: Admission) -> None:
        call = admission.begin()
        call.report(cost_usd=twice)
        call.report(cost_usd=usd)

    def whole_above_its_call(admission: Admission) -> None:
        admission.begin().report(cost_usd=usd)
        admission.report(cost_usd=twice)

    def nothing(admission: Admission) -> None:
        admission.nothing_sent()

    return [
        Told("two reports of a request", two_of_the_whole, 2 * part),
        Told("two reports of a call, the second lower", one_call_twice, 2 * part),
        Told("a request above its calls", whole_above_its_call, 2 * part),
        Told("a tenth of a nano-dollar", lambda admission: admission.report(cost_usd="0.0000000001"), 1),
        Told("a cost of 0", lambda admission: admission.report(cost_usd=0), 0),
        Told("nothing sent", nothing, 0),
    ]


def _of_a_stranger(bench: Bench) -> Told:
    """Usage of a model that is not configured costs what it costs with the dearest that is."""
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    price = bench.settings.tariff.cost
    counts = Usage(input_tokens=1, output_tokens=1)
    costs = [
        price(counts, model=model, wall_ns=bench.clock.wall_ns(), input_bytes=0) or 0
        for model in bench.settings.models or (None,)
    ]
    named = {"model": "nobody's", "usage": usage}
    return Told("an answer of another model", lambda admission: admission.report(named), max(costs))


def _unusable(stage: Stage) -> list[Told]:
    """Each is a call of which nobody knows what it cost."""
    call = ceil_div(stage.ceiling, stage.settings.calls_per_request)
    usage = {"prompt_tokens": 1, "completion_tokens": 1}

    def unreported(admission: Admission) -> None:
        admission.begin()

    def nothing_after_a_call(admission: Admission) -> None:
        admission.begin()
        admission.nothing_sent()

    return [
        Told("a negative cost", lambda admission: admission.report(cost_usd=-1), call),
        Told("a cost that is no number", lambda admission: admission.report(cost_usd=float("nan")), call),
        Told("usage without a count", lambda admission: admission.report({}), call),
        Told("negative usage", lambda admission: admission.report({**usage, "prompt_tokens": -5}), call),
        Told("a report of nothing", lambda admission: admission.report(), call),
        Told("a model of nobody's", lambda admission: admission.report(usage, model="nobody's"), call),
        Told("nothing sent, after a call", nothing_after_a_call, call),
        Told("404 after a call", unreported, call, status=404),
    ]


def _of_a_failure(stage: Stage) -> list[Told]:
    rules = stage.settings
    part = stage.ceiling // PARTS
    keeps = rules.on_failure == "keep"
    is_released = rules.no_call == "release" or 429 in rules.release_statuses

    def some(admission: Admission) -> None:
        admission.report(cost_usd=format_usd(part))

    def more_than_reserved(admission: Admission) -> None:
        admission.report(cost_usd=format_usd(2 * stage.ceiling))

    return [
        Told("429 without a call", lambda _: None, 0 if is_released else stage.ceiling, status=429),
        Told("500 after a report", some, stage.ceiling if keeps else part, status=500),
        Told("an exception after a report", some, stage.ceiling if keeps else part, raises=True),
        Told("500 after a report above the ceiling", more_than_reserved, 2 * stage.ceiling, status=500),
    ]


def _usages() -> dict[str, tuple[Mapping[str, object], int]]:
    """A usage object of a provider, and what it costs in nano-USD."""
    received = len(QUESTION) + len("/chat") + UNKNOWN_OVERHEAD_TOKENS
    return {
        "input and output": ({"prompt_tokens": 100, "completion_tokens": 10}, 100 * INPUT + 10 * OUTPUT),
        "from a cache": (
            {"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 40}},
            60 * INPUT + 40 * CACHED + 10 * OUTPUT,
        ),
        "to a cache": (
            {
                "input_tokens": 10,
                "cache_read_input_tokens": 20,
                "cache_creation_input_tokens": 30,
                "output_tokens": 5,
            },
            10 * INPUT + 20 * CACHED + 30 * WRITTEN + 5 * OUTPUT,
        ),
        "reasoning beside the output": (
            {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 7, "totalTokenCount": 22},
            10 * INPUT + 12 * OUTPUT,
        ),
        "reasoning within it": (
            {"prompt_tokens": 10, "completion_tokens": 20, "completion_tokens_details": {"reasoning_tokens": 15}},
            10 * INPUT + 20 * OUTPUT,
        ),
        "output not said": ({"prompt_tokens": 10}, 10 * INPUT + OUTPUT_TOKENS_MAX * OUTPUT),
        "input not said": ({"completion_tokens": 5}, received * INPUT + 5 * OUTPUT),
    }
