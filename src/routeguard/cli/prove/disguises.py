"""The row about bodies that are something else than they say, or stand where nobody looks."""

import json
from typing import Final
from urllib.parse import urlencode

from routeguard.cli.prove.application import MESSAGE, QUESTION
from routeguard.cli.prove.findings import Findings
from routeguard.cli.prove.stage import VISITOR, Bench, Stage
from routeguard.testing.driver import Client

JSON: Final = b"application/json"
#: What a query may hold beside the smallest of bodies.
QUERY_BYTES: Final = 100
BOUNDARY: Final = b"prove"


async def disguises(stage: Stage, found: Findings) -> None:
    """An output cap that is too large in every kind of body, text that is too long, media, and what is not UTF-8."""
    chat = stage.chat()
    async with stage.bench(chat) as bench:
        wrong = []
        cases = _cases(bench)
        for name, client in cases.items():
            await _arriving(bench, client).call(bench.guard)
            if client.status is None or not 400 <= client.status < 429:
                wrong.append(f"{name}: {client.status}")
        found.true(f"{len(cases)} disguises refused", otherwise="; ".join(wrong) or None)
        found.equal("calls", expected=0, seen=chat.calls)
        if bench.settings.only_fields is None:
            client = bench.client()
            client.query = b"a" * QUERY_BYTES
            await client.call(bench.guard)
            size = len(QUESTION) + len(client.path) + QUERY_BYTES
            least = bench.settings.tariff.ceiling(input_bytes=size, wall_ns=bench.clock.wall_ns())
            is_short = chat.calls > 0 and chat.admissions[-1].ceiling_nanousd < least
            found.true("reserved for path and query", otherwise="path and query are free" if is_short else None)


def _cases(bench: Bench) -> dict[str, Client]:
    settings = bench.settings
    fields = {"prompt": "hi", "max_tokens": settings.max_output_tokens + 1}
    hostile = json.dumps({"messages": [MESSAGE], "max_tokens": settings.max_output_tokens + 1})
    long = json.dumps({"messages": [{**MESSAGE, "content": "a" * (settings.max_input_chars + 1)}]}).encode()
    form = urlencode(fields).encode()
    cases = {
        "JSON as text": _typed(hostile.encode(), b"text/plain"),
        "JSON as a form": _typed(hostile.encode(), b"application/x-www-form-urlencoded"),
        "JSON as bytes": _typed(hostile.encode(), b"application/octet-stream"),
        "JSON of its own kind": _typed(hostile.encode(), b"application/vnd.shop+json"),
        "JSON with a mark before it": _typed(b"\xef\xbb\xbf" + hostile.encode(), JSON),
        "JSON in UTF-16": _typed(hostile.encode("utf-16"), JSON),
        "JSON in UTF-16 as bytes": _typed(hostile.encode("utf-16"), b"application/octet-stream"),
        "a body said to be UTF-16": _typed(QUESTION, JSON + b"; charset=utf-16"),
        "two types": _typed(QUESTION, JSON, JSON),
        "a form": _typed(form, b"application/x-www-form-urlencoded"),
        "parts of a form": _typed(_parts(fields), b"multipart/form-data; boundary=" + BOUNDARY),
        "a query": Client(body=[], query=form),
        "a query beside a body": Client(body=[QUESTION], query=form),
        "text that is too long": _typed(long, JSON),
        "NUL": _typed(b'{"messages":[],"a":"\0"}', JSON),
        "NaN": _typed(b'{"messages":[],"a":NaN}', JSON),
    }
    if "binary" not in settings.body_types:
        cases["bytes"] = _typed(b"\x89PNG\r\n", b"image/png")
        cases["no type"] = Client(body=[b"hi"], headers=[(b"content-length", b"2")], plain_headers=False)
    if settings.media_nanousd is None:
        image = {"type": "image_url", "image_url": {"url": "https://shop.example/a.png"}}
        seen = json.dumps({"messages": [{"role": "user", "content": [image]}]}).encode()
        cases["an image"] = _typed(seen, JSON)
    return cases


def _typed(body: bytes, *types: bytes) -> Client:
    headers = [(b"content-type", kind) for kind in types]
    return Client(body=[body], headers=headers)


def _parts(fields: dict[str, object]) -> bytes:
    parts = [
        b'--%s\r\ncontent-disposition: form-data; name="%s"\r\n\r\n%s\r\n'
        % (BOUNDARY, name.encode(), str(value).encode())
        for name, value in fields.items()
    ]
    return b"".join(parts) + b"--%s--\r\n" % BOUNDARY


def _arriving(bench: Bench, client: Client) -> Client:
    headers, client.peer = bench.visitors.arrive(VISITOR)
    client.headers += headers
    return bench.shaped(client)
