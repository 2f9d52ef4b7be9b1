"""`paddock doctor`."""

import argparse

from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options


class Doctor:
    """What this host can enforce, and what is missing."""

    summary = "Show what this host can enforce on files and commands, and what is missing."
    examples = "  paddock doctor\n  paddock doctor --json"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """No options of its own."""

    def run(self, options: Options, console: Console) -> int:
        """0 where the file tools have their fence."""
        from paddock import __version__
        from paddock.sandbox.probe import probe_host

        findings = probe_host()
        if options.json:
            console.write_json(
                {
                    "version": __version__,
                    "host": [
                        {"name": f.name, "ok": f.is_there, "found": f.found, "remedy": f.remedy}
                        for f in findings
                    ],
                }
            )
            return 0
        console.say(f"paddock {__version__}")
        for finding in findings:
            mark = console.paint("yes", "32") if finding.is_there else console.paint("no ", "33")
            console.print(f"  {mark}  {finding.name:<17}{finding.found}\n")
            if finding.remedy:
                console.say(f"       {'':<17}{finding.remedy}")
        console.say("files: fenced. commands: this version runs none")
        return 0


COMMAND = Doctor()
