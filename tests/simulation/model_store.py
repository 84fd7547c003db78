"""A second implementation of the scripts, in Python, small enough to run a hundred thousand times.

`test_model_store` replays the same histories here, on fakeredis and on a real server, and compares every answer.
Logs of rates do not expire by themselves: an old claim counts as little as one that is not there.
"""

import copy
from collections.abc import Iterator, Sequence

from tests.simulation.model_data import Arguments, Data, KnownWindows, Money, split_record
from tests.simulation.model_rates import Asked, claim, give_back, wait_us

SECOND = 1_000_000
DAY = 86_400 * SECOND
PAST_KEPT, ORPHAN_KEPT, ENDED_KEPT, LATE_KEPT = 2 * DAY, 7 * DAY, 600 * SECOND, 2 * DAY
ASKED_TOO_LONG_AGO = RECOVERING_MAX = 5 * SECOND
REAPED = 8

SETTLED, KEPT, OPEN, ORPHANED, OVERRUN = range(5)
PARTS = {"settled": SETTLED, "kept": KEPT, "open": OPEN, "orphaned": ORPHANED}


class ModelStore:
    """`run` is `EVAL` of one of our scripts, all of it in one step."""

    def __init__(self) -> None:
        self.data = Data()
        self.now = 0
        self.wall = 0
        self.everybody = ""
        self.number = ""
        self.orphans: list[str] = []

    def empty(self) -> None:
        """FLUSHALL."""
        self.data = Data()

    def copy(self) -> Data:
        """What a replica holds that has received everything up to now."""
        return copy.deepcopy(self.data)

    def run(self, name: str, keys: Sequence[str], arguments: Sequence[str], now_us: int) -> list[str]:
        """The answer of a script: `keys` and `arguments` as a server gets them; the time in them is not looked at."""
        self.now, self.wall, self.orphans = now_us, now_us // SECOND, []
        self.everybody = keys[3]
        epoch, _, self.number, *given = arguments
        script = getattr(self, f"_{name}")
        answer: list[str] = script(epoch, list(keys), Arguments(given))
        return answer

    def _open(self, _: str, __: list[str], given: Arguments) -> list[str]:
        schema, epoch, salt = given.take(), given.take(), given.take()
        assert given.take() == "", "the model writes nothing down for a journal"
        meta = self.data.meta
        if "epoch" not in meta:
            meta["epoch"] = epoch
            meta.setdefault("schema", schema)
            meta.setdefault("salt", salt)
        self.wall = max(self.wall, int(meta.get("wall", "0")))
        paused = "1" if meta.get("paused") == "1" else "0"
        return self._reply("ok", meta["epoch"], f"{paused} {self._recovering()} {meta['salt']} {meta['schema']}")

    def _pause(self, epoch: str, _: list[str], given: Arguments) -> list[str]:
        meta = self.data.meta
        if meta.get("epoch") != epoch:
            return self._reply("lost")
        moment, wanted = given.take(), given.take()
        if not moment or not self.now - ASKED_TOO_LONG_AGO <= int(moment) <= self.now:
            return self._reply("stale")
        turned = int(meta.get("turned", "0"))
        if turned > self.now:
            meta["turned"] = str(self.now)
            return self._reply("stale")
        if turned > int(moment):
            return self._reply("ok" if meta.get("paused", "0") == wanted else "late")
        meta |= {"paused": wanted, "turned": str(self.now)}
        return self._reply("ok")

    def _look(self, epoch: str, _: list[str], given: Arguments) -> list[str]:
        most, _left = given.number(), given.take()
        known = [self._windows(given) for _ in range(given.number())]
        meta = self.data.meta
        if meta.get("epoch") != epoch:
            return self._reply("lost")
        self.wall = max(self.wall, int(meta.get("wall", "0")))
        self._reap(most)
        fields = []
        for windows in known:
            chosen = windows.chosen(self.wall)
            if chosen is None:
                return self._reply("stale")
            fields.append(chosen[0] + "a")
        paused = "1" if meta.get("paused") == "1" else "0"
        streams = self._streams(self.everybody)
        answer = self._reply("ok", f"{paused} {self._recovering()} {meta.get('salt', '-')}", str(streams))
        for name in fields:
            answer += [name, self._packed(name), ""]
        return answer

    def _reserve(self, epoch: str, keys: list[str], given: Arguments) -> list[str]:
        reservation, asked, force, amount, clients_max = (
            given.take(),
            given.number(),
            given.take() == "1",
            given.number(),
            given.number(),
        )
        money = [Money(self._windows(given), given.number(), given.take()) for _ in range(given.number())]
        rest = iter(keys[5:])
        slot_count, lease = given.number(), given.number()
        slots = [(next(rest), given.take()) for _ in range(slot_count)]
        rates = [Asked(next(rest), given.number(), given.number()) for _ in range(given.number())]
        meta = self.data.meta
        if meta.get("epoch") != epoch:
            return self._reply("lost")
        recovers = self._recovering()
        if recovers != "0":
            return self._reply("recovering", recovers)
        self.wall = max(self.wall, int(meta.get("wall", "0")))
        known = self._find_accounts(money, clients_max)
        if self._reap(REAPED) and known:
            self._find_accounts(money, clients_max)
        if reservation in self.data.calls:
            return self._reply("known", self.data.calls[reservation])
        if not known or asked < self.now - ASKED_TOO_LONG_AGO:
            return self._reply("stale")
        letters = self._verdict(money, slots, amount)
        waits = [wait_us(self.data, rate, self.now) for rate in rates]
        admitted = force or (set(letters) <= {"."} and not any(waits))
        if admitted:
            self._debit(reservation, money, slots, amount=amount, lease=lease)
        if admitted and rates and not any(waits):
            claim(self.data, rates, self.now)
            self.data.calls[reservation] += f" @{self.now}.{self.data.meta.get('moved', '0')}"
        answer = self._reply("ok" if admitted else "refused", letters, " ".join(map(str, waits)))
        for one in money:
            clients = "" if one.clients is None else str(one.clients)
            answer += [one.field, self._packed(one.field), clients]
        return answer

    def _settle(self, epoch: str, keys: list[str], given: Arguments) -> list[str]:
        reservation, state, settled, kept = given.take(), given.take(), given.number(), given.number()
        assert given.take() == "", "the model writes nothing down for a journal"
        if self.data.meta.get("epoch") != epoch:
            return self._reply("lost")
        logs = list(zip(reversed(keys), reversed(given.rest()), strict=False))
        record = self.data.calls.get(reservation)
        parts, claimed = ([], "") if record is None else split_record(record)
        if record is not None and parts[0] not in {"open", "orphaned"}:
            return self._reply("ended", parts[0])
        amount = int(parts[1]) if parts else 0
        answer = self._reply("ok" if parts else "unknown")
        for name in parts[2:]:
            account = self.data.accounts.get(name)
            if account is None:
                continue
            account[PARTS[parts[0]]] = max(0, account[PARTS[parts[0]]] - amount)
            account[SETTLED] += settled
            account[KEPT] += kept
            account[OVERRUN] += max(0, settled + kept - amount)
            packed = self._packed(name)
            self._leave_if_empty(name)
            answer += [name, packed, ""]
        if claimed:
            give_back(self.data, logs, claimed)
        self.data.calls[reservation] = f"{state} {amount}"
        self.data.due[f"r{reservation}"] = self.now + ENDED_KEPT
        for key in keys[3:]:
            self.data.slots.get(key, {}).pop(reservation, None)
        return answer

    def _late(self, epoch: str, _: list[str], given: Arguments) -> list[str]:
        charge, extra, clients_max = f"late:{given.take()}", given.number(), given.number()
        assert given.take() == "", "the model writes nothing down for a journal"
        if self.data.meta.get("epoch") != epoch:
            return self._reply("lost")
        if charge in self.data.calls:
            return self._reply("ended")
        answer = self._reply("ok")
        for asked in given.rest():
            name = self._account_of_a_late_bill(asked, clients_max)
            if name is None:
                continue
            account = self.data.accounts.setdefault(name, [0] * 5)
            account[SETTLED] += extra
            account[OVERRUN] += extra
            answer += [name, self._packed(name), ""]
        self.data.calls[charge] = "late"
        self.data.due[f"r{charge}"] = self.now + LATE_KEPT
        return answer

    def _restore(self, epoch: str, keys: list[str], given: Arguments) -> list[str]:
        if given.number() < self.now - ASKED_TOO_LONG_AGO:
            return self._reply("stale")
        first, new_epoch, salt, paused = given.take() == "1", given.take(), given.take(), given.take()
        schema, grace, latest = given.take(), given.number(), given.number()
        assert (given.take(), given.take()) == ("0", ""), "nothing is changed by hand, and no journal is kept"
        meta = self.data.meta
        if first:
            waits, found = int(meta.get("until", "0")), meta.get("epoch")
            if found is None or found == epoch:
                waits = self.now + grace
            else:
                new_epoch = found
                if meta.get("restored") != found:
                    waits = self.now + grace
            meta |= {"epoch": new_epoch, "restored": new_epoch, "schema": schema, "salt": salt, "until": str(waits)}
            if paused == "1":
                meta |= {"paused": "1", "turned": str(self.now)}
        elif meta.get("epoch") != epoch:
            return self._reply("lost")
        self.wall = max(self.wall, latest, int(meta.get("wall", "0")))
        meta["wall"] = str(self.wall)
        for _ in range(given.number()):
            self._raise(given.take(), *[given.number() for _ in range(4)], ends=given.take())
        rest = iter(keys[5:])
        for _ in range(given.number()):
            self._put_back(given, rest)
        return self._reply("ok", meta["epoch"], meta.get("until", ""))

    def _reply(self, status: str, first: str = "", second: str = "") -> list[str]:
        return [status, self.number, str(self.now), str(self.wall), " ".join(self.orphans), "0", first, second]

    def _windows(self, given: Arguments) -> KnownWindows:
        return KnownWindows(given.take(), given.take(), given.take(), given.take())

    def _recovering(self) -> str:
        ends = int(self.data.meta.get("until", "0"))
        if ends > self.now + RECOVERING_MAX:
            ends = self.now + RECOVERING_MAX
            self.data.meta["until"] = str(ends)
        return str(ends) if ends > self.now else "0"

    def _packed(self, name: str) -> str:
        return " ".join(map(str, self.data.accounts.get(name) or [0] * 5))

    def _streams(self, key: str) -> int:
        return sum(ends > self.now for ends in self.data.slots.get(key, {}).values())

    def _leave_if_empty(self, name: str) -> None:
        window, is_client, _ = name.partition("|c|")
        if is_client and not any(self.data.accounts[name][:OVERRUN]):
            del self.data.accounts[name]
            self.data.due.pop(f"m{name}", None)
            self.data.clients[f"{window}|"] -= 1

    def _reap(self, most: int) -> bool:
        due = sorted((ends, member) for member, ends in self.data.due.items() if ends <= self.now)[:most]
        for _, member in due:
            name = member[1:]
            if member[0] == "m":
                self.data.accounts.pop(name, None)
                if name.endswith("|n"):
                    self.data.clients.pop(name[:-1], None)
                del self.data.due[member]
            elif self.data.calls.get(name, "").startswith("open "):
                self._orphan(name)
            elif self._is_of_use(self.data.calls.get(name, "")):
                self.data.due[member] = self.now + ORPHAN_KEPT
            else:
                self.data.calls.pop(name, None)
                del self.data.due[member]
        return bool(due)

    def _is_of_use(self, record: str) -> bool:
        parts, _ = split_record(record)
        return parts[:1] == ["orphaned"] and any(name in self.data.accounts for name in parts[2:])

    def _orphan(self, reservation: str) -> None:
        record = self.data.calls[reservation]
        (_, amount, *fields), _ = split_record(record)
        for name in fields:
            account = self.data.accounts.get(name)
            if account is not None:
                moved = min(account[OPEN], int(amount))
                account[OPEN] -= moved
                account[ORPHANED] += moved
        self.data.calls[reservation] = "orphaned" + record.removeprefix("open")
        self.data.due[f"r{reservation}"] = self.now + ORPHAN_KEPT
        self.data.slots.get(self.everybody, {}).pop(reservation, None)
        self.orphans.append(reservation)

    def _find_accounts(self, money: Sequence[Money], clients_max: int) -> bool:
        for one in money:
            chosen = one.known.chosen(self.wall)
            if chosen is None:
                return False
            one.window, one.ends = chosen
            one.overflow = False
            if not one.client:
                one.field = f"{one.window}a"
                continue
            one.field = f"{one.window}c|{one.client}"
            one.clients = self.data.clients.get(one.window, 0)
            if one.field not in self.data.accounts and one.clients >= clients_max:
                one.field, one.overflow = f"{one.window}o", True
        return True

    def _verdict(self, money: Sequence[Money], slots: Sequence[tuple[str, str]], amount: int) -> str:
        letters = ""
        for one in money:
            account = self.data.accounts.get(one.field) or [0] * 5
            spent = account[SETTLED] + account[KEPT] + account[ORPHANED]
            if amount > one.limit > 0:
                letters += "n"
            elif spent + amount > one.limit:
                letters += "s"
            elif spent + account[OPEN] + amount > one.limit:
                letters += "b"
            else:
                letters += "."
        for key, quota in slots:
            letters += "f" if quota and self._streams(key) >= int(quota) else "."
        return letters

    def _debit(
        self,
        reservation: str,
        money: Sequence[Money],
        slots: Sequence[tuple[str, str]],
        *,
        amount: int,
        lease: int,
    ) -> None:
        data = self.data
        data.meta["wall"] = str(self.wall)
        for one in money:
            if one.field not in data.accounts:
                kept = None if one.ends is None else self.now + (one.ends - self.wall) * SECOND + PAST_KEPT
                if kept is not None:
                    data.due[f"m{one.field}"] = kept
                if one.client and not one.overflow:
                    assert one.clients is not None
                    if one.clients == 0 and kept is not None:
                        data.due[f"m{one.window}n"] = kept
                    one.clients += 1
                    data.clients[one.window] = one.clients
            data.accounts.setdefault(one.field, [0] * 5)[OPEN] += amount
        data.calls[reservation] = " ".join(["open", str(amount), *[one.field for one in money]])
        data.due[f"r{reservation}"] = self.now + lease
        for key, _ in slots:
            held = data.slots.setdefault(key, {})
            held[reservation] = self.now + lease
            if key != self.everybody:
                data.slots[key] = {name: ends for name, ends in held.items() if ends > self.now}

    def _account_of_a_late_bill(self, name: str, clients_max: int) -> str | None:
        """None when its window was purged."""
        window, is_client, _ = name.partition("|c|")
        if name in self.data.accounts:
            return name
        if not is_client or f"{window}|" not in self.data.clients:
            return None
        if self.data.clients[f"{window}|"] >= clients_max:
            return f"{window}|o" if f"{window}|o" in self.data.accounts else None
        self.data.clients[f"{window}|"] += 1
        ends = self.data.due.get(f"m{window}|n")
        if ends is not None:
            self.data.due[f"m{name}"] = ends
        return name

    def _raise(self, name: str, settled: int, kept: int, overrun: int, highest: int, *, ends: str) -> None:
        account = list(self.data.accounts.get(name) or [0] * 5)
        account[SETTLED], account[KEPT] = max(account[SETTLED], settled), max(account[KEPT], kept)
        account[OVERRUN] = max(account[OVERRUN], overrun)
        account[ORPHANED] = max(account[ORPHANED], highest - account[SETTLED] - account[KEPT] - account[OPEN])
        if not any(account[:OVERRUN]):
            return
        if name not in self.data.accounts:
            kept_until = self.now + (int(ends) - self.wall) * SECOND + PAST_KEPT if ends else None
            if kept_until is not None:
                self.data.due[f"m{name}"] = kept_until
            window, is_client, _ = name.partition("|c|")
            if is_client:
                self.data.clients[f"{window}|"] = self.data.clients.get(f"{window}|", 0) + 1
                if self.data.clients[f"{window}|"] == 1 and kept_until is not None:
                    self.data.due[f"m{window}|n"] = kept_until
        self.data.accounts[name] = account

    def _put_back(self, given: Arguments, keys: Iterator[str]) -> None:
        reservation, lease, holds, client_slots = given.take(), given.number(), given.take() == "1", given.number()
        amount = given.number()
        fields = [given.take() for _ in range(given.number())]
        key = next(keys) if client_slots else None
        if reservation in self.data.calls:
            return
        for name in fields:
            account = self.data.accounts.get(name)
            if account is not None:
                account[OPEN] += amount
                account[ORPHANED] = max(0, account[ORPHANED] - amount)
        self.data.calls[reservation] = " ".join(["open", str(amount), *fields])
        self.data.due[f"r{reservation}"] = self.now + lease
        for slot_key in filter(None, (self.everybody if holds else None, key)):
            self.data.slots.setdefault(slot_key, {})[reservation] = self.now + lease
