"""What real git operations write, against the rules: the ordinary is committed, the rest is not."""

import os
import stat
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from paddock.sandbox.git.rules import (
    GitChange,
    GitDirectory,
    NodeKind,
    judge_git,
    wants_content,
)

pytestmark = pytest.mark.needs("git")

IDENTITY = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_AUTHOR_NAME": "A U Thor",
    "GIT_AUTHOR_EMAIL": "author@example.com",
    "GIT_COMMITTER_NAME": "C O Mitter",
    "GIT_COMMITTER_EMAIL": "committer@example.com",
    "GIT_EDITOR": "true",
    "PATH": os.environ["PATH"],
    "LC_ALL": "C",
}

MAIN = GitDirectory(".git")

Node = tuple[NodeKind, int, bytes]


class Repository:
    """A work tree with a git directory, and what one operation changed in it."""

    def __init__(
        self, root: Path, git_directory: Path | None = None, nested: frozenset[str] = frozenset()
    ) -> None:
        self.root = root
        self.git_directory = git_directory or root / ".git"
        self.nested = nested

    def git(self, *arguments: str, fails: bool = False) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.root,
            env=IDENTITY,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode != 0) is fails, done.stderr
        return done.stdout

    def write(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)

    def commit(self, name: str, text: str) -> None:
        self.write(name, text)
        self.git("add", name)
        self.git("commit", "-qm", f"{name}: {text}")

    def nodes(self) -> dict[str, Node]:
        found: dict[str, Node] = {}
        for folder, folders, files in os.walk(self.git_directory):
            for name in (*folders, *files):
                path = os.path.join(folder, name)
                found[os.path.relpath(path, self.git_directory)] = _node(path)
        return found

    def changed_by(self, *operations: tuple[str, ...], fails: bool = False) -> list[GitChange]:
        before = self.nodes()
        for operation in operations:
            self.git(*operation, fails=fails and operation is operations[-1])
        return difference(before, self.nodes(), self.nested)


def _node(path: str) -> Node:
    status = os.lstat(path)
    if stat.S_ISDIR(status.st_mode):
        return NodeKind.DIRECTORY, stat.S_IMODE(status.st_mode), b""
    if stat.S_ISLNK(status.st_mode):
        return NodeKind.LINK, 0o777, os.readlink(path).encode()
    return NodeKind.FILE, stat.S_IMODE(status.st_mode), Path(path).read_bytes()


def difference(
    before: dict[str, Node], after: dict[str, Node], nested: frozenset[str] = frozenset()
) -> list[GitChange]:
    gone = [
        GitChange(name, before[name][0], is_removed=True)
        for name in sorted(before)
        if name not in after
    ]
    new = [
        GitChange(name, kind, mode, content if wants_content(name, nested) else None)
        for name, (kind, mode, content) in sorted(after.items())
        if before.get(name) != (kind, mode, content)
    ]
    return gone + new


def refused(changes: Iterable[GitChange], directory: GitDirectory = MAIN) -> list[str]:
    changes = list(changes)
    return [each.name for each in changes if not judge_git(each, directory, "safe").is_allowed]


def holding(changes: Iterable[GitChange], directory: GitDirectory = MAIN) -> list[str]:
    """What refuses all of the unit that it is in."""
    rulings = {each.name: judge_git(each, directory, "safe") for each in changes}
    return [name for name, each in rulings.items() if not (each.is_allowed or each.is_aside)]


@pytest.fixture
def repository(tmp_path):
    made = Repository(tmp_path / "work")
    made.root.mkdir()
    made.git("init", "-q", "-b", "main")
    made.commit("a", "1\n")
    made.commit("b", "1\n")
    made.git("branch", "other", "HEAD~1")
    return made


@pytest.mark.parametrize(
    "operations",
    [
        pytest.param([("add", "new")], id="add"),
        pytest.param([("add", "new"), ("commit", "-qm", "x")], id="commit"),
        pytest.param([("add", "new"), ("commit", "-q", "--amend", "-m", "y")], id="amend"),
        pytest.param([("branch", "topic/deep/name")], id="branch"),
        pytest.param([("branch", "-D", "other")], id="branch delete"),
        pytest.param([("branch", "-m", "other", "another")], id="branch rename"),
        pytest.param([("checkout", "-q", "other")], id="checkout"),
        pytest.param([("checkout", "-q", "--detach")], id="detach"),
        pytest.param([("switch", "-q", "-c", "feature")], id="switch"),
        pytest.param([("tag", "v1"), ("tag", "-a", "v2", "-m", "annotated")], id="tag"),
        pytest.param([("add", "new"), ("stash", "-q"), ("stash", "pop", "-q")], id="stash"),
        pytest.param([("add", "new"), ("stash", "-q")], id="stash kept"),
        pytest.param([("reset", "-q", "--hard", "HEAD~1")], id="reset"),
        pytest.param([("merge", "-q", "--no-ff", "-m", "m", "other")], id="merge"),
        pytest.param([("revert", "--no-edit", "HEAD")], id="revert"),
        pytest.param([("gc", "-q")], id="gc"),
        pytest.param([("repack", "-adq")], id="repack"),
        pytest.param([("pack-refs", "--all")], id="pack-refs"),
        pytest.param([("commit-graph", "write", "--reachable")], id="commit-graph"),
        pytest.param(
            [("commit-graph", "write", "--reachable", "--split")], id="split commit-graph"
        ),
        pytest.param([("update-server-info",)], id="server info"),
        pytest.param([("notes", "add", "-m", "note")], id="notes"),
        pytest.param([("reflog", "expire", "--expire=now", "--all"), ("prune",)], id="prune"),
        pytest.param([("bisect", "start", "HEAD", "HEAD~1", "--", "b")], id="bisect"),
        pytest.param([("rm", "-q", "a")], id="rm"),
        pytest.param([("mv", "a", "c")], id="mv"),
        pytest.param([("read-tree", "--empty")], id="empty index"),
        pytest.param([("update-index", "--index-version", "4")], id="index version 4"),
        pytest.param([("multi-pack-index", "write")], id="multi-pack index"),
        pytest.param([("symbolic-ref", "refs/heads/alias", "refs/heads/main")], id="symbolic ref"),
    ],
)
def test_what_an_ordinary_operation_writes_is_committed(repository, operations):
    repository.write("new", "content\n")
    if operations[0][0] == "multi-pack-index":
        repository.git("repack", "-adq")
    changes = repository.changed_by(*operations)
    assert changes
    assert refused(changes) == []


@pytest.mark.parametrize("operation", [("gc", "-q"), ("repack", "-adq"), ("update-server-info",)])
def test_the_list_of_refs_of_a_repository_with_an_annotated_tag_is_committed(repository, operation):
    repository.git("tag", "-a", "v1", "-m", "annotated")
    changes = repository.changed_by(operation)
    listed = next(change.content for change in changes if change.name == "info/refs")
    assert listed is not None
    assert listed.endswith(b"\trefs/tags/v1^{}\n")
    assert refused(changes) == []


def test_a_split_index_holds_up_its_unit(repository):
    changes = repository.changed_by(("update-index", "--split-index"))
    assert holding(changes) == ["index"]


def test_an_index_of_sha256_is_committed_where_the_repository_is_known_for_it(tmp_path):
    made = Repository(tmp_path / "wide")
    made.root.mkdir()
    made.git("init", "-q", "--object-format=sha256")
    made.write("a", "1\n")
    changes = made.changed_by(("add", "a"), ("commit", "-qm", "x"))
    assert refused(changes, GitDirectory(".git", hash_bytes=32)) == []
    assert holding(changes) == ["index"]


def conflict(repository: Repository) -> None:
    repository.git("checkout", "-q", "other")
    repository.commit("b", "2\n")


def conflict_with_several(repository: Repository) -> None:
    repository.commit("b", "3\n")
    repository.commit("b", "4\n")
    conflict(repository)


@pytest.mark.parametrize(
    "operation",
    [
        ("merge", "main"),
        ("rebase", "main"),
        ("rebase", "--apply", "main"),
        ("rebase", "-i", "main"),
        ("cherry-pick", "main"),
        ("cherry-pick", "main", "main~1"),
        ("stash", "pop"),
    ],
    ids=" ".join,
)
def test_an_operation_that_stops_at_a_conflict_leaves_state_that_is_committed(
    repository, operation
):
    conflict(repository)
    if operation[0] == "stash":
        repository.write("b", "3\n")
        repository.git("stash", "-q")
        repository.commit("b", "4\n")
    changes = repository.changed_by(operation, fails=True)
    assert changes
    assert refused(changes) == []
    if operation[0] == "rebase":
        assert refused(repository.changed_by(("rebase", "--abort"))) == []


def test_a_rebase_with_a_strategy_keeps_its_options(repository):
    conflict(repository)
    changes = repository.changed_by(("rebase", "-s", "ort", "-X", "patience", "main"), fails=True)
    assert any(change.name == "rebase-merge/strategy_opts" for change in changes)
    assert refused(changes) == []


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        (("-X", "patience"), b"[options]\n\tstrategy-option = patience\n"),
        (("--strategy=recursive",), b"[options]\n\tstrategy = recursive\n"),
    ],
    ids=str,
)
def test_a_cherry_pick_of_several_commits_keeps_its_strategy(repository, options, kept):
    conflict_with_several(repository)
    changes = repository.changed_by(("cherry-pick", *options, "main~1", "main"), fails=True)
    assert [c.content for c in changes if c.name == "sequencer/opts"] == [kept]
    assert refused(changes) == []


def test_a_cherry_pick_that_will_run_a_program_to_sign_holds_up_its_unit(repository):
    conflict_with_several(repository)
    changes = repository.changed_by(("cherry-pick", "-S", "main~1", "main"), fails=True)
    assert holding(changes) == ["sequencer/opts"]


def test_a_rebase_that_will_run_a_command_holds_up_its_unit(repository):
    conflict(repository)
    changes = repository.changed_by(("rebase", "-i", "--exec", "touch owned", "main"), fails=True)
    names = ["rebase-merge/git-rebase-todo", "rebase-merge/git-rebase-todo.backup"]
    assert holding(changes) == names


def test_a_fetch_from_a_local_repository_is_committed(repository, tmp_path):
    far = Repository(tmp_path / "far")
    repository.git("clone", "-q", str(repository.root), str(far.root))
    far.commit("c", "far\n")
    repository.git("remote", "add", "far", str(far.root))
    assert refused(repository.changed_by(("fetch", "-q", "far"))) == []
    assert refused(repository.changed_by(("pull", "-q", "--no-rebase", "far", "main"))) == []


def test_a_shallow_fetch_is_committed(repository, tmp_path):
    near = Repository(tmp_path / "near")
    near.root.mkdir()
    near.git("init", "-q", "-b", "main")
    url = f"file://{repository.root}"
    assert refused(near.changed_by(("fetch", "-q", "--depth", "1", url, "main"))) == []


def test_a_new_worktree_is_refused_and_its_branch_is_committed(repository, tmp_path):
    changes = repository.changed_by(("worktree", "add", "-q", "-b", "fix", str(tmp_path / "fix")))
    said = refused(changes)
    assert "worktrees/fix/commondir" in said
    assert "worktrees/fix/gitdir" in said
    assert all(name.startswith("worktrees") for name in said)
    assert any(change.name == "refs/heads/fix" for change in changes)


def test_a_commit_in_a_worktree_that_stood_there_is_committed(repository, tmp_path):
    repository.git("worktree", "add", "-q", "-b", "fix", str(tmp_path / "fix"))
    known = GitDirectory(".git", frozenset({"worktrees/fix"}))
    work = Repository(tmp_path / "fix", repository.git_directory, known.nested)
    work.write("w", "1\n")
    changes = work.changed_by(("add", "w"), ("commit", "-qm", "in the worktree"))
    assert any(change.name == "worktrees/fix/index" for change in changes)
    assert refused(changes, known) == []
    assert "worktrees/fix/index" in refused(changes)


def test_a_commit_in_a_submodule_that_stood_there_is_committed(repository, tmp_path):
    library = tmp_path / "library"
    repository.git("clone", "-q", str(repository.root), str(library))
    allow = ("-c", "protocol.file.allow=always")
    added = repository.changed_by((*allow, "submodule", "add", "-q", str(library), "lib"))
    assert "modules/lib/config" in refused(added)
    known = GitDirectory(".git", frozenset({"modules/lib"}))
    inside = Repository(repository.root / "lib", repository.git_directory, known.nested)
    inside.write("s", "1\n")
    changes = inside.changed_by(("add", "s"), ("commit", "-qm", "in the submodule"))
    assert changes
    assert refused(changes, known) == []


@pytest.mark.parametrize("is_bare", [False, True])
def test_a_new_repository_comes_without_configuration_and_hooks(tmp_path, is_bare):
    root = tmp_path / "fresh"
    made = Repository(root, root if is_bare else None)
    made.root.mkdir()
    said = refused(made.changed_by(("init", "-q", *(["--bare"] if is_bare else []))))
    assert "config" in said
    assert "hooks" in said
    assert "HEAD" not in said
    assert "objects" not in said
    assert "refs" not in said


@pytest.mark.parametrize(
    "operation",
    [
        ("config", "core.fsmonitor", "touch owned"),
        ("config", "--worktree", "core.pager", "touch owned"),
        ("remote", "add", "evil", "ext::sh -c touch%20owned"),
        ("sparse-checkout", "set", "--no-cone", "a"),
    ],
    ids=" ".join,
)
def test_what_configures_a_repository_is_refused(repository, operation):
    if "--worktree" in operation:
        repository.git("config", "extensions.worktreeConfig", "true")
    changes = repository.changed_by(operation)
    assert {"config", "config.worktree"} & set(refused(changes))
