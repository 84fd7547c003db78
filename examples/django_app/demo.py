"""Around the guarded application of `asgi.py`: a second guard that only observes, and a provider that fails on cue."""

import os
from typing import Any

from examples.django_app.providers import Cast, use
from examples.fastapi_app.model import Model, scripted
from examples.serving import SCRIPTED_PATH
from routeguard import RouteGuard
from routeguard.testing.scripted import ScriptedProvider


def create_app(model: Model, *, stage: ScriptedProvider, port: int, admin_token: str) -> Any:
    """The whole demo: the chat, the page with the live panel, the attacks on it, and the scripted provider."""
    rehearsal = scripted(f"http://127.0.0.1:{port}{SCRIPTED_PATH}", why="a question that begins with script:")
    use(Cast(model, rehearsal, port, admin_token))
    os.environ["ROUTEGUARD_ADMIN_TOKEN"] = admin_token
    # Django reads its settings when this is imported, and the guard reads them from Django.
    from examples.django_app.asgi import application
    from examples.django_app.page import OBSERVED_STATUS_PATH

    # For contrast: the same view and limits, but nothing is refused. A keyword wins over `settings.ROUTEGUARD`.
    observed = RouteGuard(
        application,
        paths=["/observed/chat"],
        mode="observe",
        namespace="observed",
        status_path=OBSERVED_STATUS_PATH,
    )

    async def demo(scope: Any, receive: Any, send: Any) -> None:
        is_provider = scope["type"] == "http" and scope["path"].startswith(SCRIPTED_PATH)
        await (stage if is_provider else observed)(scope, receive, send)

    return demo
