"""Applications whose guard cannot be built, or not be opened; `test_start_and_stop.py` tries to serve them."""

from typing import Any

from fastapi import FastAPI

from routeguard import RouteGuard

#: Wrong in three places.
BROKEN: dict[str, Any] = {"paths": ["/chat"], "model": "no-such-model", "budget": "much/day", "rate": "10/eon"}

app = FastAPI()
app.add_middleware(RouteGuard, **BROKEN)

#: Fine until it runs on trio; nothing has to listen there.
on_trio = RouteGuard(FastAPI(), paths="/chat", price_in=1, price_out=1, ledger="redis://127.0.0.1:1")


@app.post("/chat")
async def chat() -> str:
    raise AssertionError("nothing reaches an application whose guard is broken")


@app.get("/free")
async def free() -> str:
    return "free"
