"""Closed files that git tracks: commands see what the index has, and lose and learn nothing."""

import os
import stat
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.shells import OPEN, Terminal, Yard, refused

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("git")]

STAGED, MINE = "TOKEN=staged\n", "TOKEN=mine-alone\n"
SECRETS = (".env.example", ".env", "certs/test.key", "sub/.envrc")
POLICY = f'{OPEN}[paths]\nsecret = [".env", ".env.*", ".envrc", "*.key"]\n'


def begin(base: Path, policy: str = POLICY) -> Yard:
    """An empty repository whose policy is nobody's to commit, and a user with a name."""
    yard = Yard(base, policy).make()
    (yard.home / ".gitconfig").write_text("[user]\n\tname = U\n\temail = u@example.org\n")
    yard.git("init", "-qb", "main")
    yard.write({".git/info/exclude": "/paddock.toml\n"})
    return yard


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    """A repository in which four closed files are tracked, and the user has changed `.env`."""
    yard = begin(tmp_path)
    yard.write({"a.txt": "a\n", **dict.fromkeys(SECRETS, STAGED)})
    yard.git("add", ".")
    yard.git("commit", "-qm", "first")
    (yard.root / ".env").write_text(MINE)
    return yard


@pytest.fixture
def terminal(yard: Yard) -> Generator[Terminal, None, None]:
    with yard.opened() as opened:
        yield opened


def tracked(yard: Yard, where: str = ".") -> list[str]:
    return yard.git("ls-tree", "-r", "--name-only", "HEAD", where=where).split()


def status(yard: Yard, where: str = ".") -> list[str]:
    return yard.git("status", "--short", "-uno", where=where).splitlines()


COMMITS = {
    "commit -a": "git commit -qam x",
    "add -A": "git add -A && git commit -qm x",
    "add .": "git add . && git commit -qm x",
    "add -u": "git add -u && git commit -qm x",
    "stash and back": "git stash -q && git stash pop -q && git commit -qam x",
    "a branch and back": "git checkout -qb side && git commit -qam x && git checkout -q main"
    " && git merge -q side",
    "amend": "git commit -qam x --amend",
}


@pytest.mark.parametrize("line", COMMITS.values(), ids=COMMITS)
@pytest.mark.parametrize("policy", ["each", "all"])
def test_what_a_command_commits_keeps_every_closed_file(terminal: Terminal, line: str, policy: str):
    yard = terminal.yard
    yard.govern(f'{POLICY}[shell]\ncommit = "{policy}"\n')
    with yard.opened() as opened:
        said = opened.run(f"echo b >> a.txt; {line}")

    assert (said["exit_code"], refused(said), said["stderr"]) == (0, {}, "")
    assert set(tracked(yard)) >= {*SECRETS, "a.txt"}
    assert yard.git("show", "HEAD:a.txt") == "a\nb\n"
    assert yard.git("show", "HEAD:.env") == STAGED
    assert status(yard) == [" M .env"]
    assert (yard.root / ".env").read_text() == MINE
    assert [(yard.root / name).read_text() for name in SECRETS if name != ".env"] == [STAGED] * 3


LOOKS = ("git status --short -uno", "git diff", "git diff HEAD", "git stash show -p stash@{0}")


@pytest.mark.parametrize("line", LOOKS[:3])
def test_nothing_closed_is_printed_as_changed_or_deleted(terminal: Terminal, line: str):
    assert terminal.run(line)["stdout"] == ""
    said = terminal.run("git stash -q -u; git stash list")
    assert (said["exit_code"], said["stdout"]) == (0, "")


def test_what_the_index_has_is_read_and_what_the_working_copy_has_is_not(terminal: Terminal):
    said = terminal.run("cat .env certs/test.key; grep -rl mine-alone . ; true")
    assert said["stdout"] == STAGED * 2
    assert said["shown_from_git"] == [".env"]


def test_the_result_names_what_differs_and_once_what_git_gives_away(terminal: Terminal):
    first = terminal.call("run_shell", command="true").content
    second = terminal.call("run_shell", command="true").content
    differs = "[shown as in git's index, while the working copy differs and stays closed: '.env']"
    gives = "git's objects give the content to every command"
    assert (differs in first, gives in first) == (True, True)
    assert (differs in second, gives in second) == (True, False)


def test_a_repository_without_closed_files_says_nothing(tmp_path: Path):
    yard = begin(tmp_path)
    yard.write({"a.txt": "a\n", ".env": MINE})
    yard.git("add", "a.txt")
    yard.git("commit", "-qm", "first")
    with yard.opened() as terminal:
        said = terminal.run("cat .env; git status --short .env; git add -A; git commit -qm x")
    assert "shown_from_git" not in said
    assert MINE not in said["stdout"]
    assert ".env" not in tracked(yard)


WRITES = {
    "write": "echo guess > .env",
    "append": "echo guess >> .env",
    "delete": "rm .env",
    "replace": "echo guess > n; mv n .env",
    "right guess": f"printf '{MINE}' > .env",
    "mode": "chmod 755 .env",
    "a directory": "rm .env; mkdir .env; touch .env/x",
    "a link": "ln -sf a.txt .env",
}


@pytest.mark.parametrize("line", WRITES.values(), ids=WRITES)
def test_what_is_shown_cannot_be_changed(terminal: Terminal, line: str):
    said = terminal.sneak(line)
    root = terminal.yard.root
    assert ".env" in refused(said)
    assert (root / ".env").read_text() == MINE
    assert not (root / ".env").is_symlink()
    assert not [path for path in said["files_changed"] if path.startswith(".env")]


@pytest.mark.parametrize("line", ["touch .env", f"printf '{STAGED}' > .env", "git checkout .env"])
def test_what_leaves_it_as_shown_is_no_change(terminal: Terminal, line: str):
    said = terminal.sneak(line)
    assert (refused(said), said["files_changed"]) == ({}, said["files_changed"])
    assert (terminal.yard.root / ".env").read_text() == MINE


@pytest.mark.parametrize("check", ["default", "minimal"])
def test_git_on_the_host_sees_the_users_change_afterwards(yard: Yard, check: str):
    """Also of the same size, with the time that the file is shown with."""
    yard.git("config", "core.checkStat", check)
    mine = STAGED.replace("staged", "mine!!")
    (yard.root / ".env").write_text(mine)
    with yard.opened() as terminal:
        said = terminal.run("stat -c %Y .env")
        shown = int(said["stdout"])
        os.utime(yard.root / ".env", (shown, shown))
        again = terminal.run("git status --short -uno; stat -c %Y .env; git commit -am x; true")
    assert int(again["stdout"].split()[0]) != shown
    assert status(yard) == [" M .env"]
    assert (yard.root / ".env").read_text() == mine


def test_its_mode_is_the_indexs(yard: Yard):
    yard.git("update-index", "--chmod=+x", "certs/test.key")
    (yard.root / ".env").chmod(0o600)
    with yard.opened() as terminal:
        said = terminal.run("stat -c %A .env certs/test.key; git diff --stat")
    assert said["stdout"] == "-rw-r--r--\n-rwxr-xr-x\n"


CONVERSIONS = {
    "autocrlf": ("", ("core.autocrlf", "true"), b"a\r\n$Id$\r\n"),
    "eol": ("*.key text eol=crlf\n", None, b"a\r\n$Id$\r\n"),
    "text=auto alone": ("* text=auto\n", None, b"a\n$Id$\n"),
    "binary": ("*.key -text\n", ("core.autocrlf", "true"), b"a\n$Id$\n"),
    "encoding": (
        "*.key text working-tree-encoding=UTF-16LE\n",
        None,
        "a\n$Id$\n".encode("utf-16-le"),
    ),
}


@pytest.mark.parametrize(("attributes", "setting", "shown"), CONVERSIONS.values(), ids=CONVERSIONS)
def test_it_is_converted_as_git_checks_it_out(
    tmp_path: Path, attributes: str, setting: tuple[str, str] | None, shown: bytes
):
    yard = begin(tmp_path)
    yard.write({"x.key": b"a\n$Id$\n", ".gitattributes": ""})
    yard.git("add", ".")
    yard.write({".gitattributes": attributes})
    if setting is not None:
        yard.git("config", *setting)
    yard.git("add", ".gitattributes")
    yard.git("commit", "-qm", "first")
    (yard.root / "x.key").unlink()
    yard.git("checkout", "x.key")
    (yard.root / "x.key").write_text(MINE)
    with yard.opened() as terminal:
        said = terminal.run("od -An -v -tx1 x.key | tr -d ' \\n'; git status --short -uno")
    assert said["stdout"] == shown.hex()


def test_what_was_added_with_other_line_ends_is_not_shown_as_modified(tmp_path: Path):
    yard = begin(tmp_path)
    yard.git("config", "core.autocrlf", "true")
    yard.write({"x.key": b"a\n"})
    yard.git("add", ".")
    yard.git("commit", "-qm", "first")
    with yard.opened() as terminal:
        said = terminal.run("git status --short -uno; git diff; cat x.key")
    assert said["stdout"] == "a\n"


def test_ident_is_expanded(yard: Yard):
    yard.write({".gitattributes": "*.key ident\n", "certs/test.key": "$Id$\n"})
    yard.git("add", "-A")
    yard.git("commit", "-qm", "ident")
    (yard.root / "certs/test.key").unlink()
    yard.git("checkout", "certs/test.key")
    with yard.opened() as terminal:
        said = terminal.run("cat certs/test.key; git status --short -uno")
    assert said["stdout"].startswith("$Id: ")
    assert said["stdout"].count("\n") == 1


DRIVEN = (
    ("filter.evil.smudge", "touch {out}/smudge; cat"),
    ("filter.evil.process", "touch {out}/process; false"),
    ("core.fsmonitor", "touch {out}/fsmonitor; true"),
    ("core.sshCommand", "touch {out}/ssh; true"),
    ("core.gitProxy", "{out}/proxy"),
    ("diff.evil.textconv", "touch {out}/textconv; cat"),
    ("core.hooksPath", "{out}/hooks"),
    ("core.pager", "touch {out}/pager"),
    ("alias.cat-file", "!touch {out}/alias"),
    ("core.alternateRefsCommand", "touch {out}/alternate"),
)


def test_no_program_that_a_repository_names_is_run_on_the_host(yard: Yard, tmp_path: Path):
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o777)
    for name, value in DRIVEN:
        yard.git("config", name, value.format(out=out))
    (yard.root / ".git/info/attributes").write_text("*.key filter=evil diff=evil\n")
    with yard.opened() as terminal:
        said = terminal.run("cat certs/test.key .env")
    assert said["stdout"] == STAGED * 2
    assert list(out.iterdir()) == []


def test_a_blob_that_is_not_here_is_an_empty_file(yard: Yard):
    name = yard.git("rev-parse", ":certs/test.key").strip()
    yard.git("config", "remote.origin.url", "ssh://nowhere.invalid/x")
    yard.git("config", "remote.origin.promisor", "true")
    yard.git("config", "extensions.partialClone", "origin")
    for each in SECRETS:
        (yard.root / each).write_text(f"another {each}")
    yard.git("add", "-A")
    gone = yard.git("rev-parse", ":certs/test.key").strip()
    assert gone != name
    (yard.root / ".git/objects" / gone[:2] / gone[2:]).unlink()
    with yard.opened() as terminal:
        said = terminal.run("stat -c %s certs/test.key; cat .env")
    assert said["stdout"] == "0\nanother .env"


def test_of_a_conflict_ours_is_shown_else_theirs(yard: Yard):
    blobs = [
        yard.git("hash-object", "-w", "a.txt").strip(),
        yard.git("rev-parse", ":.env").strip(),
    ]
    other, ours = blobs
    rows = [
        *("0 " + "0" * 40 + f"\t{name}" for name in (".env", "certs/test.key")),
        *(f"100644 {other} 1\t.env", f"100644 {ours} 2\t.env", f"100644 {other} 3\t.env"),
        *(f"100644 {other} 1\tcerts/test.key", f"100644 {ours} 3\tcerts/test.key"),
    ]
    listing = yard.root.parent / "rows"
    listing.write_text("\n".join(rows) + "\n")
    yard.git("config", "alias.load", f"!git update-index --index-info < {listing}")
    yard.git("load")
    with yard.opened() as terminal:
        said = terminal.run("cat .env certs/test.key")
    assert said["stdout"] == STAGED * 2


def test_what_only_head_has_is_hidden_and_so_is_what_git_skips(yard: Yard):
    yard.git("rm", "-q", "--cached", ".env")
    yard.git("update-index", "--skip-worktree", "certs/test.key")
    (yard.root / "sub/.envrc").unlink()
    with yard.opened() as terminal:
        said = terminal.run("ls -A . certs sub; cat .env certs/test.key; true")
    assert MINE not in said["stdout"] + said["stderr"]
    assert not {".env", "test.key", ".envrc"} & set(said["stdout"].split())
    assert ".env.example" in said["stdout"].split()


def test_a_closed_directory_shows_what_is_tracked_in_it_alone(tmp_path: Path):
    yard = begin(tmp_path, f'{OPEN}[paths]\nsecret = ["vault/"]\n')
    yard.write({"vault/a": "A\n", "vault/deep/b": "B\n", "a": "a"})
    yard.git("add", ".")
    yard.git("commit", "-qm", "first")
    yard.write({"vault/a": MINE, "vault/c": MINE, "vault/more/d": MINE})
    (yard.root / "vault/deep").chmod(0o700)
    with yard.opened() as terminal:
        said = terminal.run(
            "find vault -type f | sort; cat vault/a; echo b >> a; git add -A; git commit -qm x"
        )
        gone = terminal.sneak("rm -rf vault; mkdir vault; echo evil > vault/a")
    assert (said["exit_code"], refused(said)) == (0, {})
    assert said["stdout"] == "vault/a\nvault/deep/b\nA\n"
    assert set(tracked(yard)) == {"a", "vault/a", "vault/deep/b"}
    assert (yard.root / "vault/a").read_text() == MINE
    assert (yard.root / "vault/c").read_text() == MINE
    assert gone["files_changed"] == []
    assert "vault/c" not in str(gone)


def test_a_nested_repository_goes_by_its_own_index(yard: Yard):
    (yard.root / "inner").mkdir()
    yard.git("init", "-qb", "main", where="inner")
    yard.write({"inner/.env": "TOKEN=inner\n", "inner/b.key": MINE})
    yard.git("add", ".env", where="inner")
    yard.git("commit", "-qm", "inner", where="inner")
    (yard.root / "inner/.env").write_text(MINE)
    with yard.opened() as terminal:
        said = terminal.run(
            "cat inner/.env; ls -A inner; cd inner && git add -A && git status --short"
        )
    assert said["stdout"].split() == ["TOKEN=inner", ".env", ".git"]


def test_a_submodule_goes_by_its_own_index(yard: Yard, tmp_path: Path):
    made = tmp_path / "made"
    made.mkdir()
    yard.git("init", "-qb", "main", where=str(made))
    (made / ".env").write_text("TOKEN=module\n")
    yard.git("add", "-f", ".", where=str(made))
    yard.git("commit", "-qm", "module", where=str(made))
    yard.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(made), "lib/it")
    yard.git("commit", "-qm", "module")
    (yard.root / "lib/it/.env").write_text(MINE)
    with yard.opened() as terminal:
        said = terminal.run(
            "cat lib/it/.env; git -C lib/it status --short; git status --short -uno"
        )
        assert said["stdout"] == "TOKEN=module\n"
        assert said["shown_from_git"] == [".env", "lib/it/.env"]
        terminal.run("echo b >> a.txt; git commit -qam x")
    assert "lib/it" in tracked(yard)
    assert status(yard) == [" M .env", " m lib/it"]


def test_a_git_file_that_leads_out_of_the_workspace_shows_nothing(yard: Yard, tmp_path: Path):
    """Another repository of this host, whose secrets the user never opened here."""
    other = tmp_path / "other"
    other.mkdir()
    yard.git("init", "-qb", "main", where=str(other))
    (other / ".env").write_text("TOKEN=of-another\n")
    yard.git("add", "-f", ".", where=str(other))
    yard.write({"led/.env": "x", "linked/.env": "x", "led/.git": f"gitdir: {other}/.git\n"})
    (yard.root / "linked/.git").symlink_to(other / ".git")
    with yard.opened() as terminal:
        said = terminal.run("cat led/.env linked/.env; true")
    assert said["stdout"] == ""


def test_what_an_agent_says_is_tracked_is_its_own_content(yard: Yard):
    """The file of the user is not read for it, not replaced, and git goes on seeing it."""
    yard.git("rm", "-q", "--cached", ".env")
    yard.git("commit", "-qm", "no env")
    with yard.opened() as terminal:
        terminal.sneak(
            "id=$(echo TOKEN=planted | git hash-object -w --stdin);"
            " git update-index --add --cacheinfo 100644,$id,.env"
        )
        said = terminal.run("cat .env; git add -f .env; git checkout .env; true")
    assert "mine-alone" not in said["stdout"]
    assert (yard.root / ".env").read_text() == MINE
    assert status(yard) in (["AM .env"], [])


@pytest.mark.parametrize(
    "rule",
    [
        'deny = ["tool:file:view docs/**"]',
        'ask = ["tool:file:view docs/**"]',
    ],
)
def test_what_another_rule_closes_is_shown_likewise(tmp_path: Path, rule: str):
    yard = begin(tmp_path, f"{OPEN}{rule}\n")
    yard.write({"docs/a": "committed\n", "b": "b\n"})
    yard.git("add", ".")
    yard.git("commit", "-qm", "first")
    (yard.root / "docs/a").write_text(MINE)
    with yard.opened() as terminal:
        said = terminal.run("cat docs/a; echo c >> b; git commit -qam x; git status --short -uno")
        wrote = terminal.sneak("echo more >> docs/a")
    assert said["stdout"] == "committed\n"
    assert status(yard) == [" M docs/a"]
    assert set(refused(wrote)) == {"docs/a"}
    assert (yard.root / "docs/a").read_text() == MINE


def test_an_intended_name_and_odd_ones_are_no_trouble(yard: Yard):
    odd = ["é ü.key", "a b.key", "-x.key", "tab\t.key", "nl\n.key", "q'\".key", "$(touch x).key"]
    yard.write(dict.fromkeys(odd, STAGED))
    yard.write({"later.key": MINE})
    yard.git("add", "-f", "--", *odd)
    yard.git("add", "-fN", "later.key")
    with yard.opened() as terminal:
        said = terminal.run("git diff --stat; cat -- 'é ü.key' 'a b.key' -x.key tab*.key 'q'* '$'*")
    assert said["stdout"].endswith(STAGED * 6)
    assert not (yard.root / "x").exists()


@pytest.mark.needs("root")
def test_as_root_what_is_shown_belongs_to_the_commands_root(yard: Yard):
    with yard.opened() as terminal:
        said = terminal.run("stat -c '%u %g' .env a.txt")
    assert said["stdout"] == "0 0\n0 0\n"
    assert stat.S_IMODE((yard.root / ".env").stat().st_mode) == 0o644


def test_lint_doctor_and_init_say_which_tracked_files_are_secret(yard: Yard, tmp_path: Path):
    linted = yard.cli("policy", "lint")
    doctor = yard.cli("doctor")
    listed = "'.env', '.env.example', 'certs/test.key', 'sub/.envrc'"
    said = f"4 tracked files are secret: {listed}; every command can read the content from git's"
    assert said in linted.out
    assert "lint.secret_tracked" in linted.out
    assert said in doctor.out
    (yard.root / "paddock.toml").unlink()
    made = yard.cli("init")
    assert made.status == 0
    assert "tracked file" in made.err

    fresh = begin(tmp_path / "fresh")
    assert "are secret" not in fresh.cli("policy", "lint").out + fresh.cli("doctor").out


@pytest.mark.parametrize("driver", ["lfs", "unknown"])
def test_with_a_filter_the_object_is_shown_as_it_is(yard: Yard, driver: str):
    yard.git("config", "filter.lfs.smudge", "tr a-z A-Z")
    (yard.root / ".git/info/attributes").write_text(f"*.key filter={driver} text eol=crlf\n")
    with yard.opened() as terminal:
        said = terminal.run("cat certs/test.key")
    assert said["stdout"] == STAGED


def test_an_index_that_has_changed_is_read_again(yard: Yard):
    with yard.opened() as terminal:
        terminal.run("true")
        (yard.root / ".env").write_text("TOKEN=newer\n")
        yard.git("add", ".env")
        said = terminal.run("cat .env")
        assert said["stdout"] == "TOKEN=newer\n"
        (yard.root / ".env").write_text(MINE)
        said = terminal.run("cat .env; git diff")
    assert said["stdout"] == "TOKEN=newer\n"


def test_an_index_that_is_broken_or_no_file_leaves_names_hidden(yard: Yard):
    index = yard.root / ".git/index"
    whole = index.read_bytes()
    other = bytes([whole[-1] ^ 1])
    for broken in (b"", whole[:-1] + other, whole[:40], b"\xff" * 4096):
        index.write_bytes(broken)
        with yard.opened() as terminal:
            assert terminal.run("cat .env certs/test.key; true")["stdout"] == ""
    index.unlink()
    index.symlink_to("/etc/passwd")
    with yard.opened() as terminal:
        assert terminal.run("cat .env certs/test.key; true")["stdout"] == ""


def test_the_modes_and_bytes_of_what_differs_are_nowhere_to_be_seen(yard: Yard):
    """Neither the size nor the times of the working copy, nor by a second name of it."""
    (yard.root / ".env").write_text("x" * 4321)
    (yard.root / ".env").chmod(0o640)
    with yard.opened() as terminal:
        said = terminal.run(
            "stat -c '%s %a' .env; ln .env b; cat b; find . -size 4321c; cat .git/index"
        )
    assert "4321" not in said["stdout"]
    assert said["stdout"].startswith(f"{len(STAGED)} 644\n{STAGED}")
