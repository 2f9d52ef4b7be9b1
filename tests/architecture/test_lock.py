"""A lock names versions and hashes, nothing else, and satisfies what is declared."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.repository import ROOT

DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = DECLARED["project"]["optional-dependencies"]
GROUPS = DECLARED["dependency-groups"]
NEEDED = [*DECLARED["project"]["dependencies"], *DECLARED["build-system"]["requires"]]
LOCKS = {
    "requirements.lock": GROUPS["dev"],
    **{f"requirements/{name}.lock": EXTRAS[name] for name in GROUPS if name in EXTRAS},
}
"""Lock → what it has to hold besides what everybody needs."""


@pytest.fixture(params=LOCKS)
def lock(request: pytest.FixtureRequest) -> str:
    return request.param


def test_every_framework_has_a_lock():
    written = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("requirements/*")]

    assert sorted(["requirements.lock", *written]) == sorted(LOCKS)


def test_a_lock_holds_no_address(lock: str):
    text = (ROOT / lock).read_text(encoding="utf-8")

    assert re.findall(r"\S*(?:://|@ )\S*", text) == []


def test_every_entry_has_one_version_and_a_hash(lock: str):
    form = re.compile(r"[\w.-]+==[\w.+!]+( ; [^\\\n]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+")
    entries = re.split(r"\n(?=\S)", (ROOT / lock).read_text(encoding="utf-8").strip())

    assert [entry.split("\n")[0] for entry in entries if not form.fullmatch(entry)] == []


def test_a_lock_satisfies_every_declared_requirement(lock: str):
    text = (ROOT / lock).read_text(encoding="utf-8")
    versions = {
        canonicalize_name(name): version
        for name, version in re.findall(r"^([\w.-]+)==([\w.+!]+)", text, re.MULTILINE)
    }

    unmet = [
        str(requirement)
        for requirement in map(Requirement, [*NEEDED, *LOCKS[lock]])
        if versions.get(canonicalize_name(requirement.name), "") not in requirement.specifier
    ]

    assert unmet == []
