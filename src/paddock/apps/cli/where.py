"""`paddock where`."""

import argparse

from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options
from paddock.apps.cli.project import find_project, find_site
from paddock.assembly.lazy_packages import report_of
from paddock.errors import ConfigError
from paddock.plane.report import MADE_WITH_DEV, WhereReport


class Where:
    """Show where root, plane, policy and ledgers are. Makes nothing."""

    summary = (
        "Show where the root, its plane, its policy files and its ledgers are.\n"
        "The root is the nearest directory at or above this one with a policy file; where there\n"
        "is none the nearest with .git, else this directory. In a bare plane it is the plane."
    )
    examples = "  paddock where\n  paddock where --json | jq -r .plane"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """No options of its own."""

    def run(self, options: Options, console: Console) -> int:
        """Print the report. Raises: ConfigError, after what is so whatever the policy is."""
        try:
            report = report_of(find_project(options, console))
        except ConfigError:
            _show(find_site(options, console).report(), options, console)
            raise
        _show(report, options, console)
        return 0


def _show(report: WhereReport, options: Options, console: Console) -> None:
    if options.json:
        console.write_json(report.as_json())
        return
    console.say(f"root     {report.root}")
    console.say(f"plane    {report.plane}")
    for path in report.policy or ():
        console.say(f"policy   {path}")
    if not report.policy:
        console.say(f"policy   {'not known' if report.policy is None else 'built-in defaults'}")
    for name, path in report.ledgers.items():
        console.say(f"ledger   {name:<12}{path}")
    console.say(f"user     {report.user_config}")
    if report.gate is not None:
        console.say(f"gate     dual gate {report.gate}")
    if report.made_with_dev:
        console.say(f"note     {MADE_WITH_DEV}")


COMMAND = Where()
