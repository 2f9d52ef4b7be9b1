"""`paddock init`: a project's policy file, its plane, its agent `main`."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from paddock.errors import ConfigError, UsageError
from paddock.plane.apart import require_outside
from paddock.plane.creation import MAIN_AGENT, OpenedPlane, open_plane
from paddock.plane.discovery import ProjectRoot, is_bare_plane
from paddock.plane.environment import Environment
from paddock.plane.paths import real_directory, real_path
from paddock.plane.policy_files import own_policy_path, read_own_policy
from paddock.plane.registry import is_registered_bare_plane
from paddock.plane.template import POLICY_TEMPLATE
from paddock.plane.trust import TrustRecord, is_trusted, plan_trust, write_trust
from paddock.storage.atomic import create_file, host_errors
from paddock.text.show import quote
from paddock.values.planes import PlaneKind

_PUBLIC_FILE_MODE: Final = 0o666
"""Cut by the umask: the file is committed and read by everyone on the project."""


@dataclass(frozen=True, slots=True)
class InitResult:
    """What `init` found and made."""

    root: ProjectRoot
    plane: OpenedPlane
    policy_file: Path
    """The project's policy, made or found."""
    made: tuple[Path, ...]
    """What this call made: the policy file, the plane, the agent's declaration."""
    trust: TrustRecord | None
    """The trust that this call recorded; None where it recorded none."""

    @property
    def already(self) -> bool:
        """Everything was there, and nothing was changed."""
        return not self.made and self.trust is None


def init_project(
    directory: Path,
    environment: Environment,
    now: datetime,
    record: Callable[[ProjectRoot, TrustRecord], None],
) -> InitResult:
    """Make `directory` (made itself where it is missing) a governed project.

    Never overwrites a policy file. The one that it writes is trusted at once; one
    that was there is not, unless it is byte for byte what would have been written.
    `record` puts that trust on record before it holds. A second time nothing changes.

    Raises:
        UsageError: `directory` can't be one, or is a bare plane.
        ConfigError: it overlaps Paddock's own files, lies in a bare plane,
            holds two policies, or its plane is damaged.
        HostError: something could not be written. Also what `record` raises; then
            nothing is trusted.
    """
    require_outside(directory, environment)
    _require_apart_from_planes(real_path(directory), environment)
    with host_errors("making", directory):
        try:
            os.makedirs(directory, exist_ok=True)
        except FileExistsError:
            raise UsageError(
                f"{quote(str(directory))} is not a directory", hint="name a directory"
            ) from None
    path = real_directory(directory)
    if is_bare_plane(path):
        raise UsageError(
            f"{quote(str(path))} is a bare plane", hint="paddock init --bare for one of those"
        )
    root = ProjectRoot(path, PlaneKind.PROJECT)
    policy_file = own_policy_path(root)
    plane = open_plane(root, environment)
    made = [plane.layout.root, plane.layout.agent_file(MAIN_AGENT)] if plane.created else []
    trust = None
    is_missing = not os.path.lexists(policy_file)
    if is_missing or _is_ours_untrusted(root, environment):
        # Sequence: on record → trusted → written. The file is never there without trust, and
        # no trust without its entry. Trust in bytes that do not stand there harms nobody.
        trust = plan_trust(policy_file, POLICY_TEMPLATE, now)
        record(root, trust)
        write_trust(trust, environment)
    if is_missing and create_file(policy_file, POLICY_TEMPLATE, _PUBLIC_FILE_MODE):
        made.insert(0, policy_file)
    if trust is not None and not is_trusted(policy_file, POLICY_TEMPLATE, environment):
        trust = None
    return InitResult(root, plane, policy_file, tuple(made), trust)


def _require_apart_from_planes(root: Path, environment: Environment) -> None:
    """Refuse a new project in a bare plane; one that is there stays as it is.

    Threat: the project's agents would work on what governs the plane's.
    """
    if os.path.lexists(own_policy_path(ProjectRoot(root, PlaneKind.PROJECT))):
        return
    for above in root.parents:
        if is_registered_bare_plane(above, environment):
            raise ConfigError(
                f"{quote(str(root))} lies in the bare plane {quote(str(above))}",
                where=str(root),
                hint="name a directory outside of the plane",
            )


def _is_ours_untrusted(root: ProjectRoot, environment: Environment) -> bool:
    """Whether the policy that stands there is what `init` writes, and nobody trusts it yet."""
    own = read_own_policy(root, environment)
    return own is not None and own.content == POLICY_TEMPLATE and not own.trusted
