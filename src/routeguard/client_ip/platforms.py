"""Which source to trust where: one row a platform.

None of these was probed on the live platform; each row rests on its `source`. `docs/platforms.md` shows the same table
and how to keep clients from going around the edge.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from routeguard.client_ip.strategies import DirectPeer, Strategy, XForwardedForHops, parse_strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """A place where applications run, and what can be believed there."""

    #: As in `ROUTEGUARD_PLATFORM`.
    name: str
    strategy: Strategy
    #: Why the client cannot forge it, in one sentence.
    why: str
    #: Page or report that says so.
    source: str
    #: Whether anybody who finds the origin can reach it around the edge, or through an account of their own there.
    needs_edge_secret: bool = False
    #: Variables that the platform sets for the application; any of them suggests it.
    environment: tuple[str, ...] = ()


def suggest_platform(environ: Mapping[str, str]) -> str | None:
    """The preset that the platform's own variables point to; None if none does, or more than one."""
    names = [platform.name for platform in _PLATFORMS if any(environ.get(name) for name in platform.environment)]
    return names[0] if len(names) == 1 else None


_PLATFORMS = (
    Platform(
        name="direct",
        strategy=DirectPeer(),
        why="The address of the connection itself; right only if no proxy stands in front.",
        source="https://asgi.readthedocs.io/en/latest/specs/www.html",
    ),
    Platform(
        name="vercel",
        strategy=parse_strategy("header:x-real-ip"),
        why="Vercel overwrites it and discards what the client sent.",
        source="https://vercel.com/docs/headers/request-headers",
        environment=("VERCEL",),
    ),
    Platform(
        name="railway",
        strategy=parse_strategy("header:x-real-ip"),
        why="Railway's edge sets it; its `X-Forwarded-For` is not documented.",
        source="railwayapp/docs, specs-and-limits.md",
        environment=("RAILWAY_PROJECT_ID", "RAILWAY_SERVICE_ID", "RAILWAY_ENVIRONMENT_NAME", "RAILWAY_ENVIRONMENT"),
    ),
    Platform(
        name="nginx",
        strategy=parse_strategy("header:x-real-ip"),
        why="`proxy_set_header X-Real-IP $remote_addr;` overwrites it; without that line the client writes it.",
        source="https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_set_header",
    ),
    Platform(
        name="cloudflare",
        strategy=parse_strategy("header:cf-connecting-ip"),
        why="Cloudflare sets this one address; its `X-Forwarded-For` only grows.",
        source="https://developers.cloudflare.com/fundamentals/reference/http-headers/",
        needs_edge_secret=True,
    ),
    Platform(
        name="render",
        strategy=parse_strategy("header:cf-connecting-ip"),
        why="Render stands behind Cloudflare, which sets it; the last `X-Forwarded-For` entry is Cloudflare's own.",
        source="https://rohitpaulk.com/articles/render-rails-remote-ip",
        environment=("RENDER",),
    ),
    Platform(
        name="fly",
        strategy=parse_strategy("header:fly-client-ip"),
        why="Fly's proxy writes whom it sees; the last `X-Forwarded-For` entry is the application's own address.",
        source="https://fly.io/docs/networking/request-headers/",
        environment=("FLY_APP_NAME",),
    ),
    Platform(
        name="netlify",
        strategy=parse_strategy("header:x-nf-client-connection-ip"),
        why="Netlify's edge sets it for every request.",
        source="netlify/primitives, headers.ts; Netlify forum, thread 52665",
        environment=("NETLIFY",),
    ),
    Platform(
        name="digitalocean",
        strategy=parse_strategy("header:do-connecting-ip"),
        why="App Platform's edge sets it.",
        source="https://github.com/mixpanel/tracking-proxy/issues/31",
    ),
    Platform(
        name="cloudfront",
        strategy=parse_strategy("header:cloudfront-viewer-address"),
        why="CloudFront sets it, with a port, once the origin request policy names it; `X-Forwarded-For` only grows.",
        source="https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/adding-cloudfront-headers.html",
        needs_edge_secret=True,
    ),
    Platform(
        name="azure-front-door",
        strategy=parse_strategy("header:x-azure-socketip"),
        why="The socket that Front Door saw; `X-Azure-ClientIP` follows what the client sends.",
        source="https://learn.microsoft.com/azure/frontdoor/front-door-http-headers-protocol",
        needs_edge_secret=True,
    ),
    Platform(
        name="heroku",
        # The older router appends to the first line, so a second one would be all the client's.
        strategy=XForwardedForHops(1, one_line=True),
        why="The router appends whom it sees; two lines are refused, since the older router leaves the last as sent.",
        source="https://github.com/heroku/roadmap/issues/238",
        environment=("DYNO",),
    ),
    Platform(
        name="aws-alb",
        strategy=parse_strategy("xff:1"),
        why="The load balancer appends whom it sees; in mode `preserve` it does not, and all of it is the client's.",
        source="https://docs.aws.amazon.com/elasticloadbalancing/latest/application/x-forwarded-headers.html",
    ),
    Platform(
        name="cloud-run",
        strategy=parse_strategy("xff:1"),
        why="Google's front end writes the last entry; behind an external load balancer use `gcp-lb`.",
        source="https://blog.cateiru.com/ (2024-02-19); variables: https://cloud.google.com/run/docs/container-contract",
        environment=("K_SERVICE",),
    ),
    Platform(
        name="azure-app-gateway",
        strategy=parse_strategy("xff:1"),
        why="The gateway appends whom it sees, as `ip:port`; the port is dropped.",
        source="https://learn.microsoft.com/azure/application-gateway/how-application-gateway-works",
    ),
    Platform(
        name="caddy",
        strategy=parse_strategy("xff:1"),
        why="Caddy ignores what the client sent unless told to trust it, and writes whom it sees.",
        source="https://caddyserver.com/docs/caddyfile/directives/reverse_proxy",
    ),
    Platform(
        name="traefik",
        strategy=parse_strategy("xff:1"),
        why="Traefik deletes what untrusted peers sent and appends whom it sees; its `X-Real-IP` can survive forged.",
        source="traefik/traefik, forwarded_header.go",
    ),
    Platform(
        name="haproxy",
        strategy=parse_strategy("xff:1"),
        why="`option forwardfor` adds a line of its own below the client's, and the last line is the one read.",
        source="https://docs.haproxy.org/ (option forwardfor)",
    ),
    Platform(
        name="ingress-nginx",
        strategy=parse_strategy("xff:1"),
        why="The controller overwrites it by default, and appends with `compute-full-forwarded-for`.",
        source="https://kubernetes.github.io/ingress-nginx/user-guide/nginx-configuration/configmap/",
    ),
    Platform(
        name="ngrok",
        strategy=parse_strategy("xff:1"),
        why="ngrok's edge appends whom it sees.",
        source="ngrok/ngrok-docs, http.mdx",
    ),
    Platform(
        name="gcp-lb",
        strategy=parse_strategy("xff:2"),
        why="The load balancer appends two entries, the client and then itself; what comes before is unchecked.",
        source="https://cloud.google.com/load-balancing/docs/https#x-forwarded-for_header",
    ),
)

#: Every preset by its name.
PLATFORMS: Mapping[str, Platform] = MappingProxyType({platform.name: platform for platform in _PLATFORMS})
