"""What git's configuration says in a directory of the host: asked of git itself, once.

Threat: the repository may be anybody's, and its configuration may name programs. `git
config --list` starts none of them: no hook, no pager (its output is a pipe), no alias,
no watcher of files. What it may do is read a file that never ends, so it has a time and
an amount.
"""

import os
import re
import select
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_LISTING_BYTES_MAX: Final = 1 << 20
_TIME_S: Final = 2.0
_PASSED: Final = re.compile(
    r"HOME|XDG_CONFIG_HOME|GIT_CONFIG_(?:GLOBAL|SYSTEM|NOSYSTEM|PARAMETERS|COUNT|(?:KEY|VALUE)_\d+)"
)
"""What tells git where configuration is; nothing that makes it do or write anything."""
_ADDED: Final = {
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
    "PATH": "/usr/bin:/bin",
}
_OPTIONS: Final = (
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"),
    # A workspace of another user's, opened by root: reading what it says runs nothing.
    *("-c", "safe.directory=*"),
)


@dataclass(frozen=True, slots=True)
class GitSetting:
    """One entry, in git's order: of two with the same key the later one counts."""

    scope: str
    """system, global, local, worktree or command."""
    file: str
    """Absolute; empty where it is of no file."""
    key: str
    """Section and name in lower case."""
    value: str


def list_settings(
    git: str, directory: str, variables: Mapping[str, str]
) -> tuple[GitSetting, ...] | None:
    """All that holds in `directory`; None where git does not say it, in time and in full."""
    environment = {name: text for name, text in variables.items() if _PASSED.fullmatch(name)}
    # git itself would take a home of the system's user database.
    command = [git, *_OPTIONS, "config", "--null", "--list", "--show-scope", "--show-origin"]
    try:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=environment | _ADDED,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except (OSError, ValueError):
        # Gone since it was found, or no such directory: git on the host says nothing either.
        return None
    with process:
        content = _read_all(process)
        if content is None:
            process.kill()
    if content is None or process.returncode != 0:
        return None
    return parse_listing(content, directory)


def parse_listing(content: bytes, directory: str) -> tuple[GitSetting, ...] | None:
    """What `git config --null --list --show-scope --show-origin` printed; None if it is not that.

    A key without a value, which git reads as true, has the value `true`.
    """
    *parts, rest = content.decode("utf-8", "surrogateescape").split("\0")
    if rest or len(parts) % 3:
        return None
    found: list[GitSetting] = []
    for scope, origin, entry in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        key, separator, value = entry.partition("\n")
        kind, _, name = origin.partition(":")
        file = os.path.normpath(os.path.join(directory, name)) if kind == "file" else ""
        found.append(GitSetting(scope, file, key, value if separator else "true"))
    return tuple(found)


def _read_all(process: subprocess.Popen[bytes]) -> bytes | None:
    """Its output to the end; None where that is too much, or takes too long."""
    if process.stdout is None:
        raise AssertionError("started without a pipe")
    fd = process.stdout.fileno()
    deadline_s = time.monotonic() + _TIME_S
    events = select.poll()
    events.register(fd, select.POLLIN)
    content = b""
    while len(content) <= _LISTING_BYTES_MAX:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 or not events.poll(left_s * 1000):
            return None
        part = os.read(fd, 65_536)
        if not part:
            return content
        content += part
    return None
