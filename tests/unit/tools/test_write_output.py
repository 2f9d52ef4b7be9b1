import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from paddock.errors import (
    BinaryFileError,
    InvalidArgumentsError,
    InvalidPathError,
    PathExistsError,
    PathThroughLinkError,
    PathTraversalError,
    TextTooLargeError,
)
from paddock.tools.spec import Change
from paddock.tools.toolsets import all_tools
from paddock.workspace import version_of
from tests.support.repository import ROOT

TOOL = next(tool for tool in all_tools() if tool.name == "write_output")


def write(desk, name, content="x"):
    return desk.run("write_output", name=name, content=content)


def test_a_name_that_is_not_shown_as_it_is_is_said_to_be_so_and_can_be_read(desk):
    output = write(desk, "\u06af\u200c\u0647")
    path = output.details["path"]
    assert path == "outputs/\u06af\u200c\u0647.md"
    assert output.content.split("\n")[1:] == [
        (
            "[1 name has control or direction characters, shown as \\xNN or \\uNNNN; in a path, "
            "give the characters themselves]"
        )
    ]
    assert "\tx" in desk.run("view", path=path).content


def test_an_output_is_written_below_outputs_and_says_how_to_read_it_back(desk):
    output = write(desk, "report", "caf\u00e9\n")
    assert desk.tree() == {"outputs/report.md": "caf\u00e9\n".encode()}
    assert output.content == (
        "Wrote outputs/report.md (6 bytes). Use the path outputs/report.md to read it back."
    )
    version = version_of("caf\u00e9\n".encode())
    assert output.details == {
        "path": "outputs/report.md",
        "bytes_written": 6,
        "version": version,
    }
    expected = Change("outputs/report.md", "created", None, version, made=("outputs",))
    assert output.changes == (expected,)


def test_a_name_that_is_taken_gets_a_number_and_nothing_is_overwritten(desk):
    paths = [write(desk, "r", str(number)).details["path"] for number in range(3)]
    assert paths == ["outputs/r.md", "outputs/r (1).md", "outputs/r (2).md"]
    assert desk.tree() == {path: str(n).encode() for n, path in enumerate(paths)}


def test_the_first_free_number_is_taken(desk):
    desk.write("outputs/r.md", b"old")
    desk.write("outputs/r (2).md", b"old")
    assert write(desk, "r").details["path"] == "outputs/r (1).md"
    assert write(desk, "r").details["path"] == "outputs/r (3).md"


def test_when_all_hundred_names_are_taken_it_is_refused_and_nothing_is_overwritten(desk):
    desk.write("outputs/r.md", b"old")
    for number in range(1, 100):
        desk.write(f"outputs/r ({number}).md", b"old")
    before = desk.tree()
    with pytest.raises(PathExistsError) as refusal:
        write(desk, "r")
    assert refusal.value.code == "path.exists"
    assert desk.tree() == before
    os.unlink(desk.root / "outputs/r (99).md")
    assert write(desk, "r").details["path"] == "outputs/r (99).md"


@pytest.mark.parametrize(
    "name", ["a/b", "a\\b", ".", "..", "r.md", "R.MD", "", "../x", "/etc/passwd", ".md"]
)
def test_a_name_that_is_none_is_refused_and_leaves_nothing(desk, name):
    with pytest.raises(InvalidArgumentsError) as refusal:
        desk.plan("write_output", name=name, content="x")
    assert refusal.value.code == "args.invalid"
    assert desk.tree() == {}
    assert not (desk.root / "outputs").exists()


@pytest.mark.parametrize("name", ["a\nb", "a\0b", "a\u0085b"])
def test_a_name_that_no_file_can_have_is_refused(desk, name):
    with pytest.raises(InvalidPathError):
        desk.plan("write_output", name=name, content="x")


def test_the_longest_name_leaves_room_for_every_number(desk):
    for number in range(100):
        desk.write(f"outputs/{'x' * 247}{f' ({number})' if number else ''}.md", b"")
    with pytest.raises(PathExistsError):
        write(desk, "x" * 247)
    with pytest.raises(InvalidArgumentsError, match="is over 247 bytes"):
        write(desk, "x" * 248)


@pytest.mark.parametrize("name", ["-", "%2e%2e", "a b", "v1.2", ".hidden", "caf\u00e9", "x.mdx"])
def test_an_odd_name_is_a_name(desk, name):
    assert write(desk, name).details["path"] == f"outputs/{name}.md"


def test_unusable_content_is_refused(desk):
    with pytest.raises(BinaryFileError):
        write(desk, "r", "a\0b")
    with pytest.raises(TextTooLargeError):
        write(desk, "r", "x" * 10_000_001)
    assert desk.tree() == {}
    assert write(desk, "r", "").details["bytes_written"] == 0


def test_a_link_is_a_name_that_is_taken_wherever_it_leads(desk, tmp_path):
    (desk.root / "outputs").mkdir()
    bait = tmp_path / "bait"
    for at, target in enumerate((bait, "nowhere", "../inside.md")):
        (desk.root / "outputs" / (f"r ({at}).md" if at else "r.md")).symlink_to(target)
    assert write(desk, "r").details["path"] == "outputs/r (3).md"
    assert not bait.exists()
    assert not (desk.root / "inside.md").exists()


def test_outputs_that_is_a_link_is_refused(desk, tmp_path):
    (tmp_path / "outside").mkdir()
    (desk.root / "outputs").symlink_to(tmp_path / "outside")
    with pytest.raises(PathTraversalError):
        write(desk, "r")
    (desk.root / "outputs").unlink()
    (desk.root / "real").mkdir()
    (desk.root / "outputs").symlink_to("real")
    with pytest.raises(PathThroughLinkError):
        write(desk, "r")
    assert os.listdir(tmp_path / "outside") == os.listdir(desk.root / "real") == []


def test_policy_judges_the_name_that_would_be_written(desk):
    assert desk.actions("write_output", name="r", content="x") == ["tool:output:write outputs/r.md"]
    desk.write("outputs/r.md", b"")
    assert desk.actions("write_output", name="r", content="x") == [
        "tool:output:write outputs/r (1).md"
    ]


def test_a_name_taken_between_the_decision_and_the_write_is_not_overwritten(desk):
    plan = desk.plan("write_output", name="r", content="ours")
    desk.write("outputs/r.md", b"theirs")
    output = TOOL.handler.run(plan, desk.ports)
    assert output.details["path"] == "outputs/r (1).md"
    assert desk.tree() == {"outputs/r.md": b"theirs", "outputs/r (1).md": b"ours"}


def test_the_next_name_is_not_written_where_policy_does_not_allow_it(desk):
    class AllowsNothingMore:
        def __getattr__(self, name):
            return getattr(desk.ports.shown, name)

        def allows(self, action):
            return str(action) != "tool:output:write outputs/r (1).md"

    from paddock.tools.spec import Ports

    plan = desk.plan("write_output", name="r", content="ours")
    desk.write("outputs/r.md", b"theirs")
    with pytest.raises(PathExistsError, match="another writer took .* meanwhile"):
        TOOL.handler.run(plan, Ports(desk.ports.workspace, AllowsNothingMore()))
    assert desk.tree() == {"outputs/r.md": b"theirs"}


def test_threads_with_one_name_get_as_many_files(desk):
    plans = [desk.plan("write_output", name="r", content=str(n)) for n in range(8)]
    paths = []

    def run(plan):
        paths.append(TOOL.handler.run(plan, desk.ports).details["path"])

    threads = [threading.Thread(target=run, args=(plan,)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(paths)) == 8
    assert sorted(desk.tree().values()) == [str(n).encode() for n in range(8)]


WRITER = """
import sys
from paddock.tools.spec import Ports
from paddock.tools.write import WRITE_OUTPUT
from paddock.workspace import Workspace

class Everything:
    def is_shown(self, relative): return True
    def may_view(self, relative): return True
    def allows(self, action): return True

tool = WRITE_OUTPUT
with Workspace.open(sys.argv[1]) as workspace:
    ports = Ports(workspace, Everything())
    for number in range(20):
        arguments, _ = tool.binder.bind({"name": "r", "content": f"{sys.argv[2]} {number}"})
        output = tool.handler.run(tool.handler.resolve(arguments, ports), ports)
        print(output.details["path"], flush=True)
"""


def test_processes_with_one_name_get_as_many_files(tmp_path: Path):
    root = tmp_path / "work"
    root.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(root), str(who)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for who in range(2)
    ]
    said = [writer.communicate(timeout=60)[0].split("\n")[:-1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0]
    paths = [path for lines in said for path in lines]
    assert len(set(paths)) == len(paths) == 40
    assert {path.read_text() for path in (root / "outputs").iterdir()} == {
        f"{who} {number}" for who in range(2) for number in range(20)
    }
