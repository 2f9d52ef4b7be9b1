"""What `paddock doctor` finds where it stands: whether anything can run on this project at all."""

import os
import tempfile
from pathlib import Path
from typing import Final

from msgspec import Struct

from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options
from paddock.apps.cli.project import environment_of, find_project
from paddock.assembly.project import Project
from paddock.errors import PaddockError, UsageError
from paddock.plane.layout import LedgerName
from paddock.policy.decide import shell_for
from paddock.policy.questions.lint import TRACKED_HINT, describe_tracked, find_tracked_secrets
from paddock.policy.settings import EnforcementMode, ShellSettings
from paddock.sandbox.backends import HostFinding, find_rarely_confined, offered_outside
from paddock.sandbox.git.tracked import list_tracked

_PROJECT: Final = "this project"
_RECORDS: Final = "its records"
_TRACKED: Final = "tracked secrets"


class Here(Struct, frozen=True):
    """The project of a directory, and what would keep every call on it from running.

    `enforcement` is what policy says for the agent that is used where none is named.
    """

    project: Project | None
    enforcement: EnforcementMode
    findings: tuple[HostFinding, ...]

    @property
    def obstacle(self) -> str:
        """Why no call runs here; empty where calls run."""
        missing = ", ".join(each.name for each in self.findings if not each.is_there)
        return missing and f"no call runs here before this is mended: {missing}"


def look_here(options: Options, console: Console) -> Here:
    """Load what a call would load, and try the places where it would be recorded.

    Raises: ConfigError where there is no home.
    """
    state = environment_of(console).paddock_home
    try:
        project = find_project(options, console)
    except PaddockError as error:
        return Here(None, ShellSettings().enforcement, (_refused(error), _records((state,))))
    places = (state, project.layout.ledger_paths()[LedgerName.HO1M].parent)
    records = _records(places)
    loads = HostFinding(_PROJECT, is_there=True, found="its policy and its agents load")
    findings = (loads, records, *_outside(project, console))
    try:
        findings = (*findings, *_tracked(project))
        return Here(project, _enforcement(project), findings)
    except UsageError:
        # There is no such agent yet: the first use of a project makes it.
        return Here(project, ShellSettings().enforcement, findings)
    except PaddockError as error:
        return Here(project, ShellSettings().enforcement, (_refused(error), records))


def _outside(project: Project, console: Console) -> tuple[HostFinding, ...]:
    """Programs of this host that a client's confined commands rarely get to work."""
    hook = project.policy.settings.hook
    names = find_rarely_confined(console.variables.get("PATH", ""), hook.outside)
    if not names or hook.shell != "confine":
        return ()
    said = f"rarely work in a client's confined commands: {', '.join(names)}"
    remedy = f"to leave them to the client's own prompt: {offered_outside(names)} in [hook]"
    return (HostFinding("programs", is_there=True, found=said, remedy=remedy),)


def _tracked(project: Project) -> tuple[HostFinding, ...]:
    """What git tracks of what policy calls secret; nothing is missing for that."""
    paths = find_tracked_secrets(project.policy, list_tracked(project.root.path))
    if not paths:
        return ()
    said = describe_tracked(paths)
    return (HostFinding(_TRACKED, is_there=True, found=said, remedy=TRACKED_HINT),)


def _enforcement(project: Project) -> EnforcementMode:
    lineage = project.agents.lineage(project.default_agent)
    policy = project.policy_for(lineage[0])
    return shell_for(policy, tuple(record.agent for record in lineage)).enforcement


def _refused(error: PaddockError) -> HostFinding:
    place = ": ".join(part for part in (error.where, error.hint) if part)
    return HostFinding(_PROJECT, is_there=False, found=error.message, remedy=place)


def _records(places: tuple[Path, ...]) -> HostFinding:
    """Whether files can be made there: a call that cannot be recorded does not run."""
    for place in places:
        standing = _standing(place)
        try:
            # It has no name, or loses it at once: nothing is left in a ledger's folder.
            tempfile.TemporaryFile(dir=standing).close()
        except OSError as error:
            return HostFinding(
                _RECORDS,
                is_there=False,
                found=f"nothing can be written in {standing}: {os.strerror(error.errno or 0)}",
                remedy="make it writable for this user, or name another place: PADDOCK_HOME=DIR",
            )
    return HostFinding(_RECORDS, is_there=True, found="can be written")


def _standing(place: Path) -> Path:
    """The place, or what stands nearest above it and would hold it."""
    return next((each for each in (place, *place.parents) if os.path.lexists(each)), place)
