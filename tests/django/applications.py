"""What `ASGI_APPLICATION` may name: guarded, wrapped, or not guarded at all."""

from types import SimpleNamespace
from typing import Any

from django.core.asgi import get_asgi_application

from routeguard import RouteGuard
from tests.guarding import TEN_CENTS

COMPLETE: dict[str, Any] = {"paths": ["/chat/*"], "budget": "1/day", "system_prompt_bytes": 100, **TEN_CENTS}
FOR_SHOP = {**COMPLETE, "cors_origins": ["https://shop.example"]}


def _guarded(**settings: Any) -> RouteGuard:
    return RouteGuard(get_asgi_application(), **{**COMPLETE, "environ": {}, **settings})


bare = get_asgi_application()
guarded = _guarded()
wrapped = SimpleNamespace(app=SimpleNamespace(application=guarded))
routed = SimpleNamespace(application_mapping={"http": guarded, "websocket": bare})
for_shop = _guarded(cors_origins=["https://shop.example"])
for_everybody = _guarded(cors_origins=["*"])
without_a_cap = _guarded(budget="unlimited", client_budget="unlimited")
switched_off = _guarded(mode="off")
without_a_prompt = _guarded(system_prompt_bytes=None)


def __getattr__(name: str) -> RouteGuard:
    """`broken` cannot be built, which is found out when somebody asks for it."""
    if name == "broken":
        return _guarded(budget="much", rate="10/eon")
    if name == "unpriced":
        return _guarded(price_in=None, price_out=None, model="gpt-5-minny")
    raise AttributeError(name)
