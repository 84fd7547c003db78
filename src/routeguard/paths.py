"""Which requests are guarded. Matching over-matches on purpose.

A path that is guarded for nothing costs a counter; a path that slips through costs money. Frameworks differ in
what they route: Starlette's `$` lets `/chat\\n` reach `/chat`, Litestar and Quart serve `//chat` and `/chat/`,
and with a `root_path` most servers reach the route with and without the prefix. So every candidate is tried in
one coarse canonical form, and whatever looks odd is guarded.
"""

import re
from collections.abc import Sequence
from urllib.parse import unquote

#: Scheme and host of an absolute-form target, which some servers leave in the path.
ABSOLUTE_FORM = re.compile(r"^[a-z][a-z0-9+.-]*:(?=/)(?://[^/]*)?", re.IGNORECASE)
#: A scheme without a slash behind it, which may as well be the beginning of a name: Quart takes it for a scheme.
BARE_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:(?!/)", re.IGNORECASE)
#: C0 and C1 control characters and every kind of blank, wherever they stand.
CONTROLS = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029]+")
SLASHES = re.compile(r"/{2,}")
ODD = re.compile(r"\\|(?:^|/)\.\.?(?:/|$)")
#: A longer path is odd too: stars take quadratic time, and servers let 64 kB of path through.
PATH_CHARS_MAX = 2048
#: Where to stop taking a root apart: a mount may take any number of segments from the client.
ROOT_SEGMENTS_MAX = 8


class PathPatterns:
    """The `PATHS` setting: `*` matches within a segment, `**` across segments.

    Args:
        patterns: As configured.
        prefixes: What the application itself cuts off a path, besides the `root_path` that the server names.
    """

    def __init__(self, patterns: Sequence[str], prefixes: Sequence[str] = ()) -> None:
        self.patterns = tuple(patterns)
        self._prefixes = tuple(prefixes)
        # Written as in the address bar or as decoded: servers decode the path.
        canonical = [_canonical(unquote(pattern)) for pattern in self.patterns]
        self._literals = {path: given for path, given in zip(canonical, self.patterns, strict=True) if "*" not in path}
        self._globs = [
            (_compile(path), given) for path, given in zip(canonical, self.patterns, strict=True) if "*" in path
        ]

    def match(self, path: str, root_path: str = "") -> str | None:
        """The pattern that guards this path, or None. An odd path is guarded by the first pattern."""
        literal = self._literals.get(path)
        if literal is not None:
            return literal
        if len(path) > PATH_CHARS_MAX:
            return self.patterns[0]
        candidates = _candidates(path, (root_path, *self._prefixes))
        if any(ODD.search(candidate) for candidate in candidates):
            return self.patterns[0]
        for candidate in candidates:
            literal = self._literals.get(candidate)
            if literal is not None:
                return literal
            for glob, given in self._globs:
                if glob.fullmatch(candidate):
                    return given
        return None


def _candidates(path: str, prefixes: Sequence[str]) -> list[str]:
    plain = _canonical(path)
    candidates = [plain]
    if not path.startswith("/"):
        candidates.append(_canonical(BARE_SCHEME.sub("", CONTROLS.sub("", path))))
    for prefix in prefixes:
        if prefix and prefix in path:
            # Litestar cuts off all there is up to the prefix, wherever it stands, and Quart does not ask for a slash.
            candidates.append(_canonical(path.partition(prefix)[2]))
        root = _canonical(prefix)
        if root == "/":
            continue
        # uvicorn puts the prefix into the path, the other servers leave it alone, and both reach the route.
        candidates += _below(plain, root) if plain == root or plain.startswith(root + "/") else [root + plain]
    if "#" in path or "?" in path or ";" in path:
        candidates += [_canonical(re.split("[#?;]", candidate)[0]) for candidate in candidates]
    if "%" in path:
        candidates += [_canonical(unquote(candidate)) for candidate in candidates]
    return candidates


def _below(path: str, root: str) -> list[str]:
    """What is left of a path below its root, and below each beginning of the root.

    The root of a mounted application is the server's prefix and the place of the mount in one, and a pattern may be
    written without either: a prefix that is new with a deployment must not uncover what `/sub/chat` guarded before.
    """
    below = path[len(root) :]
    mounts = root.split("/", ROOT_SEGMENTS_MAX)[2:]
    return [below or "/", *("/" + "/".join(mounts[cut:]) + below for cut in range(len(mounts)))]


def _canonical(path: str) -> str:
    """Without scheme and host, control characters, doubled and trailing slashes, and case."""
    path = CONTROLS.sub("", path)
    if not path.startswith("/"):
        path = "/" + ABSOLUTE_FORM.sub("", path)
    path = SLASHES.sub("/", path)
    return (path.rstrip("/") or "/").casefold()


def _compile(pattern: str) -> re.Pattern[str]:
    # `/api/*` and `/api/**` also guard `/api`, because a trailing slash is cut before matching; and `/**/chat` guards
    # `/chat`: no segment at all is as good as several.
    fixed = pattern.removesuffix("/*")
    tail = "" if fixed == pattern else "(?:/[^/]*)?"
    first, *rest = re.split(r"(/\*\*(?=/|$)|\*\*)", fixed)
    compiled = _segments(first)
    while rest:
        stars, following, *rest = rest
        gap = "(?:/.*?)??" if stars == "/**" else ".*?"
        if not rest:
            compiled += gap + _segments(following)
            break
        # Across segments the first place that fits is as good as any: `(?>` says that it is never given up again.
        boundary = "(?=/|\\Z)" if rest[0] == "/**" else ""
        compiled += f"(?>{gap}{_segments(following)}{boundary})"
    return re.compile(compiled + tail, re.DOTALL)


def _segments(pattern: str) -> str:
    first, *rest = map(re.escape, pattern.split("*"))
    if not rest:
        return first
    *between, last = rest
    # Within a segment, too, the first place that fits is as good as any for all stars but the last.
    return first + "".join(f"(?>[^/]*?{part})" for part in between) + "[^/]*?" + last
