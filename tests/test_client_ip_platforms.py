"""The presets of platforms and the vectors, each as the documentation lists it."""

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from routeguard.client_ip import PLATFORMS, Headers, Strategy, parse_strategy, suggest_platform
from routeguard.client_ip.strategies import EdgeHeader
from tests.forwarding import pack, xff

DOCS = Path(__file__).parent.parent / "docs"


class Vector(NamedTuple):
    mode: str
    peer: str | None
    headers: Headers
    expect: str | None
    why: str

    @property
    def strategy(self) -> Strategy:
        return PLATFORMS[self.mode].strategy if self.mode in PLATFORMS else parse_strategy(self.mode)


def read_vectors() -> list[Vector]:
    rows = json.loads((DOCS / "client-ip-vectors.json").read_text(encoding="utf-8"))
    return [
        Vector(
            row["mode"],
            row["peer"],
            [(name.encode(), value.encode()) for name, value in row["headers"]],
            row["expect"],
            row["why"],
        )
        for row in rows
    ]


VECTORS = read_vectors()
VECTOR_IDS = [f"{number} {vector.mode}: {vector.why}" for number, vector in enumerate(VECTORS, start=1)]


class TestVectors:
    @pytest.mark.parametrize("vector", VECTORS, ids=VECTOR_IDS)
    def test_every_published_vector_resolves_as_published(self, vector: Vector) -> None:
        found = vector.strategy.find(vector.headers, vector.peer)

        assert found == (None if vector.expect is None else pack(vector.expect))

    @pytest.mark.parametrize("vector", VECTORS, ids=VECTOR_IDS)
    def test_headers_the_strategy_does_not_read_change_nothing(self, vector: Vector) -> None:
        others = (b"x-real-ip", b"x-forwarded-for", b"forwarded", b"cf-connecting-ip", b"x_real_ip", b"client-ip")
        noise = [(name, b"6.6.6.6") for name in others if name not in vector.strategy.headers]

        found = vector.strategy.find([*noise, *vector.headers, *noise], vector.peer)

        assert found == vector.strategy.find(vector.headers, vector.peer)

    def test_every_preset_has_a_vector_with_an_address_and_one_without(self) -> None:
        with_address = {vector.mode for vector in VECTORS if vector.expect is not None}
        without = {vector.mode for vector in VECTORS if vector.expect is None}

        assert set(PLATFORMS) <= with_address & without

    def test_no_vector_stands_twice(self) -> None:
        inputs = [(vector.mode, vector.peer, tuple(vector.headers)) for vector in VECTORS]

        assert len(set(inputs)) == len(inputs)


class TestPlatforms:
    def test_the_presets_are_those_of_the_contract(self) -> None:
        expected = {
            "x-real-ip": "vercel railway nginx",
            "cf-connecting-ip": "cloudflare render",
            "fly-client-ip": "fly",
            "x-nf-client-connection-ip": "netlify",
            "do-connecting-ip": "digitalocean",
            "cloudfront-viewer-address": "cloudfront",
            "x-azure-socketip": "azure-front-door",
            "xff:1": "heroku aws-alb cloud-run azure-app-gateway caddy traefik haproxy ingress-nginx ngrok",
            "xff:2": "gcp-lb",
            "direct": "direct",
        }

        found = {name: platform.strategy.name for name, platform in PLATFORMS.items()}

        assert found == {name: strategy for strategy, names in expected.items() for name in names.split()}

    def test_edges_that_can_be_gone_around_need_a_secret(self) -> None:
        needing = {name for name, platform in PLATFORMS.items() if platform.needs_edge_secret}

        assert needing == {"cloudflare", "cloudfront", "azure-front-door"}

    def test_only_heroku_insists_on_one_line(self) -> None:
        two_lines = xff("6.6.6.6, 203.0.113.9", "7.7.7.7, 198.51.100.7")

        refusing = {
            name
            for name, platform in PLATFORMS.items()
            if b"x-forwarded-for" in platform.strategy.headers and platform.strategy.find(two_lines, None) is None
        }

        assert refusing == {"heroku"}

    def test_the_table_cannot_be_changed(self) -> None:
        with pytest.raises(TypeError):
            PLATFORMS["vercel"] = PLATFORMS["direct"]  # type: ignore[index]

    @pytest.mark.parametrize(
        ("variable", "platform"),
        [
            ("VERCEL", "vercel"),
            ("FLY_APP_NAME", "fly"),
            ("RENDER", "render"),
            ("RAILWAY_PROJECT_ID", "railway"),
            ("RAILWAY_SERVICE_ID", "railway"),
            ("RAILWAY_ENVIRONMENT", "railway"),
            ("RAILWAY_ENVIRONMENT_NAME", "railway"),
            ("DYNO", "heroku"),
            ("K_SERVICE", "cloud-run"),
            ("NETLIFY", "netlify"),
        ],
    )
    def test_a_platforms_own_variable_suggests_it(self, variable: str, platform: str) -> None:
        assert suggest_platform({"PATH": "/bin", variable: "1"}) == platform

    @pytest.mark.parametrize(
        "environ",
        [{}, {"PATH": "/bin"}, {"VERCEL": ""}, {"vercel": "1"}, {"VERCEL": "1", "DYNO": "web.1"}],
    )
    def test_nothing_or_a_contradiction_suggests_nothing(self, environ: dict[str, str]) -> None:
        assert suggest_platform(environ) is None

    def test_several_variables_of_one_platform_suggest_it(self) -> None:
        assert suggest_platform({"RAILWAY_PROJECT_ID": "1", "RAILWAY_SERVICE_ID": "2"}) == "railway"

    @pytest.mark.parametrize("name", PLATFORMS)
    def test_the_documentation_has_the_row_of_every_preset(self, name: str) -> None:
        platform = PLATFORMS[name]
        strategy = platform.strategy
        setting = f"header:{strategy.name}" if isinstance(strategy, EdgeHeader) else strategy.name
        setting += ", one line" if name == "heroku" else ""
        variables = ", ".join(f"`{variable}`" for variable in platform.environment) or "none"
        first, last = f"| `{name}` | `{setting}` | {platform.why} | ", f" | {variables} | {platform.source} |"

        documented = (DOCS / "platforms.md").read_text(encoding="utf-8").splitlines()

        assert sum(line.startswith(first) and line.endswith(last) for line in documented) == 1

    @pytest.mark.parametrize("name", PLATFORMS)
    def test_the_documentation_says_how_to_lock_every_preset(self, name: str) -> None:
        page = (DOCS / "platforms.md").read_text(encoding="utf-8")

        locks = re.findall(r"^\| `([a-z-]+)` \| [^|]+ \| [^|]+ \| [^|]{20,} \| [^|]{9,} \|", page, re.MULTILINE)

        assert locks.count(name) == 1

    def test_the_documentation_has_no_row_of_an_unknown_preset(self) -> None:
        page = (DOCS / "platforms.md").read_text(encoding="utf-8")

        rows = re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)

        assert set(rows) == set(PLATFORMS)
