"""What the documents point to is there."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.support.repository import ROOT, documents

DOCUMENTS = [pytest.param(path, id=path.relative_to(ROOT).as_posix()) for path in documents()]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
PLACE = re.compile(r"`((?:src/paddock|tests|docs|scripts|bench)/[\w./-]*)`")


def anchors(path: Path) -> set[str]:
    """What a heading can be linked by, as GitHub makes it."""
    headings = re.findall(
        r"^#+ (.+)$", FENCED.sub("", path.read_text(encoding="utf-8")), re.MULTILINE
    )
    return {
        re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_relative_link_leads_somewhere(document: Path):
    dead = []
    for target in LINK.findall(FENCED.sub("", document.read_text(encoding="utf-8"))):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = target.partition("#")
        path = (document.parent / name) if name else document
        if not path.exists() or (anchor and anchor not in anchors(path)):
            dead.append(target)

    assert dead == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_place_named_in_this_repository_is_there(document: Path):
    named = PLACE.findall(document.read_text(encoding="utf-8"))

    assert [place for place in named if not (ROOT / place).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_make_target_named_exists(document: Path):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))

    named = set(re.findall(r"`make ([a-z-]+)", document.read_text(encoding="utf-8")))

    assert named - targets == set()


def test_the_rules_for_agents_fit_on_a_page():
    assert len((ROOT / "AGENTS.md").read_text(encoding="utf-8").splitlines()) < 60


def test_decision_records_are_numbered_without_a_gap_and_listed():
    records = sorted(path.name for path in (ROOT / "docs" / "adr").glob("[0-9]*.md"))
    index = (ROOT / "docs" / "adr" / "README.md").read_text(encoding="utf-8")

    assert [name[:4] for name in records] == [
        f"{number:04}" for number in range(1, len(records) + 1)
    ]
    assert LINK.findall(index) == records


@pytest.mark.parametrize(
    "record", sorted((ROOT / "docs" / "adr").glob("[0-9]*.md")), ids=lambda path: path.name
)
def test_a_decision_record_has_its_parts_and_fits_on_a_page(record: Path):
    text = record.read_text(encoding="utf-8")

    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == [
        "Context",
        "Decision",
        "Consequences",
        "What we dislike",
    ]
    assert len(text.splitlines()) <= 60


def test_every_dependency_has_a_decision_record():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    dependencies = [
        re.split(r"[<>=!~ ]", requirement)[0]
        for requirement in [
            *project["project"]["dependencies"],
            *project["dependency-groups"]["dev"],
        ]
    ]
    records = "\n".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "adr").glob("[0-9]*.md")
    )

    assert [name for name in dependencies if f"`{name}`" not in records] == []
