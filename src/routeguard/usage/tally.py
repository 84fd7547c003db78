"""What one answer has said so far, read part by part as it passes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TypeVar

from routeguard.usage.answer import (
    ANSWER_IDS,
    MODELS,
    TIERS,
    TOKEN_COUNTS,
    Getter,
    cost_in,
    counts_in,
    finish_in,
    getter,
    iterations_in,
    kind_in,
    model_in,
    tool_counts_in,
    usage_in,
)
from routeguard.usage.normal_form import UnusableUsage, Usage, items_of, larger, normal_form, total, word_of

T = TypeVar("T")

#: Counts that make an answer cheaper. Of these the last is taken, of all others the largest.
DISCOUNTED = frozenset({"cached"})


class Tally:
    """What an answer says about what it used: of each count the largest, never a sum over its events.

    Every reading method raises `UnusableUsage` on what cannot be right; the tally is then worthless.
    """

    __slots__ = ("_answer_id", "_cost_usd", "_counts", "_iterations", "_model", "_service_tier", "changes", "finish")

    def __init__(self) -> None:
        self._answer_id: str | None = None
        self._counts: dict[str, int] = {}
        self._iterations: tuple[_Iteration, ...] = ()
        self._cost_usd: Decimal | None = None
        self._model: str | None = None
        self._service_tier: str | None = None
        #: Finish reason seen last.
        self.finish: str | None = None
        #: Grows with everything the tally learns; unchanged after an event that said nothing new.
        self.changes = 0

    @property
    def is_nameless(self) -> bool:
        """Whether nothing has said which answer this is, so that another could not be told from it."""
        return self._answer_id is None

    def read_answer(self, answer: object) -> bool:
        """Take in a response, or a chunk of one in the same shape; True if it carried token counts."""
        get = getter(answer)
        # Most events repeat what the first one said, in the words looked for first.
        if self._answer_id is None or get("id") != self._answer_id:
            answer_id = self._latest_word(self._answer_id, get, ANSWER_IDS)
            if self._answer_id is not None and answer_id != self._answer_id:
                # The counts of the second answer would replace those of the first, and both are billed.
                raise UnusableUsage("a second answer in the same stream")
            self._answer_id = answer_id
        if self._model is None or get("model") != self._model:
            self._model = self._latest_word(self._model, get, MODELS)
        self._read_tier(get)
        choices = items_of(get("choices"))
        self.finish = self._latest(self.finish, finish_in(get, choices))
        if (used_tools := get("tool_usage")) is not None:
            self._note_counts(tool_counts_in(used_tools))
        usage = usage_in(get, choices)
        return usage is not None and self.read_usage(usage)

    def read_usage(self, usage: object) -> bool:
        """Take in a usage object; True if it carried token counts."""
        get = getter(usage)
        counts = counts_in(usage, get)
        self._note_counts(counts)
        self._read_tier(get)
        cost_usd = cost_in(get)
        if cost_usd is not None and (self._cost_usd is None or cost_usd > self._cost_usd):
            self._cost_usd = cost_usd
            self.changes += 1
        if items := iterations_in(get):
            self._iterations = self._latest(self._iterations, tuple(_Iteration.read(item) for item in items))
        return not TOKEN_COUNTS.isdisjoint(counts)

    def usage(self) -> Usage | None:
        """What is known, in normal form; None if no tokens were ever counted."""
        used = normal_form(
            self._counts,
            model=self._model,
            service_tier=self._service_tier,
            cost_usd=self._cost_usd,
            finish=self.finish,
        )
        if self._iterations:
            others = tuple(it.usage for it in self._iterations if it.is_of_another_model(self._model))
            used = replace(
                self._with_iterations(used),
                model=self._model,
                service_tier=self._service_tier,
                cost_usd=self._cost_usd,
                finish=self.finish,
                other_models=others,
            )
        return None if used.input_tokens is None and used.output_tokens is None else used

    def usage_of_answer(self) -> Usage | None:
        """As `usage`, of what was read and not reported: no call uses nothing, so who says so has said nothing."""
        used = self.usage()
        return used if used is not None and (used.input_tokens or used.output_tokens or used.cost_usd) else None

    def _with_iterations(self, top: Usage) -> Usage:
        """Anthropic's top level leaves out passes that are no messages: it says 220 beside a compaction's 55,196."""
        passes = [it for it in self._iterations if not it.is_of_another_model(self._model)]
        everything = total([it.usage for it in passes])
        if any(it.kind == "message" for it in passes):
            return larger(top, everything)
        return total([top, everything])

    def _read_tier(self, get: Getter) -> None:
        if get("speed") == "fast":  # Anthropic's fast mode: a dearer service tier with a field of its own
            self._service_tier = self._latest(self._service_tier, "fast")
        elif self._service_tier is None or get("service_tier") != self._service_tier:
            self._service_tier = self._latest_word(self._service_tier, get, TIERS)

    def _note_counts(self, counts: Mapping[str, int]) -> None:
        for name, count in counts.items():
            known = self._counts.get(name)
            if known is None or (count != known if name in DISCOUNTED else count > known):
                self._counts[name] = count
                self.changes += 1

    def _latest_word(self, known: str | None, get: Getter, names: Sequence[str]) -> str | None:
        """What the first of these members that is there says."""
        for name in names:
            if (found := get(name)) is not None:
                return self._latest(known, word_of(found))
        return known

    def _latest(self, known: T, found: T) -> T:
        if found is None or found == known:
            return known
        self.changes += 1
        return found


@dataclass(frozen=True, slots=True)
class _Iteration:
    """One pass of an Anthropic answer that took several (`usage.iterations[]`)."""

    kind: str | None
    usage: Usage

    @classmethod
    def read(cls, item: object) -> "_Iteration":
        get = getter(item)
        return cls(kind_in(get), replace(normal_form(counts_in(item, get)), model=model_in(get)))

    def is_of_another_model(self, model: str | None) -> bool:
        """Whether another model made this pass. An adviser's is one even where it is not named."""
        return self.kind == "advisor_message" or self.usage.model not in (None, model)
