"""What a command changed, and what of it the workspace has then: real commands, through the door."""

import fcntl
import hashlib
import json
import os
import re
import socket
import stat
import threading
from pathlib import Path

import pytest

from tests.support.disks import temporaries, tree
from tests.support.shells import (
    OPEN,
    Terminal,
    Yard,
    a_terminal,
    clear,
    hide,
    refused,
    wait_until,
    while_running,
)

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash")]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory):
    with a_terminal(tmp_path_factory.mktemp("yard")) as terminal:
        yield terminal


@pytest.fixture
def terminal(shared: Terminal):
    """The same door, on a tree that is as new."""
    clear(shared.yard.root)
    shared.yard.write({"a": "old a\n", "d/x": "x\n", "d/e/y": "y\n", "k.pem": "key\n"})
    return shared


def sha(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def lay(root: Path) -> dict[str, object]:
    return {name: what for name, what in tree(root).items() if name != "paddock.toml"}


BEFORE = {
    "a": b"old a\n",
    "d": None,
    "d/x": b"x\n",
    "d/e": None,
    "d/e/y": b"y\n",
    "k.pem": b"key\n",
}

LANDS = {
    "a new file": ("echo n > n", {"n": b"n\n"}, [], ["n"]),
    "a new tree": (
        "mkdir -p n/m && echo 1 > n/m/f",
        {"n": None, "n/m": None, "n/m/f": b"1\n"},
        [],
        ["n", "n/m", "n/m/f"],
    ),
    "another content": ("echo new > a", {"a": b"new\n"}, [], ["a"]),
    "appended": ("echo more >> a", {"a": b"old a\nmore\n"}, [], ["a"]),
    "a rename over": ("echo z > z && mv z a", {"a": b"z\n"}, [], ["a"]),
    "a rename": ("mv a b", {"b": b"old a\n"}, ["a"], ["a", "b"]),
    "a removal": ("rm a", {}, ["a"], ["a"]),
    "a directory that goes": (
        "rm -r d",
        {},
        ["d", "d/x", "d/e", "d/e/y"],
        ["d", "d/e", "d/e/y", "d/x"],
    ),
    "a directory that is renamed": (
        "mv d D",
        {"D": None, "D/x": b"x\n", "D/e": None, "D/e/y": b"y\n"},
        ["d", "d/x", "d/e", "d/e/y"],
        ["D", "D/e", "D/e/y", "D/x", "d", "d/e", "d/e/y", "d/x"],
    ),
    "a directory made anew, opaque all the way down": (
        "rm -r d && mkdir -p d/e && echo z > d/e/z",
        {"d/e/z": b"z\n"},
        ["d/x", "d/e/y"],
        ["d/e/y", "d/e/z", "d/x"],
    ),
    "a directory made anew as it was": (
        "rm -r d && mkdir -p d/e && echo x > d/x && echo other > d/e/y",
        {"d/e/y": b"other\n"},
        [],
        ["d/e/y", "d/x"],
    ),
    "a file where a directory was, in a directory made anew": (
        "rm -r d && mkdir d && echo file > d/e && echo n > n",
        {"d/e": b"file\n", "n": b"n\n"},
        ["d/x", "d/e/y"],
        ["d/e", "d/e/y", "d/x", "n"],
    ),
    "a link where a directory was, in a directory made anew": (
        "rm -r d && mkdir d && ln -s ../a d/e && echo x > d/x",
        {"d/e": "-> ../a"},
        ["d/e/y"],
        ["d/e", "d/e/y", "d/x"],
    ),
    "a file where a directory was": (
        "rm -r d && echo file > d",
        {"d": b"file\n"},
        ["d/x", "d/e", "d/e/y"],
        ["d", "d/e", "d/e/y", "d/x"],
    ),
    "a directory where a file was": (
        "rm a && mkdir a && echo in > a/f",
        {"a": None, "a/f": b"in\n"},
        [],
        ["a", "a/f"],
    ),
    "a link": ("ln -s d/x l", {"l": "-> d/x"}, [], ["l"]),
    "a link over a file": ("ln -sf d/x a", {"a": "-> d/x"}, [], ["a"]),
    "a hard link, as a file of its own": (
        "ln a h && echo two > h",
        {"a": b"two\n", "h": b"two\n"},
        [],
        ["a", "h"],
    ),
    "a mode": ("chmod 755 a", {}, [], ["a"]),
    "a mode of a directory": ("chmod 700 d", {}, [], ["d"]),
    "nothing that was only looked at": ("cat a d/x; : >> a; ls -R", {}, [], []),
    "nothing that was made and removed": ("echo t > t && rm t && mkdir u && rmdir u", {}, [], []),
    "nothing that is as it was": ("cp -p a b && cp -p b a && rm b", {}, [], []),
}


@pytest.mark.parametrize("name", LANDS)
def test_what_policy_allows_lands_and_nothing_else_changes(terminal: Terminal, name: str):
    line, new, gone, changed = LANDS[name]
    said = terminal.run(line)

    assert (said["exit_code"], said["changes_refused"]) == (0, []), said
    assert lay(terminal.yard.root) == {k: v for k, v in {**BEFORE, **new}.items() if k not in gone}
    assert said["files_changed"] == changed
    assert temporaries(terminal.yard.root) == []


REFUSED = {
    "a new protected file": ("echo n > n.pem", ["n.pem"]),
    "another content of it": ("echo n > k.pem", ["k.pem"]),
    "its removal": ("rm k.pem", ["k.pem"]),
    "its mode": ("chmod 777 k.pem", ["k.pem"]),
    "its time": ("touch -d @1 k.pem", ["k.pem"]),
    "a rename over it": ("echo n > n && mv n k.pem", ["k.pem"]),
    "a new protected file in a new tree": (
        "mkdir -p n/m && echo k > n/m/x.PEM && rmdir n/m n || true; mv n/m/x.PEM n.PEM; rmdir n/m n",
        ["n.PEM"],
    ),
    "a protected directory": ("mkdir q.pem && echo k > q.pem/f", ["q.pem", "q.pem/f"]),
    "a protected link": ("ln -s a n.pem", ["n.pem"]),
    "a link out": ("ln -s /etc/shadow l; ln -s ../../x m", ["l", "m"]),
    "a link to a secret": ("ln -s .env l", ["l"]),
    "a FIFO": ("mkfifo p", ["p"]),
    "a setuid bit": ("cp /bin/true t && chmod u+s t 2>/dev/null; rm -f t; mkfifo q", ["q"]),
    "a directory that its owner cannot enter": ("mkdir n && chmod 000 n", ["n"]),
    "a policy": ("echo > d/paddock.toml", ["d/paddock.toml"]),
    "a name that is none": ("echo > $'new\\nline'; echo > $'\\xff'", ["\\xff", "new\\nline"]),
    "a temporary name of ours": (
        "echo > .paddock-00000000000000000000000000000000.tmp",
        [".paddock-00000000000000000000000000000000.tmp"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_policy_forbids_is_reported_and_does_not_land(terminal: Terminal, name: str):
    line, paths = REFUSED[name]
    said = terminal.sneak(line)

    assert lay(terminal.yard.root) == BEFORE
    assert sorted(refused(said)) == paths
    assert not [path for path in said["files_changed"] if path in paths]


def test_a_directory_does_not_land_without_its_sticky_bit(terminal: Terminal):
    root = terminal.yard.root
    said = terminal.sneak(
        "mkdir -m 1777 t; chmod 1777 d; chmod +t d/e; rm a; mkdir -m 1777 a; echo n > n"
    )

    why = "would lose the sticky bit that the command set, and so be more open"
    assert said["files_changed"] == ["a", "n"]
    assert refused(said) == {name: f"'{name}' {why}" for name in ("a", "d", "d/e", "t")}
    assert modes_of(root, "d", "d/e") == {"d": 0o755, "d/e": 0o755}
    assert not any((root / name).exists() for name in ("a", "t"))


def test_what_is_in_a_directory_with_a_sticky_bit_lands_in_a_usual_one(terminal: Terminal):
    said = terminal.sneak("mkdir -m 1777 t; echo x > t/x")

    assert (said["files_changed"], refused(said)) == (["t", "t/x"], {})
    assert modes_of(terminal.yard.root, "t", "t/x") == {"t": 0o755, "t/x": 0o644}


def test_a_directory_keeps_the_sticky_bit_that_it_had(terminal: Terminal):
    root = terminal.yard.root
    os.chmod(root / "d", 0o1755)
    os.chmod(root / "d/e", 0o1755)
    said = terminal.sneak("chmod 1777 d; chmod 777 d/e; echo n > d/n")

    assert (said["files_changed"], refused(said)) == (["d", "d/e", "d/n"], {})
    assert modes_of(root, "d", "d/e") == {"d": 0o1777, "d/e": 0o1777}


def test_what_is_allowed_lands_beside_what_is_refused(terminal: Terminal):
    said = terminal.sneak("mkdir n && echo 1 > n/ok && echo 2 > n/no.pem && rm -r d && rm k.pem")

    assert lay(terminal.yard.root) == {
        "a": b"old a\n", "k.pem": b"key\n", "n": None, "n/ok": b"1\n",
    }  # fmt: skip
    assert list(refused(said)) == ["k.pem", "n/no.pem"]
    assert refused(said)["k.pem"].startswith("*.pem (paths.protected")


def test_a_directory_stays_where_something_in_it_has_to_stay(terminal: Terminal):
    terminal.yard.write({"d/in.pem": "k"})
    said = terminal.sneak("rm -rf d; echo $?")

    assert sorted(refused(said)) == ["d", "d/in.pem"]
    assert lay(terminal.yard.root) == {
        "a": b"old a\n", "d": None, "d/in.pem": b"k", "k.pem": b"key\n",
    }  # fmt: skip


def test_what_takes_the_place_of_what_has_to_stay_does_not_land(terminal: Terminal):
    terminal.yard.write({"d/in.pem": "k"})
    said = terminal.sneak("rm -rf d && echo file > d; rm k.pem && mkdir k.pem && echo 1 > k.pem/x")

    assert set(refused(said)) == {"d", "d/in.pem", "k.pem", "k.pem/x"}
    assert (terminal.yard.root / "d/in.pem").read_text() == "k"
    assert (terminal.yard.root / "k.pem").read_text() == "key\n"


def make_special(path: Path, kind: str) -> None:
    if kind == "FIFO":
        os.mkfifo(path)
    else:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(os.path.relpath(path))


@pytest.mark.parametrize("kind", ["FIFO", "socket"])
@pytest.mark.parametrize("line", ["echo x > d/s", "ln -s x d/s", "mkdir d/s", "true"])
def test_a_special_file_keeps_its_place_and_the_rest_lands(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, kind: str, line: str
):
    root = terminal.yard.root
    monkeypatch.chdir(root)
    make_special(root / "d/s", kind)
    before = os.lstat(root / "d/s")
    said = terminal.sneak(f"rm d/s; {line}; echo n > n")

    whys = ["'d/s' is a FIFO, socket or device", "'d/s' would replace a kept entry"]
    assert said["files_changed"] == ["n"]
    assert said["changes_refused"] == [
        {"path": "d/s", "rule": why} for why in (whys[:1] if line == "true" else whys)
    ]
    assert os.lstat(root / "d/s") == before


@pytest.mark.needs("git")
def test_a_special_file_in_a_repository_holds_back_what_would_replace_it(terminal: Terminal):
    root = terminal.yard.root
    terminal.yard.git("init", "-q", "-b", "main", ".")
    os.mkfifo(root / ".git/ORIG_HEAD")
    said = terminal.sneak(f"cd .git; rm ORIG_HEAD; echo {'0' * 40} > ORIG_HEAD; echo n > ../n")

    assert (said["files_changed"], list(refused(said))) == (["n"], [".git/ORIG_HEAD"])
    assert stat.S_ISFIFO(os.lstat(root / ".git/ORIG_HEAD").st_mode)


def test_in_a_directory_made_anew_what_has_to_stay_keeps_its_place_and_the_rest_lands(
    terminal: Terminal,
):
    terminal.yard.write({"d/e/in.pem": "k"})
    said = terminal.sneak("rm -rf d && mkdir d && echo file > d/e; echo n > n")

    assert set(refused(said)) == {"d/e", "d/e/in.pem"}
    assert said["files_changed"] == ["d/e/y", "d/x", "n"]
    assert lay(terminal.yard.root) == {
        "a": b"old a\n", "d": None, "d/e": None, "d/e/in.pem": b"k", "k.pem": b"key\n", "n": b"n\n",
    }  # fmt: skip


def test_a_secret_in_a_directory_that_is_removed_stays_and_is_not_named(terminal: Terminal):
    terminal.yard.write({"d/.env.prod": "token"})
    said = terminal.sneak("ls -A d; rm -rf d")

    assert said["stdout"] == "e\nx\n"
    assert list(refused(said)) == ["d"]
    assert "env.prod" not in json.dumps(said)
    assert (terminal.yard.root / "d/.env.prod").read_text() == "token"


def test_a_secret_cannot_be_read_moved_or_linked(terminal: Terminal):
    terminal.yard.write({"d/.env": "token", "s.key": "token"})
    said = terminal.sneak(
        "cat d/.env s.key; mv d/.env d/q; ln s.key t; cat < s.key > u; python3 -c 'print(open(\"s.key\").read())'"
    )

    assert "token" not in said["stdout"] + said["stderr"]
    assert (terminal.yard.root / "d/.env").read_text() == "token"
    assert said["files_changed"] == []


def test_modes_and_times_are_kept(terminal: Terminal):
    terminal.sneak(
        "echo s > s.sh && chmod 750 s.sh && touch -d @1000000000 s.sh; mkdir -m 711 m && touch -d @1000000001 m; ln -s a l && touch -h -d @1000000002 l; touch -d @1000000003 a"
    )

    found = {name: os.lstat(terminal.yard.root / name) for name in ("s.sh", "m", "l", "a")}
    assert {name: int(look.st_mtime) - 1_000_000_000 for name, look in found.items()} == {
        "s.sh": 0, "m": 1, "l": 2, "a": 3,
    }  # fmt: skip
    assert stat.S_IMODE(found["s.sh"].st_mode) == 0o750
    assert stat.S_IMODE(found["m"].st_mode) == 0o711


def test_what_was_replaced_keeps_its_owner_and_what_is_new_is_ours(terminal: Terminal):
    root = terminal.yard.root
    os.chmod(root / "a", 0o640)
    terminal.sneak("echo n > a && echo n > n && chmod 644 a && mkdir m")

    for name in ("a", "n", "m"):
        found = os.lstat(root / name)
        assert (found.st_uid, found.st_gid) == (os.geteuid(), os.getegid()), name
        assert not os.listxattr(root / name)


@pytest.mark.needs("root")
def test_started_as_root_the_file_of_another_keeps_its_owner(terminal: Terminal):
    path = terminal.yard.root / "a"
    os.chmod(path, 0o666)
    os.chown(path, 1234, 1235)
    said = terminal.sneak("echo theirs > a; stat -c %u a")

    assert (path.read_text(), said["stdout"]) == ("theirs\n", "1234\n")
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 1235)


def test_a_read_only_file_can_be_replaced_and_removed_as_in_any_shell(terminal: Terminal):
    root = terminal.yard.root
    for name in ("a", "d/x"):
        os.chmod(root / name, 0o444)
    said = terminal.sneak("rm -f d/x; echo n > n && mv -f n a")

    assert said["files_changed"] == ["a", "d/x"]
    assert (root / "a").read_text() == "n\n"


PROTECTED = {
    "a rename": ("mv r s", {"s": 0o444}),
    "a rename into a new directory": ("mkdir t; mv r t/", {"t": 0o755, "t/r": 0o444}),
    "another content, made read-only": ("echo y >> a; chmod 444 a", {"a": 0o444}),
    "a new read-only file": ("echo y > s; chmod 400 s", {"s": 0o400}),
    "a file in a directory that its command closed": (
        "mkdir t; echo x > t/x; chmod 555 t",
        {"t": 0o755, "t/x": 0o644},
    ),
    "all of a tree made read-only": (
        "mkdir -p t/u; echo x > t/u/x; chmod -R a-w t",
        {"t": 0o755, "t/u": 0o755, "t/u/x": 0o444},
    ),
    "a directory that cannot even be searched": (
        "mkdir t; echo x > t/x; chmod 444 t",
        {"t": 0o755, "t/x": 0o644},
    ),
}


@pytest.mark.parametrize("name", PROTECTED)
def test_what_is_read_only_lands_with_its_mode_and_the_rest_with_it(terminal: Terminal, name: str):
    root = terminal.yard.root
    (root / "r").write_text("kept\n")
    (root / "r").chmod(0o444)
    line, modes = PROTECTED[name]
    said = terminal.sneak(f"{line}; echo n > n")

    assert ("conflict" in said, said["changes_refused"]) == (False, []), said
    assert {"n", *modes} <= {*said["files_changed"]}
    assert {path: stat.S_IMODE(os.lstat(root / path).st_mode) for path in modes} == modes
    assert not [path for path in modes if os.listxattr(root / path)]
    assert terminal.yard.cli("undo", terminal.yard.calls()[-1]["call"]).status == 0
    assert stat.S_IMODE(os.lstat(root / "r").st_mode) == 0o444
    assert lay(root) == {**BEFORE, "r": b"kept\n"}


def test_a_read_only_directory_alone_is_refused_and_the_rest_lands(terminal: Terminal):
    said = terminal.sneak("mkdir t; chmod 555 t; echo n > n")

    assert said["files_changed"] == ["n"]
    assert refused(said) == {"t": "'t' would be closed to its owner: 0555"}
    assert lay(terminal.yard.root) == {**BEFORE, "n": b"n\n"}


@pytest.mark.needs("plain_user")
@pytest.mark.parametrize("path", ["d/x", "d/n", "d/n/m", "d/n/m/l"])
@pytest.mark.parametrize("after", ["", "chmod u-w d;"])
def test_what_a_command_does_in_a_read_only_directory_is_refused_alone(
    terminal: Terminal, path: str, after: str
):
    root = terminal.yard.root
    (root / "d").chmod(0o555)
    said = terminal.sneak(
        f"chmod u+w d; mkdir -p $(dirname {path}); echo n > {path}; {after} echo n > d/e/y; echo n > a"
    )
    mode = stat.S_IMODE((root / "d").stat().st_mode)
    (root / "d").chmod(0o755)

    paths = [path, *(f"{above}" for above in ("d/n", "d/n/m") if path.startswith(f"{above}/"))]
    assert "conflict" not in said
    assert refused(said) == {
        each: f"'{each}' is in 'd', where this user may not write" for each in paths
    }
    assert mode == (0o555 if after else 0o755)
    assert lay(root) == {**BEFORE, "a": b"n\n", "d/e/y": b"n\n"}


@pytest.mark.needs("plain_user")
def test_a_read_only_directory_is_removed_with_what_is_in_it(terminal: Terminal):
    (terminal.yard.root / "d").chmod(0o555)
    said = terminal.sneak("chmod u+w d; rm -r d; echo n > a")

    assert (refused(said), "conflict" in said) == ({}, False)
    assert lay(terminal.yard.root) == {"a": b"n\n", "k.pem": b"key\n"}


@pytest.mark.needs("plain_user")
def test_a_read_only_directory_stays_whole_where_something_in_it_has_to_stay(terminal: Terminal):
    root = terminal.yard.root
    terminal.yard.write({"d/k.pem": "key\n"})
    (root / "d").chmod(0o555)
    said = terminal.sneak("chmod u+w d; rm -r d; echo n > a")
    (root / "d").chmod(0o755)

    assert "conflict" not in said
    assert sorted(refused(said)) == ["d", "d/e", "d/k.pem", "d/x"]
    kept = {name: what for name, what in BEFORE.items() if name != "d/e/y"}
    assert lay(root) == {**kept, "a": b"n\n", "d/k.pem": b"key\n"}


@pytest.mark.needs("plain_user")
@pytest.mark.parametrize("line", ["chmod 600 a; echo n > a", "rm -f a", "chmod 600 a"])
def test_a_file_that_cannot_be_kept_stays_and_the_rest_lands(terminal: Terminal, line: str):
    root = terminal.yard.root
    (root / "a").chmod(0)
    said = terminal.sneak(f"{line}; echo n > d/x")
    mode = stat.S_IMODE((root / "a").stat().st_mode)
    (root / "a").chmod(0o644)

    assert (mode, "conflict" in said) == (0, False)
    assert refused(said) == {"a": "'a' could not be kept in the history: this user may not read it"}
    assert lay(root) == {**BEFORE, "d/x": b"n\n"}


@pytest.mark.needs("plain_user")
def test_a_directory_that_may_not_be_entered_is_not_there_for_a_command(terminal: Terminal):
    root = terminal.yard.root
    (root / "d").chmod(0o400)
    said = terminal.sneak("chmod u+rwx d || echo none; rm -rf d; echo n > a")
    (root / "d").chmod(0o755)

    assert (said["stdout"], refused(said), "conflict" in said) == ("none\n", {}, False)
    assert lay(root) == {**BEFORE, "a": b"n\n"}


@pytest.mark.parametrize("mode", [0o000, 0o500, 0o700, 0o1777])
def test_the_workspaces_own_mode_stays_and_what_a_command_did_lands(terminal: Terminal, mode: int):
    root = terminal.yard.root
    root.chmod(0o755)
    said = terminal.sneak(f"echo n > a; chmod {mode:o} .")

    assert (said["exit_code"], said["files_changed"], "conflict" in said) == (0, ["a"], False)
    assert refused(said) == {
        ".": f"the workspace itself keeps its mode: the command set {mode:04o}"
    }
    assert stat.S_IMODE(root.stat().st_mode) == 0o755
    assert lay(root) == {**BEFORE, "a": b"n\n"}
    assert refused(terminal.sneak("chmod 700 .; echo m > a; chmod 755 .")) == {}


def test_a_mode_that_somebody_gave_the_workspace_is_nobodys_change(terminal: Terminal):
    root = terminal.yard.root
    terminal.sneak("true")
    root.chmod(0o751)
    said = terminal.sneak("stat -c %a . > a")
    root.chmod(0o755)

    assert (refused(said), (root / "a").read_text()) == ({}, "751\n")


@pytest.mark.needs("git")
def test_a_closed_directory_of_a_repository_lands_with_its_own_mode(terminal: Terminal):
    root = terminal.yard.root
    terminal.yard.git("init", "-q", "-b", "main", ".")
    said = terminal.sneak(
        f"cd .git/refs/heads; mkdir x; echo {'0' * 40} > x/m; chmod 555 x; echo n > ../../../n"
    )

    assert said["files_changed"] == [".git/refs/heads/x", ".git/refs/heads/x/m", "n"], said
    made = root / ".git/refs/heads/x"
    assert stat.S_IMODE(made.stat().st_mode) == 0o555
    made.chmod(0o755)  # as other tests find it


def test_effects_are_on_record_with_their_versions(terminal: Terminal):
    terminal.sneak("echo new > a && rm d/x && mkdir n && ln -s a l")
    [*_, entry] = terminal.yard.entries("TOOL_RESULT")

    assert entry["metadata"]["effects"] == [
        {
            "path": "a",
            "kind": "overwritten",
            "before": sha("old a\n"),
            "after": sha("new\n"),
            "mode_after": "0644",
        },
        {"path": "d/x", "kind": "deleted", "before": sha("x\n"), "after": None, "mode": "0644"},
        {"path": "l", "kind": "created", "before": None, "after": sha("a"), "entry": "link"},
        {
            "path": "n",
            "kind": "created",
            "before": None,
            "after": None,
            "entry": "directory",
            "mode_after": "0755",
        },
    ]
    assert entry["metadata"]["bytes_written"] == 4


def test_what_policy_did_not_let_stand_is_on_record_and_found_by_its_path(terminal: Terminal):
    terminal.sneak("echo k > n.pem; rm k.pem; echo fine > n")
    [*_, entry] = terminal.yard.entries("TOOL_RESULT")

    refused_paths = [each["path"] for each in entry["metadata"]["refused"]]
    assert (refused_paths, entry["metadata"]["refused_total"]) == (["k.pem", "n.pem"], 2)
    assert {each["code"] for each in entry["metadata"]["refused"]} == {"policy.protected"}
    assert [each["path"] for each in entry["metadata"]["effects"]] == ["n"]
    assert "rule" in entry["metadata"]["refused"][0]


def test_everything_that_a_command_did_is_undone_as_one(terminal: Terminal):
    root = terminal.yard.root
    os.chmod(root / "d/x", 0o640)
    os.symlink("a", root / "old")
    before = lay(root)
    terminal.sneak(
        "echo new > a; rm -r d; mkdir -p n/m; echo 1 > n/m/f; ln -sf n old; chmod 600 paddock.toml;"
        "echo only > k2; mkdir d; echo again > d/z"
    )
    assert lay(root) != before
    call = terminal.yard.calls()[-1]["call"]
    ran = terminal.yard.cli("undo", call)

    assert ran.status == 0, ran.err
    assert lay(root) == before
    assert stat.S_IMODE(os.lstat(root / "d/x").st_mode) == 0o640
    again = terminal.yard.calls()[-1]["call"]
    assert terminal.yard.cli("undo", again).status == 0
    assert (root / "d/z").read_text() == "again\n"


@pytest.mark.parametrize("line", ["chmod 750 a d", "chmod 750 d; touch -d @1 a; echo > d/q"])
def test_changes_of_mode_and_time_are_undone(terminal: Terminal, line: str):
    root = terminal.yard.root
    modes = [stat.S_IMODE(os.lstat(root / name).st_mode) for name in ("a", "d")]
    terminal.sneak(line)
    ran = terminal.yard.cli("undo", terminal.yard.calls()[-1]["call"])

    assert ran.status == 0, ran.err
    assert lay(root) == BEFORE
    assert [stat.S_IMODE(os.lstat(root / name).st_mode) for name in ("a", "d")] == modes


def test_more_effects_than_an_entry_holds_are_kept_whole_and_undone(terminal: Terminal):
    before = lay(terminal.yard.root)
    said = terminal.sneak("mkdir n; for i in $(seq 300); do echo $i > n/$i; done; rm -r d")
    [*_, entry] = terminal.yard.entries("TOOL_RESULT")

    assert len(said["files_changed"]) == 305
    assert len(entry["metadata"]["effects"]) == 50
    assert entry["metadata"]["effects_stored"]["total"] == 305
    call = terminal.yard.calls()[-1]
    assert len(call["changes"]) == 305
    assert terminal.yard.cli("undo", call["call"]).status == 0
    assert lay(terminal.yard.root) == before
    assert len(terminal.yard.calls()[-1]["changes"]) == 305
    # What an undo would do is no less, and its intent names the first of it.
    *_, intent = terminal.yard.entries("TOOL_INTENT")
    assert (intent["metadata"]["tool"], intent["metadata"]["actions_total"]) == ("undo", 305)
    assert intent["metadata"]["actions"][50:] == ["255 more actions"]
    assert terminal.yard.cli("undo", terminal.yard.calls()[-1]["call"]).status == 0
    assert (terminal.yard.root / "n/300").read_text() == "300\n"


@pytest.mark.parametrize(
    "line",
    [
        "rm -r d; ln -s b d",
        "rm -r d; ln -s d d",
        "rm -r d; ln -s /usr d",
        "rm -r d; echo flat > d",
        "rm -r d; mkdir d; echo flat > d/e",
        "rm -r d; mkdir d; ln -s . d/e",
        "mv d moved; ln -s moved d",
    ],
)
def test_a_directory_that_gave_way_to_a_link_or_a_file_comes_back(terminal: Terminal, line: str):
    root = terminal.yard.root
    terminal.sneak(line)
    after = lay(root)
    call = terminal.yard.calls()[-1]
    undone = terminal.yard.cli("undo", call["call"])

    assert (call["standing"], undone.status) == ("yes", 0), undone.err
    assert lay(root) == BEFORE
    assert terminal.yard.cli("undo", terminal.yard.calls()[-1]["call"]).status == 0
    assert lay(root) == after


@pytest.mark.parametrize("number", [0o700, 0o755, 0o644, 0o777])
def test_what_gave_way_to_another_kind_comes_back_with_its_permissions(
    terminal: Terminal, number: int
):
    root = terminal.yard.root
    mode = f"{number:o}"
    terminal.sneak(f"mkdir p; echo s > p/s; echo r > run; echo l > l; chmod {mode} run l")
    os.chmod(root / "p", number | 0o700)
    before = lay(root), modes_of(root, "p", "run", "l")
    terminal.sneak(
        f"rm -r p; echo f > p; chmod {mode} p; rm run; mkdir -m 7{mode[1:]} run; ln -sf a l"
    )
    after = lay(root), modes_of(root, "p", "run", "l")

    assert after[1] == {"p": number, "run": number | 0o700, "l": 0o777}
    assert terminal.yard.cli("undo", terminal.yard.calls()[-1]["call"]).status == 0
    assert (lay(root), modes_of(root, "p", "run", "l")) == before
    assert terminal.yard.cli("undo", terminal.yard.calls()[-1]["call"]).status == 0
    assert (lay(root), modes_of(root, "p", "run", "l")) == after


def modes_of(root: Path, *names: str) -> dict[str, int]:
    return {name: stat.S_IMODE(os.lstat(root / name).st_mode) for name in names}


def test_a_mode_that_a_person_set_since_is_told_and_not_overwritten(terminal: Terminal):
    root = terminal.yard.root
    terminal.sneak("chmod 755 a")
    os.chmod(root / "a", 0o600)
    ran = terminal.yard.cli("undo", terminal.yard.calls()[-1]["call"])

    assert (ran.status, "the mode of 'a' (0600, the call left 0755)" in ran.err) == (1, True)
    assert "mode 0600 now, 0755 after the call" in ran.out
    assert stat.S_IMODE(os.lstat(root / "a").st_mode) == 0o600


# Somebody else


CONFLICTS = {
    "a file that it changed": (
        "echo mine > a",
        lambda root: (root / "a").write_text("theirs\n"),
        "a",
    ),
    "a file that it removed": ("rm a", lambda root: (root / "a").write_text("theirs\n"), "a"),
    "a file that it made": ("echo mine > n", lambda root: (root / "n").write_text("theirs\n"), "n"),
    "a file in a directory that it removed": (
        "rm -r d",
        lambda root: (root / "d/theirs").write_text("theirs\n"),
        "d/theirs",
    ),
    "a mode of a file that it changed": (
        "echo mine > a",
        lambda root: os.chmod(root / "a", 0o600),
        "a",
    ),
    "the same length and time": (
        "echo mine! > a",
        lambda root: ((root / "a").write_text("old b\n"), os.utime(root / "a", ns=(0, 0))),
        "a",
    ),
}


@pytest.mark.parametrize("name", CONFLICTS)
def test_what_somebody_else_changed_meanwhile_refuses_the_whole_set(terminal: Terminal, name: str):
    line, act, path = CONFLICTS[name]
    root = terminal.yard.root
    said = while_running(terminal, f"{line}; echo other > other", lambda: act(root))

    assert said["files_changed"] == []
    assert not (root / "other").exists()
    assert path in said["conflict"]
    assert "other" in refused(said)
    assert (root / "d/x").exists()


def test_a_file_that_somebody_removed_meanwhile_does_not_come_back(terminal: Terminal):
    root = terminal.yard.root
    # Opened and written before it is gone: the overlay has its copy.
    said = while_running(terminal, "echo mine >> a", (root / "a").unlink, before="echo first >> a")

    assert said["files_changed"] == []
    assert "'a'" in said["conflict"]
    assert not (root / "a").exists()


def test_what_others_change_elsewhere_is_no_conflict(terminal: Terminal):
    root = terminal.yard.root
    said = while_running(
        terminal, "echo mine > a; echo n > d/n", lambda: (root / "d/theirs").write_text("t\n")
    )

    assert said["files_changed"] == ["a", "d/n"]
    assert (root / "d/theirs").read_text() == "t\n"


def test_what_was_changed_just_before_is_no_conflict(terminal: Terminal):
    for number in range(5):
        terminal.call("create_file", path="a", content=f"{number}\n")
        said = terminal.run(f"echo {number} >> a")
        assert said["files_changed"] == ["a"], said


def test_calls_at_once_have_stages_of_their_own_and_all_land(terminal: Terminal):
    found: list[dict] = []
    threads = [
        threading.Thread(
            target=lambda n=n: found.append(terminal.run(f"echo {n} > f{n}; sleep 0.1; ls f*"))
        )
        for n in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(said["files_changed"] for said in found) == [[f"f{n}"] for n in range(6)]
    assert sorted(p.name for p in terminal.yard.root.glob("f*")) == [f"f{n}" for n in range(6)]


def waiting_for(directory: Path) -> int:
    """How many descriptors of this process read the directory: whoever wants its lock does."""
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            leads_there = os.readlink(f"/proc/self/fd/{fd}") == str(directory)
            about = Path(f"/proc/self/fdinfo/{fd}").read_text() if leads_there else ""
        except OSError:
            continue
        flags = re.search(r"flags:\s+(\d+)", about)
        found += flags is not None and not int(flags[1], 8) & os.O_PATH
    return found


def test_commands_at_once_do_not_make_an_armed_repository_together(terminal: Terminal):
    repository = terminal.yard.root / "repo"
    repository.mkdir()
    lines = (
        "mkdir repo/hooks; echo x > repo/hooks/pre-commit; echo x > repo/config",
        "mkdir repo/objects repo/refs; echo 'ref: refs/heads/main' > repo/HEAD",
    )
    found: list[dict] = []
    threads = [
        threading.Thread(target=lambda line=line: found.append(terminal.run(line)))
        for line in lines
    ]
    # Both are judged on the tree as it is now, and then wait for us.
    held = os.open(repository, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    for thread in threads:
        thread.start()
    wait_until(lambda: waiting_for(repository) == 3)
    os.close(held)
    for thread in threads:
        thread.join()

    kept, lost = sorted(found, key=lambda said: not said["files_changed"])
    assert {Path(name).name for name in kept["files_changed"]} >= set(os.listdir(repository))
    assert (lost["files_changed"], set(os.listdir(repository))) in [
        ([], {"config", "hooks"}),
        ([], {"HEAD", "objects", "refs"}),
    ]
    assert "is not committed by the git preset as the workspace is now" in lost["conflict"]


def test_a_directory_that_was_exchanged_after_the_last_look_gets_nothing(terminal: Terminal):
    directory = terminal.yard.root / "d"
    found: list[dict] = []
    thread = threading.Thread(target=lambda: found.append(terminal.run("echo n > d/n")))
    held = os.open(directory, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    thread.start()
    wait_until(lambda: waiting_for(directory) == 2)
    directory.rename(terminal.yard.root / "old")
    directory.mkdir()
    os.close(held)
    thread.join()

    assert (found[0]["files_changed"], os.listdir(directory)) == ([], [])
    assert "another process changed 'd'" in found[0]["conflict"]
    assert sorted(os.listdir(terminal.yard.root / "old")) == ["e", "x"]


# Limits and settings of the policy


def test_all_or_nothing_is_also_said_of_the_workspaces_own_mode(tmp_path: Path):
    with a_terminal(tmp_path, OPEN + '[shell]\ncommit = "all"\n') as terminal:
        said = terminal.sneak("echo n > a; chmod 700 .")
    assert sorted(refused(said)) == [".", "a"]
    assert not (tmp_path / "project/a").exists()


def test_where_policy_says_so_one_refused_file_keeps_all_others_out(tmp_path: Path):
    with a_terminal(tmp_path, OPEN + '[shell]\ncommit = "all"\n') as terminal:
        said = terminal.sneak("echo 1 > one; echo 2 > two.key")
        assert said["files_changed"] == []
        assert set(refused(said)) == {"one", "two.key"}
        assert terminal.run("echo 1 > one; echo 2 > two")["files_changed"] == ["one", "two"]


COMMIT = "git add n && git -c user.name=T -c user.email=t@e.org commit -qm one"


@pytest.mark.needs("git")
@pytest.mark.parametrize(
    ("preset", "protected", "lands"),
    [
        ("safe", '[".git/"]', {"HEAD": True, "config": False, "hooks/x": False}),
        ("read-only", "[]", {"HEAD": False, "config": False, "hooks/x": False}),
        ("none", '[".git/"]', {"HEAD": False, "config": False, "hooks/x": False}),
        ("none", "[]", {"HEAD": True, "config": True, "hooks/x": True}),
    ],
)
def test_what_of_a_repository_lands_is_up_to_the_preset(tmp_path, preset, protected, lands):
    policy = f'[paths]\nprotected = {protected}\n{OPEN}[shell]\ngit = "{preset}"\n'
    with a_terminal(tmp_path, policy) as terminal:
        yard = terminal.yard
        yard.git("init", "-q", "-b", "main", ".")
        yard.write({"n": "n\n"})
        terminal.sneak(COMMIT)
        terminal.sneak("git config core.fsmonitor evil; echo evil > .git/hooks/x")

        found = {
            "HEAD": (yard.root / ".git/refs/heads/main").exists(),
            "config": "evil" in (yard.root / ".git/config").read_text(),
            "hooks/x": (yard.root / ".git/hooks/x").exists(),
        }
    assert found == lands


def test_a_set_over_the_limit_is_refused_whole(tmp_path: Path):
    with a_terminal(tmp_path, OPEN + "[limits]\nchange_set_bytes_max = 100000\n") as terminal:
        said = terminal.run("for i in $(seq 30); do head -c 10000 /dev/zero > f$i; done")
        assert said["files_changed"] == []
        assert len(refused(said)) == 30
        assert "300000 bytes" in next(iter(refused(said).values()))
        assert terminal.run("head -c 90000 /dev/zero > f")["files_changed"] == ["f"]


def test_a_generated_directory_lands_and_is_not_kept_and_a_lock_file_is(tmp_path: Path):
    with a_terminal(tmp_path) as terminal:
        terminal.run("mkdir -p node_modules/x && echo 1 > node_modules/x/i && echo 1 > yarn.lock")
        said = terminal.run("echo 2 > node_modules/x/i && echo 2 > yarn.lock")
        assert said["files_changed"] == ["node_modules/x/i", "yarn.lock"]
        result = terminal.call("create_file", path="node_modules/x/i", content="3")
        assert result.refusal.code == "policy.generated"
        [*_, entry] = terminal.yard.entries("TOOL_RESULT")
        rows = {row["path"]: row for row in entry["metadata"]["effects"]}
        assert {path: row.get("kept", True) for path, row in rows.items()} == {
            "node_modules/x/i": False,
            "yarn.lock": True,
        }


def test_what_policy_asks_about_is_refused_where_nobody_was_shown_it(tmp_path: Path):
    policy = '[profiles.standard]\nallow = ["tool:*"]\nask = ["tool:file:create migrations/**"]\n'
    with a_terminal(tmp_path, policy) as terminal:
        said = terminal.sneak("mkdir migrations; echo 1 > migrations/1; echo 2 > two")
        assert said["files_changed"] == ["migrations", "two"]
        assert "create migrations/**" in refused(said)["migrations/1"]


def test_an_agents_own_permissions_hold_for_its_commands(tmp_path: Path):
    yard = Yard(tmp_path).make()
    yard.write({"src/a": "a", "docs/b": "b", "other": "o"})
    agent = next((yard.home / ".local/state/paddock/planes").iterdir()) / "agents/main/agent.json"
    declared = json.loads(agent.read_text())
    declared["permissions"] = {"read": ["**"], "write": ["src/**"], "forbidden": ["docs/**"]}
    agent.write_text(json.dumps(declared))
    with yard.opened() as terminal:
        said = terminal.sneak(
            "echo n > src/a; echo n > src/n; echo n > other; cat docs/b; echo > docs/b"
        )
        assert said["files_changed"] == ["src/a", "src/n"]
        assert "other" in refused(said)
        assert "b" not in said["stdout"]
        assert (yard.root / "docs/b").read_text() == "b"


def test_the_tree_may_be_reached_through_a_directory_with_a_default_group(terminal: Terminal):
    root = terminal.yard.root
    os.chmod(root / "d", 0o2775)
    if os.geteuid() == 0:
        os.chown(root / "d", 0, 1235)
        os.chmod(root / "d", 0o2775)
    group = os.lstat(root / "d").st_gid
    terminal.run("echo n > d/n && mkdir d/m && echo n > d/m/n")

    assert [os.lstat(root / name).st_gid for name in ("d/n", "d/m", "d/m/n")] == [group] * 3
    assert os.lstat(root / "d/m").st_mode & stat.S_ISGID


def thrown_away(tmp_path: Path, policy: str):
    """A terminal of whose commands nothing lands."""
    return a_terminal(tmp_path, OPEN + policy + '[shell]\ncommit = "none"\n')


@pytest.mark.needs("git")
@pytest.mark.parametrize(
    ("command", "count"),
    [
        ("echo new > made", 1),
        ("echo new > README.md; rm -r docs; mkdir -p d/e; chmod 600 .", None),
        ("git init -q sub; echo x > sub/a", None),
        ("echo x > .env.local", 1),
        ("true", 0),
    ],
)
def test_where_policy_throws_changes_away_nothing_lands_and_the_result_says_so(
    tmp_path: Path, command: str, count: int | None
) -> None:
    with thrown_away(tmp_path, "") as terminal:
        root = terminal.yard.root
        (root / "docs").mkdir(exist_ok=True)
        (root / "README.md").write_text("old\n")
        (root / "docs/a").write_text("old\n")
        before = tree(root)
        result = terminal.call("run_shell", command=hide(f"{command}; cat made README.md; exit 0"))
        details = result.details
        assert tree(root) == before
        assert (details["files_changed"], details["changes_refused"]) == ([], [])
        found = details.get("changes_discarded", 0)
        assert found == count if count is not None else found > 0
        assert ('discarded ([shell] commit = "none")' in result.content) == bool(found)
        # The command saw its own changes, and a failure is no refusal of policy's.
        failed = terminal.sneak("echo x > made && cat made; exit 3")
        assert (failed["stdout"], failed["stderr"], failed["exit_code"]) == ("x\n", "", 3)


def test_where_changes_are_thrown_away_nothing_outside_is_written_either(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    policy = OPEN + f'[shell]\ncommit = "none"\nwrite = ["{elsewhere}"]\n'
    with a_terminal(tmp_path, policy) as terminal:
        said = terminal.sneak(f"echo x > {elsewhere}/made")
    assert said["exit_code"] != 0
    assert list(elsewhere.iterdir()) == []
    with a_terminal(tmp_path, policy.replace("none", "each")) as terminal:
        assert terminal.sneak(f"echo x > {elsewhere}/made")["exit_code"] == 0
    assert [each.name for each in elsewhere.iterdir()] == ["made"]


@pytest.mark.parametrize("profile", ["reviewer", "standard"])
def test_a_reviewers_command_runs_and_keeps_nothing_where_anothers_does(
    tmp_path: Path, profile: str
) -> None:
    policy = f'[agents.main]\nprofile = "{profile}"\n'
    with a_terminal(tmp_path, policy) as terminal:
        said = terminal.run("touch made; echo done")
        wrote = terminal.call("create_file", path="agent_sandbox/n.md", content="x")
    assert (said["stdout"], said["exit_code"], wrote.refusal) == ("done\n", 0, None)
    kept = (tmp_path / "project/made").exists()
    assert (kept, "changes_discarded" in said) == ((True, False), (False, True))[
        profile == "reviewer"
    ]


def test_a_file_that_is_closed_to_its_owner_lands_where_it_can_be_brought_back(terminal: Terminal):
    root = terminal.yard.root
    (root / "r").write_text("kept\n")
    said = terminal.sneak("chmod 000 r; echo n > new; chmod 200 new")
    modes = {name: stat.S_IMODE((root / name).stat().st_mode) for name in ("r",)}

    if os.geteuid() != 0:
        assert modes == {"r": 0o644}
        assert refused(said) == {
            "new": "'new' would be closed to its owner: 0200",
            "r": "'r' would be closed to its owner: 0000",
        }
        return
    assert (said["changes_refused"], modes) == ([], {"r": 0o000})
    assert terminal.yard.cli("undo", terminal.yard.calls()[-1]["call"]).status == 0
    assert lay(root) == {**BEFORE, "r": b"kept\n"}
    assert stat.S_IMODE((root / "r").stat().st_mode) == 0o644
