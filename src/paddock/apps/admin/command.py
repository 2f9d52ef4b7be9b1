"""`paddock admin`. Nothing of the shell is loaded before it starts."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, TextIO

from paddock.assembly.opening import open_project
from paddock.plane.environment import read_environment

Options = argparse.Namespace


class AdminConsole(Protocol):
    @property
    def stdin(self) -> TextIO: ...

    @property
    def stdout(self) -> TextIO: ...

    @property
    def variables(self) -> Mapping[str, str]: ...

    @property
    def directory(self) -> Path: ...


class Admin:
    summary = (
        "Talk with an agent of a plane: it answers, calls its tools, and asks before it does\n"
        "what its policy asks about. On a pipe, or with --plain, lines are read and written."
    )
    examples = (
        "  paddock admin\n"
        "  paddock admin --plane ~/plane --model anthropic:MODEL\n"
        "  echo 'what files are in the kernel directory?' | paddock admin"
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--agent", metavar="NAME", help="who answers (default: admin, or main)")
        parser.add_argument(
            "--model",
            metavar="PROVIDER[:NAME]",
            help="which model answers; scripted:FILE says what FILE says: docs/guides/embed.md",
        )
        parser.add_argument(
            "--plain", action="store_true", help="lines only: for screen readers and scripts"
        )

    def run(self, options: Options, console: AdminConsole) -> int:
        """0 when it was left; 1 where the last turn had no answer. Raises: UsageError."""
        from paddock.apps.admin import shell
        from paddock.apps.admin.desk import Setting, find_sandbox

        override = None if options.plane is None else console.directory / options.plane
        environment = read_environment(console.variables)
        project = open_project(console.directory, environment, override)
        setting = Setting(project, options.agent, options.model, console.variables, find_sandbox)
        streams = shell.ShellStreams(console.stdin, console.stdout, console.variables)
        if options.json:
            return shell.run_json(setting, streams)
        if options.plain:
            return shell.run_plain(setting, streams)
        return shell.run_admin(setting, streams)


COMMAND = Admin()
