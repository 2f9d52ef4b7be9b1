"""Caches that commands of one workspace share: there for the next, and nobody else's."""

import os
import stat
from pathlib import Path

import pytest

from paddock import limits
from paddock.sandbox.inside.protocol import HOST_IDS_FIRST
from paddock.sandbox.staging_area import Caches
from tests.support.shells import OPEN, Terminal, Yard, a_terminal, hide

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash")]


def caches_of(terminal: Terminal) -> Caches:
    place = terminal.yard.cli("sandbox", "caches", "--json").json["place"]
    return Caches(Path(place).parent)


def test_what_one_runtime_caches_the_next_finds_and_another_workspace_does_not(tmp_path: Path):
    yard = Yard(tmp_path / "one").make()
    with yard.opened() as first:
        said = first.sneak("mkdir -p ~/.cache/x; echo kept > $XDG_CACHE_HOME/x/f; echo $GOCACHE")
        assert said["stdout"] == "/run/home/.cache/go-build\n"
        assert said["files_changed"] == []
    with yard.opened() as second:
        assert second.run("cat ~/.cache/x/f")["stdout"] == "kept\n"
        assert second.run("ls ~")["stdout"] == ""
    with a_terminal(tmp_path / "two") as other:
        assert other.run("ls -A ~/.cache")["stdout"] == ""


def test_started_as_root_what_is_cached_belongs_to_nobody_of_the_host(tmp_path: Path):
    with a_terminal(tmp_path) as terminal:
        terminal.sneak("echo x > ~/.cache/f; cp /bin/true ~/.cache/t; chmod 4755 ~/.cache/t")
        tree = caches_of(terminal).tree
        owner = HOST_IDS_FIRST if os.geteuid() == 0 else os.geteuid()

        assert {path.lstat().st_uid for path in (tree, *tree.iterdir())} == {owner}
        assert stat.S_IMODE(tree.parent.stat().st_mode) == 0o700
        assert "nosuid" in terminal.run("grep /run/home/.cache /proc/self/mountinfo")["stdout"]


def test_a_dry_run_only_reads_them(tmp_path: Path):
    with a_terminal(tmp_path) as terminal:
        terminal.sneak("echo x > ~/.cache/f")
        said = terminal.sneak("cat ~/.cache/f; echo y > ~/.cache/f", dry_run=True)

        assert said["stdout"] == "x\n"
        assert "Read-only file system" in said["stderr"]
        assert terminal.run("cat ~/.cache/f")["stdout"] == "x\n"


def test_who_wants_none_has_none(tmp_path: Path):
    with a_terminal(tmp_path, OPEN + "[shell]\ncaches = false\n") as terminal:
        said = terminal.run("ls -A ~; echo $XDG_CACHE_HOME$CARGO_HOME")

        assert said["stdout"] == ".config\n.gitconfig\n\n"
        assert not caches_of(terminal).folder.exists()


def test_two_commands_at_once_share_them(tmp_path: Path):
    yard = Yard(tmp_path).make()
    with yard.opened() as one, yard.opened() as other:
        one.sneak("echo 1 > ~/.cache/one")
        other.sneak("echo 2 > ~/.cache/other")

        assert one.run("ls ~/.cache")["stdout"] == "one\nother\n"


def test_they_are_cleared_by_a_person_and_begin_anew(tmp_path: Path):
    with a_terminal(tmp_path) as terminal:
        terminal.sneak("head -c 3M /dev/zero > ~/.cache/f")
        before = terminal.yard.cli("sandbox", "caches", "--json").json
        cleared = terminal.yard.cli("sandbox", "caches", "clear")

        assert before["bytes"] >= 3 << 20
        assert before["bytes_max"] == limits.shell_cache_bytes_max
        assert (cleared.status, "cleared" in cleared.out) == (0, True)
        assert terminal.sneak("ls -A ~/.cache; echo y > ~/.cache/g")["stdout"] == ""
        assert terminal.run("cat ~/.cache/g")["stdout"] == "y\n"


def test_they_are_not_cleared_under_a_command_that_runs(tmp_path: Path):
    with a_terminal(tmp_path) as terminal:
        caches = caches_of(terminal)
        with caches.in_use():
            refused = terminal.yard.cli("sandbox", "caches", "clear")
            assert refused.status != 0
            assert "a running command uses the caches" in refused.err
            assert caches.tree.is_dir()
        assert caches.clear()
        assert not caches.tree.exists()


HOSTILE = {
    "links that lead out": "ln -s / ~/.cache/root; ln -s ../.. ~/.cache/up; ln -s /etc ~/.cache/d",
    "directories without a mode": "mkdir -p ~/.cache/a/b; echo x > ~/.cache/a/b/f; chmod 0 ~/.cache/a",
    "a root without a mode": "chmod 0 ~/.cache",
    "depths": "cd ~/.cache; for n in $(seq 400); do mkdir d; cd d; done",
    "odd names": "touch ~/.cache/$'a\\nb' ~/.cache/$'\\xff' ~/.cache/-rf",
    "devices and pipes": "mkfifo ~/.cache/p; mknod ~/.cache/w c 0 0; true",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_stands_in_them_is_counted_and_cleared_without_leaving_them(
    tmp_path: Path, name: str
):
    with a_terminal(tmp_path) as terminal:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "kept").write_bytes(bytes(5_000_000))
        terminal.sneak(f"{HOSTILE[name]}; ln -s {outside} ~/.cache/out")
        caches = caches_of(terminal)

        counted = caches.size_bytes()
        is_hiding = ("mode" in name and os.geteuid() != 0) or name == "depths"
        # What cannot be counted is over the bound, and was cleared when the command had ended.
        assert caches.tree.exists() is not is_hiding
        assert counted < 5_000_000
        assert caches.clear()
        assert not caches.tree.exists()
        assert (outside / "kept").stat().st_size == 5_000_000
        assert terminal.run("ls -A ~/.cache")["stdout"] == ""


def test_over_their_bound_they_begin_anew_when_the_command_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "shell_cache_bytes_max", 2_000_000)
    with a_terminal(tmp_path) as terminal:
        terminal.sneak("head -c 3M /dev/zero > ~/.cache/f")

        assert terminal.run("ls -A ~/.cache")["stdout"] == ""


def test_no_hard_link_leads_into_them_or_out(tmp_path: Path):
    with a_terminal(tmp_path) as terminal:
        terminal.yard.write({"a": "a\n"})
        said = terminal.run(hide("ln a ~/.cache/a; echo x > ~/.cache/b; ln ~/.cache/b b; true"))

        assert said["stderr"].count("Invalid cross-device link") == 2
        assert said["files_changed"] == []


DOWNLOADED = ("go/pkg/mod/cache/download/m", ".gradle/caches/modules-2/m", ".m2/repository/m")
CLOSED = (".gradle/gradle.properties", ".m2/settings.xml", "go/pkg/mod/m@v1/m", ".npmrc")


def test_what_the_user_downloaded_is_read_where_a_tool_has_a_second_place(tmp_path: Path):
    yard = Yard(tmp_path).make()
    for name in (*DOWNLOADED, *CLOSED):
        (yard.home / name).parent.mkdir(parents=True, exist_ok=True)
        (yard.home / name).write_text(f"{name}\n")
    with yard.opened() as terminal:
        said = terminal.run(
            'cat "$GRADLE_RO_DEP_CACHE/modules-2/m"; cat "${MAVEN_OPTS##*=}/m"; '
            'go=${GOPROXY#file://}; cat "${go%%,*}/m"'
        )
        tried = [terminal.run(f"cat {yard.home}/{name}")["exit_code"] for name in CLOSED]
        written = terminal.sneak(f"echo x > {yard.home}/{DOWNLOADED[0]}")

    assert said["stdout"].splitlines() == [DOWNLOADED[1], DOWNLOADED[2], DOWNLOADED[0]]
    assert 0 not in tried
    assert "Read-only file system" in written["stderr"]


def test_a_link_where_downloads_would_stand_opens_nothing(tmp_path: Path):
    yard = Yard(tmp_path).make()
    (yard.home / "keys").mkdir()
    (yard.home / "keys/id").write_text("key\n")
    (yard.home / ".m2").mkdir()
    (yard.home / ".m2/repository").symlink_to("../keys")
    with yard.opened() as terminal:
        said = terminal.run(
            f"echo $MAVEN_OPTS; cat {yard.home}/keys/id {yard.home}/.m2/repository/id"
        )

    assert said["stdout"] == "-Dmaven.repo.local=/run/home/.cache/maven\n"
