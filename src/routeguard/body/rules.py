"""What one guarded route lets in, as the operator set it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyRules:
    """The limits of a body. Every limit is inclusive."""

    #: Most bytes of body, path and query together.
    bytes_max: int
    #: Body types let in, out of `json`, `text`, `form`, `multipart`, `binary`.
    types: frozenset[str]
    #: Most characters (code points) over all texts.
    chars_max: int
    #: What one call may produce; a body may ask for less, never for more.
    output_tokens_max: int
    #: Model names a body may ask for; None when the operator gave prices instead of models.
    models: frozenset[str] | None
    #: Price-changing fields let through.
    allowed_fields: frozenset[str]
    #: The complete list of top-level fields, or None for any.
    only_fields: frozenset[str] | None
    #: Whether media parts are let in (they have a price of their own).
    media_allowed: bool
