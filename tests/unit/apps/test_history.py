"""`paddock history`, `diff` and `undo`, as a person meets them."""

import json
import os
from typing import Any

import pytest

from paddock.assembly.ledgers import open_ledger
from paddock.assembly.project_open import open_project
from paddock.assembly.runtimes import open_runtime
from paddock.assembly.undo import open_past
from paddock.errors import HostError
from paddock.plane.environment import read_environment
from paddock.runtime.approvals import NoApprover
from paddock.storage.history import History
from paddock.storage.notes import CallMark, Doing
from paddock.values.entries import digest_of
from tests.support.disks import tree
from tests.support.stores import objects_in
from tests.support.users import give_to_plain_user, run_as_plain_user

UNDOABLE = "yes"


class Person:
    """Somebody who calls tools and looks at what they did."""

    def __init__(self, place) -> None:
        self.place = place
        self.root = place.project
        assert place.run("init", ".").status == 0

    def call(self, tool: str, **arguments: object) -> str:
        """The id of a call that went well."""
        ran = self.place.run("call", tool, json.dumps(arguments), "--no-input")
        assert ran.status == 0, ran
        return self.calls()[-1]["call"]

    def calls(self, *options: str) -> list[dict[str, Any]]:
        ran = self.place.run("history", "--json", *options)
        assert ran.status == 0, ran
        return ran.json["calls"]

    def standing(self, call: str) -> str:
        (found,) = [row for row in self.calls() if row["call"] == call]
        return found["standing"]

    def undo(self, call: str):
        return self.place.run("undo", call, "--json")

    def entries(self, kind: str) -> list[dict[str, Any]]:
        ran = self.place.run("ledger", "query", "--ledger", "ho1m", "--type", kind, "--json")
        return [json.loads(line) for line in ran.out.splitlines()]

    @property
    def objects(self):
        (plane,) = (self.place.home / ".local/state/paddock/planes").iterdir()
        return plane / "objects"

    def tree(self) -> dict[str, object]:
        return {
            name: (what, (self.root / name).lstat().st_mode)
            for name, what in tree_without_fifo(self.root).items()
        }


def tree_without_fifo(root) -> dict[str, object]:
    (root / "fifo").unlink(missing_ok=True)
    return tree(root)


@pytest.fixture
def person(place):
    return Person(place)


def test_a_project_in_which_nothing_happened_has_no_history(person):
    ran = person.place.run("history")
    assert (ran.status, ran.out) == (0, "")
    assert "no call has changed anything" in ran.err
    said = person.place.run("history", "a.txt").err
    assert "no call of Paddock's tools has changed 'a.txt' (a path is relative to the work" in said
    assert person.calls() == []
    assert person.place.run("undo", "CALL-1").status == 2
    assert person.place.run("diff", "CALL-1").status == 2


def test_history_tells_who_did_what_to_which_path_newest_last(person):
    created = person.call("create_file", path="new/dir/a.txt", content="one\n")
    edited = person.call("str_replace", path="README.md", old_str="teh", new_str="the")
    person.place.run("call", "view", '{"path": "README.md"}')
    moved = person.call("move_file", path="src/a.py", to="lib/a.py")
    rows = person.calls()
    assert [row["call"] for row in rows] == [created, edited, moved]
    assert {name: rows[1][name] for name in ("agent", "tool", "outcome", "can_undo")} == {
        "agent": "main",
        "tool": "str_replace",
        "outcome": "done",
        "can_undo": True,
    }
    lines = person.place.run("history").out.splitlines()
    assert [line.split("  ")[-1].strip() for line in lines] == [
        "created new/dir/a.txt",
        "edited README.md",
        "moved src/a.py to lib/a.py",
    ]
    assert edited in lines[1]
    assert "main" in lines[1]


def test_undo_without_a_call_undoes_nothing_and_names_the_newest_that_it_could(person):
    calls = [person.call("create_file", path=f"f{n}", content="x") for n in range(4)]
    (person.root / "f3").write_text("changed since")
    before = person.tree()
    ran = person.place.run("undo")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.splitlines() == [
        "error[usage]: no call given",
        "  where: CALL",
        "  hint:  paddock history lists all calls; the newest that can be undone:",
        *(f"    paddock undo {calls[n]}  (create_file: created f{n})" for n in (2, 1, 0)),
    ]
    assert (person.tree(), len(person.calls())) == (before, 4)
    assert person.place.run(*ran.err.splitlines()[3].split()[1:3]).status == 0
    assert not (person.root / "f2").exists()


def test_diff_without_a_call_names_the_newest_that_changed_something(person):
    created = person.call("create_file", path="a", content="x")
    edited = person.call("create_file", path="a", content="y")
    ran = person.place.run("diff")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.splitlines()[2:] == [
        "  hint:  paddock history lists all calls; the newest that changed something:",
        f"    paddock diff {edited}  (create_file: overwritten a)",
        f"    paddock diff {created}  (create_file: created a)",
    ]


def test_a_call_says_its_own_id(person):
    ran = person.place.run("call", "create_file", '{"path": "a", "content": "x"}')
    refused = person.place.run("call", "create_file", '{"path": ".git/x", "content": "x"}')
    assert ran.json["call"] == person.calls()[-1]["call"]
    (denied,) = person.entries("TOOL_DENIED")
    assert (refused.json["code"], refused.json["call"]) == ("policy.protected", denied["call_id"])


def test_undo_without_a_call_says_where_there_is_none(person):
    ran = person.place.run("undo", "--json")
    assert (ran.status, ran.out) == (2, "")
    assert "no call given, and none that can be undone" in ran.err


@pytest.mark.parametrize("identity", ["one", "-x", "two words"])
def test_a_call_whose_id_names_it_not_is_offered_by_its_entry(person, identity):
    environment = read_environment({"HOME": str(person.place.home)})
    project = open_project(person.root, environment)
    with open_runtime(project, agent=None, approver=NoApprover()) as runtime:
        for path in ("a", "b"):
            made = runtime.call("create_file", {"path": path, "content": "x"}, call_id=identity)
            assert made.status == "ok"
    newest = person.calls()[-1]["entry"]
    assert f"    paddock undo {newest}  (create_file: created b)" in person.place.run("undo").err


@pytest.mark.parametrize("path", ["new", "new/a.txt", "./new", "new/"])
def test_history_of_a_path_tells_of_what_is_below_it(person, path):
    call = person.call("create_file", path="new/a.txt", content="one\n")
    person.call("create_file", path="news.txt", content="one\n")
    assert [row["call"] for row in person.calls(path)] == [call]
    assert [row["call"] for row in person.calls(str(person.root / "new"))] == [call]


def test_the_last_so_many_calls_are_shown_and_the_rest_is_counted(person):
    calls = [person.call("create_file", path=f"f{n}", content="x") for n in range(3)]
    assert [row["call"] for row in person.calls("--last", "2")] == calls[1:]
    assert "1 older calls" in person.place.run("history", "--last", "2").err
    assert person.place.run("history", "--last", "-1").status == 2


def test_diff_shows_what_a_call_changed(person):
    call = person.call("str_replace", path="README.md", old_str="teh", new_str="the")
    assert person.place.run("diff", call).out.splitlines() == [
        "edited README.md",
        "--- a/README.md",
        "+++ b/README.md",
        "@@ -1,2 +1,2 @@",
        " # Widgets",
        "-hello teh world",
        "+hello the world",
    ]
    shown = person.place.run("diff", call, "--json").json
    assert (shown["call"], shown["paths"][0]["path"]) == (call, "README.md")
    # What the call left is shown also after it was replaced in its turn.
    person.call("create_file", path="README.md", content="all new\n")
    assert "+hello the world" in person.place.run("diff", call).out


def test_diff_says_what_it_cannot_show(person):
    (person.root / "blob").write_bytes(b"\0" * 20)
    call = person.call("delete_file", path="blob")
    assert "binary, 20 bytes before" in person.place.run("diff", call).out
    call = person.call("str_replace", path="README.md", old_str="teh", new_str="the")
    (person.root / "README.md").write_text("somebody else\n")
    assert "the content after is not kept" in person.place.run("diff", call).out


def test_what_became_secret_is_neither_shown_nor_named(person):
    call = person.call("create_file", path="plans.txt", content="attack at dawn\n")
    (person.root / "paddock.toml").write_text('[paths]\nsecret = ["plans.txt"]\n')
    person.place.run("trust", "--yes")
    for ran in (person.place.run("diff", call), person.place.run("history")):
        assert "dawn" not in ran.out
        assert "plans" not in ran.out
    shown = person.place.run("diff", call, "--json").json
    assert (shown["paths"], shown["secret_paths"]) == ([], 1)
    assert (person.calls()[0]["changes"], person.calls()[0]["secret_changes"]) == ([], 1)


def test_a_move_to_what_became_secret_gives_away_neither_its_name_nor_a_digest(person):
    digest = digest_of((person.root / "src/a.py").read_bytes())
    moved = person.call("move_file", path="src/a.py", to="vault/key.py")
    open_move = person.call("move_file", path="src/latin", to="src/other")
    (person.root / "paddock.toml").write_text('[paths]\nsecret = ["/vault/"]\n')
    person.place.run("trust", "--yes")
    said = [
        person.place.run(*words).out
        for words in (
            ("history",),
            ("history", "--json"),
            ("diff", moved),
            ("diff", moved, "--json"),
        )
    ]
    for text in (*said, person.place.run("undo").err, person.place.run("diff").err):
        assert "vault" not in text
        assert digest.removeprefix("sha256:") not in text
    assert "moved a secret path" in said[0]
    rows = {row["call"]: (len(row["changes"]), row["secret_changes"]) for row in person.calls()}
    assert rows == {moved: (0, 1), open_move: (1, 0)}
    assert "moved src/latin to src/other" in said[0]


def test_control_characters_reach_no_terminal(person):
    call = person.call("create_file", path="a.txt", content="\x1b[2Jgone\u202e\n")
    assert "\x1b" not in person.place.run("diff", call).out
    assert "\\x1b[2Jgone\\u202e" in person.place.run("diff", call).out


WAYS = {
    "create": ("create_file", {"path": "new/dir/a.txt", "content": "one\n"}),
    "overwrite": ("create_file", {"path": "README.md", "content": "one\n"}),
    "edit": ("str_replace", {"path": "README.md", "old_str": "teh", "new_str": "the"}),
    "move": ("move_file", {"path": "src/a.py", "to": "far/away/a.py"}),
    "move link": ("move_file", {"path": "inner", "to": "other"}),
    "move directory": ("move_file", {"path": "empty", "to": "other/empty"}),
    "delete": ("delete_file", {"path": "src/binary"}),
    "delete link": ("delete_file", {"path": "out"}),
    "delete directory": ("delete_file", {"path": "empty"}),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_undo_brings_everything_back_and_can_be_undone(person, way):
    for name, mode in (("README.md", 0o640), ("src/binary", 0o751), ("empty", 0o711)):
        (person.root / name).chmod(mode)
    before = person.tree()
    tool, arguments = WAYS[way]
    call = person.call(tool, **arguments)
    after = person.tree()
    assert after != before
    undone = person.undo(call)
    assert (undone.status, undone.json["undone"]) == (0, call)
    assert person.tree() == before
    assert person.standing(call) == "as before"
    again = person.undo(undone.json["call"])
    assert again.status == 0, again
    assert person.tree() == after
    assert person.standing(call) == UNDOABLE
    assert person.place.run("ledger", "verify").status == 0


def test_history_says_what_was_undone_and_by_which_call(person):
    call = person.call("delete_file", path="README.md")
    undo = person.undo(call).json["call"]
    (line,) = [line for line in person.place.run("history").out.splitlines() if call in line][:1]
    assert line.endswith(f"[undone by {undo}]")


def row_of(person, call: str) -> str:
    (row,) = [line for line in person.place.run("history").out.splitlines() if f"  {call} " in line]
    return row


def test_an_undone_call_stays_undone_whatever_happens_to_its_file_since(person):
    first = person.call("create_file", path="f", content="one\n")
    second = person.call("str_replace", path="f", old_str="one", new_str="two")
    assert [row["undone_by"] for row in person.calls()] == ["", ""]
    undone = [(call, person.undo(call).json["call"]) for call in (second, first)]
    person.call("create_file", path="f", content="three\n")

    for call, undo in undone:
        assert row_of(person, call).endswith(f"[undone by {undo}]")
    shown = {row["call"]: row["undone_by"] for row in person.calls()}
    assert {call: undo for call, undo in shown.items() if undo} == dict(undone)


def test_a_call_whose_undo_was_undone_is_not_undone(person):
    call = person.call("delete_file", path="README.md")
    undo = person.undo(call).json["call"]
    redo = person.undo(undo).json["call"]

    assert "[" not in row_of(person, call)
    assert row_of(person, undo).endswith(f"[undone by {redo}]")
    assert [row["undone_by"] for row in person.calls()] == ["", redo, ""]


def test_calls_that_no_id_tells_apart_are_listed_with_their_entries(person):
    alone = person.call("create_file", path="alone", content="x")
    environment = read_environment({"HOME": str(person.place.home)})
    project = open_project(person.root, environment)
    with open_runtime(project, agent=None, approver=NoApprover()) as runtime:
        for path in ("a", "b"):
            made = runtime.call("create_file", {"path": path, "content": "x"}, call_id="call_0")
            assert made.status == "ok"
    one, *both = person.calls()

    rows = person.place.run("history").out.splitlines()
    assert [row.split("  ")[1] for row in rows] == [
        alone,
        *(f"call_0 ({row['entry']})" for row in both),
    ]
    ran = person.undo("call_0")
    assert (ran.status, ran.out) == (2, "")
    said = [f"{row['entry']}  {row['timestamp'][:19]}Z  create_file: created" for row in both]
    assert ran.err.splitlines()[-2:] == [f"    {said[0]} a", f"    {said[1]} b"]
    assert (person.undo(both[0]["entry"]).status, one["entry"] in ran.err) == (0, False)
    assert [(person.root / name).exists() for name in ("a", "b")] == [False, True]


def test_history_says_where_somebody_else_brought_everything_back(person):
    before = (person.root / "README.md").read_bytes()
    call = person.call("delete_file", path="README.md")
    (person.root / "README.md").write_bytes(before)
    (line,) = person.place.run("history").out.splitlines()
    assert (call in line, "[nothing to undo: all files are as before the call]" in line) == (
        True,
        True,
    )


def test_an_undo_is_on_record_like_a_call(person):
    call = person.call("delete_file", path="README.md")
    undo = person.undo(call).json["call"]
    (intent,) = [e for e in person.entries("TOOL_INTENT") if e["call_id"] == undo]
    (result,) = [e for e in person.entries("TOOL_RESULT") if e["call_id"] == undo]
    assert (intent["agent"], intent["decision"]) == ("(operator)", "allow")
    assert intent["metadata"]["arguments"] == {"call": call, "agent": "main"}
    assert intent["metadata"]["actions"] == ["tool:file:create README.md"]
    assert intent["metadata"]["source"] == "operator"
    assert [effect["kind"] for effect in result["metadata"]["effects"]] == ["created"]
    row = person.calls()[-1]
    assert (row["call"], row["undoes"], row["workspace_of"]) == (undo, call, "main")


def test_an_undo_is_refused_with_a_diff_where_the_file_changed_since(person):
    call = person.call("str_replace", path="README.md", old_str="teh", new_str="the")
    (person.root / "README.md").write_text("# Widgets\nsomebody else\n")
    before = person.tree()
    ran = person.place.run("undo", call)
    assert (ran.status, "error[text.changed]" in ran.err) == (1, True)
    assert "+somebody else" in ran.out
    assert person.tree() == before
    shown = person.undo(call)
    assert (shown.status, shown.json["code"]) == (1, "text.changed")
    assert "+somebody else" in shown.json["since"]["paths"][0]["diff"]
    assert person.standing(call) == "changed since"
    denied = person.entries("TOOL_DENIED")[-1]
    assert (denied["agent"], denied["metadata"]["tool"]) == ("(operator)", "undo")


@pytest.mark.parametrize(
    ("way", "meddle"),
    [
        ("create", lambda root: (root / "new/dir/a.txt").unlink()),
        ("create", lambda root: (root / "new/dir/a.txt").write_text("other")),
        ("move", lambda root: (root / "src/a.py").write_text("in the way")),
        ("move", lambda root: (root / "far/away/a.py").write_text("other")),
        ("delete", lambda root: (root / "src/binary").write_text("in the way")),
        ("delete", lambda root: (root / "src/binary").mkdir()),
        ("delete link", lambda root: (root / "out").symlink_to("elsewhere")),
        ("move directory", lambda root: (root / "empty").mkdir()),
    ],
)
def test_nothing_that_came_since_is_touched_by_an_undo(person, way, meddle):
    tool, arguments = WAYS[way]
    call = person.call(tool, **arguments)
    meddle(person.root)
    before = person.tree()
    assert person.undo(call).status == 1
    assert person.tree() == before


def test_directories_that_a_call_made_go_only_if_nothing_else_is_in_them(person):
    call = person.call("create_file", path="new/dir/a.txt", content="one\n")
    (person.root / "new/other").write_text("mine")
    assert person.undo(call).status == 0
    assert os.listdir(person.root / "new") == ["other"]


def test_a_parent_that_went_away_since_is_made_again(person):
    call = person.call("delete_file", path="src/binary")
    for name in ("a.py", "latin"):
        (person.root / "src" / name).unlink()
    (person.root / "src").rmdir()
    assert person.undo(call).status == 0
    assert (person.root / "src/binary").read_bytes() == b"\0\1\2"


def test_an_undo_passes_no_link(person, place):
    call = person.call("delete_file", path="src/binary")
    for name in ("a.py", "latin"):
        (person.root / "src" / name).unlink()
    (person.root / "src").rmdir()
    (person.root / "src").symlink_to(place.outside)
    outside = tree(place.outside)
    ran = person.undo(call)
    assert (ran.status, ran.json["code"]) in {(1, "path.escapes_root"), (1, "path.through_link")}
    assert tree(place.outside) == outside


def test_an_undo_whose_content_was_pruned_says_so(person):
    call = person.call("delete_file", path="README.md")
    (name,) = objects_in(person.objects)
    (person.objects / name).unlink()
    assert person.standing(call) == "not kept"
    ran = person.place.run("undo", call)
    assert (ran.status, "does not have the old content of 'README.md'" in ran.err) == (1, True)
    assert not (person.root / "README.md").exists()


def test_an_undo_whose_content_is_damaged_stops_as_broken_integrity(person):
    call = person.call("delete_file", path="README.md")
    (name,) = objects_in(person.objects)
    (person.objects / name).write_bytes(b"forged")
    ran = person.undo(call)
    assert (ran.status, ran.out, f"sha256:{name}" in ran.err) == (4, "", True)
    assert not (person.root / "README.md").exists()


def test_a_call_is_found_by_its_ledger_entry_and_an_id_of_two_by_nothing_else(person):
    ids = [person.call("create_file", path=name, content="x") for name in ("a", "b")]
    entries = [row["entry"] for row in person.calls()]
    assert person.undo(entries[0]).status == 0
    assert sorted(p.name for p in person.root.iterdir() if p.name in "ab") == ["b"]
    history = History(str(person.objects), bytes_max=1 << 20)
    path = person.root / "c"
    path.write_bytes(b"x")
    version = digest_of(b"x")
    with history.running(CallMark(ids[1], "create_file", "main", "SES-other")) as running:
        history.note_all(running, [Doing("c", "created", after=version)])
    # Threat: a model may choose the id of its call.
    ran = person.undo(ids[1])
    assert (ran.status, "2 calls have the id" in ran.err) == (2, True)
    assert entries[1] in ran.err
    history.close()
    assert path.exists()


def test_a_call_that_was_killed_before_its_result_can_be_found_and_undone(person):
    person.place.run("call", "view", '{"path": "README.md"}')
    history = History(str(person.objects), bytes_max=1 << 20)
    readme = person.root / "README.md"
    old = readme.read_bytes()
    with (
        history.running(CallMark("CALL-killed", "create_file", "main", "SES-1")) as running,
        readme.open("rb") as file,
    ):
        history.store.put_file(file.fileno())
        history.store.sync()
        history.note_all(
            running,
            [Doing("README.md", "overwritten", before=digest_of(old), after=digest_of(b"new"))],
        )
    history.close()
    assert person.standing("CALL-killed") == "as before"
    readme.write_bytes(b"new")
    row = person.calls()[-1]
    assert (row["call"], row["outcome"], row["standing"]) == ("CALL-killed", "unknown", "yes")
    assert "killed, or still running" in person.place.run("history").out
    assert person.undo("CALL-killed").status == 0
    assert readme.read_bytes() == old


def test_a_killed_call_with_the_id_of_an_earlier_one_is_found_and_undone(person):
    # Threat: a model chooses the ids of its calls, and may give the same one twice.
    first = person.call("create_file", path="a", content="x")
    history = History(str(person.objects), bytes_max=1 << 20)
    readme = person.root / "README.md"
    old, session = readme.read_bytes(), person.calls()[0]["session"]
    mark = CallMark(first, "create_file", "main", session, "LED-killed")
    with history.running(mark) as running, readme.open("rb") as file:
        history.store.put_file(file.fileno())
        history.store.sync()
        before, after = digest_of(old), digest_of(b"new")
        history.note_all(running, [Doing("README.md", "overwritten", before=before, after=after)])
    history.close()
    readme.write_bytes(b"new")
    for _ in range(2):  # looking removes no note that is still needed
        done, killed = person.calls()
        assert (done["call"], killed["call"]) == (first, first)
        assert (killed["entry"], killed["outcome"]) == ("LED-killed", "unknown")
    assert person.undo("LED-killed").status == 0
    assert readme.read_bytes() == old


def test_an_agent_that_is_gone_leaves_a_history_that_cannot_be_undone(person):
    assert person.place.run("agent", "create", "helper", "--profile", "standard").status == 0
    ran = person.place.run(
        "call", "create_file", '{"path": "a", "content": "x"}', "--agent", "helper", "--no-input"
    )
    assert ran.status == 0, ran
    call = person.calls("--agent", "helper")[-1]["call"]
    assert person.calls("--agent", "main") == []
    assert person.place.run("agent", "remove", "helper").status == 0
    assert person.standing(call) == "no workspace"
    assert person.undo(call).status == 2
    assert person.place.run("diff", call).status == 2


def test_an_agent_that_never_was_is_an_error_and_one_that_changed_nothing_is_none(person):
    for name in ("helper", "gone"):
        assert person.place.run("agent", "create", name, "--profile", "standard").status == 0
    assert person.place.run("agent", "remove", "gone").status == 0
    person.call("create_file", path="a", content="x")
    ran = person.place.run("history", "--agent", "nobody")
    assert (ran.status, ran.out, ran.err.splitlines()) == (
        2,
        "",
        [
            "error[usage]: no agent is or was named 'nobody'",
            "  where: --agent",
            "  hint:  one of: helper, main",
        ],
    )
    for name in ("helper", "gone"):
        ran = person.place.run("history", "--agent", name)
        said = f"no call has changed anything in the workspace of agent '{name}'\n"
        assert (ran.status, ran.out, ran.err) == (0, "", said)
        ran = person.place.run("history", "a", "--agent", name)
        assert f"has changed 'a' in the workspace of agent '{name}' (a path" in ran.err
    assert len(person.calls("--agent", "main")) == 1


@pytest.mark.parametrize(
    "question",
    [
        ("session", "list"),
        ("policy", "replay"),
        ("ledger", "query"),
        ("ledger", "query", "--ledger", "ho1m", "--last", "1"),
        ("ledger", "export", "--ledger", "ho1m"),
        ("history",),
    ],
)
def test_whoever_asks_about_an_agent_that_never_was_is_told_so(person, question):
    assert person.place.run("agent", "create", "gone", "--profile", "standard").status == 0
    assert person.place.run("agent", "remove", "gone").status == 0
    person.call("create_file", path="a", content="x")
    ran = person.place.run(*question, "--agent", "nobody")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("error[usage]: no agent is or was named 'nobody'\n")
    for name in ("main", "gone"):
        assert person.place.run(*question, "--agent", name).status == 0


def test_an_agent_made_again_on_another_workspace_has_no_undo_there(person):
    for folder in ("one", "two"):
        (person.root / folder).mkdir()
    (person.root / "one/notes").write_text("of one\n")

    def declare(folder: str) -> None:
        person.place.run("agent", "remove", "kid")
        made = person.place.run(
            "agent",
            "create",
            "kid",
            "--profile",
            "standard",
            "--workspace",
            str(person.root / folder),
        )
        assert made.status == 0, made

    declare("one")
    deleted = person.place.run("call", "delete_file", '{"path": "notes"}', "--agent", "kid")
    assert deleted.status == 0, deleted
    call = deleted.json["call"]
    declare("two")
    made = person.place.run(
        "call", "create_file", '{"path": "new", "content": "x"}', "--agent", "kid", "--no-input"
    )
    before = person.tree()
    assert (person.standing(call), person.standing(made.json["call"])) == ("other workspace", "yes")
    for ran in (person.undo(call), person.place.run("diff", call)):
        said = f"agent 'kid' worked in '{person.root}/one' when it made this call"
        assert (ran.status, ran.out, said in ran.err) == (2, "", True)
    assert person.tree() == before
    # Where it has that workspace again, and for what it did on the present one, all is as ever.
    assert person.undo(made.json["call"]).status == 0
    declare("one")
    assert (person.standing(call), person.undo(call).status) == (UNDOABLE, 0)
    assert (person.root / "one/notes").read_text() == "of one\n"
    assert list((person.root / "two").iterdir()) == []


def looks(call: str) -> list[tuple[str, ...]]:
    """Every command that only looks, and the status that it ends with."""
    return [("history",), ("history", "--json"), ("diff", call), ("diff",), ("undo",)]


def touched(place) -> dict[str, tuple[int, int]]:
    """All that a home holds, by its size and when it was changed."""
    return {
        os.path.join(folder, name): (status.st_size, status.st_mtime_ns)
        for folder, folders, files in os.walk(place.home)
        for name in (".", *folders, *files)
        for status in [os.lstat(os.path.join(folder, name))]
    }


def test_who_only_looks_touches_nothing(person):
    call = person.call("create_file", path="README.md", content="new\n")
    before = touched(person.place)
    assert [person.place.run(*words).status for words in looks(call)] == [0, 0, 0, 2, 2]
    assert person.place.run("undo", "CALL-unknown").status == 2
    assert touched(person.place) == before
    assert person.undo(call).status == 0
    assert touched(person.place) != before


def test_what_one_call_replaced_beyond_the_bound_is_still_there_after_any_look(person):
    (person.root / "paddock.toml").write_text(
        '[profiles.standard]\nallow = ["tool:file:*"]\n[history]\nbytes_max = 1000000\n'
    )
    assert person.place.run("trust", "--yes").status == 0
    large, newer = os.urandom(1_500_000), os.urandom(900_000)
    (person.root / "large").write_bytes(large)
    (person.root / "newer").write_bytes(newer)
    call = person.call("delete_file", path="large")
    for words in looks(call):
        person.place.run(*words)
    (person.root / "large").write_bytes(b"in the way")
    assert person.undo(call).status == 1
    (person.root / "large").unlink()
    person.call("create_file", path="other", content="x")
    assert person.standing(call) == UNDOABLE
    assert person.undo(call).status == 0
    assert (person.root / "large").read_bytes() == large
    # Once something newer is kept it is the first to go.
    call, last = (person.call("delete_file", path=path) for path in ("large", "newer"))
    assert (person.standing(call), person.standing(last)) == ("not kept", UNDOABLE)


def test_a_plane_that_nobody_may_write_to_can_be_looked_at(tmp_path):
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    (project / "a").write_text("one\n")
    give_to_plain_user(tmp_path)

    def act() -> None:
        opened = open_project(project, read_environment({"HOME": str(home)}))
        with open_runtime(opened, agent=None, approver=NoApprover()) as runtime:
            assert runtime.call("delete_file", {"path": "a"}).status == "ok"
        folders = [folder for folder, _, _ in os.walk(home)]
        files = [os.path.join(folder, name) for folder, _, names in os.walk(home) for name in names]
        try:
            for path in (*files, *folders):
                os.chmod(path, 0o500)
            with open_past(opened) as past:
                (call,) = past.calls
                assert past.undo_status(call) == "yes"
                assert [(diff.path, diff.kind) for diff in past.diff(call).paths] == [
                    ("a", "deleted")
                ]
                with pytest.raises(HostError):
                    past.undo(call)
        finally:
            for path in (*folders, *files):
                os.chmod(path, 0o700)
        with open_past(opened) as past:
            assert past.undo(past.calls[0]).result.status == "ok"

    run_as_plain_user(act)


@pytest.mark.needs("root")
def test_a_plain_user_has_a_history_too(tmp_path):
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    (project / "a").write_text("one\n")
    (project / "a").chmod(0o640)
    give_to_plain_user(tmp_path)

    def act() -> None:
        opened = open_project(project, read_environment({"HOME": str(home)}))
        with open_runtime(opened, agent=None, approver=NoApprover()) as runtime:
            assert runtime.call("delete_file", {"path": "a"}).status == "ok"
            assert runtime.call("create_file", {"path": "x/b", "content": "b"}).status == "ok"
        assert not (project / "a").exists()
        with open_past(opened) as past:
            results = [past.undo(call).result for call in reversed(past.calls)]
        assert [result.status for result in results] == ["ok", "ok"], results
        assert tree(project) == {"a": b"one\n"}
        assert (project / "a").stat().st_mode & 0o777 == 0o640

    run_as_plain_user(act)


@pytest.mark.needs("root")
def test_a_ledger_that_may_not_be_looked_for_is_the_hosts_fault(tmp_path):
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    give_to_plain_user(tmp_path)

    def act() -> None:
        opened = open_project(project, read_environment({"HOME": str(home)}))
        open_ledger(opened, "ho1m").close()
        folder = opened.layout.ledger_paths()["ho1m"].parent
        folder.chmod(0)
        with pytest.raises(HostError, match="looking for .* failed: Permission denied"):
            open_ledger(opened, "ho1m")
        folder.chmod(0o700)
        open_ledger(opened, "ho1m").close()

    run_as_plain_user(act)


@pytest.mark.needs("stage")
def test_a_time_alone_is_told_as_touched_and_is_nothing_to_undo(user):
    file = user.project / "README.md"
    file.chmod(0o644)
    touched, changed = (
        user.call("run_shell", "--yes", command=command).json["content"].split("\n")[2]
        for command in ("touch -d 2001-01-01 README.md", "chmod 600 README.md")
    )
    assert (touched, changed) == ("  touched README.md", "  mode README.md")
    first, second = user.run("history", "--json").json["calls"]
    assert first["changes"][0]["kind"] == "touched"
    assert (first["standing"], second["standing"]) == ("as before", "yes")
    shown = user.run("diff", first["call"]).out
    assert "touched: its content and its mode are as before" in shown
    assert "mode 0644 → 0600" in user.run("diff", second["call"]).out
    refused = user.run("undo", first["call"])
    assert (refused.status, "changed only the times of files" in refused.err) == (1, True)
    assert user.run("undo", second["call"]).status == 0
    assert file.stat().st_mode & 0o777 == 0o644
