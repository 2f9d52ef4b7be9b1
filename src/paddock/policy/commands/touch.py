"""What one command writes, takes away and brings, and what of it words do not tell."""

import re
from dataclasses import dataclass, field
from typing import Final

from paddock.policy.commands.commandline import program_name

_PATTERN: Final = re.compile(r"[*?\[]")


@dataclass(slots=True)
class Touch:
    """The paths as they stand in the command, unresolved.

    `copied` are sources with the target that they, or what is below them, come to
    stand in. `doubts` are reasons to ask.
    """

    written: list[str] = field(default_factory=list[str])
    removed: list[str] = field(default_factory=list[str])
    copied: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    doubts: list[str] = field(default_factory=list[str])

    def add(self, other: "Touch") -> None:
        """Take in what another command touches."""
        self.written += other.written
        self.removed += other.removed
        self.copied += other.copied
        self.doubts += other.doubts


def names_directory(target: str) -> bool:
    """Whether a target is taken for a directory's name: one with an extension is a file's."""
    last = target.rstrip("/").rpartition("/")[2]
    return target.endswith("/") or last in (".", "..") or "." not in last


def is_here(path: str) -> bool:
    """Whether a path names the directory where one stands."""
    return not path.startswith("/") and all(part in ("", ".") for part in path.split("/"))


def inside(target: str, source: str) -> str:
    """Where a source comes to stand in a directory."""
    return f"{target.rstrip('/')}/{program_name(source.rstrip('/'))}"


def all_below(directory: str) -> tuple[str, str]:
    """What stands below a directory, as copied to where it stands: each file of it is written."""
    return (f"{directory.rstrip('/')}/.", directory)


def has_pattern(path: str) -> bool:
    """Whether a path may be a pattern, which stands for other names."""
    return _PATTERN.search(path) is not None


def backup_names(path: str, suffix: str) -> list[str]:
    """What a copy may be called that is kept of a file: a star in the suffix is the file's name."""
    if "*" not in suffix:
        return [f"{path}{suffix}"]
    directory, slash, name = path.rpartition("/")
    named = suffix.replace("*", name)
    return list(dict.fromkeys((named, f"{directory}{slash}{named}", suffix.replace("*", path))))
