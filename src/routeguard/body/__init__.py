"""What a request may carry: its headers before the body is read, its body before the application sees it."""

from routeguard.body.checks import BodyFacts, check_body
from routeguard.body.headers import NO_BODY, BodyHead, check_headers, too_large
from routeguard.body.rules import BodyRules

__all__ = ["NO_BODY", "BodyFacts", "BodyHead", "BodyRules", "check_body", "check_headers", "too_large"]
