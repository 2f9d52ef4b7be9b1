"""Declare, list, change and remove the agents of a plane. Only people do this, never a model."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct, field, structs, to_builtins

from paddock import limits
from paddock.errors import ConfigError, UsageError
from paddock.pattern import lazy_pattern
from paddock.plane import discover
from paddock.plane.clients import HOMES
from paddock.plane.environment import Environment, real_directory, real_path
from paddock.plane.json_files import JsonFile, names_in, parse_file, write_object
from paddock.plane.layout import PlaneLayout
from paddock.storage import atomic
from paddock.storage.locks import locked
from paddock.text.json import Strict
from paddock.text.show import quote
from paddock.values.decisions import Agent, AgentChain, Permissions, PlaneKind
from paddock.values.entries import digest_of

# The format of `agent.json`, read and written.

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


def _name_problem(name: str) -> str:
    return f"{quote(name)} is not an agent's name"


def _find_problem(agent: "_AgentFile | Agent") -> tuple[str, str, str] | None:
    """Find the first field that is wrong; return it, what is wrong, and a hint.

    `core` and `development` are never declared: the admin agent of a bare plane has
    the first, and the dual gate gives it the second.
    """
    for field_name, name in (("name", agent.name), ("parent", agent.parent)):
        if name is not None and not is_agent_name(name):
            return field_name, _name_problem(name), NAME_HINT
    if not (agent.profile and len(agent.profile) <= 255 and agent.profile.isprintable()):
        return "profile", f"{quote(agent.profile)} is not a profile's name", "for example standard"
    for toolset in agent.toolsets:
        if toolset in ("core", "development"):
            hint = "the admin agent of a bare plane has core; the dual gate opens development"
            return "toolsets", f"the toolset {quote(toolset)} is never declared", hint
        if toolset not in DEFAULT_TOOLSETS:
            hint = f"known: {', '.join(DEFAULT_TOOLSETS)}"
            return "toolsets", f"unknown toolset {quote(toolset)}", hint
    return None


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
        workspace=Path(read.workspace or layout.agent_workspace(read.name)),
        owns_workspace=read.workspace is None,
        file=file,
        digest=digest_of(content),
        declared_in=read.declared_in or "",
    )


def _require_sound(given: JsonFile, read: _AgentFile, file: Path) -> None:
    problem = _find_problem(read)
    if problem is not None:
        raise given.error(*problem)
    if read.name != file.parent.name:
        raise given.error(
            "name",
            f"the file of agent {quote(file.parent.name)} declares {quote(read.name)}",
            "the name is the directory's name",
        )
    if read.parent == read.name:
        raise given.error("parent", f"{quote(read.name)} is its own parent", "name another or null")
    path = Path(read.workspace or "/")
    if not path.is_absolute() or ".." in path.parts or "\0" in str(path) or read.workspace == "":
        raise given.error(
            "workspace",
            f"{quote(read.workspace)} is not an absolute path without '..'",
            "write the directory's real path, or null for the agent's own",
        )
    given.require_once("toolsets", read.toolsets)
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


_WORKTREES: Final = "worktrees"
"""The folder in a client's own in which it makes work trees, one directory for each."""


def require_workspace(record: AgentRecord, layout: PlaneLayout, environment: Environment) -> None:
    """Refuse a workspace from which an agent could reach what governs it. Raises: ConfigError.

    Allowed are directories outside planes and the user's Paddock files, any agent's own
    `agents/NAME/workspace/` and below, and the root of a bare plane, where policy protects the
    plane's own files.

    Threat: policy patterns are relative to the workspace, so none would match the files of
    an agent that is given `PLANE/HOT/ledger` or `PROJECT/.git`; in `~/.claude` hooks and
    settings are files like any other. A plane further down is closed by `planes_below`.
    """
    real = real_path(record.workspace)
    if ".git" in (part.lower() for part in real.parts):
        hint = "give the agent the work tree, or a separate directory"
        raise _no_workspace(record, "is inside a .git directory", hint)
    is_bare_root = layout.kind is PlaneKind.BARE and real == real_path(layout.root)
    if not (is_bare_root or _is_own_workspace(real, layout)):
        _require_apart(record, real, layout, environment)
    require_as_declared(record, real)


def _refused(record: AgentRecord, name: str, message: str, hint: str) -> ConfigError:
    return ConfigError(message, where=f"{record.file}, field {name!r}", hint=hint)


def _no_workspace(record: AgentRecord, why: str, hint: str) -> ConfigError:
    said = f"the workspace {quote(str(record.workspace))} {why}"
    return _refused(record, "workspace", said, hint)


def require_as_declared(record: AgentRecord, real: Path) -> None:
    """Refuse a workspace whose real path is not the declared one. Raises: ConfigError.

    Threat: an agent that works in a directory above puts a link in its place, or on
    the way to it, and this agent works wherever the link leads.
    """
    if record.workspace == real:
        return
    raise _no_workspace(
        record,
        f"is reached through a link, and is {quote(str(real))}",
        "put a directory in the link's place; if the link is yours, declare the agent again:"
        " paddock agent remove, then create",
    )


def _require_apart(
    record: AgentRecord, real: Path, layout: PlaneLayout, environment: Environment
) -> None:
    if discover.contains(layout.root, real) or discover.contains(real, layout.root):
        raise _no_workspace(
            record,
            f"and the plane {quote(str(layout.root))} overlap",
            "give the agent a directory outside the plane, or leave --workspace out",
        )
    discover.require_outside(real, environment)
    _require_no_client_folder(record, real, environment)
    for directory in (real, *real.parents):
        if discover.is_registered_bare_plane(directory, environment):
            raise _lies_in_plane(record, directory)


def _require_no_client_folder(record: AgentRecord, real: Path, environment: Environment) -> None:
    for directory in (real, *real.parents):
        if not _is_client_folder(directory, environment):
            continue
        below = real.relative_to(directory).parts
        if len(below) < 2 or below[0] != _WORKTREES:
            why = "where a coding agent's client keeps its settings"
            hint = "give the agent a directory outside of it"
            raise _no_workspace(record, f"is in {quote(str(directory))}, {why}", hint)


def _is_client_folder(directory: Path, environment: Environment) -> bool:
    if directory.name.lower() in {each.folder for each in HOMES}:
        return True
    variables = dict(environment.variables)
    named = [Path(given) for each in HOMES if (given := variables.get(each.variable))]
    # One that holds the home directory would close every project in it.
    return any(
        each.is_absolute()
        and real_path(each) == directory
        and not discover.contains(each, environment.home)
        for each in named
    )


def require_new_workspace(record: AgentRecord, environment: Environment) -> None:
    """Refuse a new or changed declaration around a bare plane, or in a directory like one."""
    real = real_path(record.workspace)
    for directory in (real, *real.parents):
        if discover.is_bare_plane(directory):
            raise _lies_in_plane(record, directory)
    below = discover.bare_planes_below(real, environment)
    if below:
        why = f"holds the bare plane {quote(str(real / below[0]))}"
        hint = "give the agent a directory that contains no plane, or leave --workspace out"
        raise _no_workspace(record, why, hint)


def require_within_parent(child: AgentRecord, parent: AgentRecord) -> None:
    """Refuse a child that could do more than its parent. Raises: ConfigError.

    Each decision is the strictest of both anyway; this checks what it cannot compare: workspace and
    toolsets.

    Threat: patterns are relative to the acting agent's workspace. To a child that works in
    `docs/`, the file `docs/keep.md`, which its parent may not write, is `keep.md`.
    """
    if not child.owns_workspace and real_path(child.workspace) != real_path(parent.workspace):
        raise _no_workspace(
            child,
            f"of agent {quote(child.agent.name)} is not that of its parent"
            f" {quote(parent.agent.name)}: {quote(str(parent.workspace))}",
            "give it the parent's workspace, or none: then it gets a separate directory",
        )
    more = [name for name in child.agent.toolsets if name not in parent.agent.toolsets]
    if more:
        raise _refused(
            child,
            "toolsets",
            f"agent {quote(child.agent.name)} has toolsets that its parent"
            f" {quote(parent.agent.name)} lacks: {', '.join(more)}",
            "leave them out, or give them to the parent too",
        )


def _lies_in_plane(record: AgentRecord, plane: Path) -> ConfigError:
    hint = "give the agent a directory outside of that plane, or leave --workspace out"
    return _no_workspace(record, f"is in the bare plane {quote(str(plane))}", hint)


def _is_own_workspace(real: Path, layout: PlaneLayout) -> bool:
    agents = real_path(layout.agents)
    if agents not in real.parents:
        return False
    parts = real.relative_to(agents).parts
    return len(parts) >= 2 and is_agent_name(parts[0]) and parts[1] == "workspace"


_OPTIONS: Final = ("workspace", "parent", "toolsets")
"""Fields that `paddock agent create` takes as options of the same names."""


class AgentSpec(Struct, frozen=True):
    """The specification of an agent. `toolsets` None: those defaults that the parent has too.

    Without a `workspace` it gets a separate one; an agent of a program, the project's root.
    """

    name: str
    profile: str = "standard"
    workspace: Path | None = None
    parent: str | None = None
    toolsets: tuple[str, ...] | None = None
    permissions: Permissions = field(default_factory=Permissions)
    declared_in: str = ""


class RemovedAgent(Struct, frozen=True):
    name: str
    kept: Path


class AgentStore(Struct, frozen=True):
    """Read and change declarations. Each read checks all ancestors, and fails if one is broken.

    Changes hold the lock of `agents/`, so no parent is removed while its child is created.
    """

    layout: PlaneLayout
    environment: Environment
    admin: AgentRecord | None = None
    """The agent that a bare plane's configuration declares, instead of an `agent.json`."""
    given: AgentRecord | None = None
    """The agent that the embedding program declares, for as long as it has the workspace open."""

    def names(self) -> tuple[str, ...]:
        self._require_private()
        found = [name for name in names_in(self.layout.agents) if self._is_declared(name)]
        if self.admin is not None:
            found.append(self.admin.agent.name)
        if len(found) > limits.agents_max:
            raise ConfigError(
                f"there are {len(found)} agents; at most {limits.agents_max} are allowed",
                where=str(self.layout.agents),
                hint="remove some: paddock agent remove NAME",
            )
        return tuple(sorted(found))

    def is_known(self, name: str) -> bool:
        return self._is_admin(name) or os.path.lexists(self.layout.agent_file(name))

    def read_all(self) -> tuple[AgentRecord, ...]:
        return tuple(self.read(name) for name in self.names())

    def read(self, name: str) -> AgentRecord:
        return self.lineage(name)[0]

    def chain(self, name: str) -> AgentChain:
        return tuple(record.agent for record in self.lineage(name))

    def lineage(self, name: str) -> tuple[AgentRecord, ...]:
        _require_name(name)
        record = self._find(name)
        if record is None:
            raise UsageError(f"no agent is named {quote(name)}", hint="see: paddock agent list")
        return self._lineage_of(record)

    def with_given(self, spec: AgentSpec) -> "AgentStore":
        record, _ = self.draft(spec)
        if self.is_known(spec.name):
            raise _exists(spec.name, record.file)
        self._lineage_of(record)
        return structs.replace(self, given=record)

    def create(self, new: AgentSpec) -> AgentRecord:
        """Declare an agent, durably; create a separate workspace for it if it has none.

        Sequence: an earlier agent's token removed → directories → `agent.json`, exclusively.
        Of several callers that create one name, exactly one succeeds.

        Raises: UsageError; ConfigError: the workspace overlaps the plane, or exceeds the parent's.
        """
        from paddock.plane.tokens import remove_token  # noqa: PLC0415 - for few calls

        record, content = self.draft(new)
        file, workspace = record.file, new.workspace
        atomic.make_directories(self.layout.agents)
        with locked(self.layout.agents):
            self._require_private(new.name)
            if file.exists():
                raise _exists(new.name, file)
            with _naming_options(file):
                self._lineage_of(record)
            # Threat: the token of an earlier agent of this name would count for the new one.
            remove_token(self.layout, self.environment, new.name)
            atomic.make_directories(self.layout.agent_directory(new.name))
            if workspace is None:
                atomic.make_directories(self.layout.agent_workspace(new.name))
            if not atomic.create_file(file, content, atomic.FILE_MODE):
                raise _exists(new.name, file)
        return record

    def change(self, new: AgentSpec) -> AgentRecord:
        """Replace the declaration, durably; token, workspace and memories stay."""
        record, content = self.draft(new)
        with locked(self.layout.agents):
            self._require_private(new.name)
            with _naming_options(record.file):
                self._lineage_of(record)
            atomic.replace_file(record.file, content)
        return record

    def remove(self, name: str) -> RemovedAgent:
        """Remove its token, then set `agent.json` aside, broken or not; its other files stay.

        Raises: UsageError: it does not exist, or is the parent of another agent.
        """
        from paddock.plane.tokens import remove_token  # noqa: PLC0415 - for few calls

        _require_name(name)
        file = self.layout.agent_file(name)
        if not os.path.lexists(file):
            raise UsageError(f"no agent is named {quote(name)}", hint="see: paddock agent list")
        with locked(self.layout.agents):
            self._require_private(name)
            children = [other for other in self.names() if self._has_parent(other, name)]
            if children:
                raise UsageError(
                    f"agent {quote(name)} is the parent of {', '.join(children)}",
                    hint="remove those first",
                )
            remove_token(self.layout, self.environment, name)
            with atomic.host_errors("removing", file):
                kept = _free_name(file)
                os.rename(file, kept)
                atomic.sync_directory(file.parent)
        return RemovedAgent(name, kept)

    def draft(self, new: AgentSpec) -> tuple[AgentRecord, bytes]:
        parent = None if new.parent is None else self.read(new.parent)
        agent = Agent(new.name, new.profile, _toolsets(new, parent), new.permissions, new.parent)
        problem = _find_problem(agent)
        if problem is not None:
            raise UsageError(problem[1], hint=problem[2])
        workspace = None if new.workspace is None else real_directory(new.workspace)
        if self._is_admin(new.name):
            raise _exists(new.name, self.layout.admin_config)
        file = self.layout.agent_file(new.name)
        content = write_agent(agent, workspace, new.declared_in)
        record = parse_agent(content, file, self.layout)
        self._require_private(new.name)
        with _naming_options(file):
            require_workspace(record, self.layout, self.environment)
            # Except this bare plane's own root, and a child, which has its parent's workspace.
            if workspace not in (None, self.layout.root) and new.parent is None:
                require_new_workspace(record, self.environment)
        return record, content

    def _is_admin(self, name: str) -> bool:
        return self.admin is not None and name == self.admin.agent.name

    def _find(self, name: str) -> AgentRecord | None:
        self._require_private(name)
        if self.given and name == self.given.agent.name:
            return self.given
        if self._is_admin(name):
            self._is_declared(name)
            return self.admin
        file = self.layout.agent_file(name)
        content = atomic.read_file(file, limits.agent_file_bytes_max)
        if content is None:
            return None
        record = parse_agent(content, file, self.layout)
        require_workspace(record, self.layout, self.environment)
        return record

    def _lineage_of(self, record: AgentRecord) -> tuple[AgentRecord, ...]:
        found = [record]
        names = {record.agent.name}
        while (parent_name := found[-1].agent.parent) is not None:
            child, most = found[-1], limits.agent_chain_max
            if parent_name in names:
                said = f"agent {quote(parent_name)} is its own ancestor"
                raise _refused(child, "parent", said, "break the circle of parents")
            if len(found) >= most:
                said = f"agent {quote(record.agent.name)} has {most} ancestors or more"
                raise _refused(child, "parent", said, f"a chain has at most {most} agents")
            parent = self._find(parent_name)
            if parent is None:
                said = f"no agent is named {quote(parent_name)}"
                raise _refused(child, "parent", said, "see: paddock agent list")
            require_within_parent(child, parent)
            names.add(parent_name)
            found.append(parent)
        return tuple(found)

    def _has_parent(self, name: str, parent: str) -> bool:
        try:
            record = self._find(name)
        except ConfigError:
            # A child that does not load cannot act, so it does not keep its parent.
            return False
        return record is not None and record.agent.parent == parent

    def _is_declared(self, name: str) -> bool:
        if not os.path.lexists(self.layout.agents / name / "agent.json"):
            return False
        if not is_agent_name(name):
            raise ConfigError(
                _name_problem(name), where=str(self.layout.agents / name), hint=NAME_HINT
            )
        if self._is_admin(name):
            raise ConfigError(
                f"the agent {quote(name)} is declared a second time",
                where=str(self.layout.agent_file(name)),
                hint=f"remove that file: {self.layout.admin_config} declares it",
            )
        return True

    def _require_private(self, *names: str) -> None:
        """Refuse `agents/`, or the directory of a name in it, unless real and writable only by us.

        Threat: on a bare plane an agent that can create links could point `agents`, or
        `agents/NAME`, at its own directory and declare itself there; another user who can write
        there could do so without a link.
        """
        atomic.require_private(self.layout.agents)
        for name in names:
            atomic.require_private(self.layout.agent_directory(name))


def _toolsets(new: AgentSpec, parent: AgentRecord | None) -> tuple[str, ...]:
    if new.toolsets is not None:
        return new.toolsets
    if parent is None:
        return DEFAULT_TOOLSETS
    return tuple(name for name in DEFAULT_TOOLSETS if name in parent.agent.toolsets)


def _require_name(name: str) -> None:
    if not is_agent_name(name):
        raise UsageError(_name_problem(name), hint=NAME_HINT)


@contextmanager
def _naming_options(file: Path) -> Generator[None]:
    try:
        yield
    except ConfigError as error:
        options = {f"{file}, field {name!r}": f"--{name}" for name in _OPTIONS}
        if error.where not in options:
            raise
        where = options[error.where]
        raise ConfigError(error.message, where=where, hint=error.hint) from error


def _exists(name: str, file: Path) -> UsageError:
    return UsageError(
        f"an agent named {quote(name)} exists already",
        where=str(file),
        hint="choose another name, or remove it first",
    )


def _free_name(file: Path) -> Path:
    number = 1
    while os.path.lexists(kept := file.with_name(f"agent.removed-{number}.json")):
        number += 1
    return kept
