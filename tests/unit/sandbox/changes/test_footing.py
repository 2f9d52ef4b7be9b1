"""What a set stands on besides the entries that it names: looked at again as it lands."""

import os
from pathlib import Path

import pytest

from paddock.errors import FileChangedError
from paddock.sandbox.changes.commit import CommitCondition
from paddock.workspace.apply import commit_changes
from paddock.workspace.changes import (
    Absent,
    GivenContent,
    MakeDirectory,
    MakeLink,
    RemoveFile,
    SetMetadata,
    StoredContent,
    WriteFile,
)
from paddock.workspace.paths import unchecked_path as at
from tests.support.changes import Bench, open_bench, seen

REFUSED = "is not committed by the git preset as the workspace is now: "


@pytest.fixture
def bench(tmp_path):
    (tmp_path / "ws").mkdir()
    with open_bench(tmp_path) as made:
        yield made


def lay(bench: Bench, *names: str) -> None:
    for name in names:
        path = bench.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.write_text("x")


def file(bench: Bench, name: str, content: bytes = b"x", mode: int = 0o644) -> WriteFile:
    digest = bench.objects.put_bytes(content)
    bench.objects.sync()
    return WriteFile(at(name), StoredContent(digest), Absent(), mode)


def folder(name: str) -> MakeDirectory:
    return MakeDirectory(at(name), Absent(), 0o755)


def footing(bench: Bench, *changes, git="safe", above=None) -> CommitCondition:
    return CommitCondition(bench.workspace.root_fd, [changes], bench.objects, git, above or {})


def standing(bench: Bench, *names: str) -> dict[str, tuple[int, int]]:
    found = {name: (bench.root / name).stat() for name in names}
    return {name: (status.st_dev, status.st_ino) for name, status in found.items()}


HEAD = b"ref: refs/heads/main\n"


@pytest.mark.parametrize(
    ("stands", "named"),
    [
        ("s/config", "with the existing 's/config' it would become a repository"),
        ("s/hooks/x", "with the existing 's/hooks' it would become a repository"),
        ("s/info/attributes", "with the existing 's/info/attributes' it would become"),
    ],
)
def test_what_completes_a_repository_is_refused_where_configuration_has_come(bench, stands, named):
    lay(bench, "s/")
    changes = (file(bench, "s/HEAD", HEAD), folder("s/objects"), folder("s/refs"))
    footing(bench, *changes).verify()
    lay(bench, stands)
    with pytest.raises(FileChangedError, match=f"'s/HEAD' {REFUSED}{named}"):
        footing(bench, *changes).verify()
    footing(bench, *changes, git="none").verify()


@pytest.mark.parametrize(
    "change",
    [
        lambda bench: file(bench, "s/config"),
        lambda bench: file(bench, "s/hooks/post-checkout"),
        lambda bench: folder("s/hooks"),
        lambda bench: MakeLink(at("s/commondir"), "../elsewhere", Absent()),
        lambda bench: SetMetadata(at("s/config"), seen(bench.root, "kept"), 0o755),
        lambda bench: RemoveFile(at("s/HEAD"), seen(bench.root, "kept")),
    ],
)
@pytest.mark.parametrize("git", ["safe", "read-only"])
def test_configuration_is_refused_where_a_repository_has_come(bench, change, git):
    lay(bench, "s/", "kept")
    made = change(bench)
    footing(bench, made, git=git).verify()
    lay(bench, "s/HEAD", "s/objects/", "s/refs/")
    with pytest.raises(FileChangedError, match=REFUSED):
        footing(bench, made, git=git).verify()
    footing(bench, made, git="none").verify()


def test_what_an_ordinary_operation_writes_is_let_in_wherever_its_content_comes_from(bench):
    lay(bench, ".git/HEAD", ".git/objects/", ".git/refs/heads/", "layer/ref", "layer/bad")
    (bench.root / "layer/ref").write_text("0" * 39 + "1\n")
    lay(bench, ".git/ORIG_HEAD")
    (bench.root / ".git/ORIG_HEAD").write_text("0" * 39 + "1\n")
    fd = os.open(bench.root / "layer", os.O_PATH)
    given = WriteFile(at(".git/refs/heads/a"), GivenContent(fd, "ref"), Absent(), 0o644)
    stored = file(bench, ".git/refs/heads/b", b"0" * 39 + b"2\n")
    mode = SetMetadata(at(".git/ORIG_HEAD"), seen(bench.root, ".git/ORIG_HEAD"), 0o600)
    folders = SetMetadata(at(".git/refs"), seen(bench.root, ".git/refs"), 0o700)
    try:
        footing(bench, given, stored, mode, folders, folder(".git/refs/tags")).verify()
        bad = WriteFile(at(".git/refs/heads/a"), GivenContent(fd, "bad"), Absent(), 0o644)
        for change in (bad, file(bench, ".git/refs/heads/b", b"../../etc\n")):
            with pytest.raises(FileChangedError, match="git does not write such content there"):
                footing(bench, change).verify()
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("made", "locked"),
    [
        (["s/info/attributes"], ["s"]),
        (["info/attributes"], ["."]),
        (["s/objects/info/alternates"], ["s"]),
        (["s/objects/info/http-alternates", "t/info/attributes"], ["s", "t"]),
        (["s/myinfo/attributes", "s/info/exclude", "s/config", "attributes"], []),
    ],
)
def test_a_directory_that_something_deep_in_it_arms_is_locked_too(bench, made, locked):
    changes = [file(bench, name) for name in made]
    assert sorted(map(str, footing(bench, *changes).directories())) == locked
    assert footing(bench, *changes, git="none").directories() == ()


def test_a_directory_that_the_set_makes_itself_is_not_locked(bench):
    changes = (folder("s"), folder("s/info"), file(bench, "s/info/attributes"))
    assert footing(bench, *changes).directories() == ()


def test_a_set_that_is_refused_as_it_lands_changes_nothing(bench):
    lay(bench, "s/config")
    changes = (file(bench, "s/HEAD", HEAD), folder("s/objects"), folder("s/refs"))
    with pytest.raises(FileChangedError, match=REFUSED):
        commit_changes(
            bench.workspace,
            [changes],
            bench.objects,
            bench.journal,
            condition=footing(bench, *changes),
        )
    assert os.listdir(bench.root / "s") == ["config"]
    (bench.root / "s/config").unlink()
    commit_changes(
        bench.workspace, [changes], bench.objects, bench.journal, condition=footing(bench, *changes)
    )
    assert set(os.listdir(Path(bench.root, "s"))) == {"HEAD", "objects", "refs"}


@pytest.mark.parametrize("git", ["safe", "none"])
@pytest.mark.parametrize(
    ("act", "named"),
    [
        (lambda d: (d.rename(d.with_name("old")), d.mkdir()), "changed 's/d'"),
        (lambda d: (d.rename(d.with_name("old")), d.symlink_to("old")), "changed 's/d'"),
        (lambda d: d.rename(d.with_name("old")), "changed 's/d'"),
        (lambda d: (d.rename(d.with_name("old")), d.write_text("x")), "changed 's/d'"),
        (lambda d: d.parent.rename(d.parent.with_name("t")), "changed 's', 's/d'"),
    ],
    ids=["another", "a link to it", "nothing", "a file", "all above"],
)
def test_what_stands_in_a_directorys_place_is_not_taken_for_it(bench, git, act, named):
    lay(bench, "s/d/")
    above = standing(bench, ".", "s", "s/d")
    change = file(bench, "s/d/n")
    lay(bench, "s/d/neighbour", "s/neighbour")
    (bench.root / "s").chmod(0o700)
    footing(bench, change, git=git, above=above).verify()
    act(bench.root / "s/d")
    with pytest.raises(FileChangedError, match=named):
        footing(bench, change, git=git, above=above).verify()
