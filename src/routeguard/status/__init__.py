"""Seeing and steering a running guard over HTTP: the live page, status, metrics, open, pause and resume.

Without `ADMIN_TOKEN` none of these routes exists, and the application answers for itself.
"""

from routeguard.status.routes import StatusRoutes

__all__ = ["StatusRoutes"]
