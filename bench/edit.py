"""What a whole edit costs, against reading, replacing and writing the text in place.

    python bench/edit.py [--profile SIZE]

The edit is atomic, keeps owner, mode and attributes, and keeps what it replaced in the
history; the plain one is none of that. Neither waits for the device here: disks differ
too widely, so that is printed apart. Alternating rounds; the ratio of the lower quartiles.
"""

import argparse
import cProfile
import os
import pstats
import statistics
import tempfile
import time
from pathlib import Path

from paddock.storage.disk import Disk
from paddock.storage.history import History
from paddock.storage.notes import CallMark
from paddock.workspace import Workspace
from paddock.workspace.read import Pieces
from paddock.workspace.single_change import edit_file

SIZES = {"10 kB": 10_000, "1 MB": 1_000_000, "100 MB": 100_000_000}
ROUNDS = {"10 kB": 600, "1 MB": 120, "100 MB": 9}
BUDGET = {"10 kB": 1.6, "1 MB": 1.0, "100 MB": 0.6}
OLD, NEW = "the one place to change", "the very place that changed"


class NoSyncDisk(Disk):
    """A disk that is never waited for."""

    def sync(self, fd: int) -> None:
        pass

    def fdatasync(self, fd: int) -> None:
        pass

    def begin_sync(self, fd: int) -> None:
        pass


class Swap:
    """The one place replaced; which way round shows the content."""

    def __init__(self, old: bytes, new: bytes) -> None:
        self.old, self.new = old, new

    def apply(self, content: bytes) -> Pieces:
        at = content.find(self.old)
        if at < 0 or content.find(self.old, at + 1) >= 0:
            raise ValueError("not exactly once")
        view = memoryview(content)
        return view[:at], self.new, view[at + len(self.old) :]


def text_of(size: int) -> str:
    line = "x = compute(alpha, beta)  # some ordinary line of a program\n"
    half = line * (size // len(line) // 2)
    return half + OLD + "\n" + half


def plain(file: Path, old: str, new: str) -> None:
    """What somebody would write first."""
    text = file.read_text()
    if text.count(old) != 1:
        raise ValueError("not exactly once")
    file.write_text(text.replace(old, new))


class Editing:
    """Our edit, over and over on one file; every round replaces another content."""

    def __init__(self, root: str, disk: Disk, store: Disk | None) -> None:
        self.history = None
        keeper = None
        if store is not None:
            self.history = History(f"{root}-objects", bytes_max=1 << 34, disk=store)
            keeper = self.history.keeper()
        self.workspace = Workspace.open(root, disk=disk, keeper=keeper)
        self.path = self.workspace.resolve_write("file.txt")

    def __call__(self, old: str, new: str) -> None:
        swap = Swap(old.encode(), new.encode())
        if self.history is None:
            edit_file(self.workspace, self.path, swap)
            return
        with self.history.running(CallMark("CALL-1", "str_replace", "main", "SES-1")) as running:
            edit_file(self.workspace, self.path, swap)
        self.history.recorded(running)


def rounds_of(acts: dict, files: dict, roots: list[str], size: int, count: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in acts}
    for file in files.values():
        file.write_text(text_of(size))
    before = OLD
    for number in range(count):
        after = f"{NEW} {number:08d}"
        for name, act in acts.items():
            begin = time.perf_counter()
            act(before, after)
            times[name].append(time.perf_counter() - begin)
        before = after
        if size > 1_000_000:
            for root in roots:  # or the machine's memory fills with what was kept
                for kept in Path(root).glob("?" * 64):
                    kept.unlink()
            os.sync()
    # The lower quartile: what the machine does besides only ever adds.
    return {name: statistics.quantiles(found)[0] * 1000 for name, found in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--profile", choices=list(SIZES))
    parser.add_argument("--sizes", nargs="*", default=list(SIZES))
    options = parser.parse_args()
    over = 0
    with tempfile.TemporaryDirectory() as base:
        roots = {name: Path(base, name) for name in ("plain", "bare", "kept", "synced")}
        for root in roots.values():
            root.mkdir()
        files = {name: root / "file.txt" for name, root in roots.items()}
        bare = Editing(str(roots["bare"]), NoSyncDisk(), None)
        kept = Editing(str(roots["kept"]), NoSyncDisk(), NoSyncDisk())
        synced = Editing(str(roots["synced"]), Disk(), Disk())
        acts = {
            "plain": lambda old, new: plain(files["plain"], old, new),
            "bare": bare,
            "kept": kept,
            "synced": synced,
        }
        stores = [f"{roots[name]}-objects" for name in ("kept", "synced")]
        if options.profile:
            profiler = cProfile.Profile()
            file = files["kept"]
            file.write_text(text_of(SIZES[options.profile]))
            before = OLD
            profiler.enable()
            for number in range(ROUNDS[options.profile]):
                kept(before, f"{NEW} {number:08d}")
                before = f"{NEW} {number:08d}"
            profiler.disable()
            pstats.Stats(profiler).sort_stats("tottime").print_stats(30)
            return 0
        print(f"{'':8}{'plain ms':>10}{'without history':>18}{'with history':>14}{'and sync':>10}")
        for name in options.sizes:
            found = rounds_of(acts, files, stores, SIZES[name], ROUNDS[name])
            ratios = {act: ms / found["plain"] for act, ms in found.items()}
            is_over = ratios["kept"] > BUDGET[name]
            over += is_over
            print(
                f"{name:8}{found['plain']:10.3f}{ratios['bare']:18.2f}{ratios['kept']:14.2f}"
                f"{ratios['synced']:10.2f}   budget {BUDGET[name]}{'  OVER' if is_over else ''}"
            )
    return 1 if over else 0


if __name__ == "__main__":
    raise SystemExit(main())
