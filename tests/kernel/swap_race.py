"""Swap files and directories for links under the workspace's feet, and count what escapes.

    python tests/kernel/swap_race.py --seconds 3600 --resolution walk --act edit
    python tests/kernel/swap_race.py --seconds 60 --resolution naive --until-escape

One process does nothing but exchange a directory with a link to a directory outside, and
a file with a link to a file outside (renameat2 EXCHANGE, no pause). Another one views,
creates, edits, moves and deletes below these names. Outside stand files of the same
names as bait. Whatever is read from there, and whatever changes there, is an escape.

`naive` resolves a path, compares it with the root and then opens it by name: it shows
that the race is real. Prints one JSON object; exit code 1 if anything escaped.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import stat
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / "src"), str(Path(__file__).parents[2])]

from paddock.errors import PaddockError
from paddock.kernel.files import RENAME_EXCHANGE, renameat2
from paddock.workspace import Workspace
from paddock.workspace.read import Pieces
from paddock.workspace.single_change import delete_entry, edit_file, move_entry, write_file
from paddock.workspace.workspace import Openat2Resolution, WalkResolution
from tests.support.users import become_plain_user, give_to_plain_user

ACTS = ("view", "create", "edit", "move", "delete")
BAIT = b"this stands outside and must not be seen\n"
INSIDE = b"this stands inside\n"
NAMES = ("f.txt", "m.txt", "x.txt")
BATCH = 100


@dataclass
class Count:
    """What became of the tries of one act."""

    tries: int = 0
    done: int = 0
    refused: int = 0
    escapes: int = 0


@dataclass
class Arena:
    """The places: a workspace with two names that are swapped, and the outside."""

    base: str
    root: str = field(init=False)
    outside: str = field(init=False)

    def __post_init__(self) -> None:
        self.root = os.path.join(self.base, "ws")
        self.outside = os.path.join(self.base, "outside")

    def build(self) -> None:
        for folder in (self.root, self.outside, f"{self.root}/d", f"{self.root}/stay"):
            os.mkdir(folder)
        self.bait()
        for name in NAMES:
            self.put(f"{self.root}/d/{name}", INSIDE)
        self.put(f"{self.root}/leaf.txt", INSIDE)
        os.symlink(self.outside, f"{self.root}/d.link")
        os.symlink(f"{self.outside}/f.txt", f"{self.root}/leaf.link")

    def bait(self) -> None:
        for name in os.listdir(self.outside):
            path = f"{self.outside}/{name}"
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        for name in NAMES:
            self.put(f"{self.outside}/{name}", BAIT)

    def escaped(self) -> bool:
        """Whether anything outside is not as it was laid out; lays it out again then."""
        with os.scandir(self.outside) as entries:
            found = {entry.name: entry.is_file(follow_symlinks=False) for entry in entries}
        if found == dict.fromkeys(NAMES, True) and all(
            Path(self.outside, name).read_bytes() == BAIT for name in NAMES
        ):
            return False
        self.bait()
        return True

    @staticmethod
    def put(path: str, content: bytes) -> None:
        """Lay out a file, and never through a link: the harness must not escape itself."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        with open(fd, "wb") as file:
            file.write(content)


def swap_for_ever(arena: Arena) -> None:
    """Exchange both pairs, as fast as it goes."""
    here = os.open(arena.root, os.O_PATH | os.O_DIRECTORY)
    pairs = ((b"d", b"d.link"), (b"leaf.txt", b"leaf.link"))
    while True:
        for one, other in pairs:
            try:
                renameat2(here, one, here, other, RENAME_EXCHANGE)
            except FileNotFoundError:
                continue  # the file was put aside at this moment; it comes back


class Replace:
    """An edit that remembers whether it was shown what stands outside."""

    def __init__(self) -> None:
        self.saw_outside = False

    def apply(self, content: bytes) -> Pieces:
        self.saw_outside = BAIT in content
        return content[:200], b"."


class Fenced:
    """The workspace under test."""

    def __init__(self, root: str, resolution: str) -> None:
        ways = {"openat2": Openat2Resolution, "walk": WalkResolution}
        self.workspace = Workspace.open(root, ways[resolution]())

    def view(self, path: str) -> bool:
        return BAIT in self.workspace.read_all(self.workspace.resolve_read(path), 10_000)

    def create(self, path: str) -> bool:
        write_file(self.workspace, self.workspace.resolve_write(path), INSIDE)
        return False

    def edit(self, path: str) -> bool:
        change = Replace()
        edit_file(self.workspace, self.workspace.resolve_write(path), change)
        return change.saw_outside

    def move(self, path: str, to: str) -> bool:
        place = self.workspace.resolve_write(to)
        move_entry(self.workspace, self.workspace.resolve_entry(path), place)
        return False

    def delete(self, path: str) -> bool:
        delete_entry(self.workspace, self.workspace.resolve_entry(path))
        return False


class Naive:
    """What many tools do: resolve, compare, then open by name."""

    def __init__(self, root: str) -> None:
        self.root = root

    def check(self, path: str) -> str:
        real = os.path.realpath(os.path.join(self.root, path))
        if not real.startswith(self.root + "/"):
            raise PermissionError(path)
        return os.path.join(self.root, path)

    def view(self, path: str) -> bool:
        with open(self.check(path), "rb") as file:
            return BAIT in file.read()

    def create(self, path: str) -> bool:
        name = self.check(path)
        os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, "wb") as file:
            file.write(INSIDE)
        return False

    def edit(self, path: str) -> bool:
        name = self.check(path)
        with open(name, "r+b") as file:
            content = file.read()
            file.seek(0)
            file.write(content[:200] + b".")
        return BAIT in content

    def move(self, path: str, to: str) -> bool:
        os.rename(self.check(path), self.check(to))
        return False

    def delete(self, path: str) -> bool:
        os.unlink(self.check(path))
        return False


class Race:
    """The acts, in batches, while the swapper runs."""

    def __init__(self, arena: Arena, tools: Fenced | Naive) -> None:
        """Made before anything is swapped: it keeps the real directory open."""
        self.arena = arena
        self.tools = tools
        self.counts = {act: Count() for act in ACTS}
        # The directory itself, by whatever name it goes later.
        self.inner = os.open(f"{arena.root}/d", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        self.turn = 0

    def run(self, acts: tuple[str, ...], seconds: float, *, until_escape: bool) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for act in acts:
                self.batch(act)
            if until_escape and all(self.counts[act].escapes for act in acts):
                break

    def batch(self, act: str) -> None:
        count = self.counts[act]
        self.mend()
        for _ in range(BATCH):
            self.turn += 1
            count.tries += 1
            try:
                count.escapes += self.act(act)
                count.done += 1
            except (PaddockError, OSError) as refusal:
                if isinstance(self.tools, Fenced) and not isinstance(refusal, PaddockError):
                    raise
                count.refused += 1
        count.escapes += self.arena.escaped()

    def act(self, act: str) -> bool:
        by_leaf = self.turn % 2 == 0
        if act == "view":
            return self.tools.view("leaf.txt" if by_leaf else "d/f.txt")
        if act == "create":
            names = ("leaf.txt", "d/new.txt", "d/f.txt", f"d/deep{self.turn % 20}/x.txt")
            return self.tools.create(names[self.turn % 4])
        if act == "edit":
            return self.tools.edit("leaf.txt" if by_leaf else "d/f.txt")
        if act == "move":
            here, there = ("d/m.txt", "stay/m.txt") if by_leaf else ("stay/m.txt", "d/m.txt")
            return self.tools.move(here, there)
        saw_outside = self.tools.delete("d/x.txt")
        self.put_inner("x.txt")
        return saw_outside

    def put_inner(self, name: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        fd = os.open(name, flags, 0o644, dir_fd=self.inner)
        os.write(fd, INSIDE)
        os.close(fd)

    def mend(self) -> None:
        """Put back what the acts use up: files to move and delete, directories to make."""
        for name in NAMES:
            self.put_inner(name)
        for name in os.listdir(self.inner):
            if name.startswith("deep"):
                self.remove_deep(name)
        if os.path.lexists(f"{self.arena.root}/stay/m.txt"):
            os.unlink(f"{self.arena.root}/stay/m.txt")
        self.mend_leaves()

    def remove_deep(self, name: str) -> None:
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=self.inner)
        for inside in os.listdir(fd):
            os.unlink(inside, dir_fd=fd)
        os.close(fd)
        os.rmdir(name, dir_fd=self.inner)

    def mend_leaves(self) -> None:
        """One of the two leaves is a link and the other a file, whatever writing made of them."""
        for name in ("leaf.txt", "leaf.link"):
            if not os.path.lexists(f"{self.arena.root}/{name}"):
                with contextlib.suppress(OSError):  # a link came back at this moment
                    Arena.put(f"{self.arena.root}/{name}", INSIDE)
        kinds = [
            stat.S_ISLNK(os.lstat(f"{self.arena.root}/{name}").st_mode)
            for name in ("leaf.txt", "leaf.link")
        ]
        if sum(kinds) != 1:
            fresh = f"{self.arena.root}/fresh"
            if kinds[0]:
                Arena.put(fresh, INSIDE)
            else:
                os.symlink(f"{self.arena.outside}/f.txt", fresh)
            os.rename(fresh, f"{self.arena.root}/leaf.link")


def play(arena: Arena, options: argparse.Namespace) -> dict[str, Count]:
    """Run swapper and acts, as the user that was asked for."""
    if options.user == "plain" and os.geteuid() == 0:
        become_plain_user()
    naive = options.resolution == "naive"
    race = Race(arena, Naive(arena.root) if naive else Fenced(arena.root, options.resolution))
    swapper = os.fork()
    if swapper == 0:
        swap_for_ever(arena)
    try:
        acts = ACTS if options.act == "all" else (options.act,)
        race.run(acts, options.seconds, until_escape=options.until_escape)
    finally:
        os.kill(swapper, signal.SIGKILL)
        os.waitpid(swapper, 0)
    return {act: count for act, count in race.counts.items() if count.tries}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--resolution", choices=("openat2", "walk", "naive"), default="openat2")
    parser.add_argument("--act", choices=(*ACTS, "all"), default="all")
    parser.add_argument("--until-escape", action="store_true", help="stop once every act escaped")
    parser.add_argument("--user", choices=("same", "plain"), default="same")
    parser.add_argument("--where", default="/dev/shm" if os.path.isdir("/dev/shm") else None)
    options = parser.parse_args()
    base = tempfile.mkdtemp(prefix="swap-race-", dir=options.where)
    try:
        os.chmod(base, 0o755)
        arena = Arena(base)
        arena.build()
        if options.user == "plain" and os.geteuid() == 0:
            give_to_plain_user(base)
        counts = play(arena, options)
    finally:
        if os.geteuid() == os.stat(base).st_uid or os.geteuid() == 0:
            shutil.rmtree(base, ignore_errors=True)
    acts = {act: asdict(count) for act, count in counts.items()}
    tries = sum(count.tries for count in counts.values())
    escapes = sum(count.escapes for count in counts.values())
    print(json.dumps({"tries": tries, "escapes": escapes, "acts": acts}))
    return 1 if escapes else 0


if __name__ == "__main__":
    raise SystemExit(main())
