"""What is replaced is handed over first, and what cannot be kept is not replaced."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct, field

from paddock.errors import FileChangedError, HostError, PaddockError, StorageFullError
from paddock.storage.notes import Doing
from paddock.workspace import Workspace
from paddock.workspace.changes import AtVersion
from paddock.workspace.read import Pieces, version_of
from paddock.workspace.single_change import (
    delete_entry,
    edit_file,
    move_entry,
    write_file,
)
from tests.support.disks import DISKS, temporaries, tree

OLD = b"old content\n"


class Kept(Struct, dict=True):
    keeper: "Keeper"

    def require_untouched(self) -> None:
        pass

    def settle(self) -> None:
        self.keeper.ends.append("settled")
        if self.keeper.settle_failure is not None:
            raise self.keeper.settle_failure

    def release(self) -> None:
        self.keeper.ends.append("released")


class Keeper(Struct, dict=True):
    """Remembers what it was given, and looks at the tree at that moment."""

    root: Path
    failure: PaddockError | None = None
    settle_failure: PaddockError | None = None
    meanwhile: Callable[[], object] = lambda: None
    given: list[tuple[Doing, bytes | None]] = field(default_factory=list)
    trees: list[dict[str, object]] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)

    def _keep(self, doing: Doing, content: bytes | None) -> Kept:
        if self.failure is not None:
            raise self.failure
        self.given.append((doing, content))
        self.trees.append({k: v for k, v in tree(self.root).items() if ".paddock-" not in k})
        self.meanwhile()
        return Kept(self)

    def keep_file(self, doing: Doing, fd: int) -> Kept:
        return self._keep(doing, os.pread(fd, 1 << 20, 0))

    def keep_link(self, doing: Doing, text: bytes) -> Kept:
        return self._keep(doing, text)

    def note(self, doing: Doing) -> Kept:
        return self._keep(doing, None)


class Upper:
    def apply(self, content: bytes) -> Pieces:
        return (content.upper(),)


class Act(Struct, dict=True):
    """Something that changes the tree, and what the keeper has to be given for it."""

    name: str
    do: Callable[[Workspace], object]
    doing: Doing
    content: bytes | None = None


def write(workspace, path, content=b"new"):
    return write_file(workspace, workspace.resolve_write(path), content)


LINK = b"nowhere\xff"
ACTS = [
    Act(
        "create",
        lambda w: write(w, "x/y/new"),
        Doing("x/y/new", "created", after=version_of(b"new"), made=("x", "x/y")),
    ),
    Act(
        "overwrite",
        lambda w: write(w, "dir/old"),
        Doing("dir/old", "overwritten", before=version_of(OLD), after=version_of(b"new")),
        OLD,
    ),
    Act(
        "edit",
        lambda w: edit_file(w, w.resolve_write("dir/old"), Upper()),
        Doing("dir/old", "edited", before=version_of(OLD), after=version_of(OLD.upper())),
        OLD,
    ),
    Act(
        "move",
        lambda w: move_entry(w, w.resolve_entry("dir/old"), w.resolve_write("z/moved")),
        Doing(
            "dir/old",
            "moved",
            before=version_of(OLD),
            after=version_of(OLD),
            to="z/moved",
            mode=0o640,
            made=("z",),
        ),
    ),
    Act(
        "delete",
        lambda w: delete_entry(w, w.resolve_entry("dir/old")),
        Doing("dir/old", "deleted", before=version_of(OLD), mode=0o640),
        OLD,
    ),
    Act(
        "delete link",
        lambda w: delete_entry(w, w.resolve_entry("dir/link")),
        Doing("dir/link", "deleted", entry="link", before=version_of(LINK)),
        LINK,
    ),
    Act(
        "delete directory",
        lambda w: delete_entry(w, w.resolve_entry("empty")),
        Doing("empty", "deleted", entry="directory", mode=0o710),
    ),
]
EACH_ACT = pytest.mark.parametrize("act", ACTS, ids=lambda act: act.name)
EACH_REWRITE = pytest.mark.parametrize(
    "act", [act for act in ACTS if act.doing.after and act.content], ids=lambda act: act.name
)
EACH_REPLACEMENT = pytest.mark.parametrize(
    "act", [act for act in ACTS if act.content == OLD], ids=lambda act: act.name
)


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "ws"
    (root / "dir").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "empty").chmod(0o710)
    (root / "dir/old").write_bytes(OLD)
    (root / "dir/old").chmod(0o640)
    os.symlink(LINK, root / "dir/link")
    return root


@pytest.fixture
def keeper(root):
    return Keeper(root)


@pytest.fixture(params=DISKS)
def workspace(request, root, keeper, resolution):
    disk = DISKS[request.param]()
    with Workspace.open(str(root), resolution, disk, keeper) as workspace:
        yield workspace


@EACH_ACT
def test_what_stands_there_is_handed_over_before_it_changes(workspace, keeper, root, act):
    before = {k: v for k, v in tree(root).items() if k not in act.doing.made}
    act.do(workspace)
    assert keeper.given == [(act.doing, act.content)]
    seen = {k: v for k, v in keeper.trees[0].items() if k not in act.doing.made}
    assert (seen, keeper.ends) == (before, ["settled"])
    assert tree(root) != before


@EACH_ACT
@pytest.mark.parametrize("failure", [StorageFullError("no space"), HostError("broken")])
def test_what_cannot_be_kept_is_not_changed(workspace, keeper, root, act, failure):
    before = tree(root)
    keeper.failure = failure
    with pytest.raises(type(failure)):
        act.do(workspace)
    assert (tree(root), keeper.ends) == (before, [])
    # The same act happens where it can be kept.
    keeper.failure = None
    act.do(workspace)
    assert tree(root) != before


@EACH_REPLACEMENT
def test_a_file_that_is_rewritten_while_it_is_kept_stays_as_its_writer_left_it(
    workspace, keeper, root, act
):
    keeper.meanwhile = lambda: (root / "dir/old").write_bytes(b"somebody else's")
    with pytest.raises(FileChangedError):
        act.do(workspace)
    assert (root / "dir/old").read_bytes() == b"somebody else's"
    assert (keeper.ends, temporaries(root)) == (["released"], [])


@EACH_REWRITE
def test_a_file_whose_permissions_change_while_it_is_kept_is_not_replaced(
    workspace, keeper, root, act
):
    keeper.meanwhile = lambda: (root / "dir/old").chmod(0o400)
    with pytest.raises(FileChangedError):
        act.do(workspace)
    assert (root / "dir/old").stat().st_mode & 0o777 == 0o400


@EACH_REPLACEMENT
def test_what_turns_out_not_to_be_kept_is_put_back(workspace, keeper, root, act):
    before = tree(root)
    keeper.settle_failure = FileChangedError("somebody wrote to it")
    with pytest.raises(FileChangedError):
        act.do(workspace)
    # Without an exchange there is no way back from a replacement.
    has_way_back = act.name == "delete" or type(workspace.disk) is not DISKS["plain-rename"]
    assert (tree(root) == before) == has_way_back
    assert keeper.ends == ["settled", "released"]


def test_a_refused_write_hands_nothing_over(workspace, keeper, root):
    with pytest.raises(FileChangedError):
        write_file(
            workspace, workspace.resolve_write("dir/old"), b"x", old=AtVersion("sha256:other")
        )
    with pytest.raises(PaddockError):
        delete_entry(workspace, workspace.resolve_entry("dir"))
    assert keeper.given == []
