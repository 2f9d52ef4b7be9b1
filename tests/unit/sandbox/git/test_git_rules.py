"""What may not be committed in a git directory, row by row, and in which order the rest is."""

import hashlib

import pytest

from paddock.sandbox.git.rules import (
    ARMING_NAMES,
    BARE_NAMES,
    GitChange,
    GitDirectory,
    GitPlace,
    GitRuling,
    NodeKind,
    Phase,
    differ_in_upstreams,
    find_git_place,
    judge_git,
    looks_bare,
    wants_content,
)

OID = b"0123456789" * 4
INDEX = b"DIRC\0\0\0\x02\0\0\0\0"
INDEX += hashlib.sha1(INDEX).digest()
MAIN = GitDirectory(".git")


def usual(name: str) -> bytes:
    return INDEX if name.endswith("index") else OID + b"\n"


def judged(name, content=None, directory=MAIN, preset="safe", **more) -> GitRuling:
    kind = more.pop("kind", NodeKind.FILE)
    content = usual(name) if content is None else content
    return judge_git(GitChange(name, kind, content=content, **more), directory, preset)


CODE = [
    "hooks/pre-commit",
    "hooks/post-checkout",
    "hooks/HEAD",
    "config",
    "config.worktree",
    "config.lock",
    "commondir",
    "gitdir",
    "info/attributes",
    "info/exclude",
    "info/sparse-checkout",
    "info/grafts",
    "objects/info/alternates",
    "objects/info/http-alternates",
    "objects/ab/../../../config",
    "remotes/origin",
    "branches/origin",
    "description",
    "modules/lib/config",
    "modules/lib/HEAD",
    "modules/lib/hooks/post-checkout",
    "modules/a/refs/config",
    "worktrees/fix/gitdir",
    "worktrees/fix/commondir",
    "worktrees/fix/HEAD",
    "worktrees/fix/config.worktree",
    "lfs/objects/x",
    "lfs/objects/ab/cd/hook",
    "lfs/objects/ab/" + "0" * 64,
    "lfs/config",
    "fsmonitor--daemon.ipc",
    "index.lock",
    "HEAD.lock",
    "refs/heads/main.lock",
    "gc.pid",
    "CONFIG",
    "Hooks/pre-commit",
    "head",
    "",
    "x",
    "refs",
    "objects",
    "logs",
    "logs/config",
    "rebase-merge/gpg_sign_opt",
    "rebase-merge/unheard-of",
    "rebase-merge/../config",
    "objects/pack/pack-x.pack",
    "objects/zz/" + "0" * 38,
    "refs/heads/a\nb",
]


@pytest.mark.parametrize("name", CODE)
def test_what_could_make_git_run_code_is_refused_made_or_removed(name):
    assert not judged(name).is_allowed
    assert not judged(name, is_removed=True).is_allowed


def test_the_same_names_as_ordinary_ones_are_allowed():
    for name in ("refs/heads/main", "HEAD", "ORIG_HEAD", "MERGE_HEAD", "packed-refs", "index"):
        content = OID + b" refs/heads/main\n" if name == "packed-refs" else None
        assert judged(name, content).is_allowed, name
        assert judged(name, is_removed=True).is_allowed is (name != "HEAD"), name


def test_what_a_pointer_of_git_lfs_stands_for_lands_before_what_points_to_it():
    name = f"lfs/objects/ab/cd/{'0' * 64}"

    assert judged(name, b"any bytes") == GitRuling(True, phase=Phase.OBJECTS)
    assert not judged(name, kind=NodeKind.LINK).is_allowed
    assert not judged(name, mode=0o755).is_allowed
    for directory in ("lfs", "lfs/tmp", "lfs/objects", "lfs/objects/ab", "lfs/objects/ab/cd"):
        assert judged(directory, kind=NodeKind.DIRECTORY).is_allowed, directory


@pytest.mark.parametrize("kind", [NodeKind.LINK, NodeKind.FIFO])
@pytest.mark.parametrize("name", ["refs/heads/main", "HEAD", "index", "objects/ab", "logs"])
def test_a_link_or_device_under_an_ordinary_name_is_refused(kind, name):
    assert not judged(name, kind=kind).is_allowed


def test_a_link_under_an_ordinary_name_may_go_and_a_device_stays_with_all_that_goes_with_it():
    assert judged("ORIG_HEAD", kind=NodeKind.LINK, is_removed=True).is_allowed
    said = judged("ORIG_HEAD", kind=NodeKind.FIFO, is_removed=True)
    assert (said.is_allowed, said.is_aside) == (False, False)


@pytest.mark.parametrize("mode", [0o755, 0o744, 0o4644, 0o2644, 0o1644])
def test_an_executable_file_is_refused(mode):
    said = judged("refs/heads/main", mode=mode)
    assert (said.is_allowed, said.is_aside) == (False, False)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("refs/heads/main", b"#!/bin/sh\ntouch owned\n"),
        ("refs/config", b"[core]\n\tfsmonitor = touch owned\n"),
        ("refs/heads/main", b"ref: ../../config\n"),
        ("HEAD", b"ref: /etc/passwd\n"),
        ("HEAD", b"[core]\n"),
        ("FETCH_HEAD", b"[core]\n"),
        ("packed-refs", b"[core]\n"),
        ("logs/HEAD", b"[core]\n\tpager = touch owned\n"),
        ("logs/refs/config", OID + b" " + OID + b" a <b> 1 +0000\tm\n[core]\n"),
        ("rebase-merge/git-rebase-todo", b"exec touch owned\n"),
        ("rebase-merge/git-rebase-todo", b"pick 012 x\nx touch owned\n"),
        ("rebase-merge/git-rebase-todo.backup", b" exec touch owned\n"),
        ("rebase-merge/strategy", b"evil\n"),
        ("rebase-merge/strategy_opts", b" '--x; touch owned'\n"),
        ("rebase-merge/author-script", b"touch owned\n"),
        ("rebase-apply/author-script", b"GIT_AUTHOR_NAME='a'$(touch owned)''\n"),
        ("sequencer/todo", b"exec touch owned\n"),
        ("sequencer/opts", b"[options]\n\tstrategy = evil\n"),
        ("sequencer/opts", b"[options]\n\tstrategy-option = x; touch owned\n"),
        ("sequencer/opts", b"[options]\n\tgpg-sign = key\n"),
        ("sequencer/opts", b"[include]\n\tpath = x\n"),
        ("BISECT_NAMES", b" $(touch owned)\n"),
        ("BISECT_START", b"--upload-pack=touch\n"),
        ("info/refs", b"[core]\n"),
        ("info/refs", OID + b"\trefs/tags/v1^{}[core]\n"),
        ("shallow", b"[core]\n"),
        ("index", b"[core]\n"),
        ("index", INDEX + b"x"),
        ("sharedindex.0123", INDEX[:-1]),
        ("rebase-apply/patch-merge-index", OID),
    ],
)
def test_an_ordinary_name_with_another_content_is_refused_with_its_unit(name, content):
    assert wants_content(name)
    said = judged(name, content)
    assert (said.is_allowed, said.is_aside) == (False, False)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rebase-merge/git-rebase-todo", b"pick 012 x\n# exec is only a word\nbreak\n\nf -C 1 y\n"),
        ("rebase-merge/strategy", b"ort\n"),
        ("rebase-merge/strategy_opts", b" '--ours'\n '--patience'\n"),
        ("rebase-merge/author-script", b"GIT_AUTHOR_NAME='O'\\''Hara'\nGIT_AUTHOR_EMAIL='a'\n"),
        ("BISECT_NAMES", b" '--' 'a'\n"),
        ("HEAD", b"ref: refs/heads/main\n"),
        ("MERGE_HEAD", OID + b"\n" + OID + b"\n"),
        ("FETCH_HEAD", OID + b"\tnot-for-merge\tbranch 'x' of /far\n"),
        ("refs/remotes/origin/HEAD", b"ref: refs/remotes/origin/main\n"),
        ("sequencer/opts", b"[options]\n\tno-commit = true\n"),
        ("sequencer/opts", b"[options]\n\tstrategy = ort\n\tstrategy-option = patience\n"),
        ("info/refs", OID + b"\trefs/tags/v1\n" + OID + b"\trefs/tags/v1^{}\n"),
    ],
)
def test_the_contents_that_git_writes_are_allowed(name, content):
    assert judged(name, content).is_allowed


HARMLESS = {("rebase-merge/strategy_opts", b"--"), ("BISECT_NAMES", b"''"), ("BISECT_NAMES", b" '")}
"""Of what follows, by the content's first two bytes: options, and texts in quotes."""


@pytest.mark.parametrize(
    "content", [b"a" * 200_000, b"-" * 200_000, b"'" * 200_000, OID * 5_000, b" '" * 50_000]
)
@pytest.mark.parametrize(
    "name", ["HEAD", "rebase-merge/strategy_opts", "BISECT_NAMES", "logs/HEAD", "packed-refs"]
)
def test_a_content_made_to_keep_a_check_busy_is_judged_at_once(name, content):
    assert judged(name, content).is_allowed is ((name, content[:2]) in HARMLESS)


@pytest.mark.parametrize("name", ["index", "refs/heads/main"])
def test_a_checked_file_that_is_too_large_to_read_is_refused(name):
    said = judge_git(GitChange(name, NodeKind.FILE, content=None), MAIN, "safe")
    assert (said.is_allowed, said.is_aside) == (False, False)
    assert said.reason == "more than 16000000 bytes"


@pytest.mark.parametrize("name", ["HEAD", "refs", "refs/heads/main", "guide.md", "config"])
def test_nothing_lands_in_what_would_become_an_armed_repository(name):
    armed = GitDirectory("docs", armed_by="docs/config")
    why = "with the existing 'docs/config' it would become a repository"
    assert judged(name, directory=armed) == GitRuling(False, why)
    assert judged("HEAD", directory=GitDirectory("docs")).is_allowed


@pytest.mark.parametrize("name", ARMING_NAMES)
def test_what_arms_a_repository_is_looked_at_where_one_stands(name):
    assert not judged(name, b"evil\n").is_allowed


@pytest.mark.parametrize(
    "name", ["config", "description", "hooks", "hooks/pre-commit.sample", "info/exclude"]
)
def test_what_git_puts_into_a_new_repository_is_refused_beside_the_rest(name):
    kind = NodeKind.DIRECTORY if name == "hooks" else NodeKind.FILE
    new, old = (
        judged(name, b"x", kind=kind, directory=GitDirectory(".git", is_new=is_new))
        for is_new in (True, False)
    )
    assert (new.is_allowed, new.is_aside) == (False, True)
    assert (old.is_allowed, old.is_aside) == (False, False)


@pytest.mark.parametrize("name", ["hooks/pre-commit", "commondir", "modules/m/config", "x"])
def test_what_a_new_repository_does_not_come_with_holds_it_up(name):
    said = judged(name, b"x", directory=GitDirectory(".git", is_new=True))
    assert (said.is_allowed, said.is_aside) == (False, False)


@pytest.mark.parametrize(
    "name",
    [
        *("objects/pack/tmp_pack_x1", "objects/ab/tmp_obj_x1", "objects/pack/.tmp-1-pack-0.idx"),
        *("gc.pid", "lfs/tmp/x", "fsmonitor--daemon.ipc"),
    ],
)
def test_what_an_ended_git_leaves_is_refused_beside_the_rest(name):
    for is_removed in (False, True):
        said = judged(name, b"x", is_removed=is_removed)
        assert (said.is_allowed, said.is_aside) == (False, True)


UPSTREAM = b'[branch "x/y"]\n\tremote = origin\n\tmerge = refs/heads/x/y\n'
CONFIG = b'[core]\n\tbare = false\n[remote "origin"]\n\turl = u\n'


@pytest.mark.parametrize(
    ("before", "after", "are_alike"),
    [
        (CONFIG, CONFIG + UPSTREAM, True),
        (CONFIG + UPSTREAM, CONFIG, True),
        (UPSTREAM + CONFIG, CONFIG + UPSTREAM, True),
        (CONFIG, CONFIG + b"[user]\n\tname = n\n", False),
        (CONFIG, CONFIG + UPSTREAM + b"\tpushRemote = ext::sh\n", False),
        (CONFIG, CONFIG + UPSTREAM + b"\trebase = true\n", False),
        (CONFIG, UPSTREAM + b"\tfsmonitor = evil\n" + CONFIG, False),
        (CONFIG, CONFIG + b'[branch "x"]\n\tremote = "a"\n', False),
    ],
)
def test_configurations_that_differ_in_upstreams_alone_are_known(before, after, are_alike):
    assert differ_in_upstreams(before, after) == are_alike


def test_the_order_of_a_commit_is_objects_state_refs_heads_and_removals_backwards():
    rows = [
        judged("objects/ab/" + "0" * 38, kind=NodeKind.FILE),
        judged("index"),
        judged("refs/heads/main"),
        judged("HEAD"),
        judged("refs/heads/gone", is_removed=True),
        judged("REBASE_HEAD", is_removed=True),
        judged("rebase-merge/done", is_removed=True),
        judged("objects/ab/" + "0" * 38, is_removed=True),
    ]
    assert all(row.is_allowed for row in rows)
    phases = [row.phase for row in rows]
    assert phases == sorted(phases)
    assert (phases[0], phases[-1]) == (Phase.OBJECTS, Phase.GONE_OBJECTS)


def test_removing_what_makes_a_repository_one_is_refused_with_its_unit():
    for name, kind in (("HEAD", NodeKind.FILE), ("refs", NodeKind.DIRECTORY)):
        said = judged(name, kind=kind, is_removed=True)
        assert (said.is_allowed, said.is_aside) == (False, False)


def test_read_only_commits_nothing():
    assert not judged("index", preset="read-only").is_allowed
    assert judged("index", preset="safe").is_allowed


def test_the_git_directory_itself_and_a_link_to_another_are_told_apart():
    assert judged(".", kind=NodeKind.DIRECTORY, mode=0o755).is_allowed
    assert not judged(".", kind=NodeKind.DIRECTORY, mode=0o777).is_allowed
    assert not judged(".", kind=NodeKind.DIRECTORY, is_removed=True).is_allowed
    assert not judged(".", b"gitdir: /elsewhere\n", kind=NodeKind.FILE).is_allowed
    assert not judged(".", kind=NodeKind.LINK).is_allowed


def test_a_git_directory_in_other_letters_is_not_written():
    assert not judged("index", directory=GitDirectory("a/.GIT")).is_allowed
    assert judged("index", directory=GitDirectory("a/.git")).is_allowed


def test_only_nested_directories_that_stood_there_are_judged_inside():
    known = GitDirectory(".git", frozenset({"modules/a", "modules/a/b"}))
    assert judged("modules/a/refs/heads/x", directory=known).is_allowed
    assert judged("modules/a/b/index", directory=known).is_allowed
    assert not judged("modules/a/config", directory=known).is_allowed
    assert not judged("modules/ab/index", directory=known).is_allowed
    assert not judged("modules/a", directory=known, kind=NodeKind.DIRECTORY).is_allowed


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("src/a.py", None),
        (".gitignore", None),
        (".github/x", None),
        (".git", GitPlace(".git", ".")),
        (".git/refs/heads/x", GitPlace(".git", "refs/heads/x")),
        ("a/b/.git/index", GitPlace("a/b/.git", "index")),
        ("a/.GIT/index", GitPlace("a/.GIT", "index")),
        (".git/modules/x/.git/y", GitPlace(".git", "modules/x/.git/y")),
        ("store.git/config", GitPlace("store.git", "config")),
        ("store.git", GitPlace("store.git", ".")),
        ("store.gitx/config", None),
    ],
)
def test_a_path_is_placed_in_its_outermost_git_directory(path, place):
    assert find_git_place(path, ["store.git"]) == place


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("HEAD", GitPlace(".", "HEAD")),
        ("config", GitPlace(".", "config")),
        ("Config.worktree", GitPlace(".", "Config.worktree")),
        ("hooks/pre-commit", GitPlace(".", "hooks/pre-commit")),
        ("merge_head", GitPlace(".", "merge_head")),
        ("modules/lib/config", GitPlace(".", "modules/lib/config")),
        ("index.lock", GitPlace(".", "index.lock")),
        ("store.git/HEAD", GitPlace("store.git", "HEAD")),
        ("fix/.git/index", GitPlace("fix/.git", "index")),
        ("Cargo.lock", None),
        ("src/config", None),
        ("README", None),
    ],
)
def test_where_the_workspace_is_a_repository_what_git_does_not_know_is_a_work_tree(path, place):
    assert find_git_place(path, ["store.git", "."]) == place


def test_a_bare_repository_is_told_by_its_entries():
    assert looks_bare(["HEAD", "config", "objects", "refs"])
    assert looks_bare(["HEAD", "commondir"])
    assert looks_bare(BARE_NAMES)
    assert not looks_bare(["HEAD", "objects"])
    assert not looks_bare(["HEAD", "refs", "config"])
    assert not looks_bare(["objects", "refs", "commondir"])
