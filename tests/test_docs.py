"""The documentation keeps its word: every example runs, every link leads somewhere."""

import re
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.document import Document, PythonDocStringDocument
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser
from sybil.parsers.rest import DocTestParser

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
MARKDOWN = Sybil(parsers=[PythonCodeBlockParser(), SkipParser()])
DOCSTRINGS = Sybil(parsers=[DocTestParser()], document_types={".py": PythonDocStringDocument})

#: Groups: the target, and the heading it names. External addresses are not followed: tests need no network.
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def _documents_with_examples() -> list[Document]:
    documents = [MARKDOWN.parse(page) for page in PAGES]
    documents += [DOCSTRINGS.parse(module) for module in sorted(ROOT.glob("src/**/*.py"))]
    return [document for document in documents if any(True for _ in document.examples())]


@pytest.mark.parametrize(
    "document", _documents_with_examples(), ids=lambda document: str(Path(document.path).relative_to(ROOT))
)
def test_every_example_of_the_page_runs(document: Document) -> None:
    """Examples of one page share their names, top to bottom. `<!-- skip: next -->` is for what needs a key."""
    for example in document.examples():
        example.evaluate()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_of_the_page_leads_somewhere(page: Path) -> None:
    dangling = []

    for target, heading in LINK.findall(page.read_text()):
        path = (page.parent / target) if target else page
        if not path.exists() or (heading and heading not in _anchors(path)):
            dangling.append(f"{target}#{heading}")

    assert dangling == []


def _anchors(page: Path) -> set[str]:
    """Headings the way code hosts name them: lower case, no punctuation, hyphens for spaces."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(page.read_text())}
