"""A survivor is explained by its function and its change, and by nothing that another edit would move."""

from collections import Counter

import pytest

from tests.mutants import Change, explanations, function_of, is_only_case_of_sql, stale, status_of, unexplained

DIFF = """\
--- src/routeguard/limiter.py
+++ src/routeguard/limiter.py
@@ -4,5 +4,5 @@
     def used(self, now_ns: int) -> int:
-        if times and times[0] <= now_ns:
-            return 1
+        if times or times[0] <= now_ns:
         return 0
"""
CHANGE = Change(
    "limiter.ExactWindow.used", "if times and times[0] <= now_ns:\nreturn 1", "if times or times[0] <= now_ns:"
)


@pytest.mark.parametrize(
    ("mutant", "function"),
    [
        ("routeguard.money.x_parse_usd__mutmut_12", "money.parse_usd"),
        ("routeguard.client_ip.address.x__is_port__mutmut_1", "client_ip.address._is_port"),
        ("routeguard.limiter.xǁExactWindowǁused__mutmut_3", "limiter.ExactWindow.used"),
        ("routeguard.limiter.xǁExactWindowǁ__init____mutmut_1", "limiter.ExactWindow.__init__"),
    ],
)
def test_a_mutant_belongs_to_its_function_whatever_its_number(mutant: str, function: str) -> None:
    assert function_of(mutant) == function


@pytest.mark.parametrize(
    ("exit_code", "status"), [(1, "killed"), (0, "survived"), (-24, "timeout"), (None, "not checked")]
)
def test_a_mutant_has_the_status_its_tests_ended_with(exit_code: int | None, status: str) -> None:
    assert status_of(exit_code) == status


def test_a_mutant_whose_tests_were_not_found_is_not_noticed() -> None:
    assert status_of(255) == "not checked"


def test_a_change_is_what_the_diff_takes_out_and_puts_in_wherever_it_stands() -> None:
    moved = DIFF.replace("@@ -4,5 +4,5 @@", "@@ -40,5 +44,5 @@").replace("        ", "    ")

    assert Change.of_diff("limiter.ExactWindow.used", DIFF) == CHANGE
    assert Change.of_diff("limiter.ExactWindow.used", moved) == CHANGE


def test_an_explanation_may_name_several_changes_of_one_line() -> None:
    text = """
[["money.format_usd"]]
removed = 'return text.rstrip("0")'
added = ['return text.rstrip("XX0XX")', 'return text.rstrip(None)']
why = "one reason for both"

[["limiter.ExactWindow.used"]]
removed = '''
    if times and times[0] <= now_ns:
        return 1'''
added = "if times or times[0] <= now_ns:"
why = "another"
"""

    assert explanations(text) == Counter(
        [
            Change("money.format_usd", 'return text.rstrip("0")', 'return text.rstrip("XX0XX")'),
            Change("money.format_usd", 'return text.rstrip("0")', "return text.rstrip(None)"),
            CHANGE,
        ]
    )


@pytest.mark.parametrize(
    "entry",
    [
        'removed = "a"\nadded = "b"',
        'removed = "a"\nadded = "b"\nwhy = " "',
        'removed = "a"\nwhy = "equal"',
        'removed = "a"\nadded = "b"\nwhy = "equal"\nnumber = 3',
    ],
    ids=["no reason", "an empty reason", "no change", "a number"],
)
def test_an_explanation_without_a_reason_or_with_anything_else_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match=r"money\.parse_usd"):
        explanations(f'[["money.parse_usd"]]\n{entry}')


@pytest.mark.parametrize(
    "survivor",
    [
        Change("limiter.BucketWindow.used", CHANGE.removed, CHANGE.added),
        Change(CHANGE.function, CHANGE.added, CHANGE.removed),
        Change(CHANGE.function, CHANGE.removed, "return 0"),
    ],
    ids=["another function", "the other way round", "another change"],
)
def test_an_explanation_of_another_change_explains_nothing(survivor: Change) -> None:
    assert unexplained([survivor], Counter([CHANGE])) == [survivor]


def test_an_explanation_is_good_for_one_survivor() -> None:
    assert unexplained([CHANGE], Counter([CHANGE])) == []
    assert unexplained([CHANGE, CHANGE], Counter([CHANGE])) == [CHANGE]
    assert unexplained([CHANGE, CHANGE], Counter([CHANGE, CHANGE])) == []


def test_an_explanation_is_stale_when_its_function_was_run_and_the_change_did_not_survive() -> None:
    explained = Counter([CHANGE, CHANGE])

    assert stale([CHANGE], explained, run={CHANGE.function}) == [CHANGE]
    assert stale([CHANGE, CHANGE], explained, run={CHANGE.function}) == []
    assert stale([], explained, run={"money.parse_usd"}) == []


@pytest.mark.parametrize(
    ("removed", "added"),
    [
        ('db.execute("BEGIN IMMEDIATE")', 'db.execute("begin immediate")'),
        (
            'self._db.execute("SELECT a FROM b WHERE c = ?", (1,))',
            'self._db.execute("SELECT A FROM B WHERE C = ?", (1,))',
        ),
        ('db.executemany("DELETE FROM a", rows)', 'db.executemany("delete from a", rows)'),
        ('x = db.execute("SELECT 1").fetchone()', 'x = db.execute("select 1").fetchone()'),
    ],
)
def test_a_statement_in_another_case_is_the_same_to_sqlite(removed: str, added: str) -> None:
    assert is_only_case_of_sql(Change("f", removed, added))


@pytest.mark.parametrize(
    ("removed", "added"),
    [
        ('db.execute("SELECT a")', 'db.execute("XXSELECT aXX")'),
        ('db.execute("SELECT a")', 'db.execute("SELECT b")'),
        ('db.execute("SELECT a")', "db.execute(None)"),
        ("""db.execute("SELECT 'a'")""", """db.execute("SELECT 'A'")"""),
        ('db.execute("SELECT :a", {"a": 1})', 'db.execute("SELECT :A", {"a": 1})'),
        ('db.execute("SELECT ?", ("a",))', 'db.execute("SELECT ?", ("A",))'),
        ('db.execute("SELECT a", ("a",))', 'db.execute("SELECT A", ("A",))'),
        ('db.execute("SELECT ?", (b,))', 'db.execute("SELECT ?", (B,))'),
        ('db.execute(f"SELECT {a}")', 'db.execute(f"SELECT {A}")'),
        ('db.execute("SELECT ?" + "a")', 'db.execute("SELECT ?" + "A")'),
        ('db.execute("SELECT \u212a")', 'db.execute("SELECT k")'),
        ('db.execute("SELECT k")', 'db.execute("SELECT \u212a")'),
        ('log("SELECT a")', 'log("SELECT A")'),
    ],
)
def test_any_other_change_of_a_statement_needs_an_explanation(removed: str, added: str) -> None:
    assert not is_only_case_of_sql(Change("f", removed, added))
