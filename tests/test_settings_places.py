"""Models, zones, secrets, ledgers and files as they are written: what is beyond the process."""

import re
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from routeguard.settings import grammar, names
from tests.configured import table


@table("written", ["Europe/Berlin", ZoneInfo("Europe/Berlin"), " Europe/Berlin "])
def test_zones_are_those_of_the_time_zone_database(written: object) -> None:
    assert names.zone(written).key == "Europe/Berlin"


def test_utc_is_one_and_the_same_zone_however_it_is_written() -> None:
    assert names.zone("UTC") is names.zone("utc") is names.zone(ZoneInfo("UTC"))


def test_utc_needs_no_time_zone_database() -> None:
    zone = names.utc_without_database()

    assert zone.key == "UTC"
    assert datetime(2026, 7, 1, tzinfo=zone) == datetime(2026, 7, 1, tzinfo=UTC)


@table("written", ["Europe/Berln", "", "../passwd", "Europe", "/etc/localtime", "a\x00b", None, "\udc80", "a/" * 9999])
def test_what_is_no_zone_is_refused_with_one_that_is(written: object) -> None:
    with pytest.raises(ValueError, match="Europe/Berlin"):
        names.zone(written)


@table("written", ["gpt 5", "x" * 201, "a\x00b", "", None])
def test_what_no_model_is_called_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="'gpt-5-mini'"):
        names.models(written)


def test_an_edge_secret_is_a_header_name_in_lower_case_and_a_value() -> None:
    assert grammar.header_and_secret("X-Edge-Secret: a:b=c ") == (b"x-edge-secret", b"a:b=c")


@table(
    "written",
    [
        "hunter2",
        "X-Edge:",
        ":hunter2",
        "X Edge:hunter2",
        "X-Edge:hunter 2",
        "X-Edge:hünter2",
        None,
        5,
        "X-Edge:hun\nter2",
    ],
)
def test_a_message_about_an_edge_secret_never_holds_it(written: object) -> None:
    with pytest.raises(ValueError, match="X-Edge-Secret:<secret>") as caught:
        grammar.header_and_secret(written)

    assert "nter2" not in str(caught.value)


@table("written", ["", "two words", "ü", "x" * 513, None, 5, "a\x00b"])
def test_a_secret_is_what_a_header_can_carry(written: object) -> None:
    with pytest.raises(ValueError, match=r"secrets\.token_urlsafe"):
        grammar.secret(written)


@table("written", ["memory://", " memory:// "])
def test_the_memory_ledger_is_available(written: str) -> None:
    assert names.ledger(written) == "memory://"


@table("written", ["sqlite:///x.db", "sqlite:////var/lib/x.db", "sqlite:///a/b.db?synchronous=full", "sqlite:///x?"])
def test_a_ledger_in_a_file_is_available(written: str) -> None:
    assert names.ledger(written) == written


@table(
    ("written", "remedy"),
    [
        ("sqlite://", "after four slashes"),
        ("sqlite:///", "after four slashes"),
        ("sqlite://x.db", "after four slashes"),
        ("sqlite:///folder/", "could share"),
        ("sqlite:///:memory:", "could share"),
        ("sqlite:///x.db#y", "could share"),
        ("sqlite:///x.db?mode=ro", "write '?synchronous=full'"),
        ("sqlite:///x.db?synchronous=off", "write '?synchronous=full'"),
        ("sqlite:///x.db?synchronous=full&cache=shared", "write '?synchronous=full'"),
    ],
)
def test_the_url_of_a_file_says_which_file_and_nothing_else(written: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=re.escape(remedy)):
        names.ledger(written)


@table(
    ("written", "remedy"),
    [
        ("redis://u:hunter2@h:99999", "cannot be read as the address of a Redis server"),
        ("redis://u:hunter2@h/first", "write for example 'redis://localhost:6379/0'"),
        ("redis://h?hunter2=1", "has something after the question mark that no connection takes"),
        ("unix://hunter2", "names no socket; write for example 'unix:///run/redis.sock?db=0'"),
        ("unix:///", "names no socket"),
    ],
)
def test_the_address_of_a_redis_server_is_read_before_anything_starts(written: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=re.escape(remedy)) as caught:
        names.ledger(written)

    assert "hunter2" not in str(caught.value)


@table(
    ("written", "remedy"),
    [
        ("postgresql://u:hunter2@h/0", "('postgresql') that is not available"),
        ("redis+cluster://hunter2@h", "('redis+cluster') that is not available"),
        ("memroy://", "did you mean 'memory'?"),
        ("memory://hunter2", "takes nothing"),
        ("memory", "is not the URL of a ledger"),
        ("hunter2@host", "is not the URL of a ledger"),
        ("hunter2:x@://", "is not the URL of a ledger"),
        (None, "is not the URL of a ledger"),
    ],
)
def test_a_ledger_that_is_not_there_is_refused_without_its_password(written: object, remedy: str) -> None:
    with pytest.raises(ValueError, match="'memory://'") as caught:
        names.ledger(written)

    assert remedy in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_system_prompt_is_counted_in_utf_8_bytes() -> None:
    assert grammar.text_or_file_bytes("Grüße 👋") == len("Grüße 👋".encode())
    assert grammar.text_or_file_bytes("") == 0


def test_a_system_prompt_file_is_counted_as_it_lies_on_disk(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_bytes("Grüße\r\n".encode())

    assert grammar.text_or_file_bytes(f"@{tmp_path}/prompt.txt") == 9


@table("blank", [" ", "\t", "\n", "\r\n"])
def test_blanks_around_the_name_of_a_file_do_not_make_it_a_prompt_of_a_few_bytes(tmp_path: Path, blank: str) -> None:
    (tmp_path / "prompt.txt").write_bytes(b"x" * 5000)

    assert grammar.text_or_file_bytes(f"{blank}@{tmp_path}/prompt.txt{blank}") == 5000


@table("written", ["'@prompt.txt'", '"@prompt.txt"', ' "@prompt.txt"', '" @prompt.txt"'])
def test_a_file_in_quotes_is_not_counted_as_the_few_bytes_of_its_name(written: str) -> None:
    with pytest.raises(ValueError, match=r"write '@prompt\.txt' without"):
        grammar.text_or_file_bytes(written)


def test_a_prompt_may_begin_with_a_quote_and_end_with_a_blank() -> None:
    assert grammar.text_or_file_bytes('"You" are a @bot. ') == 18


@table("name", ["missing.txt", "", ".", "a\x00b"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        grammar.text_or_file_bytes(f"@{tmp_path}/{name}")


def test_a_prompt_file_in_another_encoding_would_be_counted_too_small(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_bytes("Grüße".encode("latin-1"))

    with pytest.raises(ValueError, match="is not UTF-8 text"):
        grammar.text_or_file_bytes(f"@{tmp_path}/prompt.txt")


@table("written", [None, 5, b"text", "\udc80"])
def test_a_system_prompt_that_is_no_text_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"'@prompt\.txt'"):
        grammar.text_or_file_bytes(written)


@table("written", ["prices.toml", "@", "", None, 5, "[model]"])
def test_a_price_file_is_written_with_an_at_sign(written: object) -> None:
    with pytest.raises(ValueError, match=r"'@prices\.toml'"):
        grammar.file_text(written)
