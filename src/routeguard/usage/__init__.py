"""What a provider says a call used, in one normal form for every dialect.

Rules that live here:

- None is not zero: what nobody reported stays unknown.
- Of a count that is repeated the largest value stands, of what makes an answer cheaper the last. Nothing is added up
  over the events of one answer, because providers repeat their counts and let them grow; some end with zeros.
- Where numbers contradict each other the dearer reading wins: `output = max(completion, reasoning, total - input)`.
- What cannot be a count (negative, not an integer, absurdly large) makes the whole report unusable.
"""

from routeguard.usage.normal_form import UnusableUsage, Usage
from routeguard.usage.report import usage_from
from routeguard.usage.tally import Tally

__all__ = ["Tally", "UnusableUsage", "Usage", "usage_from"]
