"""What a sandbox shows of a workspace, and what is read of its changes afterwards."""

import os
import threading
import time
from pathlib import Path

import pytest

from paddock.errors import SandboxUnavailableError
from paddock.sandbox.changes.upper import Look, RawChange, names_below, read_changes
from paddock.sandbox.git.rules import NodeKind
from paddock.sandbox.values import Ending
from paddock.workspace.metadata import status_from
from tests.support.sandboxes import Room, a_room, complained, said

pytestmark = pytest.mark.needs("stage")


@pytest.fixture
def room(tmp_path: Path):
    with a_room(tmp_path) as made:
        workspace = made.workspace
        for name in ("kept", "gone", "moved", "closed"):
            (workspace / name).write_text(f"old {name}")
        (workspace / "closed").chmod(0o640)
        (workspace / "folder/below").mkdir(parents=True)
        (workspace / "folder/file").write_text("in folder")
        (workspace / "folder/below/deep").write_text("deep")
        os.symlink("kept", workspace / "link")
        yield made


def kinds(changes: dict[str, RawChange]) -> dict[str, tuple[NodeKind | None, NodeKind | None]]:
    return {
        path: (
            change.upper.kind if change.upper else GONE,
            change.lower.kind if change.lower else None,
        )
        for path, change in changes.items()
    }


FILE, DIRECTORY, LINK, GONE = NodeKind.FILE, NodeKind.DIRECTORY, NodeKind.LINK, None

CHANGES = {
    # a line for the shell: what is read afterwards, (what it is, what stood there)
    "true": {},
    "cat kept folder/file; ls -lR": {},
    "echo new > new": {"new": (FILE, None)},
    "echo new > kept": {"kept": (FILE, FILE)},
    "rm gone": {"gone": (GONE, FILE)},
    "mv moved other": {"moved": (GONE, FILE), "other": (FILE, None)},
    "mv moved kept": {"moved": (GONE, FILE), "kept": (FILE, FILE)},
    "chmod 600 closed": {"closed": (FILE, FILE)},
    "touch kept": {"kept": (FILE, FILE)},
    "mkdir -p a/b && touch a/b/c": {
        "a": (DIRECTORY, None),
        "a/b": (DIRECTORY, None),
        "a/b/c": (FILE, None),
    },
    "echo x > folder/below/new": {"folder/below/new": (FILE, None)},
    "chmod 700 folder/below": {"folder/below": (DIRECTORY, DIRECTORY)},
    "rm -r folder": {"folder": (GONE, DIRECTORY)},
    "rm -r folder && mkdir folder && echo x > folder/x": {
        "folder": (DIRECTORY, DIRECTORY),
        "folder/x": (FILE, None),
    },
    "rm -r folder && echo x > folder": {"folder": (FILE, DIRECTORY)},
    "rm kept && mkdir kept": {"kept": (DIRECTORY, FILE)},
    "rm kept && ln -s gone kept": {"kept": (LINK, FILE)},
    "ln -sfn gone link": {"link": (LINK, LINK)},
    "rm link": {"link": (GONE, LINK)},
    "echo x > link": {"kept": (FILE, FILE)},
    "ln -s /etc/passwd out": {"out": (LINK, None)},
    "mkfifo pipe": {"pipe": (NodeKind.FIFO, None)},
    "ln kept twin": {"kept": (FILE, FILE), "twin": (FILE, None)},
    "touch new && rm new": {},
    "mkdir new && rmdir new": {},
    "mkdir dark && touch dark/x && chmod 0 dark": {
        "dark": (DIRECTORY, None),
        "dark/x": (FILE, None),
    },
    "touch \"$(printf 'a\\nb\\377')\"": {"a\nb\udcff": (FILE, None)},
    "mv folder else": {
        "else": (DIRECTORY, None),
        "else/below": (DIRECTORY, None),
        "else/below/deep": (FILE, None),
        "else/file": (FILE, None),
        "folder": (GONE, DIRECTORY),
    },
}


@pytest.mark.parametrize("line", CHANGES)
def test_every_change_is_read_and_nothing_else(room: Room, line: str):
    end, changes = room.run_and_read("/bin/sh", "-c", line)

    assert (end.ending, end.exit_code) == (Ending.EXITED, 0), complained(end)
    assert kinds(changes) == CHANGES[line]
    assert (room.workspace / "kept").read_text() == "old kept"
    assert sorted(os.listdir(room.workspace)) == [
        *("closed", "folder", "gone", "kept", "link", "moved"),
    ]


def test_a_change_says_how_both_sides_look(room: Room):
    _, changes = room.run_and_read(
        "/bin/sh", "-c", "umask 027; printf 12345 > kept; printf 1 > new"
    )

    below = os.stat(room.workspace / "kept")
    assert changes["kept"].lower == Look(status_from(below))
    kept, new = changes["kept"].upper, changes["new"].upper
    assert (kept.status.size_bytes, kept.mode, kept.status.uid, kept.status.gid) == (
        5,
        changes["kept"].lower.mode,
        below.st_uid,
        below.st_gid,
    )
    assert (new.mode, new.status.uid, new.status.gid) == (0o640, os.geteuid(), os.getegid())


def test_an_opaque_directory_says_that_its_old_content_is_gone(room: Room):
    _, changes = room.run_and_read(
        "/bin/sh", "-c", "rm -r folder && mkdir folder && mkdir brandnew"
    )

    assert changes["folder"].is_opaque
    assert not changes["brandnew"].is_opaque
    assert [path for path, _ in names_below(room.fd, "folder")] == [
        "folder/below",
        "folder/file",
        "folder/below/deep",
    ]


def test_a_mark_that_a_command_forges_is_no_mark(room: Room):
    code = "import os\nfor name in ('opaque', 'redirect', 'metacopy', 'whiteout'):\n try: os.setxattr('folder', 'user.overlay.' + name, b'y')\n except OSError: pass\nos.chmod('folder', 0o700); print('done')"
    end = room.python(code)
    request = room.request("/usr/bin/env", "python3", "-c", code)

    assert said(end) == "done\n"
    with room.launcher.open_stage(request.plan, room.fd) as stage:
        room.launcher.run(room.request("/bin/sh", "-c", "exit 0"), stage)
    from tests.support.sandboxes import PYTHON

    _, changes = room.run_and_read(PYTHON, "-c", code)
    assert [(path, change.is_opaque) for path, change in changes.items()] == [("folder", False)]


def test_hard_links_show_as_one_file(room: Room):
    _, changes = room.run_and_read("/bin/sh", "-c", "echo x > one; ln one two")

    one, two = changes["one"].upper, changes["two"].upper
    assert one.status.links == two.status.links == 2
    assert one.identity == two.identity


def test_owners_are_those_of_the_host(room: Room):
    end, changes = room.run_and_read("/bin/sh", "-c", "stat -c %u:%g kept; echo x >> kept")

    assert said(end) == f"{os.geteuid()}:{os.getegid()}\n"
    assert (changes["kept"].upper.status.uid, changes["kept"].upper.status.gid) == (
        os.geteuid(),
        os.getegid(),
    )


@pytest.mark.needs("root")
def test_started_as_root_a_command_is_nobody_of_the_host(room: Room):
    request = room.request("/bin/sh", "-c", "id -u; echo x > made; sleep 0.2")

    with room.launcher.open_stage(request.plan, room.fd) as stage:
        end = room.launcher.run(request, stage)
        upper = stage.open_upper()
        made = os.stat("made", dir_fd=upper)
        os.close(upper)

    assert said(end) == "0\n"
    assert (made.st_uid, made.st_gid) == (0x7A000000, 0x7A000000)


@pytest.mark.needs("root")
def test_started_as_root_files_of_root_in_a_private_directory_can_be_changed(room: Room):
    (room.workspace / "private").mkdir(mode=0o700)
    (room.workspace / "private/file").write_text("root's")
    (room.workspace / "private/file").chmod(0o600)

    end, changes = room.run_and_read(
        "/bin/sh", "-c", "cat private/file && echo new > private/file && rm closed"
    )

    assert said(end) == "root's"
    assert kinds(changes) == {"closed": (GONE, FILE), "private/file": (FILE, FILE)}
    assert changes["private/file"].upper.status.uid == 0


@pytest.mark.needs("root")
def test_started_as_root_a_file_of_another_user_can_be_moved_and_not_written(room: Room):
    os.chown(room.workspace / "kept", 1234, 1234)
    (room.workspace / "kept").chmod(0o644)

    end, changes = room.run_and_read(
        "/bin/sh",
        "-c",
        "stat -c %u kept; (echo x > kept) 2>/dev/null || echo refused; mv kept away",
    )

    assert said(end) == "1234\nrefused\n"
    assert changes["away"].upper.status.uid == 1234


def test_more_names_than_mounts_could_hide_are_hidden(room: Room):
    names = []
    for number in range(500):
        folder = room.workspace / f"many/{number % 20}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.key").write_text("secret")
        (folder / f"{number}.txt").write_text("open")
        names.append(f"many/{number % 20}/{number}.key")
    before = {path: os.stat(path).st_mtime_ns for path in room.workspace.rglob("*")}
    room.hidden = tuple(sorted(names))

    end, changes = room.run_and_read(
        "/bin/sh",
        "-c",
        "find many -name '*.key' | wc -l; find many -name '*.txt' | wc -l;"
        " wc -l < /proc/self/mountinfo; stat -c %a:%y many/3; rm many/3/3.txt",
    )

    keys, texts, mounts, look = said(end).splitlines()
    assert (keys, texts) == ("0", "500")
    assert int(mounts) < 64
    assert look.startswith("755:")
    assert kinds(changes) == {"many/3/3.txt": (GONE, FILE)}
    assert {path: os.stat(path).st_mtime_ns for path in room.workspace.rglob("*")} == before


def test_what_is_made_under_a_hidden_name_comes_with_what_really_stands_there(room: Room):
    (room.workspace / ".env").write_text("token")
    room.hidden = (".env", "folder/below")

    end, changes = room.run_and_read(
        "/bin/sh",
        "-c",
        "cat .env; ls -A; echo x > .env; mkdir folder/below; echo x > folder/below/y",
    )

    assert ".env" not in said(end)
    assert kinds(changes) == {
        ".env": (FILE, FILE),
        "folder/below/y": (FILE, None),
    }
    assert (room.workspace / ".env").read_text() == "token"


def hidden_layers(room: Room) -> list[Path]:
    return sorted((room.home / "staging").glob("launcher-*/hidden-*"))


def test_whiteouts_that_no_sandbox_uses_any_more_go(room: Room):
    (room.workspace / "d").mkdir(exist_ok=True)
    (room.workspace / "d/secret").write_text("TOKEN")
    room.hidden = ("d/secret",)
    for number in range(8):
        (room.workspace / f"d/new{number}").touch()
        end, _ = room.run_and_read("/bin/sh", "-c", "cat d/secret; ls d | wc -l")
        assert (said(end), "No such file" in complained(end)) == (f"{number + 1}\n", True)
    deadline = time.monotonic() + 60
    while len(hidden_layers(room)) > 4 and time.monotonic() < deadline:
        room.shell("true")

    assert 0 < len(hidden_layers(room)) <= 4


def test_a_hidden_name_that_appears_later_is_hidden_for_the_next_command(room: Room):
    assert "secret" not in said(room.shell("ls -A"))
    (room.workspace / "secret.key").write_text("k")
    room.hidden = ("secret.key",)

    assert "secret.key" not in said(room.shell("ls -A"))
    room.hidden = ()
    assert "secret.key" in said(room.shell("ls -A"))


def test_hiding_shows_a_directory_as_it_looks_now(room: Room):
    room.hidden = ("folder/file",)
    first = said(room.shell("stat -c %a folder"))
    (room.workspace / "folder").chmod(0o711)

    assert (first, said(room.shell("stat -c %a folder"))) == ("755\n", "711\n")


def test_a_file_that_others_change_between_commands_is_seen_by_the_next(room: Room):
    assert said(room.shell("cat kept")) == "old kept"
    (room.workspace / "kept").write_text("new kept")
    (room.workspace / "folder/later").write_text("later")

    # The sandbox for this one was made before.
    assert said(room.shell("cat kept folder/later")) == "new keptlater"


def test_the_workspace_may_be_swapped_for_a_link_and_nothing_else_is_reached(room: Room):
    elsewhere = room.home / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("private")
    real = room.home / "real"

    room.workspace.rename(real)
    os.symlink(elsewhere, room.workspace)
    swapped = [said(room.shell("cat kept")) for _ in range(3)]
    room.workspace.unlink()
    real.rename(room.workspace)

    # The descriptor counts, whatever the name leads to.
    assert swapped == ["old kept"] * 3


def test_the_workspace_is_swapped_all_the_time(room: Room):
    elsewhere = room.home / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("private")
    real, stop = room.home / "real", threading.Event()

    def swap() -> None:
        while not stop.is_set():
            room.workspace.rename(real)
            os.symlink(elsewhere, room.workspace)
            room.workspace.unlink()
            real.rename(room.workspace)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        seen = {said(room.shell("cat kept")) for _ in range(30)}
    finally:
        stop.set()
        swapping.join()

    assert seen == {"old kept"}


def test_the_root_directory_is_no_workspace(room: Room):
    plan = room.plan()
    from msgspec.structs import replace

    with pytest.raises(SandboxUnavailableError, match="root directory"):
        room.launcher.open_stage(replace(plan, workspace="/"), room.fd)


def test_nothing_of_a_stage_is_left_whatever_a_command_made(room: Room):
    room.shell(
        "mkdir -p dark/inner && touch dark/inner/x && chmod 0 dark/inner dark;"
        " i=0; while [ $i -lt 300 ]; do mkdir d && cd d; i=$((i+1)); done; mkfifo p; ln -s / l; touch \"$(printf '\\377')\""
    )
    end, changes = room.run_and_read("/bin/sh", "-c", "touch end")
    assert end.exit_code == 0
    assert list(changes) == ["end"]
    staging = room.home / "staging"
    room.launcher.close()

    assert os.listdir(staging) == []


def test_a_tree_deeper_than_is_read_is_said_to_be_so(room: Room):
    request = room.request(
        "/bin/sh", "-c", "i=0; while [ $i -lt 300 ]; do mkdir d && cd d; i=$((i+1)); done"
    )
    with room.launcher.open_stage(request.plan, room.fd) as stage:
        room.launcher.run(request, stage)
        upper = stage.open_upper()
        layer = read_changes(upper, room.fd)
        os.close(upper)

    assert len(layer.changes) == 256
    assert layer.too_deep == ["/".join(["d"] * 256)]
    assert layer.is_whole


def test_no_mount_of_the_host_is_left_in_a_sandbox(room: Room):
    end = room.shell("cut -d' ' -f5 /proc/self/mountinfo; ls /")

    text = said(end)
    plan = room.plan()
    allowed = {
        *("/", "/dev/shm", "/run", "/tmp", "/var/tmp", "/proc", "/proc/sys", "/dev/pts"),
        # Covered by an empty device.
        *("/proc/keys", "/proc/key-users"),
        *(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty")),
        *plan.readable,
        plan.workspace,
    }
    found = {line for line in text.splitlines() if line.startswith("/")}
    assert found - allowed == set()
    assert {"home", "root", "sys", "mnt", "boot"} & set(text.split()) <= {
        Path(path).parts[1] for path in (*plan.readable, plan.workspace)
    }
