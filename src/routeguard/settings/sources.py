"""Where each setting was found: keyword, environment, Django, default; and what was written that is no setting.

Rules that live here:

- keyword > environment > Django's `settings.ROUTEGUARD` > default. A keyword that is None and an environment
  variable that is empty count as not written.
- Every problem is collected, none is raised: the operator sees all of them at once.
- A problem names the setting as it was written, and never repeats a secret.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from routeguard.settings.grammar import comma, nearest
from routeguard.settings.table import MODE, PREFIX, TABLE, Setting

Source = Literal["keyword", "environment", "django", "default"]
T = TypeVar("T")

#: Hooks exist as keywords only: no text can hold a function.
HOOKS: Final = ("client", "admit")
KEYWORDS_ONLY: Final = (*HOOKS, "environ")
#: Longest value repeated in a message, and longest message: a setting may be a whole file.
VALUE_CHARS_MAX: Final = 80
PROBLEM_CHARS_MAX: Final = 600

# https://kubernetes.io/docs/tutorials/services/connect-applications-service/#environment-variables: every container
# started beside a Service gets these; a Service called routeguard makes them look like ours.
_KUBERNETES_HOST = re.compile(r"(ROUTEGUARD(?:_[A-Z0-9_]+)?)_SERVICE_HOST")
_KUBERNETES_REST = re.compile(
    r"_SERVICE_HOST|_SERVICE_PORT(?:_[A-Z0-9_]+)?|_PORT(?:_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:ADDR|PORT|PROTO))?)?"
)


class Unusable(Exception):
    """A setting was asked for that could not be read. Its problem is on the list already."""


@dataclass(frozen=True, slots=True)
class Found:
    """One written value."""

    value: object
    source: Source
    #: The setting as its reader wrote it: `ROUTEGUARD_BUDGET`, `budget`, `settings.ROUTEGUARD['BUDGET']`.
    written: str


class Values:
    """Every setting, read once; and the problems and warnings so far."""

    def __init__(self, keywords: Mapping[str, object], environ: Mapping[str, str]) -> None:
        self.problems: list[str] = []
        self.warnings: list[str] = []
        #: What the process manager was told, where it was.
        self.workers = _workers(environ)
        # From the weakest to the strongest.
        self._found = self._from_django() | self._from_environment(environ) | self._from_keywords(keywords)
        self._values: dict[str, object] = {}
        for row in TABLE.values():
            self._read(row)

    def __getitem__(self, row: Setting[T]) -> T:
        """The value of a setting that has a default.

        Raises:
            Unusable: It could not be read.
        """
        assert row.default is not None, f"{row.name} has no default; use get()"
        return self.get(row)  # type: ignore[return-value]  # None only where the row's own grammar gives None

    def get(self, row: Setting[T]) -> T | None:
        """The value of a setting, None when it was not written.

        Raises:
            Unusable: It could not be read.
        """
        if row.name not in self._values:
            raise Unusable(row.name)
        return self._values[row.name]  # type: ignore[return-value]  # `_read` put there what the row's grammar made

    def is_given(self, row: Setting[object]) -> bool:
        """Whether somebody wrote it."""
        return row.name in self._found

    def source(self, row: Setting[object]) -> Source:
        """Where it was found."""
        return self._found[row.name].source if row.name in self._found else "default"

    def name(self, row: Setting[object]) -> str:
        """The setting as it was written, or as one would write it."""
        found = self._found.get(row.name)
        if found is None:
            return PREFIX + row.name
        return _keyword(row, "") if found.source == "keyword" else found.written

    def says(self, row: Setting[object]) -> str:
        """The setting and its value as written: `budget='5/day' (ROUTEGUARD_BUDGET)`; a secret without its value."""
        found = self._found.get(row.name)
        if found is None:
            return f"{PREFIX}{row.name} ('{row.default}' by default)"
        if row.secret:
            return self.name(row)
        value = _clipped(found.value)
        return _keyword(row, value) if found.source == "keyword" else f"{found.written}={value}"

    def text(self, row: Setting[object]) -> str | None:
        """The value as written or by default, `***` for a secret; None when there is none."""
        found = self._found.get(row.name)
        if found is None:
            return row.default
        if row.secret:
            return "***"
        value = found.value
        if isinstance(value, list | tuple) and all(isinstance(entry, str) for entry in value):
            return ", ".join(value)
        return value if isinstance(value, str) else _clipped(value)

    def is_off(self) -> bool:
        """Whether the guard is switched off, so that nothing else has to be complete."""
        return self._values.get(MODE.name) == "off"

    def problem(self, sentence: str) -> None:
        """Note a reason not to start."""
        if len(sentence) > PROBLEM_CHARS_MAX:
            sentence = sentence[: PROBLEM_CHARS_MAX - 1] + "…"
        self.problems.append(sentence)

    def warn(self, sentence: str) -> None:
        """Note something that is legal and probably not meant."""
        self.warnings.append(sentence)

    @contextmanager
    def step(self) -> Iterator[None]:
        """One step of building: a ValueError is a problem, and what needs an unreadable setting is skipped."""
        try:
            yield
        except ValueError as error:
            self.problem(str(error))
        except Unusable:
            assert self.problems, "only a problem makes a setting unusable"

    def _read(self, row: Setting[object]) -> None:
        found = self._found.get(row.name)
        if found is None:
            self._values[row.name] = None if row.default is None else row.parse(row.default)
            return
        try:
            self._values[row.name] = row.parse(found.value)
        except ValueError as error:
            self.problem(f"{self.says(row)} {error}")

    def _from_keywords(self, keywords: Mapping[str, object]) -> dict[str, Found]:
        by_keyword = {row.keyword: row for row in TABLE.values()}
        found = {}
        for keyword, value in keywords.items():
            if keyword in KEYWORDS_ONLY:
                continue
            if keyword not in by_keyword:
                self.problem(f"the keyword {keyword}= is not known{nearest(keyword.lower(), (*by_keyword, *HOOKS))}")
            elif value is not None:
                found[by_keyword[keyword].name] = Found(value, "keyword", keyword)
        return found

    def _from_environment(self, environ: Mapping[str, str]) -> dict[str, Found]:
        ours = {name: value for name, value in environ.items() if name.startswith(PREFIX)}
        services = {"ROUTEGUARD"} | {match[1] for name in ours if (match := _KUBERNETES_HOST.fullmatch(name))}
        found, foreign = {}, []
        for name, value in ours.items():
            bare = name.removeprefix(PREFIX)
            if bare in TABLE:
                if value.strip():
                    found[bare] = Found(value, "environment", name)
            elif any(
                name.startswith(service) and _KUBERNETES_REST.fullmatch(name, len(service)) for service in services
            ):
                foreign.append(name)
            else:
                self.problem(f"{name} is not known{_nearest_setting(bare, PREFIX)}")
        if foreign:
            self.warn(
                f"Ignored what Kubernetes sets for a Service called routeguard… ({comma(sorted(foreign)[:3])}"
                f"{', …' if len(foreign) > 3 else ''}): rename the Service or set enableServiceLinks: false."
            )
        return found

    def _from_django(self) -> dict[str, Found]:
        written = _django_setting()
        if written is None:
            return {}
        if not isinstance(written, Mapping):
            self.problem("settings.ROUTEGUARD is not a dict; write for example ROUTEGUARD = {'PATHS': ['/api/chat']}")
            return {}
        found: dict[str, Found] = {}
        for key, value in written.items():
            bare, label = str(key).upper(), f"settings.ROUTEGUARD[{_clipped(key)}]"
            if bare.lower() in HOOKS:
                self.problem(f"{label} is a hook; pass it as a keyword: RouteGuard(app, {bare.lower()}=…)")
            elif bare not in TABLE:
                self.problem(f"{label} is not known{_nearest_setting(bare.removeprefix(PREFIX), '')}")
            elif bare in found:
                self.problem(f"{label} is there twice, in different case; keep one")
            elif value is not None:
                found[bare] = Found(value, "django", label)
        return found


def _keyword(row: Setting[object], value: str) -> str:
    # With the variable, by which the documentation calls it.
    return f"{row.keyword}={value} ({PREFIX}{row.name})"


def _django_setting() -> object:
    # Looked up, never imported: only a process that already runs Django has settings worth reading.
    settings = getattr(sys.modules.get("django.conf"), "settings", None)
    return getattr(settings, "ROUTEGUARD", None) if getattr(settings, "configured", False) else None


def _nearest_setting(bare: str, prefix: str) -> str:
    # Compared without the prefix: with it, any two names look alike.
    ending = nearest(bare.upper(), TABLE)
    return ending.replace("'", f"'{prefix}", 1) if ending != "." else ". The settings are listed in docs/settings.md"


def _workers(environ: Mapping[str, str]) -> int | None:
    # uvicorn, gunicorn, hypercorn and Heroku's buildpack agree on this name.
    workers = environ.get("WEB_CONCURRENCY", "").strip()
    return int(workers) if re.fullmatch(r"[0-9]{1,6}", workers) else None


def _clipped(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= VALUE_CHARS_MAX else shown[: VALUE_CHARS_MAX - 1] + "…"
