"""Usage that an application hands over: anything shaped like a provider's usage or response object."""

from routeguard.usage.normal_form import Usage, checked
from routeguard.usage.tally import Tally


def usage_from(value: object) -> Usage | None:
    """The usage in what an application hands over, or None where it cannot be used.

    Args:
        value: A usage or response object of OpenAI, Anthropic or Gemini, a mapping of the same shape, or a `Usage`.

    Never raises, whatever the object's attributes do, and looks at a bounded number of them.
    """
    try:
        if isinstance(value, Usage):
            return checked(value)
        tally = Tally()
        if not tally.read_answer(value):
            tally.read_usage(value)
        return tally.usage()
    except Exception:  # noqa: BLE001  an attribute of a foreign object may raise anything; None is the answer to that
        return None
