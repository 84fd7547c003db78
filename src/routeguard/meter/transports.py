"""The shells: transports around transports, for httpx and httpx2, sync and async.

A shell moves bytes and waits; what is decided is decided in `exchange` and `payer`. Both libraries have the same
transport interface and each insists on its own classes, hence `Library`: the classes of the one the client is of.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from functools import lru_cache
from types import ModuleType, new_class
from typing import Any

import anyio
import anyio.to_thread

from routeguard.errors import BudgetExceeded
from routeguard.meter.blocking import run_blocking
from routeguard.meter.endpoints import Endpoint, endpoint_of
from routeguard.meter.exchange import Exchange, refusal_body, wraps_exceptions
from routeguard.meter.payer import Allowance, Ticket, is_paid, passes_unread, price_look_up, refuses, ticket_for
from routeguard.meter.provider_call import BODY_BYTES_MAX, ProviderCall, check_size, read_call

#: Longest wait for a ledger that is to write an ending.
SETTLE_SECONDS = 2.0

#: Objects of httpx or httpx2, which are the same but for the module they come from.
Request = Any
Response = Any
Transport = Any


class AsyncMeteredTransport:
    """Meters what an `AsyncClient` sends."""

    def __init__(self, inner: Transport, library: ModuleType, allowance: Allowance | None) -> None:
        self._inner = inner
        self._library = library
        self._allowance = allowance

    async def handle_async_request(self, request: Request) -> Response:
        endpoint = endpoint_of(request.method, request.url.path)
        if endpoint is None or not is_paid(self._allowance):
            return await self._inner.handle_async_request(request)
        try:
            request = await _read_async(request, self._library)
            call = _call(endpoint, request)
            if call is None:
                return await self._inner.handle_async_request(request)
            await _look_up_price(call, self._allowance)
            ticket = ticket_for(call, self._allowance)
            await ticket.payment.reserve()
        except BudgetExceeded as refused:
            return _refuse(request, refused, self._library)
        exchange = Exchange(endpoint, ticket)
        try:
            response = await self._inner.handle_async_request(_outgoing(request, ticket, self._library))
        except BaseException as error:
            exchange.failed(error)
            await _close(ticket)
            raise
        response = _unread(response, self._library)
        exchange.answered(response.status_code, response.headers.raw)
        if ticket.outgoing.hides_usage:
            response.headers.pop("content-length", None)
        response.stream = _stream_class(AsyncStream, self._library.AsyncByteStream)(response.stream, exchange, ticket)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> "AsyncMeteredTransport":
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self._inner.__aexit__(*exception)


class MeteredTransport:
    """Meters what a `Client` sends."""

    def __init__(self, inner: Transport, library: ModuleType, allowance: Allowance | None) -> None:
        self._inner = inner
        self._library = library
        self._allowance = allowance

    def handle_request(self, request: Request) -> Response:
        endpoint = endpoint_of(request.method, request.url.path)
        if endpoint is None or not is_paid(self._allowance):
            return self._inner.handle_request(request)
        try:
            request = _read(request, self._library)
            call = _call(endpoint, request)
            if call is None:
                return self._inner.handle_request(request)
            ticket = ticket_for(call, self._allowance)
            run_blocking(ticket.payment.ledger, ticket.payment.reserve)
        except BudgetExceeded as refused:
            return _refuse(request, refused, self._library)
        exchange = Exchange(endpoint, ticket)
        try:
            response = self._inner.handle_request(_outgoing(request, ticket, self._library))
        except BaseException as error:
            exchange.failed(error)
            run_blocking(ticket.payment.ledger, ticket.payment.close)
            raise
        response = _unread(response, self._library)
        exchange.answered(response.status_code, response.headers.raw)
        if ticket.outgoing.hides_usage:
            response.headers.pop("content-length", None)
        response.stream = _stream_class(Stream, self._library.SyncByteStream)(response.stream, exchange, ticket)
        return response

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> "MeteredTransport":
        self._inner.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._inner.__exit__(*exception)


class AsyncStream:
    """An answer on its way to an `AsyncClient`."""

    # An iterator and no generator: httpx leaves a generator to the garbage collector when its caller breaks off.

    def __init__(self, inner: Any, exchange: Exchange, ticket: Ticket) -> None:
        self._inner = inner
        self._exchange = exchange
        self._ticket = ticket
        self._chunks: AsyncIterator[bytes] | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._chunks = aiter(self._inner)
        return self

    async def __anext__(self) -> bytes:
        chunks = self._chunks
        assert chunks is not None, "aiter comes before anext"
        while True:
            try:
                chunk = await anext(chunks)
            except StopAsyncIteration:
                if rest := self._exchange.ends(complete=True):
                    return rest
                raise
            if passed := self._exchange.passes(chunk):
                return passed

    async def aclose(self) -> None:
        self._exchange.ends(complete=False)
        try:
            if isinstance(self._chunks, AsyncGenerator):
                await self._chunks.aclose()
            await self._inner.aclose()
        finally:
            await _close(self._ticket)


class Stream:
    """An answer on its way to a `Client`."""

    def __init__(self, inner: Any, exchange: Exchange, ticket: Ticket) -> None:
        self._inner = inner
        self._exchange = exchange
        self._ticket = ticket
        self._chunks: Iterator[bytes] = iter(())

    def __iter__(self) -> Iterator[bytes]:
        self._chunks = iter(self._inner)
        return self

    def __next__(self) -> bytes:
        while True:
            try:
                chunk = next(self._chunks)
            except StopIteration:
                if rest := self._exchange.ends(complete=True):
                    return rest
                raise
            if passed := self._exchange.passes(chunk):
                return passed

    def close(self) -> None:
        self._exchange.ends(complete=False)
        try:
            self._inner.close()
        finally:
            run_blocking(self._ticket.payment.ledger, self._ticket.payment.close)


async def _close(ticket: Ticket) -> None:
    if ticket.payment.ledger is not None:
        # Shielded, because a caller that was cancelled has still to pay; the ledger goes on after the limit.
        with anyio.move_on_after(SETTLE_SECONDS, shield=True):
            await ticket.payment.close()


@lru_cache(maxsize=8)
def _stream_class(behaviour: type, byte_stream: type) -> Any:
    """Clients assert that a stream is of their own library."""
    return new_class(behaviour.__name__, (behaviour, byte_stream))


def _call(endpoint: Endpoint, request: Request) -> ProviderCall | None:
    """The call in a request whose body has been read; None for what nobody has to pay."""
    try:
        return read_call(
            endpoint,
            host=request.url.host,
            path=request.url.path,
            body=request.content,
            encoding=request.headers.get("content-encoding"),
        )
    except BudgetExceeded:
        if passes_unread():
            return None
        raise


async def _look_up_price(call: ProviderCall, allowance: Allowance | None) -> None:
    """Find the price of a model that is called for the first time, without holding up the event loop."""
    look_up = price_look_up(call, allowance)
    if look_up is not None:
        # A limiter of its own: the threads of the shared one may all be waiting for calls like this.
        await anyio.to_thread.run_sync(look_up, limiter=anyio.CapacityLimiter(1))


async def _read_async(request: Request, library: ModuleType) -> Request:
    """The request with its body in memory.

    Raises:
        BudgetExceeded: The body is a stream of more bytes than are metered.
    """
    if _is_read(request, library):
        return request
    bytes_max = BODY_BYTES_MAX if refuses() else None
    body = bytearray()
    async for part in request.stream:
        body += part
        check_size(body, bytes_max)
    return _with_body(request, bytes(body), library)


def _read(request: Request, library: ModuleType) -> Request:
    """The same, without an event loop."""
    if _is_read(request, library):
        return request
    bytes_max = BODY_BYTES_MAX if refuses() else None
    body = bytearray()
    for part in request.stream:
        body += part
        check_size(body, bytes_max)
    return _with_body(request, bytes(body), library)


def _is_read(request: Request, library: ModuleType) -> bool:
    try:
        return request.content is not None
    except library.RequestNotRead:
        return False


def _outgoing(request: Request, ticket: Ticket, library: ModuleType) -> Request:
    """The request as it is sent: with the caps it is paid for, and asking for an answer that can be read."""
    body = ticket.outgoing.body
    sent = _with_body(request, request.content if body is None else body, library)
    sent.headers["accept-encoding"] = "identity"
    return sent


def _with_body(request: Request, body: bytes, library: ModuleType) -> Request:
    """A copy with this body. The client keeps its own, which it may send again."""
    headers = request.headers.copy()
    headers.pop("transfer-encoding", None)
    headers["content-length"] = str(len(body))
    return library.Request(request.method, request.url, headers=headers, content=body, extensions=request.extensions)


def _unread(response: Response, library: ModuleType) -> Response:
    """The response with its body still to come. A client neither reads nor closes one that was made with its body."""
    # As those are that caches answer with, and MockTransport and its like in an application's tests.
    try:
        content = response.content
    except library.ResponseNotRead:
        return response
    headers = response.headers.copy()
    if headers.pop("content-encoding", None) is not None:
        headers["content-length"] = f"{len(content)}"
    stream = library.ByteStream(content)
    return library.Response(response.status_code, headers=headers, stream=stream, extensions=response.extensions)


def _refuse(request: Request, refused: BudgetExceeded, library: ModuleType) -> Response:
    """Raise, or answer those who would take an exception for a reason to try again."""
    if not wraps_exceptions(request.headers):
        raise refused
    headers = {"content-type": "application/json", "x-should-retry": "false"}
    return library.Response(429, headers=headers, content=refusal_body(refused), request=request)
