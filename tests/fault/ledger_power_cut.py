"""Cut the power under eight appending processes, and look at what the disk has kept.

    python tests/fault/ledger_power_cut.py --rounds 40

The ledger lies on a file system of its own in an image, mounted by a loop device. Each round
stops the writers at a random instant, copies the image as it is at that moment (what the
kernel holds back is not in it), and mounts the copy: that is the disk after a power cut. The
ledger in it is opened as after a restart, verified, and compared with what the writers had
noted by then, elsewhere, as acknowledged. Needs root, a loop device and mkfs(8).
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

from paddock.ledger.format.lines import StoredEntry, inspect_line
from paddock.ledger.verify import verify
from paddock.testing.faulty_disk import FaultyDisk
from tests.support.ledgers import note, open_ledger
from tests.support.programs import run_rounds

WRITERS = 8
IMAGE_BYTES = 128 << 20
SEGMENT_BYTES = 200_000
FILE_SYSTEM = os.environ.get("PADDOCK_TEST_FILE_SYSTEM", "ext4")
OTHER_BOOT = b"another machine!"


def system(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def append_for_ever(path: str, notes: str, seed: int) -> None:
    chance = random.Random(seed)
    told = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        ledger = open_ledger(path, create=None, segment_bytes=SEGMENT_BYTES)
        while True:
            size = chance.choice((0, 300, 5_000))
            receipt = ledger.append([note("power", size) for _ in range(chance.choice((1, 2)))])
            os.write(told, "".join(f"{entry}\n" for entry in receipt.ids).encode())
    finally:
        os._exit(4)


def stored_ids(folder: Path) -> set[str]:
    found = (
        inspect_line(line)
        for part in folder.glob("x.*jsonl")
        for line in part.read_bytes().split(b"\n")[:-1]
    )
    return {each.id for each in found if isinstance(each, StoredEntry)}


def look(copy: Path, mounted: Path, noted: list[str]) -> None:
    """The disk after the cut: all that was acknowledged is there, and the ledger goes on."""
    system("mount", "-o", "loop", str(copy), str(mounted))
    try:
        path = str(mounted / "x.jsonl")
        ledger = open_ledger(path, create=None, disk=FaultyDisk(boot=OTHER_BOOT))
        ledger.append([note("after")])
        ledger.close()
        found = verify(path)
        assert found.problems == (), found.problems
        lost = set(noted) - stored_ids(mounted)
        assert not lost, f"{len(lost)} acknowledged entries are lost"
    finally:
        system("umount", str(mounted))


def run(rounds: int, seed: int) -> str:
    chance = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="ledger-power-"))
    image, copy = folder / "image", folder / "copy"
    live, mounted = folder / "live", folder / "mounted"
    live.mkdir()
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    system(f"mkfs.{FILE_SYSTEM}", "-q", str(image))
    system("mount", "-o", "loop", str(image), str(live))
    children: list[int] = []
    acknowledged = 0
    try:
        path = str(live / "x.jsonl")
        open_ledger(path).close()
        for number in range(WRITERS):
            child = os.fork()
            if child == 0:
                append_for_ever(
                    path, str(folder / f"notes.{number}"), chance.getrandbits(60) + number
                )
            children.append(child)
        for _ in range(rounds):
            time.sleep(chance.uniform(0.02, 0.3))
            for child in children:
                os.kill(child, signal.SIGSTOP)
            noted = [
                line
                for file in folder.glob("notes.*")
                for line in file.read_text(encoding="ascii").split("\n")[:-1]
            ]
            system("cp", "--sparse=always", str(image), str(copy))
            for child in children:
                os.kill(child, signal.SIGCONT)
            look(copy, mounted, noted)
            acknowledged = len(noted)
            if os.statvfs(live).f_bavail * os.statvfs(live).f_frsize < IMAGE_BYTES // 4:
                break
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        system("umount", str(live))
        shutil.rmtree(folder)
    return f"{acknowledged} acknowledged entries, none lost on {FILE_SYSTEM}"


if __name__ == "__main__":
    sys.exit(run_rounds(__doc__ or "", run))
