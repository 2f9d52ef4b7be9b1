"""The lock names versions and hashes, nothing else, and satisfies what is declared."""

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.repository import ROOT

LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
ENTRIES = re.split(r"\n(?=\S)", LOCK.strip())


def locked() -> dict[str, str]:
    return {
        canonicalize_name(name): version
        for name, version in re.findall(r"^([\w.-]+)==([\w.+!]+)", LOCK, re.MULTILINE)
    }


def test_the_lock_holds_no_address():
    assert re.findall(r"\S*(?:://|@ )\S*", LOCK) == []


def test_every_entry_has_one_version_and_a_hash():
    form = re.compile(r"[\w.-]+==[\w.+!]+( ; [^\\\n]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+")

    assert [entry.split("\n")[0] for entry in ENTRIES if not form.fullmatch(entry)] == []


def test_the_lock_satisfies_every_declared_requirement():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    declared = [
        *project["project"]["dependencies"],
        *project["dependency-groups"]["dev"],
        *project["build-system"]["requires"],
    ]
    wanted = [Requirement(text) for text in declared]
    versions = locked()

    unmet = [
        str(requirement)
        for requirement in wanted
        if versions.get(canonicalize_name(requirement.name), "") not in requirement.specifier
    ]

    assert unmet == []
