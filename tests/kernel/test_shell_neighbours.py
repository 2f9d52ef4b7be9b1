"""What somebody else does to whole directories while a command works in them: real commands."""

import os
import stat
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.disks import mounted_tmpfs, tree
from tests.support.shells import OPEN, Terminal, a_terminal, clear, refused, while_running

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash")]

FILES = {
    "app/src/a": "old a\n",
    "app/src/b": "old b\n",
    "app/lib/deep/c": "old c\n",
    "new/src/a": "new a\n",
    "new/src/b": "new b\n",
    "new/lib/deep/c": "new c\n",
    "new/lib/deep/more": "more\n",
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory):
    with a_terminal(tmp_path_factory.mktemp("yard")) as terminal:
        yield terminal


@pytest.fixture
def terminal(shared: Terminal):
    """The same door, on a tree that is as new."""
    clear(shared.yard.root)
    shared.yard.write(FILES)
    return shared


def lay(root: Path) -> dict[str, object]:
    """All but what `while_running` and the policy need."""
    found = tree(root)
    return {name: what for name, what in found.items() if name.split("/")[0] not in AROUND}


AROUND = ("paddock.toml", "flags")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# Directories that are exchanged


def exchange_far_above(root: Path) -> None:
    (root / "app").rename(root / "app.bak")
    (root / "new").rename(root / "app")


def exchange_the_parent(root: Path) -> None:
    (root / "app/src").rename(root / "src.bak")
    (root / "new/src").rename(root / "app/src")


def link_instead(root: Path) -> None:
    (root / "app").rename(root / "app.bak")
    (root / "app").symlink_to("new")


def link_that_came_along(root: Path) -> None:
    (root / "new/src").rename(root / "aside")
    (root / "new/src").symlink_to("../aside")
    exchange_far_above(root)


def exchange_the_lowest(root: Path) -> None:
    (root / "app/lib/deep").rename(root / "deep.bak")
    (root / "new/lib/deep").rename(root / "app/lib/deep")


def make_anew(root: Path) -> None:
    (root / "app/src").rename(root / "src.bak")
    (root / "app/src").mkdir()
    # Its time is that of the start: only the directory tells.
    (root / "new/src/a").rename(root / "app/src/a")


def remove_the_directory(root: Path) -> None:
    exchange_far_above(root)
    (root / "app/lib/deep").rename(root / "deep.bak")


EXCHANGED = {
    # what the command does, what somebody else does then, a path of the conflict
    "far above a file": ("echo mine >> app/src/a", exchange_far_above, "app/src/a"),
    "right above a file": ("echo mine >> app/src/a", exchange_the_parent, "app/src/a"),
    "above a file that goes": ("rm app/src/b", exchange_far_above, "app/src/b"),
    "above a file that is new": ("echo mine > app/src/n", exchange_far_above, "app/src/n"),
    "above a new directory": ("mkdir app/src/n", exchange_the_parent, "app/src/n"),
    "above a directory that goes": ("rm -r app/lib", exchange_far_above, "app/lib/deep/more"),
    "inside of one that goes": ("rm -r app/lib", exchange_the_lowest, "app/lib/deep/more"),
    "the one that goes": ("rm -r app/src", exchange_the_parent, "app/src/a"),
    "one that is made anew": (
        "rm -r app/src && mkdir app/src && echo mine > app/src/a",
        exchange_the_parent,
        "app/src/a",
    ),
    "one whose mode changes": ("chmod 700 app/src", exchange_the_parent, "app/src"),
    "above one whose mode changes": ("chmod 700 app/src", exchange_far_above, "app/src"),
    "for a link": ("echo mine >> app/src/a", link_instead, "app"),
    "for one with an old link": ("echo mine >> app/src/a", link_that_came_along, "app/src"),
    "for one that lacks something": (
        "echo mine >> app/lib/deep/c",
        remove_the_directory,
        "app/lib/deep/c",
    ),
    "for a new one": ("echo mine >> app/src/a", make_anew, "app/src/a"),
}


@pytest.mark.parametrize("name", EXCHANGED)
def test_a_directory_that_somebody_exchanges_meanwhile_refuses_the_whole_set(
    terminal: Terminal, name: str
):
    line, act, path = EXCHANGED[name]
    root = terminal.yard.root
    left: list[dict[str, object]] = []

    def exchange() -> None:
        act(root)
        left.append(lay(root))

    said = while_running(terminal, "echo other > other", exchange, before=line)

    assert [lay(root)] == left
    assert said["files_changed"] == []
    assert f"'{path}'" in said["conflict"]
    assert "other" in refused(said)
    assert {name: mode(root / name) for name in ("app", "app/src")} == {"app": 0o755, "app/src": 0o755}  # fmt: skip


def test_a_directory_that_somebody_put_there_meanwhile_keeps_what_it_brought(terminal: Terminal):
    root = terminal.yard.root
    said = while_running(
        terminal,
        "echo mine > app/late/src/a",
        lambda: (root / "new").rename(root / "app/late"),
    )

    assert "'app/late/src/a'" in said["conflict"]
    assert (root / "app/late/src/a").read_text() == "new a\n"


def others_files(root: Path) -> None:
    (root / "app/src/theirs").write_text("t\n")
    (root / "app/src/b").write_text("theirs\n")
    (root / "app/theirs/below").mkdir(parents=True)
    (root / "app/theirs/below/file").write_text("t\n")
    (root / "app/lib/deep/c").unlink()
    (root / "top").write_text("t\n")


def test_others_may_make_change_and_remove_files_in_the_same_directories(terminal: Terminal):
    root = terminal.yard.root
    before = lay(root)
    said = while_running(
        terminal,
        "echo n > app/theirs/below/n",
        lambda: others_files(root),
        before="echo mine >> app/src/a; echo n > app/src/n; echo n > app/lib/deep/n; chmod 700 app/src",
    )

    assert said["files_changed"] == [
        "app/lib/deep/n",
        "app/src",
        "app/src/a",
        "app/src/n",
        "app/theirs/below/n",
    ]
    del before["app/lib/deep/c"]
    assert lay(root) == {
        **before,
        "app/src/a": b"old a\nmine\n",
        "app/src/b": b"theirs\n",
        "app/src/n": b"n\n",
        "app/src/theirs": b"t\n",
        "app/lib/deep/n": b"n\n",
        "app/theirs": None,
        "app/theirs/below": None,
        "app/theirs/below/file": b"t\n",
        "app/theirs/below/n": b"n\n",
        "top": b"t\n",
    }
    assert mode(root / "app/src") == 0o700


def test_directories_that_are_exchanged_beside_the_commands_own_are_no_conflict(
    terminal: Terminal,
):
    root = terminal.yard.root
    said = while_running(
        terminal,
        "true",
        lambda: (root / "new").rename(root / "app/lib/new"),
        before="echo mine >> app/src/a; rm app/lib/deep/c",
    )

    assert said["files_changed"] == ["app/lib/deep/c", "app/src/a"]
    assert (root / "app/lib/new/src/a").read_text() == "new a\n"


# The mode of a directory


MODES = {
    # what the command does, the mode that somebody else sets, the mode then, what changed
    "theirs alone": ("echo n > app/src/n", 0o700, 0o700, ["app/src/n"]),
    "the command's alone": ("chmod 711 app/src", None, 0o711, ["app/src"]),
    "the command's beside files of theirs": ("chmod 711 app/src", 0o755, 0o711, ["app/src"]),
    "the same of both": ("chmod 700 app/src", 0o700, 0o700, []),
}


@pytest.mark.parametrize("name", MODES)
def test_the_mode_of_a_directory_is_whose_who_changed_it(terminal: Terminal, name: str):
    line, theirs, after, changed = MODES[name]
    source = terminal.yard.root / "app/src"

    def act() -> None:
        (source / "theirs").write_text("t\n")
        if theirs is not None:
            source.chmod(theirs)

    said = while_running(terminal, "true", act, before=line)

    assert (said["files_changed"], mode(source)) == (changed, after)


def test_a_mode_that_both_changed_is_a_conflict(terminal: Terminal):
    source = terminal.yard.root / "app/src"
    said = while_running(
        terminal,
        "echo other > other",
        lambda: source.chmod(0o700),
        before="chmod 711 app/src",
    )

    assert (said["files_changed"], mode(source)) == ([], 0o700)
    assert "'app/src'" in said["conflict"]


def test_a_setgid_directory_with_a_hidden_name_is_as_any_other(tmp_path: Path):
    with a_terminal(tmp_path, OPEN + '[shell]\ncommit = "all"\n') as terminal:
        terminal.yard.write({"team/.env": "token", "team/f": "f\n"})
        team = terminal.yard.root / "team"
        team.chmod(0o2775)
        said = terminal.run("echo x >> team/f && mkdir team/m")

        assert said["files_changed"] == ["team/f", "team/m"]
        assert (mode(team), mode(team / "m") & stat.S_ISGID) == (0o2775, stat.S_ISGID)


# Other file systems in the workspace


@contextmanager
def a_bind(place: Path, source: Path) -> Generator[Path, None, None]:
    """Of the same disk: the device tells nothing."""
    tried = subprocess.run(
        ["mount", "--bind", str(source), str(place)], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        pytest.skip(f"needs to mount a directory: {tried.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.fixture(params=["tmpfs", "bind"])
def mounted(request: pytest.FixtureRequest, terminal: Terminal, tmp_path: Path):
    """A volume in the workspace, with somebody's files."""
    place = terminal.yard.root / "app/data"
    place.mkdir()
    volume = tmp_path / "volume"
    volume.mkdir()
    kind = mounted_tmpfs(place, "mode=0755") if request.param == "tmpfs" else a_bind(place, volume)
    with kind:
        terminal.yard.write({"app/data/settings": "theirs\n", "app/data/sub/deep": "deep\n"})
        yield place
        for path in sorted(place.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()


MOUNTED = {
    # what the command does, what is refused, what of it lands
    "a file that seems new": (
        "[ -e app/data/settings ] || echo defaults > app/data/settings; echo n > app/n",
        ["app/data/settings"],
        ["app/n"],
    ),
    "a file that is new": ("echo n > app/data/n", ["app/data/n"], []),
    "a new directory": (
        "mkdir app/data/sub && echo n > app/data/sub/deep",
        ["app/data/sub", "app/data/sub/deep"],
        [],
    ),
    "its removal": ("find app -type d -empty -delete", ["app/data"], []),
    "its removal with what is above": (
        "rm -r app",
        ["app", "app/data"],
        ["app/lib", "app/lib/deep", "app/lib/deep/c", "app/src", "app/src/a", "app/src/b"],
    ),
    "made anew": (
        "rmdir app/data && mkdir app/data && echo n > app/data/settings",
        ["app/data/settings"],
        [],
    ),
    "what is above made anew": (
        "rm -r app && mkdir -p app/data && echo n > app/data/settings",
        ["app/data/settings"],
        ["app/lib", "app/lib/deep", "app/lib/deep/c", "app/src", "app/src/a", "app/src/b"],
    ),
    "a file instead of it": ("rmdir app/data && echo f > app/data", ["app/data", "app/data"], []),
    "its mode": ("chmod 700 app/data", ["app/data"], []),
    "nothing in it": ("ls -A app/data; echo n > app/n", [], ["app/n"]),
}


MOUNTED_WORDS = "is on another file system, which is mounted in the workspace"


@pytest.mark.needs("root")
@pytest.mark.parametrize("name", MOUNTED)
def test_where_another_file_system_is_mounted_nothing_changes_and_the_refusal_says_so(
    terminal: Terminal, mounted: Path, name: str
):
    line, stays, changed = MOUNTED[name]
    before = os.lstat(mounted)
    said = terminal.sneak(line)

    assert tree(mounted) == {"settings": b"theirs\n", "sub": None, "sub/deep": b"deep\n"}
    assert (os.lstat(mounted).st_ino, mode(mounted)) == (before.st_ino, 0o755)
    assert (said["stdout"], said["files_changed"]) == ("", changed)
    assert [each["path"] for each in said["changes_refused"]] == stays
    told = {each["path"] for each in said["changes_refused"] if MOUNTED_WORDS in each["rule"]}
    assert told == set(stays) - {"app"}


def test_a_directory_where_nothing_is_mounted_changes_as_any_other(terminal: Terminal):
    root = terminal.yard.root
    (root / "app/data").mkdir()
    said = terminal.sneak("rmdir app/data; echo n > app/n")

    assert (said["changes_refused"], said["files_changed"]) == ([], ["app/data", "app/n"])
    assert not (root / "app/data").exists()
