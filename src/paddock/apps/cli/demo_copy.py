"""A copy of the project at hand, for the tour: its own files, bounded, never its links."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_FILES_MAX: Final = 2_000
_BYTES_MAX: Final = 50_000_000
_POLICIES: Final = frozenset({"paddock.toml", "paddock.json"})
TOUR: Final = "paddock-demo"
"""What the tour's own names begin with."""


@dataclass(frozen=True, slots=True)
class Copied:
    source: Path
    files: int
    left: int

    def said(self) -> str:
        """One line for a person."""
        said = f"the tour works on a copy of {self.source} ({_files(self.files)})"
        return f"{said}; {_files(self.left)} left out" if self.left else said


def copy_project(source: Path, target: Path) -> Copied:
    """Copy the files of `source` that git knows (all, where there is no git) to `target`.

    At most 2,000 files and 50 MB; links and special files are left out, and the
    project's own policy, as the tour has one, and what has a name of the tour's. The
    copy gets an empty `.git`, so that it is a project of its own.
    """
    names = _git_files(source) or _plain_files(source)
    copied = bytes_copied = 0
    left = 0
    for name in names:
        file = source / name
        try:
            if name in _POLICIES or not file.is_file() or file.is_symlink():
                continue
            size = file.stat().st_size
            is_too_much = copied >= _FILES_MAX or bytes_copied + size > _BYTES_MAX
            if is_too_much or name.startswith(TOUR):
                left += 1
                continue
            destination = target / name
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, destination)
        except OSError:
            left += 1  # Not readable by this user, or gone meanwhile.
            continue
        copied += 1
        bytes_copied += size
    (target / ".git" / "hooks").mkdir(parents=True, exist_ok=True)
    return Copied(source, copied, left)


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


def _git_files(source: Path) -> list[str]:
    """Files that git would keep; none where git or a repository is missing."""
    # Threat: the repository's own configuration may name a program that git would start.
    safe = ["git", "-c", "core.fsmonitor=false"]
    command = [*safe, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=source, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode != 0:
        return []
    names = done.stdout.decode("utf-8", "surrogateescape").split("\0")
    return sorted(name for name in names if name)


def _plain_files(source: Path) -> list[str]:
    found: list[str] = []
    for directory, below, names in os.walk(source):
        below[:] = sorted(name for name in below if name != ".git")
        here = Path(directory).relative_to(source)
        found += [str(here / name) for name in sorted(names) if name != ".git"]
        if len(found) > _FILES_MAX:
            break
    return found
