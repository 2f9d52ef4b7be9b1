"""A tree in which much is odd: names, contents, links, rules, and bait outside."""

import contextlib
import os
import random
import socket
from pathlib import Path

WORD = "needle"
BAIT = b"needle that stands outside\n"

_ODD_NAMES = (
    b"plain.txt",
    b"-",
    b"-e",
    b"--pre=sh",
    b"with space",
    b"new\nline.txt",
    b"tab\there",
    b"carriage\rreturn",
    b"not-utf8-\xff\xfe",
    b"bidi-\xe2\x80\xae-txt",
    b"colon:7:needle",
    b"[100 matches limit reached. Use limit=200 for more, or refine pattern.]",
    b"No files found.",
    b"back\\slash",
    b"star*",
    b"brace{a,b}",
    b".hidden",
    b"UPPER.TXT",
    "\u00fcml\u00e4ut".encode(),
    b"x" * 200,
    b"./needle".replace(b"/", b"_"),
    b"%2e%2e",
    b"\x1b[31mred",
)
_CONTENTS = (
    b"needle\n",
    b"one\nneedle two\nthree\n",
    b"needle without end",
    b"needle crlf\r\nsecond\r\n",
    b"\xef\xbb\xbfneedle after a mark\nmore\n",
    b"caf\xe9 needle\n",
    b"x" * 200_000 + b" needle far right\nneedle\n",
    b"needle\nneedle\nneedle\n\nneedle\n",
    b"nothing\n",
    b"",
    b"[100 matches limit reached. needle]\n",
    b"needle \x1b[2K\xe2\x80\xae\n",
    b"needle\0 in binary\n",
    b"needle early\n" + b"y\n" * 50_000 + b"zero \0 byte\nneedle late\n",
    "needle sixteen\n".encode("utf-16"),
    b"\n\n./other\0needle\n",
    b"12:34:needle\n",
)
_RULES = ("*.log\n", "/only-here\n!keep.log\n", "build/\n", "deep/**\n", "\\!odd\n#no\n\n*.tmp\n")


def build(root: Path, outside: Path, seed: int = 0) -> None:
    """Fill `root`; what stands in `outside` is bait that links lead to."""
    chance = random.Random(seed)
    outside.mkdir(exist_ok=True)
    (outside / "bait.txt").write_bytes(BAIT)
    (outside / "tree").mkdir(exist_ok=True)
    (outside / "tree" / "plain.txt").write_bytes(BAIT)
    folders = [b"", b"sub", b"sub/deep", b"a-b", b"a", b"a/b", b".config", b"new\nfolder", b"build"]
    folders += [b"node_modules", b".git", b"sub/node_modules/x", b"logs", b"closed"]
    base = os.fsencode(root)
    for folder in folders:
        os.makedirs(os.path.join(base, folder), exist_ok=True)
    for folder in folders:
        for name in [*chance.sample(_ODD_NAMES, 9), b"keep.log", b"drop.log", b"t.tmp"]:
            path = os.path.join(base, folder, name)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            with open(fd, "wb") as file:
                file.write(chance.choice(_CONTENTS))
        if folder and chance.random() < 0.4:
            rules = os.path.join(base, folder, b".gitignore")
            Path(os.fsdecode(rules)).write_text(chance.choice(_RULES))
    (root / ".gitignore").write_text("*.log\n!keep.log\n/build/\n")
    _strange(root, outside)


def _strange(root: Path, outside: Path) -> None:
    """What is neither a file nor a directory."""
    links = {
        "out": outside,
        "out.txt": outside / "bait.txt",
        "sub/out": outside / "tree",
        "loop": "loop",
        "sub/up": "..",
        "inner": "sub",
        "dangling": "nowhere",
        "proc": "/proc/self/root",
        "a/.gitignore": outside / "bait.txt",
    }
    for name, target in links.items():
        with contextlib.suppress(FileExistsError):
            (root / name).symlink_to(target)
    os.mkfifo(root / "fifo")
    os.mkfifo(root / "sub" / "fifo.txt")
    with socket.socket(socket.AF_UNIX) as listener:
        # A path in a socket's address is short.
        here = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        listener.bind(f"/proc/self/fd/{here}/socket.txt")
        os.close(here)
