"""Which directory an agent may be given."""

from pathlib import Path
from typing import Final

from paddock.errors import ConfigError
from paddock.plane.agent_files import AgentRecord, is_agent_name
from paddock.plane.apart import contains, require_outside
from paddock.plane.client_homes import HOMES
from paddock.plane.discovery import is_bare_plane
from paddock.plane.environment import Environment
from paddock.plane.layout import PlaneLayout
from paddock.plane.paths import real_path
from paddock.plane.registry import bare_planes_below, is_registered_bare_plane
from paddock.text.show import quote
from paddock.values.decisions import PlaneKind

_WORKTREES: Final = "worktrees"
"""What a client makes in a folder of its own for agents to work on: one directory each."""


def require_workspace(record: AgentRecord, layout: PlaneLayout, environment: Environment) -> None:
    """Refuse a workspace from which an agent could reach what governs it, or others.

    Allowed are directories outside of planes and the user's Paddock files, any
    agent's own `agents/NAME/workspace/` and what is below, and the root of a bare
    plane, where policy protects the plane's own files.

    Threat: policy patterns are relative to the workspace. An agent that is given
    `PLANE/HOT/ledger` or `PROJECT/.git` would stand behind the patterns that
    protect them, and in `~/.claude` hooks and settings are files like any other. A
    plane further down is closed by policy: see `planes_below`.

    Raises:
        ConfigError: it is none of these.
    """
    workspace = record.workspace
    where = f"{record.file}, field 'workspace'"
    real = real_path(workspace)
    if ".git" in (part.lower() for part in real.parts):
        raise ConfigError(
            f"the workspace {quote(str(workspace))} lies inside a .git directory",
            where=where,
            hint="give the agent the work tree, or a directory of its own",
        )
    if not (_is_own_workspace(real, layout) or _is_bare_root(real, layout)):
        _require_apart(record, real, layout, environment)
    require_as_declared(record, real)


def require_as_declared(record: AgentRecord, real: Path) -> None:
    """Refuse a workspace whose path without links is not the declared one.

    Threat: an agent that works around it puts a link in its place, or in that of a
    directory above it, and this one works wherever the link leads.

    Raises:
        ConfigError: it is another one.
    """
    if record.workspace == real:
        return
    raise ConfigError(
        f"the workspace {quote(str(record.workspace))} is reached through a link, and is"
        f" {quote(str(real))}",
        where=f"{record.file}, field 'workspace'",
        hint="put a directory in the link's place; if the link is yours, declare the agent anew:"
        " paddock agent remove, then create",
    )


def _require_apart(
    record: AgentRecord, real: Path, layout: PlaneLayout, environment: Environment
) -> None:
    """Refuse what overlaps a plane or what is the user's own. Raises: ConfigError."""
    if contains(layout.root, real) or contains(real, layout.root):
        raise ConfigError(
            f"the workspace {quote(str(record.workspace))} and the plane"
            f" {quote(str(layout.root))} overlap",
            where=f"{record.file}, field 'workspace'",
            hint="give the agent a directory outside the plane, or leave --workspace out",
        )
    require_outside(real, environment)
    _require_no_client_folder(record, real, environment)
    for directory in (real, *real.parents):
        if is_registered_bare_plane(directory, environment):
            raise _lies_in_plane(record, directory)


def _require_no_client_folder(record: AgentRecord, real: Path, environment: Environment) -> None:
    """Refuse a folder of a coding agent's client, and what lies in it but for work trees."""
    for directory in (real, *real.parents):
        if not _is_client_folder(directory, environment):
            continue
        below = real.relative_to(directory).parts
        if len(below) < 2 or below[0] != _WORKTREES:
            raise ConfigError(
                f"the workspace {quote(str(record.workspace))} lies in {quote(str(directory))},"
                " where a coding agent's client keeps its settings",
                where=f"{record.file}, field 'workspace'",
                hint="give the agent a directory outside of it",
            )


def _is_client_folder(directory: Path, environment: Environment) -> bool:
    if directory.name.lower() in {each.folder for each in HOMES}:
        return True
    variables = dict(environment.variables)
    named = [Path(given) for each in HOMES if (given := variables.get(each.variable))]
    # One that holds the home directory would be every project's.
    return any(
        each.is_absolute() and real_path(each) == directory and not contains(each, environment.home)
        for each in named
    )


def require_new_workspace(record: AgentRecord, environment: Environment) -> None:
    """Refuse what an agent that is there may have, and a new one does not need.

    A directory around a bare plane, which policy would close to it; and one in what
    looks like a plane, though nobody registered it.

    Raises:
        ConfigError: it is one of these.
    """
    real = real_path(record.workspace)
    for directory in (real, *real.parents):
        if is_bare_plane(directory):
            raise _lies_in_plane(record, directory)
    below = bare_planes_below(real, environment)
    if below:
        raise ConfigError(
            f"the bare plane {quote(str(real / below[0]))} lies in the workspace"
            f" {quote(str(record.workspace))}",
            where=f"{record.file}, field 'workspace'",
            hint="give the agent a directory in which no plane stands, or leave --workspace out",
        )


def require_within_parent(child: AgentRecord, parent: AgentRecord) -> None:
    """Refuse a child that could do more than its parent.

    Decisions are the strictest of both anyway; this is about what they are made
    on: the child's workspace is its own directory in the plane, or the parent's;
    its toolsets are among the parent's.

    Threat: patterns are relative to the workspace of whoever acts. To a child that
    works in `docs/` the file `docs/keep.md`, which its parent may not write, is `keep.md`.

    Raises:
        ConfigError: workspace or toolsets exceed the parent's.
    """
    if not child.owns_workspace and real_path(child.workspace) != real_path(parent.workspace):
        raise ConfigError(
            f"the workspace {quote(str(child.workspace))} of agent {quote(child.agent.name)} is"
            f" not that of its parent {quote(parent.agent.name)}: {quote(str(parent.workspace))}",
            where=f"{child.file}, field 'workspace'",
            hint="give it the parent's workspace, or none: then it has a directory of its own",
        )
    more = [name for name in child.agent.toolsets if name not in parent.agent.toolsets]
    if more:
        raise ConfigError(
            f"agent {quote(child.agent.name)} has toolsets that its parent"
            f" {quote(parent.agent.name)} lacks: {', '.join(more)}",
            where=f"{child.file}, field 'toolsets'",
            hint="leave them out, or give them to the parent too",
        )


def _lies_in_plane(record: AgentRecord, plane: Path) -> ConfigError:
    return ConfigError(
        f"the workspace {quote(str(record.workspace))} lies in the bare plane {quote(str(plane))}",
        where=f"{record.file}, field 'workspace'",
        hint="give the agent a directory outside of that plane, or leave --workspace out",
    )


def _is_own_workspace(real: Path, layout: PlaneLayout) -> bool:
    agents = real_path(layout.agents)
    if agents not in real.parents:
        return False
    parts = real.relative_to(agents).parts
    return len(parts) >= 2 and is_agent_name(parts[0]) and parts[1] == "workspace"


def _is_bare_root(real: Path, layout: PlaneLayout) -> bool:
    return layout.kind is PlaneKind.BARE and real == real_path(layout.root)
