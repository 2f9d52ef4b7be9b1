"""Create a plane, of a project or a bare one: once, completely and durably.

Also the policy files that `paddock init` writes, with the defaults as comments.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path, PurePath
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.errors import ConfigError, HostError, UsageError
from paddock.pattern import lazy_pattern
from paddock.plane import discover
from paddock.plane.agents import write_agent
from paddock.plane.environment import Environment, real_directory, real_path
from paddock.plane.layout import BARE_DIRECTORIES, PlaneLayout
from paddock.plane.trust import (
    TrustRecord,
    own_policy_path,
    plan_trust,
    read_own_policy,
    write_trust,
)
from paddock.storage import atomic
from paddock.storage.locks import locked
from paddock.text.show import quote
from paddock.values.decisions import Agent, PlaneKind

POLICY_TEMPLATE: Final = Path(__file__).with_name("policy_template.toml").read_bytes()
PACKAGES_TEMPLATE: Final = (
    POLICY_TEMPLATE
    + b"""
# Commands reach the hosts of the user's own package clients: paddock network show
[network]
packages = true
"""
)

MAIN_AGENT: Final = "main"

_BUILDING_PREFIX: Final = ".new-"


class OpenedPlane(Struct, frozen=True):
    layout: PlaneLayout
    created: bool
    """This call created it: the caller must record `PLANE_CREATED` and `AGENT_CREATED`."""


def open_plane(root: discover.ProjectRoot, environment: Environment) -> OpenedPlane:
    layout = discover.plane_for(root, environment)
    if layout.kind is PlaneKind.BARE:
        return OpenedPlane(layout, created=False)
    if _is_whole(layout, root.path):
        return OpenedPlane(layout, created=False)
    atomic.make_directories(layout.root.parent)
    atomic.require_private(layout.root.parent)
    with locked(layout.root.parent):
        if _is_whole(layout, root.path):
            return OpenedPlane(layout, created=False)
        _sweep(layout.root.parent)
        _build(layout, root.path)
    return OpenedPlane(layout, created=True)


def _is_whole(layout: PlaneLayout, root: Path) -> bool:
    atomic.require_private(layout.root)
    content = atomic.read_file(layout.record, limits.plane_record_bytes_max)
    if content is None:
        return False
    discover.require_identity(
        discover.parse_identity(content, str(layout.record)), root, layout.record
    )
    return True


def _build(layout: PlaneLayout, root: Path) -> None:
    """Sequence: everything in a directory beside it, fsynced → rename → fsync.

    A crash leaves either leftovers that the next builder removes, or the complete plane.
    """
    import shutil  # noqa: PLC0415 - for few calls

    building = layout.root.parent / f"{_BUILDING_PREFIX}{os.urandom(8).hex()}"
    draft = PlaneLayout(building, layout.kind)
    with atomic.host_errors("creating the plane", layout.root):
        os.mkdir(building, atomic.DIRECTORY_MODE)
        try:
            _fill(draft, root)
            os.rename(building, layout.root)
        except (OSError, HostError) as error:
            shutil.rmtree(building, ignore_errors=True)
            if layout.root.exists():
                raise _damaged(layout) from error
            raise
        atomic.sync_directory(layout.root.parent)


def _fill(draft: PlaneLayout, root: Path) -> None:
    main = draft.agent_directory(MAIN_AGENT)
    directories = (*draft.directories(), main)
    for directory in directories:
        os.mkdir(directory, atomic.DIRECTORY_MODE)
    agent = Agent(MAIN_AGENT, "standard")
    atomic.create_file(draft.agent_file(MAIN_AGENT), write_agent(agent, root), atomic.FILE_MODE)
    atomic.create_file(draft.record, discover.identity_of(root).to_bytes(), atomic.FILE_MODE)
    for directory in reversed(directories):
        atomic.sync_directory(directory)
    atomic.sync_directory(draft.root)


def _sweep(planes: Path) -> None:
    """Remove leftovers of killed builders. The lock is held, so no builder is alive."""
    import shutil  # noqa: PLC0415 - for few calls

    for name in os.listdir(planes):
        if name.startswith(_BUILDING_PREFIX):
            shutil.rmtree(planes / name, ignore_errors=True)


def _damaged(layout: PlaneLayout) -> ConfigError:
    return ConfigError(
        f"the plane {quote(str(layout.root))} has no {layout.record.name}",
        where=str(layout.root),
        hint="restore that file from a backup, or move the directory away",
    )


_PUBLIC_FILE_MODE: Final = 0o666
"""Before the umask: the file is committed and read by everyone on the project."""


class InitResult(Struct, frozen=True):
    root: discover.ProjectRoot
    plane: OpenedPlane
    policy_file: Path
    made: tuple[Path, ...]
    """The things that this call created: the policy file, the plane, the agent's declaration."""
    trust: TrustRecord | None

    @property
    def already(self) -> bool:
        return not self.made and self.trust is None


def init_project(
    directory: Path,
    environment: Environment,
    now: datetime,
    record: Callable[[discover.ProjectRoot, TrustRecord], None],
    policy: bytes = POLICY_TEMPLATE,
) -> InitResult:
    """Make `directory`, created if it is missing, a governed project with this policy.

    Never overwrite a policy file. A file written here is trusted at once; an existing file is
    not, unless it has exactly the bytes that would have been written. `record` records that trust
    before it takes effect. A second run changes nothing.

    Raises: UsageError, ConfigError, HostError; errors of `record`: then nothing is trusted.
    """
    discover.require_outside(directory, environment)
    wanted = real_path(directory)
    if not os.path.lexists(own_policy_path(discover.ProjectRoot(wanted, PlaneKind.PROJECT))):
        # Threat: a new project's agents would work on the files that govern the plane's agents.
        is_plane = partial(discover.is_registered_bare_plane, environment=environment)
        _require_no_plane_above(wanted, is_plane, "name a directory outside the plane")
    with atomic.host_errors("making", directory):
        try:
            os.makedirs(directory, exist_ok=True)
        except FileExistsError:
            raise UsageError(
                f"{quote(str(directory))} is not a directory", hint="name a directory"
            ) from None
    path = real_directory(directory)
    if discover.is_bare_plane(path):
        raise UsageError(
            f"{quote(str(path))} is a bare plane", hint="use paddock init --bare for a bare plane"
        )
    root = discover.ProjectRoot(path, PlaneKind.PROJECT)
    policy_file = own_policy_path(root)
    plane = open_plane(root, environment)
    made = [plane.layout.root, plane.layout.agent_file(MAIN_AGENT)] if plane.created else []
    trust = None
    is_missing, own = not os.path.lexists(policy_file), read_own_policy(root, environment)
    if is_missing or (own is not None and own.content == policy and not own.trusted):
        # Sequence: recorded → trusted → written. So the file is never there untrusted, or trusted
        # without an entry. Trust in bytes that no file has grants nothing.
        trust = plan_trust(policy_file, policy, now)
        record(root, trust)
        write_trust(trust, environment)
    if is_missing and atomic.create_file(policy_file, policy, _PUBLIC_FILE_MODE):
        made.insert(0, policy_file)
    own = read_own_policy(root, environment)
    # Threat: somebody else created the file first: report no trust in what they wrote.
    is_ours = own is not None and own.trusted and own.content == policy
    return InitResult(root, plane, policy_file, tuple(made), trust if is_ours else None)


def _require_no_plane_above(root: Path, is_plane: Callable[[Path], bool], hint: str) -> None:
    for above in filter(is_plane, root.parents):
        raise ConfigError(
            f"{quote(str(root))} is in the bare plane {quote(str(above))}",
            where=str(root),
            hint=hint,
        )


# A bare plane. Its path is registered first and the admin's configuration written last: that file
# marks a bare plane, so a crash before it leaves a directory that is not a plane yet, and the next
# `init` continues from there. Existing files are neither removed nor overwritten.

_DRAFT: Final = lazy_pattern(r"\.paddock-[0-9a-f]{32}\.[a-z]{1,8}", re.ASCII)
"""Temporary names of the plane's own writes and of sets of changes."""


class Blueprint(Struct, frozen=True):
    config: bytes
    files: Mapping[str, bytes]
    leftovers: tuple[str, ...] = ()
    """Prefixes of files that differ each time a plane is created: records, receipts, approvals.
    A stopped `init` may have left some: they are kept here, and the builder judges them."""
    beside: frozenset[str] = frozenset()
    """Existing files that are allowed but are not part of the plane."""


Build = Callable[[PlaneLayout, Blueprint], Iterable[Path]]
"""Create everything but the configuration, durably, and return the created files.

Leftovers of a stopped `init` may exist. The caller holds the lock of the root."""


class MadePlane(Struct, frozen=True):
    layout: PlaneLayout
    made: tuple[Path, ...]
    registered: bool
    """It is registered: it counts fully without being named."""


def make_bare_plane(
    directory: Path, blueprint: Blueprint, environment: Environment, build: Build
) -> MadePlane:
    """Make `directory` a bare plane; leave an existing one as it is.

    Do not register an existing one either: it may have come from somebody else.
    """
    discover.require_outside(directory, environment)
    wanted = real_path(directory)
    # Threat: the outer plane's admin works on everything below its root, including the inner
    # plane's configuration.
    hint = "choose another place: agents of the outer plane could change it"
    _require_no_plane_above(wanted, discover.is_bare_plane, hint)
    if not os.path.lexists(directory):
        atomic.make_directories(directory)
    root = real_directory(directory)
    layout = PlaneLayout(root, PlaneKind.BARE)
    with locked(root):
        if discover.is_bare_plane(root):
            return MadePlane(layout, (), discover.is_registered_bare_plane(root, environment))
        atomic.require_private(root)
        # Threat: keys and approvals from elsewhere could pass for leftovers of a stopped `init`.
        # Ours registers the path before it creates anything there.
        is_ours = discover.is_registered_bare_plane(root, environment)
        _require_free(root, blueprint, blueprint.leftovers if is_ours else ())
        # Registered first, so the plane never exists unregistered. A registered path without a
        # plane is harmless.
        discover.register_bare_plane(root, environment)
        made = tuple(_build_bare(layout, blueprint, build))
    return MadePlane(layout, made, registered=True)


def _require_free(root: Path, blueprint: Blueprint, leftovers: tuple[str, ...]) -> None:
    above = _above(blueprint.beside)
    known = _above(blueprint.files) | set(BARE_DIRECTORIES)
    for path in _entries(root):
        relative = path.relative_to(root).as_posix()
        is_beside = relative in blueprint.beside or relative in above
        if is_beside or _is_bytecode(relative, above):
            continue
        if not _is_ours(path, relative, blueprint, known, leftovers):
            raise UsageError(
                f"{quote(str(root))} is neither empty nor a bare plane: "
                f"it contains {quote(relative)}",
                where=str(root),
                hint="name an empty directory or a new one; nothing was changed",
            )


def _is_bytecode(relative: str, above: set[str]) -> bool:
    folder, found, _ = relative.partition("/__pycache__")
    return bool(found) and folder in above


def _entries(directory: Path) -> Iterator[Path]:
    with atomic.host_errors("inspecting", directory):
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    for entry in entries:
        path = directory / entry.name
        yield path
        # The caller has already refused a directory that is not ours.
        if entry.is_dir(follow_symlinks=False):
            yield from _entries(path)


def _above(names: Iterable[str]) -> set[str]:
    return {parent.as_posix() for name in names for parent in PurePath(name).parents}


def _is_ours(
    path: Path,
    relative: str,
    blueprint: Blueprint,
    known: set[str],
    leftovers: tuple[str, ...],
) -> bool:
    with atomic.host_errors("inspecting", path):
        mode = os.lstat(path).st_mode
    is_draft = any(map(_DRAFT.fullmatch, relative.split("/")))
    is_left = relative.startswith(leftovers) or (bool(leftovers) and is_draft)
    if stat.S_ISDIR(mode):
        return relative in known or is_left
    if not stat.S_ISREG(mode):
        return False
    if is_left:
        return True
    if atomic.is_temporary_name(path.name):
        return True
    wanted = blueprint.files.get(relative)
    return wanted is not None and atomic.read_file(path, limits.admin_config_bytes_max) == wanted


def _build_bare(layout: PlaneLayout, blueprint: Blueprint, build: Build) -> Iterator[Path]:
    """Sequence: directories, each fsynced in its parent → other files → the configuration."""
    root = layout.root
    for name in BARE_DIRECTORIES:
        with atomic.host_errors("making", root / name):
            try:
                os.mkdir(root / name, atomic.DIRECTORY_MODE)
            except FileExistsError:
                continue
            atomic.sync_directory((root / name).parent)
    yield from build(layout, blueprint)
    # Written in `objects/`: a killed writer's leftover beside it would be a file without an owner.
    drafts = layout.objects if layout.objects.is_dir() else None
    if atomic.create_file(layout.admin_config, blueprint.config, atomic.FILE_MODE, drafts):
        yield layout.admin_config
