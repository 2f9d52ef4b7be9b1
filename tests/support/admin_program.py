"""The admin shell as `paddock admin` starts it, on a host that enforces what it is told.

    python -m tests.support.admin_program full|partial|none|refused [OPTION ...]

What a host can enforce is not the same everywhere, and screens are compared.
"""

import sys
from typing import Final

from msgspec import Struct

from paddock.apps.admin.command import COMMAND
from paddock.apps.admin.session import Setting
from paddock.apps.admin.shell import run_admin
from paddock.apps.admin.show import Sandboxed
from paddock.apps.command import parse
from paddock.apps.console import Console
from paddock.assembly.project import Project
from paddock.assembly.project_open import open_project
from paddock.errors import PaddockError
from paddock.plane.environment import read_environment
from paddock.sandbox.values import Enforcement

SANDBOXES: Final = {
    "full": Sandboxed(Enforcement.FULL, "stage"),
    "partial": Sandboxed(Enforcement.PARTIAL, "landlock"),
    "none": Sandboxed(Enforcement.NONE, "none"),
    "refused": Sandboxed(Enforcement.NONE, refused=True),
}


class Examined(Struct, frozen=True, dict=True):
    """What trying this host found."""

    found: Sandboxed

    def __call__(self, project: Project, agent: str | None) -> Sandboxed:
        return self.found


def main(sandbox: str, arguments: list[str]) -> int:
    console = Console.of_process()
    options = parse(COMMAND, "admin", arguments, None, console)
    assert options is not None

    try:
        project = open_project(console.directory, read_environment(console.variables))
        setting = Setting(
            project, options.agent, options.model, console.variables, Examined(SANDBOXES[sandbox])
        )
        return run_admin(setting, options, console)
    except PaddockError as error:
        console.report(error)
        return 9


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
