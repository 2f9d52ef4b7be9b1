"""`paddock doctor`."""

import argparse
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options
from paddock.apps.cli.project import environment_of, find_project
from paddock.assembly.project import Project, is_made_with_dev
from paddock.errors import PaddockError, SandboxUnavailableError, UsageError
from paddock.plane.layout import LedgerName
from paddock.plane.report import MADE_WITH_DEV
from paddock.policy.decide import shell_for
from paddock.policy.questions.lint import TRACKED_HINT, describe_tracked, find_tracked_secrets
from paddock.policy.settings import EnforcementMode, ShellSettings
from paddock.sandbox.backends import HostFinding, find_rarely_confined, offered_outside
from paddock.sandbox.git.tracked import list_tracked
from paddock.sandbox.values import BackendVerdict, Enforcement
from paddock.values.calls import Json

if TYPE_CHECKING:
    from paddock.sandbox.backends import HostFinding


_STAGING = "staging"
"""Below Paddock's state: where the layers of commands lie."""


class Doctor:
    summary = "Show what this host can enforce on files and commands, and what is missing."
    examples = "  paddock doctor\n  paddock doctor --json"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """No options of its own."""

    def run(self, options: Options, console: Console) -> int:
        """Try everything and say what came of it; 0 also where something is missing."""
        from paddock import __version__
        from paddock.sandbox.backends import examine_host, probe_host

        findings = probe_host()
        verdicts = examine_host(environment_of(console).paddock_home / _STAGING)
        here = look_here(options, console)
        project = here.project
        is_full = verdicts[0].enforcement is Enforcement.FULL
        workspace = _examine_here(project) if project is not None and is_full else None
        commands = _commands(verdicts, workspace, here.enforcement)
        if here.obstacle:
            commands = f"refused; {here.obstacle}"
        made_with_dev = project is not None and is_made_with_dev(project)
        if options.json:
            console.write_json(
                {
                    "version": __version__,
                    "host": [_finding_json(finding) for finding in findings],
                    "backends": [_verdict_json(verdict) for verdict in verdicts],
                    "workspace": None if workspace is None else _verdict_json(workspace),
                    "here": [_finding_json(finding) for finding in here.findings],
                    "commands": commands,
                    "made_with_dev": made_with_dev,
                }
            )
            return 0
        console.say(f"paddock {__version__}")
        self._say_findings(findings, console)
        console.say("backends for commands, each tried by running one")
        for verdict in verdicts:
            self._say_verdict(verdict, verdict.backend, console)
        if workspace is not None:
            self._say_verdict(workspace, "this workspace", console)
        self._say_findings(here.findings, console)
        console.say(here.obstacle or f"files: fenced. commands: {commands}")
        if made_with_dev:
            console.say(f"plane: {MADE_WITH_DEV}")
        return 0

    def _say_findings(self, findings: Iterable["HostFinding"], console: Console) -> None:
        for finding in findings:
            self._say(finding.is_there, finding.name, finding.found, console)
            if finding.remedy:
                console.say(f"       {'':<17}{finding.remedy}")

    def _say_verdict(self, verdict: BackendVerdict, name: str, console: Console) -> None:
        works = verdict.enforcement is not Enforcement.NONE
        found = verdict.enforcement.value if works else verdict.cause
        self._say(works, name, found, console)
        for line in (*verdict.gaps, *([verdict.remedy] if verdict.remedy else ())):
            console.say(f"       {'':<17}{line}")

    @staticmethod
    def _say(is_there: bool, name: str, found: str, console: Console) -> None:
        mark = console.paint("yes", "32") if is_there else console.paint("no ", "33")
        console.print(f"  {mark}  ")
        console.say(f"{name:<17}{found}")


def _examine_here(project: Project) -> BackendVerdict:
    from paddock.sandbox.backends import examine_workspace

    staging = project.environment.paddock_home / _STAGING
    return examine_workspace(staging, str(project.root.path))


def _commands(
    verdicts: tuple[BackendVerdict, ...], here: BackendVerdict | None, enforcement: EnforcementMode
) -> str:
    from paddock.sandbox.backends import NO_BACKEND, choose_backend

    if here is not None and here.enforcement is Enforcement.NONE:
        return f"refused in this workspace; {here.remedy}"
    try:
        chosen = choose_backend(verdicts, enforcement)
    except SandboxUnavailableError as refused:
        return f"refused; {refused.hint}"
    if chosen.backend == NO_BACKEND:
        return f"unconfined (enforcement = {enforcement})"
    return f"held by {chosen.backend} ({chosen.enforcement.value})"


def _finding_json(finding: "HostFinding") -> dict[str, Json]:
    return {
        "name": finding.name,
        "ok": finding.is_there,
        "found": finding.found,
        "remedy": finding.remedy,
    }


def _verdict_json(verdict: BackendVerdict) -> dict[str, Json]:
    return {
        "backend": verdict.backend,
        "enforcement": verdict.enforcement.value,
        "gaps": list(verdict.gaps),
        "cause": verdict.cause,
        "remedy": verdict.remedy,
    }


COMMAND = Doctor()

_PROJECT: Final = "this project"
_RECORDS: Final = "its records"
_TRACKED: Final = "tracked secrets"


class Here(Struct, frozen=True):
    """A project, what keeps calls on it from running, and the default agent's `enforcement`."""

    project: Project | None
    enforcement: EnforcementMode
    findings: tuple[HostFinding, ...]

    @property
    def obstacle(self) -> str:
        missing = ", ".join(each.name for each in self.findings if not each.is_there)
        return missing and f"no call runs here before this is mended: {missing}"


def look_here(options: Options, console: Console) -> Here:
    """Load what a call loads, and try where it would be recorded. Raises: ConfigError."""
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
    hook = project.policy.settings.hook
    names = find_rarely_confined(console.variables.get("PATH", ""), hook.outside)
    if not names or hook.shell != "confine":
        return ()
    said = f"rarely work in a client's confined commands: {', '.join(names)}"
    remedy = f"to leave them to the client's own prompt: {offered_outside(names)} in [hook]"
    return (HostFinding("programs", is_there=True, found=said, remedy=remedy),)


def _tracked(project: Project) -> tuple[HostFinding, ...]:
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
    return next((each for each in (place, *place.parents) if os.path.lexists(each)), place)
