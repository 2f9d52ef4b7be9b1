"""What the hook's commands talk to; the command line's own console."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, TextIO

from paddock.assembly.project import Project, find_project
from paddock.plane.environment import Environment, read_environment
from paddock.values.calls import Json


class HookConsole(Protocol):
    @property
    def stdin(self) -> TextIO: ...

    @property
    def stdout(self) -> TextIO: ...

    @property
    def stderr(self) -> TextIO: ...

    @property
    def variables(self) -> Mapping[str, str]: ...

    @property
    def directory(self) -> Path: ...

    def print(self, text: str) -> None: ...

    def say(self, text: str = "") -> None:
        """For a person, on stdout."""
        ...

    def warn(self, text: str) -> None:
        """For a person, on stderr."""
        ...

    def agrees(self, question: str) -> bool:
        """Raises: UsageError where nobody can be asked."""
        ...

    def write_json(self, value: Json) -> None:
        """For a program, on stdout."""
        ...


def environment_of(console: HookConsole) -> Environment:
    """The user's environment. Raises: ConfigError where there is no home."""
    return read_environment(console.variables)


def project_of(console: HookConsole, plane: str | None) -> Project:
    """The project that a command works on; nothing is made. Raises: UsageError, ConfigError."""
    override = None if plane is None else console.directory / plane
    return find_project(console.directory, environment_of(console), override)
