"""Commands in a workspace whose git directory stands outside of it: worktrees, and folders."""

import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.shells import OPEN, Yard, refused, while_running

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("git")]

POLICY = '[paths]\nprotected = [".git/", "*.pem"]\n' + OPEN
IDENTITY = "[user]\n\tname = U\n\temail = u@example.org\n"
FILES = {"data": "one\n", "src/module.py": "x = 1\n"}


class Place(Yard):
    """A yard whose workspace belongs to the repository in `main`."""

    workspace: str = "project"
    main: str = "main"

    @property
    def root(self) -> Path:
        return self.base / self.workspace

    def at_main(self, *arguments: str) -> str:
        return self.git(*arguments, where=str(self.base / self.main))

    def state(self, where: str = ".") -> str:
        return self.git("status", "--porcelain", "-b", where=where)

    def ids(self) -> str:
        return self.git("for-each-ref") + self.git("rev-parse", "HEAD")

    def make_ready(self) -> "Place":
        """Govern it, with the policy under version control's eyes but not in the way."""
        self.make()
        exclude = Path(self.git("rev-parse", "--git-path", "info/exclude").strip())
        path = exclude if exclude.is_absolute() else self.root / exclude
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("paddock.toml\n")
        return self


def begin(place: Place, files: dict[str, str] = FILES, folder: str = "") -> Place:
    """A repository in `main` with one commit."""
    place.home.mkdir(parents=True)
    (place.home / ".gitconfig").write_text(IDENTITY)
    main = place.base / place.main
    for name, content in files.items():
        path = main / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    place.at_main("init", "-q", "-b", "main", ".")
    place.at_main("add", ".")
    place.at_main("commit", "-qm", "first")
    return place


def worktree(base: Path) -> Place:
    place = begin(Place(base, POLICY))
    place.at_main("worktree", "add", "-q", str(place.root), "-b", "work")
    return place.make_ready()


def worktree_inside(base: Path) -> Place:
    place = begin(Place(base, POLICY, workspace="main/.claude/worktrees/x"))
    place.at_main("worktree", "add", "-q", str(place.root), "-b", "work")
    return place.make_ready()


def worktree_of_bare(base: Path) -> Place:
    place = begin(Place(base, POLICY))
    place.at_main("clone", "-q", "--bare", ".", str(base / "bare.git"))
    shutil.rmtree(base / "main")
    place.main = "bare.git"
    place.at_main("worktree", "add", "-q", str(place.root), "-b", "work")
    return place.make_ready()


def worktree_with_packed_refs(base: Path) -> Place:
    place = worktree(base)
    place.at_main("gc", "-q")
    return place


def folder(base: Path, name: str = "main/packages/a") -> Place:
    place = Place(base, POLICY, workspace=name)
    begin(place, FILES, folder=name.removeprefix("main/"))
    (base / "main/packages/b").mkdir(parents=True, exist_ok=True)
    (base / "main/packages/b/x").write_text("x\n")
    (base / "main/top").write_text("top\n")
    place.at_main("add", "packages/b", "top")
    place.at_main("commit", "-qm", "second")
    # What the user is at there, staged and not, is nobody else's.
    (base / "main/top").write_text("the user's\n")
    (base / "main/packages/b/y").write_text("staged\n")
    place.at_main("add", "packages/b/y")
    (base / "main/packages/b/new").write_text("untracked\n")
    return place.make_ready()


def deep_folder(base: Path) -> Place:
    return folder(base, "main/a/b/c")


def folder_of_worktree(base: Path) -> Place:
    place = begin(Place(base, POLICY, workspace="wt/packages/a"), FILES, folder="packages/a")
    (base / "main/top").write_text("top\n")
    place.at_main("add", "top")
    place.at_main("commit", "-qm", "second")
    place.at_main("worktree", "add", "-q", str(base / "wt"), "-b", "work")
    return place.make_ready()


def folder_with_version_4(base: Path) -> Place:
    place = folder(base)
    place.at_main("update-index", "--index-version", "4")
    return place


WORKTREES: dict[str, Callable[[Path], Place]] = {
    "a worktree": worktree,
    "a worktree in the main work tree": worktree_inside,
    "a worktree of a bare repository": worktree_of_bare,
    "a worktree with packed references": worktree_with_packed_refs,
}
FOLDERS: dict[str, Callable[[Path], Place]] = {
    "a folder": folder,
    "a folder three levels below": deep_folder,
    "a folder of a worktree": folder_of_worktree,
    "a folder, index version 4": folder_with_version_4,
}
SHAPES = WORKTREES | FOLDERS

DAY = {
    "look": "git status --short && git log --oneline && git diff",
    "commit": "echo two >> data && git commit -qam two && git log -1 --format=%s | grep -q two",
    "add": "mkdir new && echo n > new/n && git add -A . && git commit -qm new",
    "branch": "git checkout -q -b side && echo s > s && git add s && git commit -qm side",
    "merge": "git checkout -q - && echo m > m && git add m && git commit -qm m && git merge -q --no-edit side",
    "conflict": "git checkout -q -b theirs && echo t > data && git commit -qam t && git checkout -q - && echo o > data && git commit -qam o && ! git merge theirs && git status --short | grep -q '^UU'",
    "resolve": "echo both > data && git commit -qam both && test $(git log -1 --format=%P | wc -w) = 2",
    "stash": "echo dirty >> data && git stash -q && git diff --quiet && git stash pop -q && ! git diff --quiet",
    "put back": "git checkout -q -- data && git diff --quiet",
    "rebase": "git checkout -q -b topic HEAD~1 && echo r > r && git add r && git commit -qm r && git rebase -q -",
    "detach": "git checkout -q --detach && echo d > d && git add d && git commit -qm d && git checkout -q -",
    "amend and tag": "git commit -q --amend -m again && git tag one && git update-ref -d refs/heads/theirs",
    "remove": "git rm -q r && git mv m moved && git commit -qm gone",
    "clean": "echo x > x && git clean -fdq -e paddock.toml && ! test -e x",
    "collect": "git gc -q && git fsck --strict",
}


@contextmanager
def working(shape: Callable[[Path], Place], base: Path):
    place = shape(base)
    with place.opened() as terminal:
        yield place, terminal


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_days_work_is_done_as_in_any_repository(shape, tmp_path: Path):
    with working(shape, tmp_path) as (place, terminal):
        outside = place.state("../.." if shape in FOLDERS.values() else ".")
        for name, line in DAY.items():
            said = terminal.run(f"({line}) && git status --porcelain -b .")
            assert (said["exit_code"], refused(said)) == (0, {}), (name, said)
            seen = said["stdout"][said["stdout"].rindex("## ") :]
            assert place.git("status", "--porcelain", "-b", ".") == seen, name
        place.git("fsck", "--strict")
    if shape in FOLDERS.values():
        # But for what was staged before: a commit takes the whole index, as on the host.
        rows = [row for row in outside.splitlines() if row[:2] in (" M", "??")]
        assert [row for row in place.state("../..").splitlines() if row in rows] == rows


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_what_a_command_did_is_undone_whole(shape, tmp_path: Path):
    with working(shape, tmp_path) as (place, terminal):
        before = place.ids(), place.state(), place.git("ls-files", "-s")
        terminal.run("echo two >> data && git commit -qam two && git branch more")
        assert place.ids() != before[0]
    ran = place.cli("undo", place.calls()[-1]["call"])
    assert ran.status == 0, ran.err
    assert (place.ids(), place.state(), place.git("ls-files", "-s")) == before
    place.git("fsck", "--strict")


HELD = {
    "configuration": ("git config core.pager evil", ".git/config"),
    "a hook": (
        'echo evil > "$(git rev-parse --git-common-dir)/hooks/pre-commit"',
        ".git/hooks/pre-commit",
    ),
    "HEAD of the main work tree": (
        'git --git-dir="$(git rev-parse --git-common-dir)" symbolic-ref HEAD refs/heads/x',
        ".git/HEAD",
    ),
    "index of the main work tree": (
        'cp "$(git rev-parse --git-path index)" "$(git rev-parse --git-common-dir)/index"',
        ".git/index",
    ),
    "another worktree": (
        'cd "$(git rev-parse --git-common-dir)/worktrees/other" && echo ref: refs/heads/x > HEAD',
        ".git/worktrees/other/HEAD",
    ),
    "where the worktree is said to be": (
        'echo /elsewhere/.git > "$(git rev-parse --git-dir)/gitdir"',
        ".git/worktrees/project/gitdir",
    ),
    "the file that leads there": ("echo gitdir: /tmp > .git", ".git"),
    "a repository in its place": ("rm .git && git init -q .", ".git"),
}


@pytest.mark.parametrize(("line", "path"), HELD.values(), ids=HELD)
def test_what_is_not_this_worktrees_stays(line: str, path: str, tmp_path: Path):
    with working(worktree, tmp_path) as (place, terminal):
        place.at_main("worktree", "add", "-q", str(tmp_path / "other"), "-b", "other")
        files = [each for each in (tmp_path / "main/.git").rglob("*") if each.is_file()]
        before = {each: each.read_bytes() for each in files}
        said = terminal.sneak(line)
        assert path in refused(said), said
        assert {each: each.read_bytes() for each in files} == before
        assert (place.root / ".git").read_text().startswith("gitdir: ")
        # The honest neighbour.
        assert terminal.run("echo n > n && git add n && git commit -qm n")["changes_refused"] == []


def test_nothing_of_the_main_work_tree_is_seen(tmp_path: Path):
    with working(worktree_inside, tmp_path) as (place, terminal):
        (tmp_path / "main/untracked").write_text("the user's")
        seen = terminal.sneak(f"ls -A {tmp_path}/main; cat {tmp_path}/main/untracked")["stdout"]
        assert seen.split() == [".claude", ".git"]
        assert place.at_main("status", "--porcelain", "untracked") == "?? untracked\n"


@pytest.mark.parametrize("shape", [*WORKTREES.values(), folder], ids=[*WORKTREES, "a folder"])
def test_a_worktree_that_a_command_adds_lands_neither_as_a_folder_nor_as_a_branch(
    shape, tmp_path: Path
):
    with working(shape, tmp_path) as (place, terminal):
        before = place.git("for-each-ref"), sorted(os.listdir(place.root))
        said = terminal.run("git worktree add -q .w/f -b f")
        assert ".git/refs/heads/f" in refused(said)
        assert (place.git("for-each-ref"), sorted(os.listdir(place.root))) == before
        assert "prunable" not in place.git("worktree", "list", "--porcelain")


def test_the_same_in_an_ordinary_repository(tmp_path: Path):
    place = begin(Place(tmp_path, POLICY, main="project")).make_ready()
    with place.opened() as terminal:
        before = place.git("for-each-ref"), sorted(os.listdir(place.root))
        assert ".git/refs/heads/f" in refused(terminal.run("git worktree add -q .w/f -b f"))
        assert (place.git("for-each-ref"), sorted(os.listdir(place.root))) == before


OUTSIDE = {
    "checkout": "git checkout -q other",
    "merge": "echo q > q; git add q; git commit -qm q; git merge -q --no-edit other",
    "rebase": "echo q > q; git add q; git commit -qm q; git rebase -q other",
    "reset": "git reset -q --hard other",
    "rm": "git rm -q --cached --sparse ../../top; git commit -qm gone",
    "stash of what the user staged": "git stash -q",
    "another index": "git read-tree other; git commit -qm stolen",
}


@pytest.mark.parametrize("line", OUTSIDE.values(), ids=OUTSIDE)
def test_what_changes_files_outside_the_folder_does_not_land(line: str, tmp_path: Path):
    with working(folder, tmp_path) as (place, terminal):
        # The branch differs in the folder and outside of it.
        place.at_main("stash", "-q", "-u")
        place.at_main("checkout", "-q", "-b", "other")
        (tmp_path / "main/top").write_text("other\n")
        (place.root / "data").write_text("other\n")
        place.at_main("commit", "-qam", "other")
        place.at_main("checkout", "-q", "main")
        place.at_main("stash", "pop", "-q", "--index")
        before = place.ids(), place.state("../.."), (place.root / "data").read_text()
        said = terminal.run(line)
        assert "changes files outside the workspace" in refused(said)[".git/index"], said
        assert (place.ids(), place.state("../.."), (place.root / "data").read_text()) == before
        place.git("fsck", "--strict")


def test_a_users_own_sparse_checkout_is_left_alone(tmp_path: Path):
    place = folder(tmp_path)
    place.at_main("stash", "-q", "-u")
    place.at_main("sparse-checkout", "set", "packages/a")
    with place.opened() as terminal:
        assert "not a git repository" in terminal.run("git status")["stderr"]
    assert "the repository has a sparse checkout" in place.cli("sandbox", "plan").out


def test_an_edit_of_the_user_is_seen_although_it_came_in_the_tick_of_the_index(tmp_path: Path):
    with working(folder, tmp_path) as (place, terminal):
        top, index = tmp_path / "main/top", tmp_path / "main/.git/index"
        top.write_text("aaa\n")
        place.at_main("add", "top")
        found = top.stat()
        top.write_text("bbb\n")
        # As within one tick: same size, same time, the file's and the index's.
        os.utime(top, ns=(found.st_atime_ns, found.st_mtime_ns))
        os.utime(index, ns=(found.st_mtime_ns, found.st_mtime_ns))
        place.at_main("config", "core.trustctime", "false")
        place.at_main("config", "core.checkStat", "minimal")
        assert "AM" in place.state("../..") or "MM" in place.state("../..")
        assert terminal.run("echo n > n && git add n && git commit -qm n -- n")["exit_code"] == 0
        assert "M top" in place.state("../..")


def test_commits_of_others_are_conflicts_and_nothing_is_lost(tmp_path: Path):
    with working(worktree, tmp_path) as (place, terminal):
        other = str(tmp_path / "other")
        place.at_main("worktree", "add", "-q", other, "-b", "other")

        def act() -> None:
            (tmp_path / "other/theirs").write_text("t")
            place.git("add", "theirs", where=other)
            place.git("commit", "-qm", "theirs", where=other)
            place.git("update-ref", "refs/heads/shared", "refs/heads/other", where=other)

        line = "echo o > o && git add o && git commit -qm ours && git update-ref refs/heads/shared HEAD"
        said = while_running(terminal, line, act, before="git update-ref refs/heads/shared HEAD")
        assert "refs/heads/shared" in said["conflict"], said
        assert place.git("log", "--format=%s", "-1", "shared") == "theirs\n"
        assert place.git("log", "--format=%s", "-1") == "first\n"
        place.git("fsck", "--strict")


def test_two_that_commit_at_once_in_their_own_worktrees_both_do(tmp_path: Path):
    with working(worktree, tmp_path) as (place, terminal):
        other = str(tmp_path / "other")
        place.at_main("worktree", "add", "-q", other, "-b", "other")

        def act() -> None:
            (tmp_path / "other/same").write_text("same content\n")
            place.git("add", "same", where=other)
            place.git("commit", "-qm", "theirs", where=other)

        said = while_running(
            terminal, "git commit -qm ours", act, before="echo same content > same; git add same"
        )
        assert (said.get("conflict"), refused(said)) == (None, {})
        assert place.git("log", "--format=%s", "-1") == "ours\n"
        assert place.git("log", "--format=%s", "-1", "other") == "theirs\n"
        place.git("fsck", "--strict")


def test_references_packed_meanwhile_are_a_conflict(tmp_path: Path):
    with working(worktree, tmp_path) as (place, terminal):
        place.git("branch", "shared")

        def act() -> None:
            place.at_main("commit", "-q", "--allow-empty", "-m", "theirs")
            place.at_main("update-ref", "refs/heads/shared", "refs/heads/main")
            place.at_main("pack-refs", "--all", "--prune")

        said = while_running(
            terminal,
            "git update-ref refs/heads/shared HEAD",
            act,
            before="git commit -q --allow-empty -m ours",
        )
        assert said["conflict"], said
        assert place.git("log", "--format=%s", "-1", "shared") == "theirs\n"


def lead(place: Place, target: Path) -> None:
    (place.root / ".git").write_text(f"gitdir: {target}\n")


def test_a_git_file_is_believed_only_where_the_repository_says_so_too(tmp_path: Path):
    place = worktree(tmp_path)
    stranger = Place(tmp_path / "b", POLICY)
    begin(stranger)
    stranger.at_main("worktree", "add", "-q", str(tmp_path / "b/other"))
    for target in (
        tmp_path / "b/main/.git",
        tmp_path / "b/main/.git/worktrees/other",
        tmp_path / "b/main/.git/worktrees/none",
    ):
        lead(place, target)
        with place.opened() as terminal:
            said = terminal.sneak(f"git status; cat {tmp_path}/b/main/.git/config")
            assert "fatal: not a git repository" in said["stderr"], target
            assert "repositoryformatversion" not in said["stdout"], target
    # The other way round: what the repository says of itself has another place.
    place = worktree(tmp_path / "c")
    (tmp_path / "c/main/.git/worktrees/project/gitdir").write_text(f"{tmp_path}/b/other/.git\n")
    with place.opened() as terminal:
        assert "not a git repository" in terminal.run("git status")["stderr"]


def test_a_git_file_that_is_exchanged_after_the_plan_was_made_opens_nothing(tmp_path: Path):
    with working(worktree, tmp_path) as (place, terminal):
        assert terminal.run("git status")["exit_code"] == 0
        begin(Place(tmp_path / "b", POLICY))
        lead(place, tmp_path / "b/main/.git")
        said = terminal.run("git status")
        assert "not a git repository" in said["stderr"]


def test_the_repository_of_a_home_stays_closed(tmp_path: Path):
    home = Place(tmp_path, POLICY, workspace="home/code/x")
    home.home.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(home.home)], check=True)
    home.make()
    with home.opened() as terminal:
        assert "not a git repository" in terminal.run("git status")["stderr"]
    assert "the repository of the home directory" in home.cli("sandbox", "plan").out


def test_a_repository_in_another_agents_workspace_stays_closed(tmp_path: Path):
    """`base/main` belongs to another agent of the same plane."""
    place = worktree_inside(tmp_path)
    outer = Place(tmp_path, POLICY, workspace="main")
    outer.make()
    made = outer.cli("agent", "create", "inner", "--workspace", str(place.root))
    assert made.status == 0, made.err
    shown = outer.cli("sandbox", "plan", "--agent", "inner", "--json").json
    assert shown.get("plan", shown)["git_outside"] is None


def test_a_submodule_in_a_folder_and_one_that_is_the_workspace(tmp_path: Path):
    library = Place(tmp_path / "lib", POLICY)
    begin(library)
    place = folder(tmp_path)
    place.at_main("-c", "protocol.file.allow=always", "submodule", "--quiet", "add",
                  str(tmp_path / "lib/main"), place.root.relative_to(tmp_path / "main").as_posix() + "/sub")  # fmt: skip
    place.git("commit", "-qm", "sub", "--", "sub", "../../.gitmodules")
    with place.opened() as terminal:
        said = terminal.run(
            "cd sub && echo s > s && git add s && git commit -qm s && git log --oneline"
        )
        assert (said["exit_code"], refused(said)) == (0, {}), said
    place.git("fsck", where="sub")
    inner = Place(tmp_path, POLICY, workspace=f"{place.workspace}/sub")
    Yard.make(inner)
    with inner.opened() as terminal:
        said = terminal.run("echo t > t && git add t && git commit -qm t && git status --short")
        assert (said["exit_code"], refused(said)) == (0, {}), said
    assert inner.git("log", "--format=%s", "-1") == "t\n"


def test_a_repository_made_in_a_folder_is_its_own_from_then_on(tmp_path: Path):
    with working(folder, tmp_path) as (place, terminal):
        before = place.at_main("rev-parse", "HEAD")
        assert terminal.run("git init -q . && git add data && git commit -qm own")["exit_code"] == 0
        assert terminal.run("git log --format=%s")["stdout"] == "own\n"
        assert place.at_main("rev-parse", "HEAD") == before


def test_the_plan_shows_the_directory_and_is_another_without_it(tmp_path: Path):
    place = worktree(tmp_path)
    plan = place.cli("sandbox", "plan", "--json").json
    shown = plan.get("plan", plan)["git_outside"]
    assert shown == {"path": f"{tmp_path}/main/.git", "worktree": "worktrees/project", "folder": ""}
