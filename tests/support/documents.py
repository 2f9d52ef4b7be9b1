"""Running what a document shows: each document is one session in a project of its own.

A block's language says what it is:

- `console`: lines after `$ ` are typed into one shell, in order. What stands below a
  command is what it prints, standard error included; `…` stands for anything, as
  nothing at all does. A command has to succeed unless what it prints shows an error.
- `python`: a program, run from the project's folder.
- `toml NAME`, `json NAME`, `python NAME`, `text NAME`: a file, written where NAME says, which
  may begin with `~/`.
- `diff NAME`: a change to that file, one hunk without a head.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

BLOCK = re.compile(r"^```(\w+)(?: ([^\n]+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANYTHING = "…"
_END = "-- end of command"
"""What the shell prints after each command, with its exit status."""


class Block(Struct, frozen=True, dict=True):
    """One fenced block."""

    language: str
    name: str
    text: str
    line: int


class Typed(Struct, frozen=True, dict=True):
    """One command, what has to be printed, and what was."""

    command: str
    shown: str
    printed: str
    status: int

    @property
    def problem(self) -> str:
        """What is wrong with it; empty for nothing."""
        if self.status and "error" not in self.shown:
            return f"exit status {self.status}: {self.printed}"
        if not self.shown:
            return ""
        pattern = ".*?".join(re.escape(piece) for piece in self.shown.split(ANYTHING))
        if re.fullmatch(pattern, self.printed, re.DOTALL):
            return ""
        return f"printed:\n{self.printed}"


def blocks(document: Path) -> list[Block]:
    """The fenced blocks in order."""
    text = document.read_text(encoding="utf-8")
    return [
        Block(found[1], found[2] or "", found[3], text.count("\n", 0, found.start()) + 1)
        for found in BLOCK.finditer(text)
    ]


def run_document(document: Path, folder: Path, environment: dict[str, str]) -> list[str]:
    """Run the blocks in `folder`; what went wrong, with places."""
    problems = []
    for block in blocks(document):
        if block.language == "console":
            found = [
                f"$ {typed.command}\n{typed.problem}"
                for typed in _type(block.text, folder, environment)
                if typed.problem
            ]
        elif block.name:
            place = folder / block.name.replace("~", environment["HOME"], 1)
            place.parent.mkdir(parents=True, exist_ok=True)
            text = _changed(place, block.text) if block.language == "diff" else block.text
            place.write_text(text, encoding="utf-8")
            found = []
        elif block.language == "python":
            found = _run_python(block.text, folder, environment)
        else:
            found = [f"a block of {block.language} that nothing looks at"]
        problems += [f"{document.name}:{block.line}: {problem}" for problem in found]
    return problems


def _changed(place: Path, diff: str) -> str:
    """The text of a file after a change whose lines begin with a space, `-` or `+`."""
    lines = [line or " " for line in diff.splitlines()]
    before, after = (
        "".join(f"{line[1:]}\n" for line in lines if line[0] in f" {sign}") for sign in "-+"
    )
    text = place.read_text(encoding="utf-8")
    assert text.count(before) == 1, f"{place.name} does not hold:\n{before}"
    return text.replace(before, after)


def _type(text: str, folder: Path, environment: dict[str, str]) -> Iterator[Typed]:
    """Type the commands of a block into one shell."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    pairs = []
    for part in parts:
        command, _, shown = part.partition("\n")
        while command.endswith("\\"):
            more, _, shown = shown.partition("\n")
            command = f"{command}\n{more}"
        pairs.append((command, shown.strip("\n")))
    script = "".join(f"{command}\necho '{_END}' $?\n" for command, _ in pairs)
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    ends = re.split(rf"^{_END} (\d+)\n", done.stdout, flags=re.MULTILINE)
    printed, statuses = ends[:-1:2], ends[1::2]
    assert len(printed) == len(pairs), done.stdout
    for (command, shown), out, status in zip(pairs, printed, statuses, strict=True):
        yield Typed(command, shown, out.rstrip("\n"), int(status))


def _run_python(text: str, folder: Path, environment: dict[str, str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return [] if done.returncode == 0 else [done.stderr]
