"""Which index files a command may leave: those whose paths git itself would enter."""

import hashlib
import itertools
import os
import struct
import subprocess
from pathlib import Path

import pytest

from paddock.sandbox.git.index import is_harmless_index
from paddock.sandbox.git.objects import SHA1_BYTES, SHA256_BYTES

FILE, LINK, SUBMODULE, DIRECTORY = 0o100644, 0o120000, 0o160000, 0o040000


def entry(name: bytes, mode: int = FILE, *, hash_bytes: int = SHA1_BYTES, flags: int = 0) -> bytes:
    """As versions 2 and 3 write it; `flags` as those beyond the length, extended ones last."""
    head = bytes(24) + mode.to_bytes(4, "big") + bytes(12 + hash_bytes)
    head += struct.pack(">H", flags & 0xF000 | min(len(name), 0xFFF))
    if flags & 0x4000:
        head += struct.pack(">H", flags >> 16)
    size = (len(head) + len(name) + 8) // 8 * 8
    return (head + name).ljust(size, b"\0")


def short_entry(name: bytes, dropped: int, added: bytes) -> bytes:
    """As version 4 writes it: `name` is the last one without `dropped` bytes, and `added`."""
    head = bytes(24) + FILE.to_bytes(4, "big") + bytes(12 + SHA1_BYTES)
    return head + struct.pack(">H", len(name)) + bytes([dropped]) + added + b"\0"


def extension(name: bytes, content: bytes = b"") -> bytes:
    return name + len(content).to_bytes(4, "big") + content


def index(*parts: bytes, count: int, version: int = 2, kind: str = "sha1") -> bytes:
    content = struct.pack(">4sII", b"DIRC", version, count) + b"".join(parts)
    return content + hashlib.new(kind, content).digest()


def accepts(content: bytes) -> bool:
    return is_harmless_index(content, SHA1_BYTES)


def holding(name: bytes) -> list[bytes]:
    """An index with this one name, in each version."""
    return [
        index(entry(name), count=1),
        index(entry(name), count=1, version=3),
        index(short_entry(name, 0, name), count=1, version=4),
    ]


OUTSIDE = [
    *(b"", b"/", b"/etc/passwd", b"a//b", b"a/", b".", b"..", b"../evil", b"a/../../evil"),
    *(b"a/..", b"./a", b"a/./b", b".git", b".git/hooks/post-checkout", b"a/.git/config"),
    *(b".GIT/config", b".Git/x", b"git~1/config", b"GIT~1", b"a/git~1/x"),
    *(b".git /config", b".git./config", b".git . ./config", b"git~1./x", b".git:x", b"a/.git "),
    *(b".git::$INDEX_ALLOCATION/config", b"git~1:$I30:$INDEX_ALLOCATION/x"),
    *(b"a\\.git\\config", b"\\.git", b".git\\config", b"a\\git~1\\x"),
    *(".g\u200cit/config".encode(), "a/\ufeff.git".encode(), ".gi\u206ft/x".encode()),
    *(".git\u202e/config".encode(), ".\u200fGiT".encode()),
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_path_out_of_the_work_tree_or_into_a_git_directory_is_refused(name: bytes):
    assert [accepts(each) for each in holding(name)] == [False, False, False]


@pytest.mark.parametrize(
    "name",
    [
        *(b"a", b"a/b/c", b".gitignore", b".gitmodules", b".github/x", b"a.git/b", b"git", b"...a"),
        *(b"git~2/x", b"git~10", b".git2", b"x.git", b"..a/b..", b".gitx:y", b"a b/ c", b"a\\b"),
        *(b"a\nb", b"\xff\xfe", "docs/\u200c.txt".encode(), "gro\u00dfe/\u00fc".encode()),
        *(b"n" * 4094, b"n" * 4095, b"n" * 4096),
    ],
)
def test_any_other_name_is_accepted(name: bytes):
    in_full = holding(name) if len(name) < 256 else holding(name)[:2]
    assert [accepts(each) for each in in_full] == [True] * len(in_full)


def test_a_name_that_can_never_be_checked_out_is_refused():
    assert not accepts(index(entry(b"n" * 4097), count=1))


def test_a_path_that_is_put_together_from_the_one_before_is_looked_at_whole():
    fine = index(
        short_entry(b".gix", 0, b".gix"), short_entry(b".giy", 1, b"y"), count=2, version=4
    )
    evil = index(
        short_entry(b".gix", 0, b".gix"), short_entry(b".git", 1, b"t"), count=2, version=4
    )
    below = index(
        short_entry(b"a/b", 0, b"a/b"), short_entry(b"a/../c", 1, b"../c"), count=2, version=4
    )
    beyond = index(short_entry(b"a", 0, b"a"), short_entry(b"b", 2, b"b"), count=2, version=4)

    assert accepts(fine)
    assert [accepts(each) for each in (evil, below, beyond)] == [False, False, False]


@pytest.mark.parametrize(
    ("mode", "is_accepted"),
    [
        *((FILE, True), (0o100755, True), (LINK, True), (SUBMODULE, True)),
        *((DIRECTORY, False), (0o104755, False), (0o020644, False), (0, False), (1 << 31, False)),
    ],
)
def test_an_entry_is_a_file_a_link_or_a_submodule(mode: int, is_accepted: bool):
    assert accepts(index(entry(b"a", mode), count=1)) is is_accepted


@pytest.mark.parametrize(
    ("name", "extensions", "is_accepted"),
    [
        (b"a/", (extension(b"sdir"),), True),
        (b"a/", (), False),
        (b"a", (extension(b"sdir"),), False),
        (b".git/", (extension(b"sdir"),), False),
        (b"/", (extension(b"sdir"),), False),
        (b"a//", (extension(b"sdir"),), False),
    ],
)
def test_a_directory_stands_only_in_a_sparse_index(name, extensions, is_accepted):
    parts = entry(name, DIRECTORY, flags=0x4000 | 0x4000 << 16)
    assert accepts(index(parts, *extensions, count=1, version=3)) is is_accepted


@pytest.mark.parametrize(
    ("extensions", "is_accepted"),
    [
        ((), True),
        ((extension(b"TREE", b"x"), extension(b"REUC"), extension(b"UNTR", b"y" * 9)), True),
        ((extension(b"FSMN", b"z"),), True),
        ((extension(b"link", bytes(20)),), False),
        ((extension(b"TREE"), extension(b"TREE")), False),
        ((extension(b"NEWS"),), False),
        ((b"TREE",), False),
        ((b"TREE\0\0\0\x02x",), False),
        ((b"\0",), False),
    ],
)
def test_the_extensions_are_known_ones_and_each_is_whole(extensions, is_accepted):
    assert accepts(index(entry(b"a"), *extensions, count=1)) is is_accepted


FIRST, SECOND, HIDDEN = entry(b"a"), entry(b"b"), entry(b".git/hooks/x")
END = 12 + len(FIRST) + len(SECOND)


def blocks(*pairs: tuple[int, int]) -> bytes:
    return extension(
        b"IEOT", struct.pack(">I", 1) + b"".join(struct.pack(">II", *p) for p in pairs)
    )


def ending(offset: int) -> bytes:
    return extension(b"EOIE", struct.pack(">I", offset) + bytes(20))


@pytest.mark.parametrize(
    ("extensions", "is_accepted"),
    [
        ((blocks((12, 2)), ending(END)), True),
        ((blocks((12, 1), (12 + len(FIRST), 1)), ending(END)), True),
        ((blocks((12, 1), (END, 0), (12 + len(FIRST), 1)), ending(END)), True),
        ((blocks((12, 1), (END + 8, 1)), extension(b"UNTR", HIDDEN)), False),
        ((extension(b"UNTR", HIDDEN), blocks((END + 8, 1), (12, 1)), ending(END)), False),
        ((blocks((12, 1)), ending(END)), False),
        ((blocks((12, 3)), ending(END)), False),
        ((blocks((13, 2)), ending(END)), False),
        ((extension(b"IEOT", struct.pack(">III", 2, 12, 2)), ending(END)), False),
        ((extension(b"IEOT", b"\0\0"),), False),
        ((ending(END + 8),), False),
        (
            (extension(b"UNTR", HIDDEN + blocks((END + 8, 2)) + ending(END + 8 + len(HIDDEN))),),
            False,
        ),
    ],
)
def test_git_is_led_to_no_other_entries_than_those_that_were_looked_at(extensions, is_accepted):
    assert accepts(index(FIRST, SECOND, *extensions, count=2)) is is_accepted


def test_what_is_no_index_is_refused():
    good = index(FIRST, count=1)
    summed = good[:-20]
    bad = {
        "empty": b"",
        "text": b"[core]\n\tfsmonitor = touch owned\n" * 3,
        "signature": index(FIRST, count=1).replace(b"DIRC", b"CRID"),
        "version 1": index(FIRST, count=1, version=1),
        "version 5": index(FIRST, count=1, version=5),
        "more entries": index(FIRST, count=2),
        "fewer entries": index(FIRST, SECOND, count=1),
        "a great many": index(FIRST, count=0xFFFFFFFF),
        "bytes behind": good + b"\0",
        "another sum": summed + bytes([good[-20] ^ 1]) + good[-19:],
        "padding": index(FIRST[:-1] + b"x", count=1),
        "extended in version 2": index(entry(b"a", flags=0x4000), count=1),
        "unknown flags": index(entry(b"a", flags=0x4000 | 0x8000 << 16), count=1, version=3),
        "length": index(FIRST.replace(b"\0\x01a", b"\0\x02a"), count=1),
        "a zero in the name": index(entry(b"a\0/../../x"), count=1),
    }
    assert accepts(good)
    assert accepts(summed + bytes(20)), "index.skipHash"
    assert [name for name, content in bad.items() if accepts(content)] == []


def test_the_size_of_object_names_is_the_repositorys():
    short = index(FIRST, count=1)
    long = index(entry(b"a", hash_bytes=SHA256_BYTES), count=1, kind="sha256")

    assert (accepts(short), is_harmless_index(long, SHA256_BYTES)) == (True, True)
    assert (accepts(long), is_harmless_index(short, SHA256_BYTES)) == (False, False)


@pytest.mark.parametrize(
    ("added", "is_accepted"),
    [
        *((b"c", True), (b".gitx", True), (b"c/d", True)),
        *((b"", False), (b"/c", False), (b"./c", False), (b"../c", False), (b".git", False)),
        *((b".git:/c", False), (b".GIT\\c", False), (b"c\\.git", False)),
    ],
)
def test_what_follows_a_directory_that_was_taken_over_is_looked_at(added, is_accepted):
    parts = short_entry(b"a/b", 0, b"a/b"), short_entry(b"a/" + added, 1, added)
    assert accepts(index(*parts, count=2, version=4)) is is_accepted


def test_few_bytes_that_stand_for_very_many_names_are_refused():
    name = b"n" * 4000
    first = short_entry(name, 0, name)
    again = short_entry(name, 0, b"")
    assert accepts(index(first, again * 99, count=100, version=4))
    assert not accepts(index(first, again * 16_000, count=16_001, version=4))


@pytest.mark.needs("git")
class TestOfRealGit:
    """What git itself writes is accepted, and no part of it."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        root = tmp_path / "work"
        root.mkdir()
        git(root, "init", "-q", "-b", "main")
        for name in ("a", "deep/er/b", "deep/c", "x" * 200):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(name)
        git(root, "add", ".")
        git(root, "commit", "-qm", "first")
        return root

    @pytest.mark.parametrize(
        ("steps", "signatures"),
        [
            (["read-tree --empty"], []),
            (["status"], [b"TREE"]),
            (["rm -q a", "mv deep/c c"], []),
            (["update-index --index-version 3"], []),
            (["update-index --index-version 4"], []),
            (["add -N later"], []),
            (["update-index --skip-worktree a", "update-index --assume-unchanged deep/c"], []),
            (["update-index --untracked-cache", "status"], [b"UNTR"]),
            (["update-index --force-write-index --fsmonitor"], [b"FSMN"]),
            (["update-index --index-version 4 --force-write-index"], [b"EOIE", b"IEOT"]),
            (["update-index --force-write-index"], [b"EOIE", b"IEOT"]),
            (["checkout -q -b side", "stash"], []),
            (["sparse-checkout set --cone --sparse-index none"], [b"sdir"]),
            (["checkout -q -b s", "+1 a", "commit -qam s", "checkout -q main", "+2 a",
              "commit -qam m", "-merge s", "add a"], [b"REUC"]),
            (["update-index --add --cacheinfo 160000,0123456789012345678901234567890123456789,m",
              "update-index --add --cacheinfo 120000,0123456789012345678901234567890123456789,l"],
             []),
        ],
        ids=lambda value: value[0] if value else "",
    )  # fmt: skip
    def test_an_index_of_its_own_is_accepted_and_no_part_of_it(self, root, steps, signatures):
        (root / "later").write_text("new")
        for step in steps:
            if step.startswith("+"):
                (root / step[3:]).write_text(step[1])
            else:
                git(root, *step.removeprefix("-").split(), fails=step.startswith("-"))
        content = (root / ".git/index").read_bytes()

        assert [each for each in signatures if each not in content] == []
        assert accepts(content)
        assert [size for size in range(len(content)) if accepts(content[:size])] == []

    def test_a_split_index_is_refused_and_what_it_shares_is_an_index(self, root):
        git(root, "update-index", "--split-index")
        (shared,) = (root / ".git").glob("sharedindex.*")

        assert not accepts((root / ".git/index").read_bytes())
        assert accepts(shared.read_bytes())

    def test_the_names_of_sha256_are_read(self, tmp_path: Path):
        git(tmp_path, "init", "-q", "--object-format=sha256")
        (tmp_path / "a").write_text("a")
        git(tmp_path, "add", "a")
        content = (tmp_path / ".git/index").read_bytes()

        assert (is_harmless_index(content, SHA256_BYTES), accepts(content)) == (True, False)

    @pytest.mark.parametrize("name", [name for name in OUTSIDE if name not in (b"", b"\\.git")])
    def test_git_itself_does_not_enter_what_is_refused(self, root, name: bytes):
        oid = git(root, "hash-object", "a").strip()
        git(
            root,
            "update-index",
            "--add",
            "--cacheinfo",
            f"100644,{oid},{os.fsdecode(name)}",
            fails=True,
        )

    def test_git_reads_what_was_refused_for_what_it_hides(self, root):
        """The table of blocks in another extension's content: two threads go by it."""
        fake = HIDDEN + blocks((END + 8, 1), (12, 1))
        told = END + 8 + len(HIDDEN)
        table = blocks((END + 8, 1), (12, 1))
        summed = hashlib.sha1(table[:8]).digest()
        content = index(
            FIRST,
            SECOND,
            extension(b"UNTR", fake + extension(b"EOIE", struct.pack(">I", told) + summed)),
            count=2,
        )
        (root / ".git/index").write_bytes(content)
        seen = git(root, "-c", "index.threads=3", "ls-files")

        assert ".git/hooks/x" in seen.split("\n")
        assert not accepts(content)


def git(root: Path, *arguments: str, fails: bool = False) -> str:
    settings = itertools.chain.from_iterable(
        ("-c", each)
        for each in (
            *("user.name=a", "user.email=a@b", "index.threads=3", "core.protectHFS=true"),
            *("core.fsmonitor=false", "index.recordEndOfIndexEntries=true"),
            "index.recordOffsetTable=true",
        )
    )
    done = subprocess.run(
        ["git", *settings, *arguments],
        cwd=root,
        env={
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": str(root),
            "LC_ALL": "C",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) is fails, done.stderr
    return done.stdout
