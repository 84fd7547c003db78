"""What a request may carry: its headers before the body is read, its body before the application sees it."""

from routeguard.body.checks import BodyFacts, check_body
from routeguard.body.headers import BodyHead, check_headers, too_large
from routeguard.body.rules import BodyRules

__all__ = ["BodyFacts", "BodyHead", "BodyRules", "check_body", "check_headers", "too_large"]
