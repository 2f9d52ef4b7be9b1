"""Swap directories and files for links while searches walk over them, and count escapes.

    python tests/kernel/search_race.py --seconds 3600 --resolution walk
    python tests/kernel/search_race.py --seconds 60 --resolution naive --until-escape

One process does nothing but exchange directories with links to a directory outside, and
a file with a link to a file outside (renameat2 EXCHANGE, no pause). Another one searches
names and contents and lists. Outside stand files of the same names, with lines that match
too, and files of other names. Whatever is told of them is an escape.

`naive` shows what ripgrep prints: it shows that the race is real. Prints one JSON object;
exit code 1 if anything escaped.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

sys.path[:0] = [str(Path(__file__).parents[2] / "src"), str(Path(__file__).parents[2])]

from paddock.errors import PaddockError
from paddock.kernel.files import RENAME_EXCHANGE, renameat2
from paddock.tools.grep import GREP, GREP_DEV
from paddock.tools.listing import FIND, LS
from paddock.tools.spec import Ports
from paddock.workspace import Workspace
from paddock.workspace.search.ripgrep import ripgrep
from paddock.workspace.workspace import Openat2Resolution, WalkResolution
from tests.support.shown import Shows
from tests.support.users import become_plain_user, give_to_plain_user

WORD = "needle"
INSIDE = b"first line\nneedle inside\n"
# The same number and offset: only the workspace's own reading tells them apart.
BAIT = b"first line\nneedle BAITED\n"
TOLD = ("BAITED", "bait-name")
FOLDERS = ("d", "e/f")
FILES = 20
TOOLS = {tool.name: tool for tool in (GREP, FIND, LS, GREP_DEV)}
CALLS = {
    "grep": {"pattern": WORD, "context": 1, "limit": 500},
    "grep_first": {"pattern": WORD, "limit": 3},
    "grep_below": {"pattern": WORD, "path": "d"},
    "find": {"pattern": "*"},
    "find_below": {"pattern": "*", "path": "e"},
    "ls": {"path": "d"},
    "grep_dev": {"pattern": WORD, "context_lines": 1},
}


class Count(Struct, dict=True):
    """What became of one kind of search."""

    tries: int = 0
    with_rows: int = 0
    without: int = 0
    refused: int = 0
    escapes: int = 0


def build(base: str) -> tuple[str, str]:
    """A workspace whose directories have a link each to swap with, and the outside."""
    root, outside = os.path.join(base, "ws"), os.path.join(base, "outside")
    os.makedirs(os.path.join(outside, "sub"))
    for number in range(FILES):
        for name in (f"f{number:02d}.txt", f"sub/g{number:02d}.txt", f"bait-name-{number}.txt"):
            Path(outside, name).write_bytes(BAIT)
    for folder in FOLDERS:
        os.makedirs(os.path.join(root, folder, "sub"))
        for number in range(FILES):
            Path(root, folder, f"f{number:02d}.txt").write_bytes(INSIDE)
            Path(root, folder, "sub", f"g{number:02d}.txt").write_bytes(INSIDE)
        os.symlink(outside, os.path.join(root, f"{folder}.link"))
    Path(root, "leaf.txt").write_bytes(INSIDE)
    os.symlink(os.path.join(outside, "f00.txt"), os.path.join(root, "leaf.link"))
    return root, outside


def swap_for_ever(root: str) -> None:
    """Exchange every pair, as fast as it goes."""
    here = os.open(root, os.O_PATH | os.O_DIRECTORY)
    while True:
        for name in (b"d", b"leaf", b"e/f"):
            one, other = (b"leaf.txt", b"leaf.link") if name == b"leaf" else (name, name + b".link")
            renameat2(here, one, here, other, RENAME_EXCHANGE)


_LONGER_S = 40.0
"""Over its time, a race goes on for so long until each search has found something."""


class Fenced:
    """The tools under test."""

    def __init__(self, root: str, resolution: str) -> None:
        ways = {"openat2": Openat2Resolution, "walk": WalkResolution}
        self.ports = Ports(Workspace.open(root, ways[resolution]()), Shows())

    def __call__(self, name: str) -> str:
        tool = TOOLS[name.partition("_")[0] if name != "grep_dev" else name]
        arguments, _ = tool.binder.bind(CALLS[name])
        output = tool.handler.run(tool.handler.resolve(arguments, self.ports), self.ports)
        assert isinstance(output.details["count" if name != "grep_dev" else "match_count"], int)
        return output.content + json.dumps(output.details)


class Naive:
    """What ripgrep prints."""

    def __init__(self, root: str) -> None:
        self.root = root

    def __call__(self, name: str) -> str:
        what = ["--files", "./"] if name.startswith(("find", "ls")) else [WORD, "./"]
        command = [ripgrep(), "--no-config", *what]
        ran = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)
        return ran.stdout


def race(search: Fenced | Naive, options: argparse.Namespace) -> dict[str, Count]:
    """Search, in turns, until the time is over, and each search has found something real.

    On a busy machine the swapper may win every time for a while; that proves nothing either way.
    """
    counts = {name: Count() for name in CALLS}
    end = time.monotonic() + options.seconds
    while (now := time.monotonic()) < end or (
        now < end + _LONGER_S and not all(count.with_rows for count in counts.values())
    ):
        for name, count in counts.items():
            count.tries += 1
            try:
                said = search(name)
            except PaddockError:
                count.refused += 1
                continue
            count.escapes += any(told in said for told in TOLD)
            if "f00.txt" in said or "leaf" in said:
                count.with_rows += 1
            else:
                count.without += 1
        if options.until_escape and any(count.escapes for count in counts.values()):
            break
    return counts


def play(root: str, options: argparse.Namespace) -> dict[str, Count]:
    """Run swapper and searches, as the user that was asked for."""
    if options.user == "plain" and os.geteuid() == 0:
        for late in ("grep", "walk"):  # by then that user may not read where they are
            import_module(f"paddock.workspace.search.{late}")
        become_plain_user()
    naive = options.resolution == "naive"
    search = Naive(root) if naive else Fenced(root, options.resolution)
    swapper = os.fork()
    if swapper == 0:
        swap_for_ever(root)
    try:
        return race(search, options)
    finally:
        os.kill(swapper, signal.SIGKILL)
        os.waitpid(swapper, 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--resolution", choices=("openat2", "walk", "naive"), default="openat2")
    parser.add_argument("--until-escape", action="store_true", help="stop once anything escaped")
    parser.add_argument("--user", choices=("same", "plain"), default="same")
    parser.add_argument("--where", default="/dev/shm" if os.path.isdir("/dev/shm") else None)
    options = parser.parse_args()
    base = tempfile.mkdtemp(prefix="search-race-", dir=options.where)
    try:
        os.chmod(base, 0o755)
        root, _ = build(base)
        if options.user == "plain" and os.geteuid() == 0:
            give_to_plain_user(base)
        counts = play(root, options)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    tries = sum(count.tries for count in counts.values())
    escapes = sum(count.escapes for count in counts.values())
    searches = {name: asdict(count) for name, count in counts.items()}
    print(json.dumps({"tries": tries, "escapes": escapes, "searches": searches}))
    return 1 if escapes else 0


if __name__ == "__main__":
    raise SystemExit(main())
