"""The format of `agent.json`: bytes to a record and back. No I/O."""

from pathlib import Path
from typing import Final

from msgspec import Struct, field, to_builtins

from paddock.errors import ConfigError
from paddock.pattern import lazy_pattern
from paddock.plane.json_files import JsonFile, parse_file, write_object
from paddock.plane.layout import PlaneLayout
from paddock.text.json import Strict
from paddock.text.show import quote
from paddock.values.decisions import Agent, Permissions
from paddock.values.entries import digest_of

DEFAULT_TOOLSETS: Final = ("workspace", "search", "output", "shell")

_NAME: Final = lazy_pattern(r"[a-z0-9][a-z0-9._-]{0,63}")
NAME_HINT: Final = "1 to 64 characters of a-z 0-9 . _ -, the first a letter or digit"


class AgentRecord(Struct, frozen=True):
    agent: Agent
    workspace: Path
    """Absolute: the declared one, else the agent's own directory in the plane."""
    owns_workspace: bool
    file: Path
    digest: str
    declared_in: str = ""
    """The policy file that declares it; empty where a person made it."""


class _AgentFile(Strict, frozen=True):
    name: str
    profile: str
    workspace: str | None = None
    parent: str | None = None
    toolsets: tuple[str, ...] = DEFAULT_TOOLSETS
    permissions: Permissions = field(default_factory=Permissions)
    declared_in: str | None = None


def is_agent_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def name_problem(name: str) -> str:
    return f"{quote(name)} is not an agent's name"


def toolset_problem(toolsets: tuple[str, ...]) -> tuple[str, str] | None:
    """With a hint; None if nothing.

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
    if profile and len(profile) <= 255 and profile.isprintable():
        return ""
    return f"{quote(profile)} is not a profile's name"


def parse_agent(content: bytes, file: Path, layout: PlaneLayout) -> AgentRecord:
    given = parse_file(content, str(file))
    read = given.convert(_AgentFile)
    _require_sound(given, read, file)
    agent = Agent(
        name=read.name,
        profile=read.profile,
        toolsets=read.toolsets,
        permissions=read.permissions,
        parent=read.parent,
        source=str(file),
        declaration=content,
    )
    return AgentRecord(
        agent=agent,
        workspace=layout.agent_workspace(read.name)
        if read.workspace is None
        else Path(read.workspace),
        owns_workspace=read.workspace is None,
        file=file,
        digest=digest_of(content),
        declared_in=read.declared_in or "",
    )


def _require_sound(given: JsonFile, read: _AgentFile, file: Path) -> None:
    for name, text in (("name", read.name), ("parent", read.parent)):
        if text is not None and not is_agent_name(text):
            raise given.error(name, name_problem(text), NAME_HINT)
    if read.name != file.parent.name:
        raise given.error(
            "name",
            f"the file of agent {quote(file.parent.name)} declares {quote(read.name)}",
            "the name is the directory's name",
        )
    if read.parent == read.name:
        said = f"{quote(read.name)} is its own parent"
        raise given.error("parent", said, "name another or null")
    problem = profile_problem(read.profile)
    if problem:
        raise given.error("profile", problem, "for example standard")
    path = Path(read.workspace or "/")
    if not path.is_absolute() or ".." in path.parts or "\0" in str(path) or read.workspace == "":
        raise given.error(
            "workspace",
            f"{quote(read.workspace)} is not an absolute path without '..'",
            "write the directory's real path, or null for the agent's own",
        )
    given.require_once("toolsets", read.toolsets)
    problems = toolset_problem(read.toolsets)
    if problems is not None:
        raise given.error("toolsets", *problems)
    given.require_once_each("permissions", read.permissions)


def write_agent(agent: Agent, workspace: Path | None, declared_in: str = "") -> bytes:
    return write_object(
        {
            "name": agent.name,
            "profile": agent.profile,
            "workspace": None if workspace is None else str(workspace),
            "parent": agent.parent,
            "toolsets": list(agent.toolsets),
            "permissions": to_builtins(agent.permissions),
            **({"declared_in": declared_in} if declared_in else {}),
        }
    )


def missing_parent(name: str, file: Path) -> ConfigError:
    return ConfigError(
        f"there is no agent {quote(name)}",
        where=f"{file}, field 'parent'",
        hint="see: paddock agent list",
    )
