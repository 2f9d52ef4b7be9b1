"""Where coding agents' clients keep their own files: a project's, and their user's. Paths alone.

Sources: Claude Code's documentation of its settings, Codex's of its configuration. The hook's
lean path imports nothing of the plane, and names the variables again in `image.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ClientHome:
    """One client's folder: `folder` in a project and in a home, unless `variable` is set."""

    folder: str
    variable: str

    def of_user(self, home: str, variables: Mapping[str, str]) -> str:
        """The user's own folder. A variable's value stays as it is: also a relative one."""
        return variables.get(self.variable) or f"{home.rstrip('/')}/{self.folder}"


CLAUDE: Final = ClientHome(".claude", "CLAUDE_CONFIG_DIR")
CODEX: Final = ClientHome(".codex", "CODEX_HOME")
HOMES: Final = (CLAUDE, CODEX)
