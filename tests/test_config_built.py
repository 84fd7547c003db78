"""Settings once they are built: what they promise, import and show."""

from decimal import Decimal
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from routeguard.config import Settings, SettingsKeywords, start_line
from routeguard.settings import reference
from routeguard.settings.table import TABLE
from tests.configured import build, run_python, table


def test_settings_are_immutable() -> None:
    settings = build()

    with pytest.raises(AttributeError):
        settings.max_body = 1
    with pytest.raises(AttributeError):
        del settings.max_body
    assert settings.max_body == 64_000


def test_the_repr_shows_the_settings_and_no_secret() -> None:
    settings = build(admin_token="hunter2-hunter2-", edge_secret="X-Edge:hunter2-hunter2-", system_prompt="hunter2")

    shown = repr(settings)

    assert shown.startswith("Settings(paths=('/api/chat',), methods=None")
    assert "admin_token='***'" in shown
    assert "hunter2" not in shown


def test_every_keyword_is_typed_and_every_typed_keyword_is_a_setting() -> None:
    keywords = [*(row.keyword for row in TABLE.values()), "client", "admit", "environ"]

    assert list(get_type_hints(SettingsKeywords)) == keywords


def test_every_attribute_that_is_promised_is_there() -> None:
    settings = build()

    assert [name for name in get_type_hints(Settings) if not hasattr(settings, name)] == []


def test_the_reference_page_is_current() -> None:
    page = Path(__file__).parent.parent / "docs" / "settings.md"

    assert page.read_text("utf-8") == reference.reference(), (
        "run: python -m routeguard.settings.reference > docs/settings.md"
    )


def test_the_start_line_says_what_is_in_force() -> None:
    settings = Settings(
        environ={"WEB_CONCURRENCY": "4"},
        paths="/api/chat",
        methods="POST",
        model="my-model",
        price_in=Decimal("0.25"),
        price_out=2,
        budget="5/day",
        platform="vercel",
    )

    assert start_line(settings, wall_ns=0) == (
        "routeguard: POST /api/chat · $5.00/day per process, forgotten at restart (4 workers: up to $20.00) · "
        "my-model, ceiling $0.0027 for a 1 kB message, at most $0.019 · at least 263 calls/day · "
        "per client 10/minute, 200/day, $1.25/day by x-real-ip (vercel) · ledger memory"
    )


@table(
    ("keywords", "piece"),
    [
        ({}, " /api/chat · "),
        ({"methods": "GET,POST"}, " GET, POST /api/chat · "),
        ({"methods": "HEAD"}, " HEAD /api/chat · "),
        ({"paths": "/a,/b/**"}, " /a, /b/** · "),
        ({"budget": "5/day,1000/month"}, " $5.00/day, $1,000.00/month per process, forgotten at restart · "),
        ({"budget": "0.0125/day", "client_budget": "unlimited"}, " $0.0125/day per process"),
        ({"budget": "100/total"}, " $100.00 in total per process"),
        ({"budget": "5/day,50/month", "ledger": "sqlite:///x.db"}, " $5.00/day, $50.00/month per host · "),
        ({"ledger": "sqlite:///x.db", "processes": 4}, " $1.00/day per host · "),
        ({"ledger": "sqlite:///x.db"}, " · ledger sqlite"),
        ({"budget": "100/total"}, " at least 1,492 calls in total · "),
        (
            {"budget": "1/day", "processes": 3},
            " $0.3333/day per process, forgotten at restart (3 workers: up to $1.00) · ",
        ),
        ({"budget": "unlimited"}, " no budget: unlimited spend · "),
        ({"price_in": 0, "price_out": 0}, " own prices, free: no money is claimed · "),
        ({"price_in": 1000, "price_out": 1000, "budget": "100/day"}, " at most $67 · at least 1 calls/day · "),
        ({"price_in": 0, "price_out": 100}, " own prices, ceiling $0.10 for a 1 kB message, at most $0.10 · "),
        ({"rate": "20/30s, 1/second"}, " per client 20/30s, 1/second, $0.25/day by the peer address · "),
        ({"rate": "unlimited", "client_budget": "unlimited"}, " per client unlimited by the peer address · "),
        ({"client_ip": "xff:2"}, " by xff:2 · "),
        ({"platform": "direct"}, " by the peer address · "),
        ({"client": str}, " by client=, else the peer address · "),
        ({"mode": "observe"}, "routeguard: observing: NOTHING IS REFUSED · /api/chat"),
        ({"paused": True}, "routeguard: PAUSED · /api/chat"),
    ],
)
def test_a_piece_of_the_start_line(keywords: dict[str, Any], piece: str) -> None:
    assert piece in start_line(build(**keywords), wall_ns=0)


def test_the_start_line_of_a_guard_that_is_off_says_so() -> None:
    assert start_line(Settings(environ={}, mode="off")) == "routeguard: off"


def test_a_note_stands_beside_the_paths() -> None:
    assert "/api/chat (mounted at /v1) · " in start_line(build(), paths_note="mounted at /v1", wall_ns=0)


def test_settings_with_prices_import_neither_the_model_table_nor_pydantic() -> None:
    script = (
        "import sys; from routeguard.config import Settings\n"
        "Settings(paths='/api/chat', price_in=1, price_out=1, environ={})\n"
        "print([name for name in ('genai_prices', 'pydantic', 'httpx2', 'django') if name in sys.modules])"
    )

    assert run_python(script) == "[]"


def test_only_other_zones_than_utc_need_a_time_zone_database() -> None:
    script = (
        "import sys, zoneinfo; sys.modules['tzdata'] = None; zoneinfo.reset_tzpath(to=[])\n"
        "from routeguard.config import Settings\n"
        "print(Settings(paths='/', price_in=1, price_out=1, environ={}).reset_tz.key)\n"
        "try: Settings(paths='/', price_in=1, price_out=1, environ={}, reset_tz='Europe/Berlin')\n"
        "except Exception as error: print(*error.problems)"
    )

    assert run_python(script).splitlines() == [
        "UTC",
        "reset_tz='Europe/Berlin' (ROUTEGUARD_RESET_TZ) needs the time zone database: pip install tzdata, "
        "or write 'UTC'",
    ]
