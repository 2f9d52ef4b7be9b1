"""The project that a command works on, found from its options and its directory."""

from pathlib import Path

from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options
from paddock.assembly.project import PlaneSite, Project
from paddock.assembly.project import find_project as _find_project
from paddock.assembly.project import find_site as _find_site
from paddock.plane.environment import Environment, read_environment


def environment_of(console: Console) -> Environment:
    """The user's environment. Raises: ConfigError where there is no home."""
    return read_environment(console.variables)


def find_project(options: Options, console: Console) -> Project:
    """The project; nothing is made. Raises: UsageError, ConfigError."""
    return _find_project(console.directory, environment_of(console), override_of(options, console))


def find_site(options: Options, console: Console) -> PlaneSite:
    """Root and plane alone, where what governs them need not load."""
    return _find_site(console.directory, environment_of(console), override_of(options, console))


def use_project(options: Options, console: Console) -> Project:
    """The project with its plane, made on first use; what is new is said once."""
    # Here: most commands make nothing, and what makes a plane loads what writes its ledgers.
    from paddock.assembly.opening import open_project

    override = override_of(options, console)
    project = open_project(console.directory, environment_of(console), override)
    for notice in project.notices:
        console.warn(f"note: {notice}")
    return project


def override_of(options: Options, console: Console) -> Path | None:
    return None if options.plane is None else console.directory / options.plane
