"""The page of the FastAPI demo with its live panel, and the attacks on it; your application does not need these."""

import mimetypes
import secrets
from pathlib import Path

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST, require_safe

from examples import fastapi_app
from examples.django_app.providers import cast
from examples.fastapi_app.attacks import ATTACKS, Target, run_attack

STATIC = Path(next(iter(fastapi_app.__path__))) / "static"
OBSERVED_STATUS_PATH = "/demo/observed"
#: Each route, and where its guard tells its state.
TARGETS = {
    "guarded": ("/api/chat", "/_routeguard/status"),
    "observed": ("/observed/chat", f"{OBSERVED_STATUS_PATH}/status"),
}


@require_safe
async def static(request: HttpRequest, name: str) -> HttpResponse:
    """A file of the page, under a policy that lets no inline script, inline style or foreign host in."""
    file = STATIC / name
    if file.parent != STATIC or not file.is_file():
        raise Http404(name)
    headers = {
        "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-cache",
    }
    return HttpResponse(file.read_bytes(), content_type=mimetypes.guess_type(name)[0], headers=headers)


@require_safe
async def config(request: HttpRequest) -> JsonResponse:
    answer = {
        "token": cast().admin_token,
        "model": cast().model.label,
        "price_in": settings.ROUTEGUARD["PRICE_IN"],
        "price_out": settings.ROUTEGUARD["PRICE_OUT"],
        "attacks": [{"name": name, "title": attack.title, "plan": attack.plan} for name, attack in ATTACKS.items()],
    }
    return JsonResponse(answer, headers={"Cache-Control": "no-store"})


@csrf_exempt  # the token is not a cookie: no other site can send it
@require_POST
async def attack(request: HttpRequest, name: str) -> HttpResponse:
    given = request.headers.get("Authorization", "")
    if not secrets.compare_digest(given.encode(), f"Bearer {cast().admin_token}".encode()):
        return HttpResponse(status=401)
    target = request.GET.get("target", "guarded")
    if name not in ATTACKS or target not in TARGETS:
        raise Http404(name)
    path, status_path = TARGETS[target]
    aim = Target(port=cast().port, path=path, status_path=status_path, admin_token=cast().admin_token)
    limits = settings.ROUTEGUARD
    report = await run_attack(
        name,
        aim,
        price_in=limits["PRICE_IN"],
        price_out=limits["PRICE_OUT"],
        output_tokens=limits["MAX_OUTPUT_TOKENS"],
    )
    return JsonResponse(report)
