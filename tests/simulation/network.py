"""A store behind a network that delays, loses, cuts and holds back, in virtual time.

redis-py's own connection and parser run on top: what breaks here breaks bytes.

A command that was sent may arrive long after its connection is gone, as it does when a stopped server wakes up, so a
question sent again may overtake itself.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from routeguard.ledgers.redis.scripts import ALLOW_OOM, LATE, LOOK, OPEN, PAUSE, RESERVE, RESTORE, SETTLE
from tests.simulation.model_store import ModelStore
from tests.simulation.virtual_loop import VirtualLoop

SCRIPTS = (OPEN, RESERVE, LOOK, SETTLE, LATE, PAUSE, RESTORE)
BY_SHA = {source.sha: script.name for script in SCRIPTS for source in (script.plain, script.out_of_memory) if source}
BY_TEXT = {source.text: source.sha for script in SCRIPTS for source in (script.plain, script.out_of_memory) if source}
ALLOWED_WHEN_FULL = frozenset({"settle", "late", "pause", "restore", "look"})

Fault = Literal["drop_request", "drop_reply", "half_reply", "hang", "arrive_late"]
#: What is done to one message, and how often beside the others.
FAULTS: tuple[Fault, ...] = ("drop_request", "drop_reply", "half_reply", "hang", "arrive_late")
#: Seconds between two packets of a connection: timers of the same moment may run in any order.
NEXT = 1e-6

#: Told of every script that ran: for which worker, its name, its arguments and its answer.
Heard = Callable[[str, str, list[str], list[str]], None]


@dataclass(slots=True)
class Server:
    """The store: it does one batch after the other, when it is not stopped."""

    loop: VirtualLoop
    heard: Heard
    model: ModelStore = field(default_factory=ModelStore)
    #: Unix seconds that its clock shows at the start of the run, and what it is ahead of that since.
    starts_at: float = 0.0
    jumped: float = 0.0
    scripts: set[str] = field(default_factory=set)
    is_stopped: bool = False
    is_replica: bool = False
    is_full: bool = False
    #: What arrived while it was stopped, by connection.
    _waiting: dict["Wire", list[Callable[[], None]]] = field(default_factory=dict)

    def now_us(self) -> int:
        return round((self.starts_at + self.loop.time() + self.jumped) * 1_000_000)

    def arrive(self, wire: "Wire", work: Callable[[], None]) -> None:
        if self.is_stopped:
            self._waiting.setdefault(wire, []).append(work)
        else:
            work()

    def resume(self, rng: random.Random) -> None:
        """It reads its connections in any order, and each from its beginning."""
        self.is_stopped = False
        waiting, self._waiting = list(self._waiting.values()), {}
        rng.shuffle(waiting)
        for works in waiting:
            for work in works:
                work()

    def answer(self, worker: str, command: list[str]) -> bytes:
        word = command[0]
        if word not in {"EVAL", "EVALSHA"}:
            return b"-ERR unknown command\r\n"
        if command[1] == f"{ALLOW_OOM}return 1":
            return b":1\r\n"
        sha = BY_TEXT[command[1]] if word == "EVAL" else command[1]
        if word == "EVALSHA" and sha not in self.scripts:
            return b"-NOSCRIPT No matching script. Please use EVAL.\r\n"
        self.scripts.add(sha)
        name, number = BY_SHA[sha], int(command[2])
        if self.is_replica and name != "look":
            return b"-READONLY You can't write against a read only replica.\r\n"
        if self.is_full and name not in ALLOWED_WHEN_FULL:
            return b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"
        keys, arguments = command[3 : 3 + number], command[3 + number :]
        found = self.model.run(name, keys, arguments, self.now_us())
        self.heard(worker, name, arguments, found)
        return _packed(found)


@dataclass(slots=True)
class Network:
    """Between the workers and the server."""

    loop: VirtualLoop
    server: Server
    rng: random.Random
    #: Share of messages to which something happens.
    trouble: float = 0.0
    #: Seconds of one way, at least and at most.
    delay: tuple[float, float] = (0.0001, 0.002)
    #: Share of batches in which the scripts are flushed between two commands.
    flushes: float = 0.0
    #: Workers that reach nothing: connections are refused, or go nowhere.
    cut_off: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    #: In the order in which they were opened, so that a run depends on nothing but its seed.
    wires: dict["Wire", None] = field(default_factory=dict)

    def connect(self, make: Callable[[], asyncio.Protocol], worker: str) -> asyncio.Transport:
        if worker in self.dead or (worker in self.cut_off and self.rng.random() < 0.5):
            raise ConnectionRefusedError("nobody there")
        wire = Wire(self, worker)
        wire.start(make())
        return wire

    def sever(self, worker: str) -> None:
        """What this worker has not sent yet it never sends; what it has sent arrives."""
        for wire in [wire for wire in self.wires if wire.worker == worker]:
            wire.is_dead = True

    def reset(self) -> None:
        """The server's side of every connection is gone, as after its restart."""
        for wire in list(self.wires):
            wire.lose()


class Wire(asyncio.Transport):
    """One connection, seen from the worker."""

    def __init__(self, network: Network, worker: str) -> None:
        super().__init__()
        self.worker = worker
        #: Nothing is heard or sent any more.
        self.is_dead = worker in network.cut_off
        self._network = network
        self._protocol: asyncio.Protocol | None = None
        self._is_closed = self._is_losing = False
        self._received = b""
        self._last_arrival = self._last_answer = 0.0

    def start(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol
        self._network.wires[self] = None
        protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closed or self._is_losing or self.is_dead or not data:
            return
        network = self._network
        fault = network.rng.choice(FAULTS) if network.rng.random() < network.trouble else None
        if fault == "drop_request":
            # Nothing arrives behind it either.
            self._is_losing = True
            network.loop.call_later(self._one_way(), self.lose)
            return
        if fault == "hang":
            self.is_dead = True
            return
        late = network.rng.uniform(0.3, 6.5) if fault == "arrive_late" else self._one_way()
        self._last_arrival = max(self._last_arrival + NEXT, network.loop.time() + late)
        batch = bytes(data)
        network.loop.call_at(self._last_arrival, network.server.arrive, self, lambda: self._arrived(batch, fault))

    def lose(self) -> None:
        """The connection breaks."""
        if not self._is_closed:
            self._is_closed = True
            self._network.wires.pop(self, None)
            if not self.is_dead:
                assert self._protocol is not None
                self._protocol.connection_lost(ConnectionResetError("reset"))

    def _arrived(self, data: bytes, fault: Fault | None) -> None:
        network, server = self._network, self._network.server
        self._received += data
        answers = []
        for command in self._commands():
            if network.rng.random() < network.flushes:
                server.scripts.clear()
            answers.append(server.answer(self.worker, command))
        answer = b"".join(answers)
        # What is meant for a worker that has closed, or died, goes nowhere.
        if self._is_closed or self.is_dead:
            return
        if fault == "drop_reply":
            self.lose()
            return
        if fault == "half_reply":
            self._answer(answer[: network.rng.randrange(len(answer))], then_lose=True)
            return
        self._answer(answer, then_lose=False)

    def _answer(self, data: bytes, *, then_lose: bool) -> None:
        self._last_answer = max(self._last_answer + NEXT, self._network.loop.time() + self._one_way())
        self._network.loop.call_at(self._last_answer, self._deliver, data)
        if then_lose:
            self._network.loop.call_at(self._last_answer + NEXT / 2, self.lose)

    def _deliver(self, data: bytes) -> None:
        if not self._is_closed and not self.is_dead and data:
            assert self._protocol is not None
            self._protocol.data_received(data)

    def _one_way(self) -> float:
        return self._network.rng.uniform(*self._network.delay)

    def _commands(self) -> Iterable[list[str]]:
        """Whole commands out of what has come so far; arrays of bulk strings are all that is ever sent."""
        while self._received:
            head, _, rest = self._received.partition(b"\r\n")
            words = []
            for _ in range(int(head[1:])):
                size, _, rest = rest.partition(b"\r\n")
                length = int(size[1:])
                words.append(rest[:length].decode())
                rest = rest[length + 2 :]
            self._received = rest
            yield words

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._network.wires.pop(self, None)
            assert self._protocol is not None
            self._network.loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._is_closed

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def _packed(answer: list[str]) -> bytes:
    words = [f"*{len(answer)}\r\n"]
    words += [f"${len(word.encode())}\r\n{word}\r\n" for word in answer]
    return "".join(words).encode()
