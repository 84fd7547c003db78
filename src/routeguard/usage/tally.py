"""What one answer has said so far, read part by part as it passes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TypeVar

from routeguard.usage.answer import (
    TOKEN_COUNTS,
    answer_id_in,
    cost_in,
    counts_in,
    finish_in,
    iterations_in,
    kind_in,
    model_in,
    tier_in,
    tool_counts_in,
    usage_in,
)
from routeguard.usage.normal_form import UnusableUsage, Usage, larger, normal_form, total

T = TypeVar("T")


class Tally:
    """The last value of each thing an answer says about what it used; never a sum over its events.

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

    def read_answer(self, answer: object) -> bool:
        """Take in a response, or a chunk of one in the same shape; True if it carried token counts."""
        self._note_answer(answer_id_in(answer))
        self._model = self._latest(self._model, model_in(answer))
        self._service_tier = self._latest(self._service_tier, tier_in(answer))
        self.finish = self._latest(self.finish, finish_in(answer))
        self._note_counts(tool_counts_in(answer))
        usage = usage_in(answer)
        return usage is not None and self.read_usage(usage)

    def read_usage(self, usage: object) -> bool:
        """Take in a usage object; True if it carried token counts."""
        counts = counts_in(usage)
        self._note_counts(counts)
        self._service_tier = self._latest(self._service_tier, tier_in(usage))
        self._cost_usd = self._latest(self._cost_usd, cost_in(usage))
        if iterations := tuple(_Iteration.read(item) for item in iterations_in(usage)):
            self._iterations = self._latest(self._iterations, iterations)
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

    def _with_iterations(self, top: Usage) -> Usage:
        """Anthropic's top level leaves out passes that are no messages: it says 220 beside a compaction's 55,196."""
        passes = [it for it in self._iterations if not it.is_of_another_model(self._model)]
        everything = total([it.usage for it in passes])
        if any(it.kind == "message" for it in passes):
            return larger(top, everything)
        return total([top, everything])

    def _note_answer(self, answer_id: str | None) -> None:
        if answer_id is not None and self._answer_id is not None and answer_id != self._answer_id:
            # The counts of the second answer would replace those of the first, and both are billed.
            raise UnusableUsage("a second answer in the same stream")
        self._answer_id = self._latest(self._answer_id, answer_id)

    def _note_counts(self, counts: Mapping[str, int]) -> None:
        for name, count in counts.items():
            if self._counts.get(name) != count:
                self._counts[name] = count
                self.changes += 1

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
        return cls(kind_in(item), replace(normal_form(counts_in(item)), model=model_in(item)))

    def is_of_another_model(self, model: str | None) -> bool:
        """Whether another model made this pass. An adviser's is one even where it is not named."""
        return self.kind == "advisor_message" or self.usage.model not in (None, model)
