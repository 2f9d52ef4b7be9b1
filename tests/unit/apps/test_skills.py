"""Skills that packages bring: an agent is told of those that are as they were brought."""

import pytest

from paddock import limits
from paddock.agent.context import attend
from paddock.assembly.extensions import installed_skills, skill_facts
from paddock.assembly.project_open import open_project
from paddock.assembly.sessions import SessionWish, open_session
from paddock.ledger.query import Ledgers
from paddock.plane.admin import Attention, TierStage
from tests.support.packages import archive_bytes, manifest_json
from tests.support.planes import Operator

BROUGHT = ["HO1/skills/inspect-plane/SKILL.md", "HO1/skills/read-a-refusal/SKILL.md"]
GOOD = b"---\nname: greet\ndescription: read this before you greet\n---\n\nSay hello.\n"


def skills(operator: Operator) -> dict[str, str]:
    project = open_project(operator.plane, operator.environment())
    return {row["path"]: row["description"] for row in installed_skills(project)}


def install(operator: Operator, content: bytes, *options: str):
    install_files(operator, {"HO1/skills/greet/SKILL.md": content}, *options)


def install_files(operator: Operator, files: dict[str, bytes], *options: str):
    value = manifest_json(files, package_id="PKG-GREET", plane_id="ho1")
    for asset in value["assets"]:
        asset["classification"] = "skill"
    archive = operator.base / "greet.tar.gz"
    archive.write_bytes(archive_bytes(files, **value))
    if not options:
        assert operator.run("package", "approve", str(archive)).status == 0
    ran = operator.run("package", "install", str(archive), *options)
    assert ran.status == 0, ran.err


def test_a_plane_brings_some_and_says_when_to_read_them(operator):
    found = skills(operator)
    assert list(found) == BROUGHT
    assert all("read this" in each for each in found.values())


def test_a_package_brings_more(operator):
    install(operator, GOOD)
    assert skills(operator)["HO1/skills/greet/SKILL.md"] == "read this before you greet"


def test_what_was_changed_is_not_mentioned(operator):
    (operator.plane / BROUGHT[0]).write_bytes(GOOD)
    assert skills(operator) == {}


def test_what_nobody_approved_is_not_mentioned(operator):
    install(operator, GOOD, "--dev")
    assert list(skills(operator)) == BROUGHT


def test_a_plane_of_somebody_else_mentions_none(operator, tmp_path):
    operator.plane.rename(tmp_path / "brought")
    project = open_project(tmp_path / "brought", operator.environment())
    assert installed_skills(project) == []


@pytest.mark.parametrize(
    "content",
    [
        b"Say hello.\n",
        GOOD.replace(b"name: greet", b"name: other"),
        GOOD.replace(b"before you greet", b"\x1b[2J"),
        GOOD.replace(b"before you greet", "\u202egnp".encode()),
        GOOD.replace(b"before you greet", b"x" * 301),
        b"\xff\xfe",
    ],
)
def test_what_does_not_begin_as_a_skill_does_is_not_mentioned(operator, content):
    install(operator, content)
    assert list(skills(operator)) == BROUGHT


def test_the_model_is_told_of_them_with_the_tier(operator):
    project = open_project(operator.plane, operator.environment())
    with open_session(project, SessionWish()) as session:
        facts = session.charter.facts
    assert [row["path"] for row in facts["skills"]] == BROUGHT
    attention = Attention(stages=(TierStage(),))
    said = attend(attention, Ledgers({}), facts, "SES-0")[0]
    assert all(path in said for path in BROUGHT)


@pytest.mark.parametrize("more", [0, 1])
def test_a_model_is_told_how_many_skills_are_over_the_limit(operator, more):
    names = [f"greet-{number:03}" for number in range(limits.skills_max - len(BROUGHT) + more)]
    install_files(
        operator,
        {f"HO1/skills/{name}/SKILL.md": GOOD.replace(b"greet", name.encode(), 1) for name in names},
    )

    facts = skill_facts(open_project(operator.plane, operator.environment()))

    paths = [f"HO1/skills/{name}/SKILL.md" for name in names] + BROUGHT
    assert [row["path"] for row in facts.pop("skills")] == paths[: limits.skills_max]
    said = "1 more skills are not listed: only the first 100 by path are"
    assert facts == ({"skills_left_out": said} if more else {})
