"""The policy files in force: which they are, their bytes, and whether they are trusted."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paddock import limits
from paddock.errors import ConfigError
from paddock.plane.discovery import ProjectRoot
from paddock.plane.environment import Environment
from paddock.plane.layout import PlaneLayout
from paddock.plane.paths import real_path
from paddock.plane.registry import bare_planes_below
from paddock.plane.trust import find_trust
from paddock.storage.atomic import (
    read_file,
    read_private_file,
    require_own_link,
    require_private,
    trusted_owners,
)
from paddock.text.show import quote
from paddock.values.digests import digest_of
from paddock.values.planes import PlaneKind

PROJECT_POLICY: Final = "paddock.toml"
PROJECT_POLICY_JSON: Final = "paddock.json"


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """One policy file as it was read: decisions are made on these bytes."""

    path: Path
    content: bytes
    trusted: bool
    reason: str = ""
    """Why it is not trusted; empty exactly when `trusted`."""

    @property
    def digest(self) -> str:
        """`sha256:` and the digest of the content."""
        return digest_of(self.content)


@dataclass(frozen=True, slots=True)
class PolicyFiles:
    """What a policy is made from. None where there is no file."""

    kind: PlaneKind
    project: PolicyFile | None
    """The project's or the bare plane's own."""
    user: PolicyFile | None
    """The user's configuration; always trusted."""
    planes_below: tuple[str, ...] = ()
    """The bare planes that are registered below the workspace, relative to it."""

    def paths(self) -> tuple[Path, ...]:
        """The files in force, the project's first."""
        return tuple(file.path for file in (self.project, self.user) if file is not None)


def read_policy_files(root: ProjectRoot, environment: Environment) -> PolicyFiles:
    """The policy files for `root`, each read once.

    Raises:
        ConfigError: one is no regular file, too large or unreadable, or a project
            has both `paddock.toml` and `paddock.json`.
    """
    return PolicyFiles(
        kind=root.kind,
        project=read_own_policy(root, environment),
        user=read_user_policy(environment),
        planes_below=bare_planes_below(root.path, environment),
    )


def own_policy_path(root: ProjectRoot) -> Path:
    """Where the root's own policy stands, or would stand.

    Raises:
        ConfigError: it stands twice, as TOML and as JSON.
    """
    toml = root.path / PROJECT_POLICY
    if root.kind is PlaneKind.BARE:
        toml = PlaneLayout(root.path, PlaneKind.BARE).config / "policy.toml"
    json = toml.with_suffix(".json")
    if not _stands(json):
        return toml
    if _stands(toml):
        raise ConfigError(
            f"there are two policies: {quote(toml.name)} and {quote(json.name)}",
            where=str(toml.parent),
            hint="keep one of them",
        )
    return json


def read_own_policy(root: ProjectRoot, environment: Environment) -> PolicyFile | None:
    """The root's own policy file, or None; raises as `read_policy_files`."""
    path = own_policy_path(root)
    content = read_file(path, limits.policy_bytes_max)
    if content is None:
        return None
    if root.accepted:
        return PolicyFile(path, content, trusted=True)
    if root.kind is PlaneKind.BARE:
        return PolicyFile(
            path, content, trusted=False, reason="this plane was neither named nor registered"
        )
    answer = find_trust(path, content, environment)
    return PolicyFile(path, content, answer.trusted, answer.reason)


def read_user_policy(environment: Environment) -> PolicyFile | None:
    """The user's own policy and settings, if there are any.

    Threat: it counts whole, and commands of it run when a ledger is signed or anchored.
    Whoever can write it, or put a key beside it, is the user.

    Raises:
        ConfigError: others can write it, its directory or that of the keys; it is no
            regular file, too large or unreadable.
        HostError: the system failed to read.
    """
    # People keep their configuration as links into a repository of their own.
    directory = real_path(environment.config_home)
    if not directory.exists():
        return None
    require_own_link(environment.config_home)
    for private in (directory, real_path(directory / "keys")):
        require_private(private, "XDG_CONFIG_HOME")
    path = environment.user_config
    content = read_private_file(path, limits.policy_bytes_max, trusted_owners(directory))
    return None if content is None else PolicyFile(path, content, trusted=True)


def _stands(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        # Something is there that can't be looked at: reading it says what.
        return True
    return True
