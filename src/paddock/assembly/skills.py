"""Skills: text that packages bring, and of which an agent is told by name.

A skill is `…/<name>/SKILL.md`, classified `skill`, and begins with its name and with one
sentence that says when to read it. What a model is told is these two and the path; it reads
the text like any file, by a call that is judged. A skill that is not exactly as its package
brought it, or whose package nobody approved, is not mentioned.
"""

import re
from collections.abc import Iterator
from typing import Final

from paddock import limits
from paddock.assembly.project import Project
from paddock.assembly.sound_packages import (
    SoundPackages,
    UnsoundPackageError,
    open_sound_packages,
)
from paddock.text.show import show_name
from paddock.values.calls import Json

CLASSIFICATION: Final = "skill"
_HEAD: Final = re.compile(
    r"---\nname: ([a-z0-9][a-z0-9-]{0,63})\ndescription: ([^\n]{1,300})\n---\n", re.ASCII
)


def skill_facts(project: Project) -> dict[str, Json]:
    """The skills that a model is told of, and how many more there are where it is not told of all.

    Limits: `skills_max`. Raises: as `installed_skills`.
    """
    found = installed_skills(project)
    named = limits.skills_max
    if len(found) <= named:
        return {"skills": found}
    more = f"{len(found) - named} more skills are not named: {named} are, the first by path"
    return {"skills": found[:named], "skills_left_out": more}


def installed_skills(project: Project) -> list[Json]:
    """Each skill of the plane as `{name, description, path}`, by path.

    Raises: HostError, LedgerDamagedError.
    """
    if not project.root.accepted or not project.layout.installed.is_dir():
        return []
    with open_sound_packages(project) as packages:
        found = sorted(_skills(packages))
    return [
        {"name": name, "description": description, "path": path}
        for path, name, description in found
    ]


def _skills(packages: SoundPackages) -> Iterator[tuple[str, str, str]]:
    for package_id, package in packages.installed.packages.items():
        assets = [
            asset for asset in package.manifest.assets if asset.classification == CLASSIFICATION
        ]
        if not assets:
            continue
        try:
            sound = packages.find(package_id)
            for asset in assets:
                content = packages.content(sound, asset, limits.skill_bytes_max)
                told = _told(asset.path, content)
                if told is not None:
                    yield told
        except UnsoundPackageError:
            continue  # what is wrong with it is for list_packages and the gates to say


def _told(path: str, content: bytes) -> tuple[str, str, str] | None:
    """Path, name and description; None where it does not begin as a skill does."""
    head = _HEAD.match(content.decode("utf-8", errors="replace"))
    folder = path.rpartition("/")[0].rpartition("/")[2]
    # Threat: a description is read to a model: one line, nothing that hides or redirects.
    if head is None or head[1] != folder or show_name(head[2]) != head[2]:
        return None
    return path, head[1], head[2]
