"""`paddock where`."""

import argparse

from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options
from paddock.apps.cli.project import find_project
from paddock.assembly.lazy_packages import report_of
from paddock.plane.report import MADE_WITH_DEV


class Where:
    """Show where root, plane, policy and ledgers are. Makes nothing."""

    summary = "Show where the root, its plane, its policy files and its ledgers are."
    examples = "  paddock where\n  paddock where --json | jq -r .plane"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """No options of its own."""

    def run(self, options: Options, console: Console) -> int:
        """Print the report."""
        report = report_of(find_project(options, console))
        if options.json:
            console.write_json(report.as_json())
            return 0
        console.say(f"root     {report.root}")
        console.say(f"plane    {report.plane}")
        for path in report.policy:
            console.say(f"policy   {path}")
        if not report.policy:
            console.say("policy   built-in defaults")
        for name, path in report.ledgers.items():
            console.say(f"ledger   {name:<12}{path}")
        console.say(f"user     {report.user_config}")
        if report.gate is not None:
            console.say(f"gate     dual gate {report.gate}")
        if report.made_with_dev:
            console.say(f"note     {MADE_WITH_DEV}")
        return 0


COMMAND = Where()
