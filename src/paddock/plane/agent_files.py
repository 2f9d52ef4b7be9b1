"""The format of `agent.json`: bytes to a record and back. No I/O."""

from pathlib import Path
from typing import Final

from msgspec import Struct

from paddock.errors import ConfigError
from paddock.pattern import lazy_pattern
from paddock.plane.layout import PlaneLayout
from paddock.plane.strict_json import Fields, parse_object, write_object
from paddock.text.show import quote
from paddock.values.decisions import Agent, Permissions
from paddock.values.entries import digest_of

DEFAULT_TOOLSETS: Final = ("workspace", "search", "output", "shell")

_NAME: Final = lazy_pattern(r"[a-z0-9][a-z0-9._-]{0,63}")
_KEYS: Final = frozenset(
    {"name", "profile", "workspace", "parent", "toolsets", "permissions", "declared_in"}
)
_PERMISSION_KEYS: Final = frozenset({"read", "write", "forbidden"})
NAME_HINT: Final = "1 to 64 characters of a-z 0-9 . _ -, the first a letter or digit"


class AgentRecord(Struct, frozen=True):
    agent: Agent
    workspace: Path
    """Absolute: the declared one, else the agent's own directory in the plane."""
    owns_workspace: bool
    """It declares none and works in its own directory."""
    file: Path
    digest: str
    """`sha256:` and the digest of the file's bytes."""
    declared_in: str = ""
    """The policy file that declares it; empty where a person made it."""


def is_agent_name(name: str) -> bool:
    """Whether `name` can name an agent; such a name is also a safe file name."""
    return _NAME.fullmatch(name) is not None


def name_problem(name: str) -> str:
    """Why `name` can't name an agent, for a message; the hint is `NAME_HINT`."""
    return f"{quote(name)} is not an agent's name"


def toolset_problem(toolsets: tuple[str, ...]) -> tuple[str, str] | None:
    """What is wrong with `toolsets`, with a hint; None if nothing.

    `core` and `development` are never declared: the admin agent of a bare plane has
    the first, and the dual gate gives it the second.
    """
    for toolset in toolsets:
        if toolset == "development":
            return ("the toolset 'development' is never declared", "the dual gate opens it")
        if toolset == "core":
            return (
                "the toolset 'core' is never declared",
                "the admin agent of a bare plane has it, and nobody else",
            )
        if toolset not in DEFAULT_TOOLSETS:
            return (f"unknown toolset {quote(toolset)}", f"known: {', '.join(DEFAULT_TOOLSETS)}")
    return None


def profile_problem(profile: str) -> str:
    """What is wrong with `profile` as a name; empty if nothing.

    Whether a profile of that name exists is for those to say who read the policy.
    """
    if profile and len(profile) <= 255 and profile.isprintable():
        return ""
    return f"{quote(profile)} is not a profile's name"


def parse_agent(content: bytes, file: Path, layout: PlaneLayout) -> AgentRecord:
    """The agent that `content` declares; `file` is `agents/<name>/agent.json`.

    Raises:
        ConfigError: with file and field: not strict JSON, unknown key, wrong type,
            a name that is none or not the directory's, an unknown toolset.
    """
    fields = parse_object(content, str(file))
    fields.require_only(_KEYS)
    name = _parse_name(fields, file)
    workspace = _parse_workspace(fields)
    agent = Agent(
        name=name,
        profile=_parse_profile(fields),
        toolsets=_parse_toolsets(fields),
        permissions=_parse_permissions(fields),
        parent=_parse_parent(fields, name),
        source=str(file),
        declaration=content,
    )
    return AgentRecord(
        agent=agent,
        workspace=workspace or layout.agent_workspace(name),
        owns_workspace=workspace is None,
        file=file,
        digest=digest_of(content),
        declared_in=fields.text_or_null("declared_in") or "",
    )


def write_agent(agent: Agent, workspace: Path | None, declared_in: str = "") -> bytes:
    return write_object(
        {
            "name": agent.name,
            "profile": agent.profile,
            "workspace": None if workspace is None else str(workspace),
            "parent": agent.parent,
            "toolsets": list(agent.toolsets),
            "permissions": {
                "read": list(agent.permissions.read),
                "write": list(agent.permissions.write),
                "forbidden": list(agent.permissions.forbidden),
            },
            **({"declared_in": declared_in} if declared_in else {}),
        }
    )


def _parse_name(fields: Fields, file: Path) -> str:
    name = fields.text("name")
    if not is_agent_name(name):
        raise fields.error("name", name_problem(name), NAME_HINT)
    if name != file.parent.name:
        raise fields.error(
            "name",
            f"the file of agent {quote(file.parent.name)} declares {quote(name)}",
            "the name is the directory's name",
        )
    return name


def _parse_profile(fields: Fields) -> str:
    profile = fields.text("profile")
    problem = profile_problem(profile)
    if problem:
        raise fields.error("profile", problem, "for example standard")
    return profile


def _parse_workspace(fields: Fields) -> Path | None:
    text = fields.text_or_null("workspace")
    if text is None:
        return None
    path = Path(text)
    if not path.is_absolute() or ".." in path.parts or "\0" in text:
        raise fields.error(
            "workspace",
            f"{quote(text)} is not an absolute path without '..'",
            "write the directory's real path, or null for the agent's own",
        )
    return path


def _parse_parent(fields: Fields, name: str) -> str | None:
    parent = fields.text_or_null("parent")
    if parent is None:
        return None
    if not is_agent_name(parent):
        raise fields.error("parent", name_problem(parent), NAME_HINT)
    if parent == name:
        raise fields.error("parent", f"{quote(name)} is its own parent", "name another or null")
    return parent


def _parse_toolsets(fields: Fields) -> tuple[str, ...]:
    toolsets = fields.texts("toolsets", DEFAULT_TOOLSETS)
    problem = toolset_problem(toolsets)
    if problem is not None:
        raise fields.error("toolsets", *problem)
    return toolsets


def _parse_permissions(fields: Fields) -> Permissions:
    lists = fields.table("permissions")
    lists.require_only(_PERMISSION_KEYS)
    absent = Permissions()
    return Permissions(
        read=lists.texts("read", absent.read),
        write=lists.texts("write", absent.write),
        forbidden=lists.texts("forbidden", absent.forbidden),
    )


def missing_parent(name: str, file: Path) -> ConfigError:
    """The error for a parent that `file` names and that isn't there."""
    return ConfigError(
        f"there is no agent {quote(name)}",
        where=f"{file}, field 'parent'",
        hint="see: paddock agent list",
    )
