"""What one would run oneself, without any tools: `python bare_commands.py ROOT`."""

import subprocess
import sys
from pathlib import Path

from serve import serve


class Commands:
    """One program an operation; an edit reads, replaces and writes in place."""

    def __init__(self, root: str) -> None:
        self._root = root

    def read(self, path: str, first: int = 1, count: int = 2000) -> str:
        last = first + count - 1
        return self._run("sed", "-n", f"{first},{last}p;{last}q", path)

    def edit(self, path: str, old: str, new: str) -> str:
        file = Path(self._root, path)
        text = file.read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise ValueError("not exactly once")
        file.write_text(text.replace(old, new), encoding="utf-8")
        return "done"

    def grep(self, pattern: str) -> str:
        return self._run("rg", "-nHF", pattern, ".")

    def find(self, pattern: str) -> str:
        return self._run("rg", "--files", "-g", pattern)

    def ls(self, path: str) -> str:
        return self._run("ls", "-1p", path)

    def _run(self, *command: str) -> str:
        # Our own input is what is asked of us, and ripgrep would search it.
        done = subprocess.run(
            command,
            cwd=self._root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return done.stdout


serve(Commands(sys.argv[1]))
