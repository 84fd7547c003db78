"""What a metered client adds to a stream of OpenAI's SDK: 500 chunks from a local server, read to the end.

The server is a process of its own and writes the whole answer at once, so that the client is never waiting for it: what
is measured is the processor time of the client.
"""

import asyncio
import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from typing import Any

import openai
from bench_request import chunks_of
from measure import Contest, Row, Run, duration, machine, print_table

from routeguard import metered

CHUNKS = 500
ROUNDS = 15
STREAMS_PER_RUN = 8
TARGET = 1.05
PLAIN = "OpenAI's SDK"
METERED = "metered, the caller asks for usage"
HIDING = "metered, cap and usage added, its chunk taken out"
MESSAGES: Any = [{"role": "user", "content": "Which lamp would you put beside a bed? " * 24}]


def serve(ready: Connection) -> None:
    """A provider that answers every request with the same stream, each chunk a write of its own."""
    chunks = chunks_of(CHUNKS)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    body = [b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks] + [b"0\r\n\r\n"]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in request.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.partition(b":")[2]))
                writer.write(head)
                for chunk in body:
                    writer.write(chunk)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def streaming(client: openai.AsyncOpenAI, loop: asyncio.AbstractEventLoop, *, asks_usage: bool = True) -> Run:
    asked: Any = {"stream_options": {"include_usage": True}, "max_tokens": 1_000} if asks_usage else {}

    async def read() -> None:
        for _ in range(STREAMS_PER_RUN):
            stream = await client.chat.completions.create(
                model="gpt-5-mini",
                messages=MESSAGES,
                stream=True,
                **asked,
            )
            chunks = 0
            async for _chunk in stream:
                chunks += 1
            assert chunks == CHUNKS - 2 + asks_usage, "the last event is no chunk, and the last chunk is usage"

    def run() -> float:
        begun = time.process_time_ns()
        loop.run_until_complete(read())
        return (time.process_time_ns() - begun) / STREAMS_PER_RUN

    return run


def metered_client(**options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(http_client=metered(budget="1000/day"), **options)


def main() -> None:
    os.environ["NO_PROXY"] = "127.0.0.1"
    mine, its = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(its,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{mine.recv()}/v1"
    loop = asyncio.new_event_loop()
    options: dict[str, Any] = {"api_key": "none", "base_url": url, "max_retries": 0}
    contest = Contest(
        {
            PLAIN: streaming(openai.AsyncOpenAI(**options), loop),
            METERED: streaming(metered_client(**options), loop),
            HIDING: streaming(metered_client(**options), loop, asks_usage=False),
        },
        rounds=ROUNDS,
    )
    rows = [
        Row(PLAIN, duration(contest.median_ns(PLAIN))),
        contest.row(METERED, baseline=PLAIN, target=TARGET),
        contest.row(HIDING, baseline=PLAIN, target=TARGET),
    ]
    loop.run_until_complete(loop.shutdown_asyncgens())
    print(machine())
    print_table(f"a stream of {CHUNKS} chunks, read by the SDK", rows)
    server.kill()


if __name__ == "__main__":
    main()
