"""The model of the scripts is the scripts: what a simulated store answered, a real one answers too."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import fakeredis
import pytest
import redis

from routeguard.ledgers.redis.scripts import LATE, LOOK, OPEN, PAUSE, RESERVE, RESTORE, SETTLE
from tests.redis.conftest import fresh_namespace
from tests.redis.server import RedisServer, needed_server
from tests.simulation.model_rates import as_stored
from tests.simulation.model_store import SECOND, ModelStore
from tests.simulation.world import World

TEXTS = {script.name: script.plain.text for script in (OPEN, RESERVE, LOOK, SETTLE, LATE, PAUSE, RESTORE)}
#: Runs whose stores answer some thousand times altogether.
FIRST_SEED, SEEDS = 20, 20


@dataclass(frozen=True, slots=True)
class Step:
    """One script as the model ran it; with an empty name, everything was lost."""

    name: str
    keys: Sequence[str] = ()
    arguments: Sequence[str] = ()
    now_us: int = 0
    answer: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class History:
    """What a store did in one run, and what stood in its rates at the end."""

    steps: Sequence[Step]
    rates: Mapping[str, str]


class Recording(ModelStore):
    """Remembers what it did, and does everything twice that may come twice; of a turn of the switch, its opposite."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []

    def run(self, name: str, keys: Sequence[str], arguments: Sequence[str], now_us: int) -> list[str]:
        answer = super().run(name, keys, arguments, now_us)
        self.steps.append(Step(name, keys, arguments, now_us, list(answer)))
        if name in {"reserve", "settle", "late", "pause"}:
            *given, last = arguments
            repeated = [*given, "0" if last == "1" else "1"] if name == "pause" else arguments
            again = super().run(name, keys, repeated, now_us)
            self.steps.append(Step(name, keys, repeated, now_us, again))
        return answer

    def empty(self) -> None:
        super().empty()
        self.steps.append(Step(""))


class Runs(Protocol):
    """What a client of redis-py can do, and fakeredis as well."""

    def eval(self, script: str, numkeys: int, *keys_and_args: str) -> object: ...

    def delete(self, *names: str) -> object: ...

    def get(self, name: str) -> object: ...

    def persist(self, name: str) -> object: ...


@pytest.fixture(scope="module")
def histories() -> list[History]:
    found: list[History] = []
    seed = FIRST_SEED
    while len(found) < SEEDS:
        world = World(seed, model=Recording)
        seed += 1
        # A copy that takes over is nothing that a script does.
        if world.loss != "behind":
            world.run()
            model = world.server.model
            assert isinstance(model, Recording)
            found.append(History(model.steps, {key: as_stored(log) for key, log in model.data.rates.items()}))
        else:
            world.loop.close()
    return found


@pytest.fixture(scope="module")
def real_store() -> Iterator[Runs]:
    program = needed_server("the model was compared with fakeredis alone")
    with RedisServer(program) as server, redis.Redis(port=server.port, decode_responses=True, protocol=2) as client:
        yield client


def test_the_model_answers_as_a_real_server_does(histories: list[History], real_store: Runs) -> None:
    for history in histories:
        _replay(history, real_store)


def test_the_model_answers_as_fakeredis_does(histories: list[History]) -> None:
    _replay(histories[0], fakeredis.FakeRedis(decode_responses=True))


def test_the_histories_hold_every_script_and_every_answer(histories: list[History]) -> None:
    steps = [step for history in histories for step in history.steps if step.name]
    found = {(step.name, step.answer[0]) for step in steps}
    taken_back = [step for step in steps if step.name == "settle" and "log" in step.arguments]

    statuses = {"ok", "refused", "known", "lost", "recovering"}
    assert {("reserve", status) for status in statuses} <= found
    assert {("settle", "ok"), ("settle", "ended"), ("settle", "unknown"), ("late", "ok"), ("late", "ended")} <= found
    assert {("restore", "ok"), ("open", "ok"), ("look", "ok"), ("look", "lost")} <= found
    assert {("pause", status) for status in ("ok", "late", "stale")} <= found
    assert {"ok", "ended", "unknown"} <= {step.answer[0] for step in taken_back}


def _replay(history: History, store: Runs) -> None:
    namespace, used = f"{{rg:{fresh_namespace()}}}", set[str]()
    for number, step in enumerate(history.steps):
        if not step.name:
            store.delete(*used)
            continue
        keys = [key.replace("{rg:sim}", namespace) for key in step.keys]
        used.update(keys)
        epoch, _, *given = step.arguments
        moment = f"{step.now_us // SECOND} {step.now_us}"
        answer = store.eval(TEXTS[step.name], len(keys), *keys, epoch, moment, *given)
        assert answer == step.answer, f"step {number}: {step.name} {given}"
        # A slow machine would let them expire between two steps, which in the run were milliseconds apart.
        for key in keys:
            if ":rate:" in key:
                store.persist(key)
    for key, log in history.rates.items():
        assert store.get(key.replace("{rg:sim}", namespace)) == log, f"what stands in {key}"
