"""`paddock init`."""

import argparse
from pathlib import Path

from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options
from paddock.apps.cli.project import environment_of
from paddock.assembly import init_project


class Init:
    """Make a governed project; a second time changes nothing and says so."""

    summary = (
        "Write a commented paddock.toml with the defaults, and make the project's plane\n"
        "(outside the project) with one agent, main. Again: changes nothing."
    )
    examples = "  paddock init\n  paddock init path/to/project"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """DIR."""
        parser.add_argument("directory", nargs="?", metavar="DIR", help="default: here")

    def run(self, options: Options, console: Console) -> int:
        """Make what is missing."""
        directory = console.directory / (options.directory or options.plane or ".")
        result = init_project(Path(directory), environment_of(console))
        if options.json:
            console.write_json(
                {
                    "status": "ok",
                    "root": str(result.root.path),
                    "plane": str(result.plane.layout.root),
                    "policy": str(result.policy_file),
                    "made": [str(path) for path in result.made],
                    "already": result.already,
                }
            )
            return 0
        if result.already:
            console.say(f"{result.root.path} is a governed project already; nothing changed")
        for path in result.made:
            console.say(f"made {path}")
        return 0


COMMAND = Init()
