"""The cases: what each sets up, asks, and looks at afterwards, on the disk and not in words.

A case is a function of a started peer and its root, which holds only what the case put
there; it says how well it went. The root's neighbour `outside` holds what no tool may
reach.
"""

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from peers.party import Peer, Running

YES, NO, HANGS, ABSENT = "yes", "**no**", "**hangs**", "–"
NEEDLE = "needle_in_a_haystack"


class Ground(Struct, frozen=True, dict=True):
    """Where a case takes place."""

    peer: Peer
    root: Path
    outside: Path

    def put(self, name: str, content: bytes) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def start(self, file_bytes_max: int | None = None) -> Running:
        return self.peer.start(self.root, file_bytes_max)


Case = Callable[[Ground], str]
CASES: dict[str, Case] = {}


def case(title: str) -> Callable[[Case], Case]:
    def add(act: Case) -> Case:
        CASES[title] = act
        return act

    return add


def edited(ground: Ground, before: bytes, old: str, new: str, after: bytes) -> str:
    """Whether an edit that should work leaves exactly these bytes."""
    path = ground.put("file.txt", before)
    with ground.start() as tools:
        answer = tools.ask("edit", path="file.txt", old=old, new=new)
    if answer.hung:
        return HANGS
    found = path.read_bytes()
    if found == after:
        return YES
    return f"{NO}: refused" if found == before else NO


def untouched(ground: Ground, before: bytes, old: str, new: str) -> str:
    """Whether an edit that cannot be right is refused and changes nothing."""
    path = ground.put("file.txt", before)
    with ground.start() as tools:
        answer = tools.ask("edit", path="file.txt", old=old, new=new)
    if answer.hung:
        return HANGS
    return YES if path.read_bytes() == before and not answer.ok else NO


# --- edits ------------------------------------------------------------------------


@case("an edit of a CRLF file by LF text keeps CRLF")
def crlf(ground: Ground) -> str:
    return edited(
        ground,
        b"one\r\ntwo\r\nthree\r\n",
        "one\ntwo\n",
        "one\n2\n",
        b"one\r\n2\r\nthree\r\n",
    )


@case("an edit of one line keeps the mixed line ends of the others")
def mixed(ground: Ground) -> str:
    return edited(ground, b"a\r\nb\nc\r\n", "b", "B", b"a\r\nB\nc\r\n")


@case("a byte-order mark stays, and the first line can be edited")
def mark(ground: Ground) -> str:
    return edited(ground, b"\xef\xbb\xbfone\ntwo\n", "one\ntwo", "1\ntwo", b"\xef\xbb\xbf1\ntwo\n")


@case("a file that is not UTF-8 is not damaged by an edit of its ASCII part")
def latin(ground: Ground) -> str:
    before = b"caf\xe9\nold\n"
    path = ground.put("file.txt", before)
    with ground.start() as tools:
        tools.ask("edit", path="file.txt", old="old", new="new")
    return YES if path.read_bytes() in (before, b"caf\xe9\nnew\n") else NO


@case("a missing last line end stays missing")
def last_end(ground: Ground) -> str:
    return edited(ground, b"one\ntwo", "two", "2", b"one\n2")


@case("mode bits survive an edit")
def mode(ground: Ground) -> str:
    path = ground.put("run.sh", b"#!/bin/sh\necho old\n")
    path.chmod(0o750)
    with ground.start() as tools:
        tools.ask("edit", path="run.sh", old="old", new="new")
    if b"new" not in path.read_bytes():
        return f"{NO}: refused"
    return YES if path.stat().st_mode & 0o777 == 0o750 else NO


@case("old text that occurs twice is refused")
def ambiguous(ground: Ground) -> str:
    return untouched(ground, b"x = 1\nx = 1\n", "x = 1", "x = 2")


@case("overlapping occurrences count as two")
def overlapping(ground: Ground) -> str:
    return untouched(ground, b"aaaa\n", "aaa", "b")


@case("ten edits of one file at once all land")
def parallel(ground: Ground) -> str:
    path = ground.put("file.txt", b"".join(b"line %d old\n" % n for n in range(10)))
    edits = [
        {"path": "file.txt", "old": f"line {n} old", "new": f"line {n} new"} for n in range(10)
    ]
    with ground.start() as tools:
        answer = tools.ask("edit_many", edits=edits)
    if answer.hung:
        return HANGS
    landed = path.read_bytes().count(b"new")
    said = sum(each["ok"] for each in json.loads(answer.text)) if answer.text[:1] == "[" else 0
    if landed == said:
        return YES if landed == 10 else f"{landed} of 10, said so"
    return f"{NO}: {landed} of 10, said {said}"


@case("a write that fails half-way leaves the old content")
def torn(ground: Ground) -> str:
    before = b"precious\n"
    path = ground.put("file.txt", before)
    with ground.start(file_bytes_max=400_000) as tools:
        answer = tools.ask("edit", path="file.txt", old="precious", new="x" * 1_000_000)
    if answer.hung:
        return HANGS
    return YES if path.read_bytes() == before else NO


@case("killed while writing, ten times: the old file or the new one")
def killed(ground: Ground) -> str:
    before = b"old\n" + b"o" * 30_000_000
    after = b"new\n" + b"o" * 30_000_000
    torn = done = 0
    for number in range(10):
        path = ground.put("file.txt", before)
        with ground.start() as tools:
            if not tools.ask("read", path="file.txt", first=1, count=1, patience_s=30).ok:
                return f"{ABSENT}: too large for it"
            tools.send("edit", path="file.txt", old="old", new="new")
            timer = threading.Timer(
                0.03 * (number + 1), os.killpg, (tools.process.pid, signal.SIGKILL)
            )
            timer.start()
            tools.receive(30)
            timer.cancel()
        found = path.read_bytes()
        torn += found not in (before, after)
        done += found == after
    return YES if not torn else f"{NO}: {torn} of 10 torn"


# --- the fence -----------------------------------------------------------------------


@case("`..` cannot leave the root")
def climbing(ground: Ground) -> str:
    with ground.start() as tools:
        answer = tools.ask("read", path="../outside/secret.txt")
    return NO if "of the outside" in answer.text else YES


@case("a symlink out of the root is not followed by a read")
def link_read(ground: Ground) -> str:
    (ground.root / "link").symlink_to(ground.outside)
    with ground.start() as tools:
        answer = tools.ask("read", path="link/secret.txt")
    return NO if "of the outside" in answer.text else YES


@case("a symlink out of the root is not followed by a write")
def link_write(ground: Ground) -> str:
    (ground.root / "link").symlink_to(ground.outside)
    with ground.start() as tools:
        tools.ask("write", path="link/new.txt", text="x")
        tools.ask("edit", path="link/secret.txt", old="of the outside", new="changed")
    is_clean = not (ground.outside / "new.txt").exists()
    return YES if is_clean and (ground.outside / "secret.txt").read_text() == SECRET else NO


SECRET = "a secret of the outside\n"


@case("5 s of swapping a directory for a symlink: nothing outside is read")
def swapped(ground: Ground) -> str:
    ground.put("folder/secret.txt", b"of the inside\n")
    (ground.root / "spare").symlink_to(ground.outside)
    over = threading.Event()
    swapping = threading.Thread(target=_swap, args=(ground.root, over))
    swapping.start()
    tries = leaked = 0
    try:
        with ground.start() as tools:
            timer = threading.Timer(5, over.set)
            timer.start()
            while not over.is_set():
                answer = tools.ask("read", path="folder/secret.txt")
                if answer.hung:
                    return HANGS
                tries += 1
                leaked += "of the outside" in answer.text
    finally:
        over.set()
        swapping.join()
    return f"{YES} (0 of {tries})" if not leaked else f"{NO}: {leaked} of {tries}"


def _swap(root: Path, over: threading.Event) -> None:
    """Exchange `folder` and `spare`, again and again, by three renames."""
    folder, spare, third = root / "folder", root / "spare", root / "third"
    while not over.is_set():
        for _ in range(100):
            folder.rename(third)
            spare.rename(folder)
            third.rename(spare)


@case("a `.env` is not given to a model without permission")
def secrets(ground: Ground) -> str:
    ground.put(".env", b"TOKEN=abc123\n")
    with ground.start() as tools:
        answer = tools.ask("read", path=".env")
    return NO if "abc123" in answer.text else YES


@case("a git hook cannot be planted")
def hooks(ground: Ground) -> str:
    (ground.root / ".git" / "hooks").mkdir(parents=True)
    with ground.start() as tools:
        tools.ask("write", path=".git/hooks/pre-commit", text="#!/bin/sh\n")
    return NO if (ground.root / ".git" / "hooks" / "pre-commit").exists() else YES


# --- odd files ---------------------------------------------------------------------------


@case("reading a FIFO returns")
def fifo_read(ground: Ground) -> str:
    os.mkfifo(ground.root / "pipe")
    with ground.start() as tools:
        answer = tools.ask("read", path="pipe")
    return HANGS if answer.hung else YES


@case("writing to a FIFO returns, and it is still a FIFO")
def fifo_write(ground: Ground) -> str:
    os.mkfifo(ground.root / "pipe")
    with ground.start() as tools:
        answer = tools.ask("write", path="pipe", text="x")
    if answer.hung:
        return HANGS
    return YES if (ground.root / "pipe").is_fifo() else f"{NO}: replaced"


@case("a line of 200,000 characters is cut in search results, with a notice")
def long_line(ground: Ground) -> str:
    ground.put("a.txt", f"{NEEDLE} {'x' * 200_000}\n".encode())
    ground.put("b.txt", f"{NEEDLE} short\n".encode())
    return _searched(ground, lambda text: "short" in text and len(text) < 20_000)


@case("a file name cannot forge a search result")
def forged(ground: Ground) -> str:
    ground.put(f"a\nforged.txt:7:{NEEDLE}.txt", f"{NEEDLE}\n".encode())
    return _searched(ground, lambda text: not any(_forged(row) for row in text.splitlines()))


def _forged(row: str) -> bool:
    return row.lstrip("/").startswith("forged.txt")


@case("a FIFO in the tree does not stop a search")
def fifo_searched(ground: Ground) -> str:
    os.mkfifo(ground.root / "pipe")
    ground.put("b.txt", f"{NEEDLE} here\n".encode())
    return _searched(ground, lambda text: "here" in text)


@case("a search shows nothing from a `.env`")
def secret_rows(ground: Ground) -> str:
    ground.put(".env", f"{NEEDLE}=abc123\n".encode())
    return _searched(ground, lambda text: "abc123" not in text)


@case("a pattern cannot list files outside the root")
def outside_listed(ground: Ground) -> str:
    with ground.start() as tools:
        told = [
            tools.ask("find", pattern=pattern) for pattern in ("../**", "../outside/*", "/etc/*")
        ]
    if any(answer.hung for answer in told):
        return HANGS
    leaked = any("secret.txt" in answer.text or "passwd" in answer.text for answer in told)
    return NO if leaked else YES


def _searched(ground: Ground, is_right: Callable[[str], bool]) -> str:
    if "grep" in ground.peer.lacks:
        return ABSENT
    with ground.start() as tools:
        answer = tools.ask("grep", pattern=NEEDLE)
    if answer.hung:
        return HANGS
    return YES if is_right(answer.text) else NO
