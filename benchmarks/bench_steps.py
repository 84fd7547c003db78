"""The single steps of a request, and what it costs to import the package."""

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from resource import RUSAGE_CHILDREN, getrusage

from bench_request import BODY, GUARD, chunks_of
from measure import Contest, Row, Run, duration, machine, print_table, verdict

from routeguard import Settings
from routeguard.body import check_body, check_headers
from routeguard.client_ip import cut, parse_strategy
from routeguard.formats import stream_reader
from routeguard.pricing import Tariff
from routeguard.usage import Usage

ROUNDS = 25
PRICING = "ceiling and cost of a request"
CALLS_PER_RUN = 400
IMPORT_ROUNDS = 15
#: For the arithmetic of a request, prices resolved at start.
PRICING_US_MAX = 10
#: What an application that could use the guard has imported anyway.
STARLETTE = "import starlette.applications, starlette.requests, starlette.responses, starlette.routing"
CHUNK_NS_MAX = 300
IMPORT_MS_MAX = 60


def timed(step: Callable[[], object], *, parts: int = 1) -> Run:
    """Nanoseconds of processor time for one of the `parts` of a step."""

    def run() -> float:
        start = time.process_time_ns()
        for _ in range(CALLS_PER_RUN):
            step()
        return (time.process_time_ns() - start) / CALLS_PER_RUN / parts

    return run


def bench_steps() -> list[Row]:
    settings = Settings(**GUARD)
    tariff, rules, wall_ns = settings.tariff, settings.body_rules, time.time_ns()
    # OpenAI's answers name the dated snapshot of the model that was asked for.
    usage = Usage(input_tokens=250, output_tokens=20, cached_input_tokens=128, model="gpt-5-mini-2025-08-07")
    headers = [(b"host", b"shop.example"), (b"content-type", b"application/json")]
    headers += [(b"content-length", str(len(BODY)).encode())]
    head = check_headers(headers, target_bytes=9, rules=rules)
    steps: dict[str, Callable[[], object]] = {
        "client address: the peer, IPv4": address("direct", [], "198.51.100.7"),
        "client address: one header, IPv6": address(
            "header:x-real-ip", [(b"x-real-ip", b"2001:db8:1:2:3:4:5:6")], "10.0.0.1"
        ),
        "client address: second from the right of a list": address(
            "xff:2", [(b"x-forwarded-for", b"203.0.113.9, 198.51.100.7, 10.0.0.1")], "10.0.0.2"
        ),
        "headers of a body": partial(check_headers, headers, target_bytes=9, rules=rules),
        "a JSON body of 1 kB": partial(check_body, BODY, head, query=b"", path_bytes=9, rules=rules),
        "ceiling of a request": partial(tariff.ceiling, input_bytes=len(BODY), wall_ns=wall_ns),
        "cost of a usage": partial(tariff.cost, usage, wall_ns=wall_ns, input_bytes=len(BODY)),
        PRICING: partial(price, tariff, usage, wall_ns),
    }
    few, many = chunks_of(20), chunks_of(1_020)
    runs = {name: timed(step) for name, step in steps.items()}
    runs["usage of a stream of 20 chunks"] = timed(partial(read, few))
    contest = Contest(runs, rounds=ROUNDS)
    chunk = Contest(
        {"few": timed(partial(read, few)), "many": timed(partial(read, many))},
        rounds=ROUNDS,
    )
    rows = [Row(name, duration(contest.median_ns(name)), "", target_of(name, contest)) for name in contest.times]
    per_chunk = chunk.difference_ns("many", "few") / (len(many) - len(few))
    return [
        *rows,
        Row(
            "usage, each further chunk", duration(per_chunk), "", verdict(per_chunk, CHUNK_NS_MAX, f"{CHUNK_NS_MAX} ns")
        ),
    ]


def price(tariff: Tariff, usage: Usage, wall_ns: int) -> None:
    """What a request is charged: its ceiling before the call, its cost after it."""
    tariff.ceiling(input_bytes=len(BODY), wall_ns=wall_ns)
    tariff.cost(usage, wall_ns=wall_ns, input_bytes=len(BODY))


def target_of(name: str, contest: Contest) -> str:
    if name != PRICING:
        return ""
    return verdict(contest.median_ns(name) / 1_000, PRICING_US_MAX, f"{PRICING_US_MAX} µs")


def address(strategy: str, headers: list[tuple[bytes, bytes]], peer: str) -> Callable[[], bytes]:
    found = parse_strategy(strategy)

    def step() -> bytes:
        address = found.find(headers, peer)
        assert address is not None
        return cut(address, 64)

    return step


def read(chunks: list[bytes]) -> Usage | None:
    reader = stream_reader()
    for chunk in chunks:
        reader.feed(chunk)
    return reader.result(failed=False)


def bench_import() -> list[Row]:
    contest = Contest(
        {
            "python": importing("pass"),
            "starlette": importing(STARLETTE),
            "routeguard": importing(f"{STARLETTE}; import routeguard"),
            "guard": importing(f"{STARLETTE}; from routeguard import RouteGuard"),
        },
        rounds=IMPORT_ROUNDS,
    )
    added_ns = contest.difference_ns("routeguard", "starlette")
    return [
        Row("import of Starlette", duration(contest.difference_ns("starlette", "python"))),
        Row(
            "import of routeguard, after it",
            duration(added_ns),
            "",
            verdict(added_ns / 1_000_000, IMPORT_MS_MAX, f"{IMPORT_MS_MAX} ms"),
        ),
        Row("import of the guard itself", duration(contest.difference_ns("guard", "starlette"))),
    ]


def importing(code: str) -> Run:
    """Nanoseconds of processor time for a fresh interpreter that runs `code`."""

    def run() -> float:
        before = getrusage(RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = getrusage(RUSAGE_CHILDREN)
        return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1_000_000_000

    return run


def main() -> None:
    print(machine())
    print_table("Single steps", bench_steps())
    print_table("Import", bench_import())


if __name__ == "__main__":
    main()
