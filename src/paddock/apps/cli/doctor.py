"""`paddock doctor`."""

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options
from paddock.apps.cli.project import environment_of
from paddock.assembly.lazy_packages import is_made_with_dev
from paddock.assembly.project import Project
from paddock.errors import SandboxUnavailableError
from paddock.plane.report import MADE_WITH_DEV
from paddock.policy.settings import EnforcementMode
from paddock.sandbox.values import BackendVerdict, Enforcement
from paddock.values.calls import Json

if TYPE_CHECKING:
    from paddock.sandbox.backends import HostFinding

_STAGING = "staging"
"""Below Paddock's state: where the layers of commands lie."""


class Doctor:
    """What this host can enforce, and what is missing."""

    summary = "Show what this host can enforce on files and commands, and what is missing."
    examples = "  paddock doctor\n  paddock doctor --json"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """No options of its own."""

    def run(self, options: Options, console: Console) -> int:
        """Try everything and say what came of it; 0 also where something is missing."""
        from paddock import __version__
        from paddock.apps.cli.doctor_here import look_here
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
