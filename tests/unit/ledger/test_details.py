"""Which names may stand beside a ledger."""

import pytest

from paddock.ledger.checkpoint import Detail, find_detail

HASH = "a" * 64


@pytest.mark.parametrize(
    "path",
    [
        *("lock", "slock", "head", "next", "new", "index.lock"),
        *("index.sqlite", "index.sqlite-journal"),
        *("tree.0", "tree.7", "tree.edge", "tree.edge.new", "ballast.4711.7fac710793d0"),
        *("checkpoints/42", "checkpoints/42.before-rollback"),
        f"checkpoints/.paddock-{'0' * 32}.tmp",
        *("torn/draft", f"torn/0-{HASH}", f"torn/0-{HASH}.pending"),
        *("offsets/draft", f"by-time/{0:016}-{4096:016}", f"by-decision/{0:016}-{4096:016}"),
    ],
)
def test_a_file_that_a_ledger_keeps_is_known(path):
    assert find_detail(path) is Detail.FILE


@pytest.mark.parametrize(
    "path",
    [
        *("checkpoints", "torn", "offsets", "by-time", "by-type", "by-session", "by-call"),
        *("by-agent", "by-decision"),
    ],
)
def test_a_directory_that_a_ledger_keeps_is_known(path):
    assert find_detail(path) is Detail.DIRECTORY


@pytest.mark.parametrize(
    "path",
    [
        *("", "x", ".hidden", "Lock", "lock ", "lock\n", "locks", "tree.", "tree.x", "tree.123"),
        *("tree.٣", "ballast.", "by-", "by-name", "checkpoints/", "checkpoints/x", "draft"),
        *("checkpoints/draft", "checkpoints/4/2", "torn/x", f"torn/0-{HASH}.txt", "torn/lock"),
        *("offsets/0-1", "lock/x", f".paddock-{'0' * 32}.tmp", "..", "checkpoints/..", "//"),
    ],
)
def test_any_other_name_is_nobodys(path):
    assert find_detail(path) is None
