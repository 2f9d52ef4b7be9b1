"""Cut the power under four processes that write files, and look at what the disk has kept.

    python tests/fault/history_power_cut.py --rounds 40

As `ledger_power_cut.py`, with a workspace, its history and the contents that a ledger would
name on a file system of their own in an image. Each writer keeps a content, then replaces its
file by another one, as a call does, and notes elsewhere what it was told by then. In the copy
every content that was told is there; the file has the content that was told or the one after
it; all that it had before is in the history; and of what nobody was told there is a note.
Needs root, a loop device and mkfs(8).
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / "src"), str(Path(__file__).parents[2])]

from paddock.storage.history import BlobStore, History
from paddock.storage.notes import CallMark, read_notes
from paddock.storage.objects import StoreReader
from paddock.values.entries import digest_of
from paddock.workspace import Workspace
from paddock.workspace.single_change import write_file
from tests.support.disks import temporaries
from tests.support.programs import run_rounds

WRITERS = 4
IMAGE_BYTES = 256 << 20
SIZES = (10, 3_000, 30_000)
"""Of contents: some are copied into the history, some become the object themselves."""
FILE_SYSTEM = os.environ.get("PADDOCK_TEST_FILE_SYSTEM", "ext4")


def system(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def content(writer: int, number: int) -> bytes:
    head = f"{writer} {number}\n".encode()
    return head + bytes([number % 251]) * SIZES[number % len(SIZES)]


def write_for_ever(base: Path, told: str, writer: int) -> None:
    notes = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        history = History(str(base / "objects"), bytes_max=1 << 40)
        blobs = BlobStore(base / "objects" / "blobs", os.urandom)
        with Workspace.open(str(base / "ws"), keeper=history.keeper()) as workspace:
            number = 0
            while True:
                number += 1
                new = content(writer, number)
                digest = blobs.put(new)
                blobs.sync()
                os.write(notes, f"kept {number} {digest}\n".encode())
                mark = CallMark(f"CALL-{number}", "create_file", str(writer), "SES-1")
                with history.running(mark) as running:
                    path = workspace.resolve_write(f"file{writer}")
                    write_file(workspace, path, new)
                os.write(notes, f"done {number}\n".encode())
                history.recorded(running)
    finally:
        os._exit(4)


def look(base: Path, told: dict[int, list[list[str]]]) -> int:
    """The disk after the cut; how many contents were replaced."""
    Workspace.open(str(base / "ws")).close()
    assert temporaries(base / "ws") == []
    with StoreReader(str(base / "objects")) as seen:
        for writer in told:
            present = number_in(base, writer)
            for number in range(1, present):
                digest = digest_of(content(writer, number))
                assert seen.has(digest), f"writer {writer}: {number} of {present} is lost"
    history = History(str(base / "objects"), bytes_max=1 << 40)
    blobs = BlobStore(base / "objects" / "blobs", os.urandom)
    history.store.recover()
    notes = read_notes(history.store)
    replaced = 0
    for writer, rows in told.items():
        present = number_in(base, writer)
        done = max((int(row[1]) for row in rows if row[0] == "done"), default=0)
        assert present in (done, done + 1), f"writer {writer}: {present} stands, {done} was told"
        for number in range(1, present):
            kept = history.store.read(digest_of(content(writer, number)))
            assert kept == content(writer, number)
        for row in rows:
            if row[0] == "kept":
                assert blobs.read(row[2]) == content(writer, int(row[1])), row
        if present > done:
            after = digest_of(content(writer, present))
            before = digest_of(content(writer, done)) if done else None
            ours = [note.doing for note in notes if note.doing.after == after]
            assert [doing.before for doing in ours] == [before], f"no note of {writer} {present}"
        replaced += max(0, present - 1)
    blobs.close()
    history.close()
    assert os.listdir(base / "objects/incoming") == []
    return replaced


def number_in(base: Path, writer: int) -> int:
    """Of the content in the writer's file, which is whole; 0 where it is not there yet."""
    file = base / "ws" / f"file{writer}"
    if not file.exists():
        return 0
    number = int(file.read_bytes().split()[1])
    assert file.read_bytes() == content(writer, number), f"file{writer} is torn"
    return number


def look_at_copy(copy: Path, mounted: Path, noted: dict[int, str]) -> int:
    told = {
        writer: [line.split() for line in text.split("\n")[:-1]] for writer, text in noted.items()
    }
    system("mount", "-o", "loop", str(copy), str(mounted))
    try:
        return look(mounted, told)
    finally:
        system("umount", str(mounted))


def run(rounds: int, seed: int) -> str:
    chance = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="history-power-"))
    image, copy = folder / "image", folder / "copy"
    live, mounted = folder / "live", folder / "mounted"
    live.mkdir()
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    system(f"mkfs.{FILE_SYSTEM}", "-q", str(image))
    system("mount", "-o", "loop", str(image), str(live))
    children: list[int] = []
    replaced = 0
    try:
        (live / "ws").mkdir()
        for writer in range(WRITERS):
            (folder / f"told.{writer}").touch()
            child = os.fork()
            if child == 0:
                write_for_ever(live, str(folder / f"told.{writer}"), writer)
            children.append(child)
        for _ in range(rounds):
            time.sleep(chance.uniform(0.02, 0.3))
            for child in children:
                os.kill(child, signal.SIGSTOP)
            noted = {each: (folder / f"told.{each}").read_text() for each in range(WRITERS)}
            system("cp", "--sparse=always", str(image), str(copy))
            for child in children:
                os.kill(child, signal.SIGCONT)
            replaced = look_at_copy(copy, mounted, noted)
            if os.statvfs(live).f_bavail * os.statvfs(live).f_frsize < IMAGE_BYTES // 4:
                break
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        system("umount", str(live))
        shutil.rmtree(folder)
    return f"{replaced} replaced contents, none lost on {FILE_SYSTEM}"


if __name__ == "__main__":
    sys.exit(run_rounds(__doc__ or "", run))
