"""Whether `mutants.toml` explains each mutant that no test noticed: the second half of `make mutate`.

    python -m tests.mutants [PATTERN ...]

An explanation names the function and the lines it takes out and puts in, never the mutant's number, which moves with
every edit. It is good for one survivor: a line that stands twice in a function needs two of them. Statements of SQL
in another case need none.
"""

import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import walk_mutatable_files
from mutmut.utils.format_utils import get_module_from_key, orig_function_and_class_names_from_key

EXPLANATIONS = Path(__file__).with_name("mutants.toml")
PACKAGE = "routeguard."
#: What a test noticed. A mutant that never ends is noticed too, and worth a look.
NOTICED = {"killed", "timeout"}
UNNOTICED = {"survived", "no tests"}
#: How a run ends that found one of its tests no more. mutmut takes it for one that never ends.
_NEVER_BEGUN = 255
#: A statement handed to SQLite in one line. Its keywords and the names of its tables, columns and functions have no
#: case. What has one is not in it: a literal or a blob needs a quotation mark, and a named parameter one of `:@$`. The
#: names of what is found would differ too, but rows are read by position. What `f""` puts together is not recognised.
_STATEMENT = re.compile(r"""\.execute(?:many)?\("([^"'`\[\\:@$]*)"[,)]""")


@dataclass(frozen=True, slots=True)
class Change:
    """What a mutant does to a function, whatever its number and wherever the function stands."""

    #: Without the package: `money.parse_usd`, `limiter.ExactWindow.used`.
    function: str
    #: Lines taken out and put in, each without the blanks around it.
    removed: str
    added: str

    @classmethod
    def of_diff(cls, function: str, diff: str) -> "Change":
        """The change in a unified diff of one function."""
        lines = [line for line in diff.splitlines() if not line.startswith(("---", "+++"))]
        removed = [line[1:] for line in lines if line.startswith("-")]
        added = [line[1:] for line in lines if line.startswith("+")]
        return cls(function, _without_blanks(removed), _without_blanks(added))


@dataclass(frozen=True, slots=True)
class Result:
    """One mutant and what became of it, in mutmut's words."""

    path: Path
    mutant: str
    status: str

    @property
    def function(self) -> str:
        return function_of(self.mutant)


def function_of(mutant: str) -> str:
    """`routeguard.limiter.xǁExactWindowǁused__mutmut_3` changes `limiter.ExactWindow.used`."""
    name, owner = orig_function_and_class_names_from_key(mutant)
    module = get_module_from_key(mutant).removeprefix(PACKAGE)
    return ".".join([module, owner, name] if owner else [module, name])


def status_of(exit_code: int | None) -> str:
    """What became of a mutant, in mutmut's words; `not checked` also where its tests could not begin."""
    return "not checked" if exit_code == _NEVER_BEGUN else status_by_exit_code[exit_code]


def is_only_case_of_sql(change: Change) -> bool:
    """Whether both are the same statement to SQLite, and nothing else is changed."""
    removed, added = change.removed, change.added
    statement = _STATEMENT.search(removed)
    if statement is None or not (removed + added).isascii():
        return False
    start, end = statement.span(1)
    is_rest_the_same = (removed[:start], removed[end:]) == (added[:start], added[end:])
    return is_rest_the_same and removed[start:end].lower() == added[start:end].lower()


def explanations(text: str) -> Counter[Change]:
    """The changes that the text of a `mutants.toml` explains, and how many survivors of each.

    Raises:
        ValueError: An entry without a reason, or with a key nobody reads.
    """
    changes: Counter[Change] = Counter()
    for function, entries in tomllib.loads(text).items():
        for entry in entries:
            if entry.keys() != {"removed", "added", "why"} or not entry["why"].strip():
                raise ValueError(f"{function}: an explanation has `removed`, `added` and `why`, and nothing else")
            texts = [entry["added"]] if isinstance(entry["added"], str) else entry["added"]
            removed = _without_blanks(entry["removed"].splitlines())
            changes.update(Change(function, removed, _without_blanks(text.splitlines())) for text in texts)
    return changes


def unexplained(survivors: Iterable[Change], explained: Counter[Change]) -> list[Change]:
    """Survivors for which no explanation is left."""
    return list((Counter(survivors) - explained).elements())


def stale(survivors: Iterable[Change], explained: Counter[Change], *, run: set[str]) -> list[Change]:
    """Explanations of what did not survive, in functions whose mutants were run."""
    return [change for change in (explained - Counter(survivors)).elements() if change.function in run]


def main(patterns: list[str]) -> int:
    """Print what needs a test or an explanation; 0 when nothing does, and every mutant was run."""
    results = [result for result in _results() if not patterns or any(fnmatchcase(result.mutant, p) for p in patterns)]
    unnoticed = [
        Change.of_diff(result.function, get_diff_for_mutant(result.mutant, path=result.path))
        for result in results
        if result.status in UNNOTICED
    ]
    survivors = [change for change in unnoticed if not is_only_case_of_sql(change)]
    explained = explanations(EXPLANATIONS.read_text())
    open_questions = unexplained(survivors, explained)
    not_run = [result for result in results if result.status == "not checked"]
    run = {result.function for result in results} - {result.function for result in not_run}

    for change in open_questions:
        _print_change("survived without an explanation", change)
    for change in stale(survivors, explained, run=run):
        _print_change("explained, but did not survive", change)
    for result in results:
        if result.status not in {"killed", "not checked", *UNNOTICED}:
            print(f"{result.status}: {result.mutant}")
    if not_run:
        print(f"{len(not_run)} mutants were not run")
    _print_table(results, Counter(change.function for change in open_questions))
    return 1 if open_questions or not_run else 0


def _results() -> Iterator[Result]:
    for path in walk_mutatable_files():
        data = SourceFileMutationData(path=path)
        data.load()
        for mutant, exit_code in data.exit_code_by_key.items():
            yield Result(path, mutant, status_of(exit_code))


def _print_change(heading: str, change: Change) -> None:
    print(f"{heading}: {change.function}")
    for sign, lines in (("-", change.removed), ("+", change.added)):
        for line in lines.splitlines():
            print(f"    {sign} {line}")


def _print_table(results: Iterable[Result], open_questions: Counter[str]) -> None:
    modules: dict[str, Counter[str]] = {}
    for result in results:
        modules.setdefault(get_module_from_key(result.mutant).removeprefix(PACKAGE), Counter())[result.status] += 1
    print(f"{'module':32}{'mutants':>9}{'noticed':>9}{'explained':>11}{'unexplained':>13}{'other':>7}")
    for module, counts in sorted(modules.items()):
        noticed = sum(counts[status] for status in NOTICED)
        missed = sum(counts[status] for status in UNNOTICED)
        asked = sum(number for function, number in open_questions.items() if function.startswith(f"{module}."))
        row = f"{counts.total():9}{noticed:9}{missed - asked:11}{asked:13}{counts.total() - noticed - missed:7}"
        print(f"{module:32}{row}")


def _without_blanks(lines: Iterable[str]) -> str:
    return "\n".join(stripped for line in lines if (stripped := line.strip()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
