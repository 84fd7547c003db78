"""How far ceilings lie above costs: over recorded answers, and over requests counted by real tokenisers.

    RG_RECORDINGS=<folder> python benchmarks/ceiling_tightness.py

The recordings hold answers, not the requests they answer. So the bytes of each request are rebuilt from its input
tokens, at one byte a token (nothing can be tighter) and at the bytes a token of the recorded answers themselves.

Requests are counted where `quicktok` can be imported (`pip install --target <folder> quicktok-v1`, and PYTHONPATH).
"""

import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from measure import Row, machine, print_table

from routeguard.body import BodyRules, check_body, check_headers
from routeguard.price_sources import PriceError, find_model
from routeguard.prices import NS_PER_SECOND, ModelPrice
from routeguard.pricing import STANDARD_TIERS, Tariff
from routeguard.usage import Usage

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.answers import STREAMS, reader_for
from tests.recordings import Recording, recordings

NOW_NS = int(datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()) * NS_PER_SECOND
BODY_BYTES_MAX = 64_000
CAP_TOKENS = 1_000
#: Fewer say more about a template than about text.
TEXT_TOKENS_MIN = 20
ENCODINGS = ("o200k_base", "cl100k_base", "llama3", "qwen3")

#: Texts as people send them, by what they are.
TEXTS = {
    "English prose": "Could you tell me which of your lamps I can dim, and whether the bulbs are included? " * 12,
    "German prose": "Können Sie mir sagen, welche Ihrer Lampen sich dimmen lassen und ob Leuchtmittel dabei sind? "
    * 12,
    "Chinese prose": "请问哪些灯可以调光、灯泡是否包含在内。我想放在床边。" * 30,
    "Hindi prose": "क्या आप बता सकते हैं कि किन लैंपों की रोशनी कम की जा सकती है? " * 15,
    "Python": "def total(prices: list[int]) -> int:\n    return sum(price for price in prices if price > 0)\n\n" * 12,
    "JSON in a string": json.dumps([{"id": n, "name": f"lamp {n}", "price": n * 7} for n in range(40)]),
    "emoji": "😀👍🏽🎉🏴‍☠️" * 40,
    "letters at random": "xq7Zk0VwpJ9fHt2LmQ" * 40,
    "control characters": "".join(map(chr, range(1, 32))) * 20,
}


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded call that has a price."""

    file: str
    model: ModelPrice
    usage: Usage

    def ratio(self, *, bytes_per_token: float, overhead: bool, cap_tokens: int | None) -> float:
        """Ceiling over cost. `cap_tokens` None: the output that came."""
        input_tokens, output_tokens = self.usage.input_tokens or 0, self.usage.output_tokens or 0
        tariff = Tariff(
            [self.model],
            max_output_tokens=output_tokens if cap_tokens is None else max(cap_tokens, output_tokens),
            body_bytes_max=max(BODY_BYTES_MAX, input_tokens),
            stream_seconds_max=300,
            tiers_allowed=(self.usage.service_tier or "").lower() not in STANDARD_TIERS,
        )
        ceiling = tariff.ceiling(
            input_bytes=int(input_tokens * bytes_per_token) - (0 if overhead else self.model.overhead_tokens),
            wall_ns=NOW_NS,
        )
        cost = tariff.cost(self.usage, wall_ns=NOW_NS, input_bytes=0)
        assert cost
        return ceiling / cost


def read(recording: Recording) -> Usage | None:
    return reader_for(recording.media_type, recording.body).result(failed=False)


def priced_calls(rows: list[Recording]) -> Iterator[Call]:
    """Answers with both counts and a model that has a price, on one model and without a fee beside the tokens."""
    for row in rows:
        usage = read(row)
        if usage is None or not usage.input_tokens or not usage.output_tokens or not usage.model:
            continue
        if usage.web_searches or usage.other_models or usage.cost_usd == 0:
            continue
        provider = row.file.split("/")[0]
        for name in (f"{provider}/{usage.model}", usage.model):
            try:
                yield Call(row.file, find_model(name), usage)
            except PriceError:
                continue
            break


def text_ratios(rows: list[Recording]) -> Iterator[float]:
    """UTF-8 bytes of visible text for each token of it: recorded JSON bodies that are text and nothing else."""
    for row in rows:
        if row.is_stream or "fixture_" in row.file or (usage := read(row)) is None or usage.output_tokens is None:
            continue
        if row.finish not in {"stop", "end_turn", "STOP", "completed", "COMPLETE", "eos", "length", "max_tokens"}:
            continue
        body = json.loads(row.body)
        text_tokens = usage.output_tokens - usage.reasoning_tokens
        text = "".join(texts_in(body))
        if text_tokens >= TEXT_TOKENS_MIN and text and not has_tools(body):
            yield len(text.encode()) / text_tokens


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, member in value.items():
            if name in {"text", "content"} and isinstance(member, str):
                yield member
            elif name not in {"reasoning", "thinking", "instructions", "summary"}:
                yield from texts_in(member)
    elif isinstance(value, list):
        for member in value:
            yield from texts_in(member)


def has_tools(body: Any) -> bool:
    marks = ("tool_calls", '"functionCall"', "toolUse", "_tool_", '"tool_use"', "_call", "executed_tools", "compaction")
    return any(mark in json.dumps(body) for mark in marks)


def spread(ratios: list[float]) -> str:
    return f"{min(ratios):7.2f} {median(ratios):7.2f} {max(ratios):8.1f}"


def over_recordings() -> list[Row]:
    rows = [row for row in recordings() if row.http_status == 200]
    ratios = list(text_ratios(rows))
    calls = list(priced_calls(rows))
    if not calls:
        return [Row("no recordings here (RG_RECORDINGS names their folder)", "")]
    typical = median(ratios)
    large = [call for call in calls if (call.usage.input_tokens or 0) > 1_000]
    small = [call for call in calls if call not in large]
    steps: dict[str, dict[str, Any]] = {
        "dearest rates only": {"bytes_per_token": 1, "overhead": False, "cap_tokens": None},
        "and the provider's overhead": {"bytes_per_token": 1, "overhead": True, "cap_tokens": None},
        f"and a cap of {CAP_TOKENS:,} tokens": {"bytes_per_token": 1, "overhead": True, "cap_tokens": CAP_TOKENS},
        f"and {typical:.1f} bytes a token": {
            "bytes_per_token": typical,
            "overhead": True,
            "cap_tokens": CAP_TOKENS,
        },
    }
    table = [Row(f"bytes a token of visible text, {len(ratios)} answers", spread(ratios))]
    for size, some in (("up to 1,000", small), ("above 1,000", large)):
        for name, step in steps.items():
            table.append(Row(f"{len(some)} calls, {size} tokens in: {name}", spread([c.ratio(**step) for c in some])))
    return table


def over_made_up_answers() -> list[Row]:
    calls = []
    for name, (events, usage) in STREAMS.items():
        assert reader_for("text/event-stream", *events).result(failed=False) == usage
        calls.append(Call(name, find_model("gpt-5-mini"), usage))
    return [
        Row(
            f"{len(calls)} streams, 20 tokens in, 9 out, at {bytes_per_token} bytes a token",
            spread([call.ratio(bytes_per_token=bytes_per_token, overhead=True, cap_tokens=cap) for call in calls]),
        )
        for bytes_per_token, cap in ((1, None), (4, CAP_TOKENS))
    ]


def over_requests() -> list[Row]:
    if importlib.util.find_spec("quicktok") is None:
        return [Row("quicktok is not installed, so nothing is counted", "")]
    encodings = [importlib.import_module("quicktok").get_encoding(name) for name in ENCODINGS]
    table = []
    for name, text in TEXTS.items():
        body = json.dumps(
            {"messages": [{"role": "user", "content": text}], "stream": True}, ensure_ascii=False
        ).encode()
        counts = [encoding.count(text) for encoding in encodings]
        table.append(Row(f"{name}, {bound_of(body):,} bytes", spread([bound_of(body) / count for count in counts])))
    return table


def bound_of(body: bytes) -> int:
    """What the guard takes a body for, in tokens."""
    rules = BodyRules(
        bytes_max=BODY_BYTES_MAX,
        types=frozenset({"json"}),
        chars_max=20_000,
        output_tokens_max=CAP_TOKENS,
        models=frozenset(),
        allowed_fields=frozenset(),
        only_fields=None,
        media_allowed=False,
    )
    head = check_headers([(b"content-type", b"application/json")], target_bytes=0, rules=rules)
    return check_body(body, head, query=b"", path_bytes=0, rules=rules).input_bytes


def main() -> None:
    print(machine())
    head = "least  median     most"
    print_table(f"Ceiling over cost of recorded answers: {head}", over_recordings())
    print_table(f"Ceiling over cost of made-up answers: {head}", over_made_up_answers())
    print_table(f"Bound over tokens of a request, in {', '.join(ENCODINGS)}: {head}", over_requests())


if __name__ == "__main__":
    main()
