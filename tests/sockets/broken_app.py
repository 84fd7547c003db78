"""An application whose guard cannot be built; `test_start_and_stop.py` tries to serve it."""

from typing import Any

from fastapi import FastAPI

from routeguard import RouteGuard

#: Wrong in three places.
BROKEN: dict[str, Any] = {"paths": ["/chat"], "model": "no-such-model", "budget": "much/day", "rate": "10/eon"}

app = FastAPI()
app.add_middleware(RouteGuard, **BROKEN)


@app.post("/chat")
async def chat() -> str:
    raise AssertionError("nothing reaches an application whose guard is broken")


@app.get("/free")
async def free() -> str:
    return "free"
