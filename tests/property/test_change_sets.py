"""Any tree, any set of changes: afterwards the tree is as asked, or exactly as it was."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.errors import FileChangedError
from paddock.workspace.workspace import Openat2Resolution, WalkResolution
from tests.support.changes import (
    File,
    Folder,
    Link,
    changes_to,
    lay_out,
    memory_directory,
    model_of,
    open_bench,
)

NAMES = ("a", "b", "-c d", "é\n", "\udcff")
FILES = st.builds(
    File,
    st.binary(max_size=40),
    st.sampled_from([0o644, 0o600, 0o755, 0o666]),
    st.sampled_from([0, 5, 1_700_000_000_123_456_789]),
)
NODES = FILES | st.builds(Link, st.sampled_from(["a", "../b", "/etc", "é"]))


@st.composite
def trees(draw, depth=0):
    """A tree, with its directories before what they hold."""
    found = {}
    for name in draw(st.sets(st.sampled_from(NAMES), max_size=4)):
        if depth < 3 and draw(st.integers(0, 2)) == 0:
            found[name] = Folder(draw(st.sampled_from([0o755, 0o700, 0o711])))
            below = draw(trees(depth + 1))
            found |= {f"{name}/{under}": node for under, node in below.items()}
        else:
            found[name] = draw(NODES)
    return found


@pytest.fixture(scope="module")
def base():
    with memory_directory() as directory:
        yield directory


@pytest.mark.needs("openat2")
@pytest.mark.parametrize("resolution", [Openat2Resolution, WalkResolution])
@settings(max_examples=60)
@given(old=trees(), new=trees())
def test_after_a_commit_the_tree_is_the_one_that_was_asked_for(base, resolution, old, new):
    lay_out(base / "ws", old)
    with open_bench(base, resolution=resolution()) as bench:
        receipt = bench.become(new)
        assert model_of(bench.root) == dict(sorted(new.items()))
        assert bench.entries() == []
        changed = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
        assert {row.path.relative for row in receipt.changes} == changed
        for row in receipt.changes:
            node = old.get(row.path.relative)
            if row.kept:
                assert bench.objects.read(row.before.version) == node.content


@settings(max_examples=60)
@given(old=trees(), new=trees(), data=st.data())
def test_a_set_that_meets_somebody_elses_change_leaves_every_byte_mode_and_time(
    base, old, new, data
):
    lay_out(base / "ws", old)
    with open_bench(base) as bench:
        changes = changes_to(bench.root, new)
        if not changes:
            return
        disturbed = data.draw(st.sampled_from(changes)).path.relative
        path = os.path.join(bench.root, disturbed)
        disturb(path)
        before = model_of(bench.root)
        with pytest.raises(FileChangedError):
            bench.commit(*changes)
        assert model_of(bench.root) == before
        assert bench.entries() == []


def disturb(path: str) -> None:
    """Somebody else's change of one path."""
    if not os.path.lexists(path):
        parent = os.path.dirname(path)
        if os.path.isdir(parent) and not os.path.islink(parent):
            os.symlink("theirs", path)
        else:
            disturb(parent)
    elif os.path.islink(path):
        text = os.readlink(path)
        os.unlink(path)
        os.symlink(text + "x", path)
    elif os.path.isdir(path):
        os.chmod(path, 0o777)
    else:
        with open(path, "ab") as file:
            file.write(b"theirs")
