"""Whatever a session did, undoing it all, last first, leaves every byte and mode as it was."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from paddock.assembly.project_open import open_project
from paddock.assembly.runtimes import open_runtime
from paddock.assembly.undo import open_past
from paddock.plane.environment import read_environment
from paddock.runtime.approvals import YesApprover
from tests.support.disks import temporaries, tree

NAMES = st.sampled_from(["a", "b", "d/a", "d/e/f", "link", "empty", "g/h"])
TEXTS = st.sampled_from(["", "one\n", "two\r\nlines", "x" * 70_000])


class Call(Struct, frozen=True, dict=True):
    tool: str
    arguments: dict[str, str]


def call(tool: str, **arguments: st.SearchStrategy[str]) -> st.SearchStrategy[Call]:
    return st.builds(Call, st.just(tool), st.fixed_dictionaries(arguments))


CALLS = st.lists(
    st.one_of(
        call("create_file", path=NAMES, content=TEXTS),
        call("str_replace", path=NAMES, old_str=st.just("one"), new_str=TEXTS),
        call("move_file", path=NAMES, to=NAMES),
        call("delete_file", path=NAMES),
    ),
    min_size=1,
    max_size=8,
)


def snapshot(root: Path) -> dict[str, object]:
    return {
        name: (what, os.lstat(root / name).st_mode & 0o777 if what is not None else 0)
        for name, what in tree(root).items()
    }


def in_a_project(act: Callable[[Path, Path], None]) -> None:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as name:
        root, home = Path(name, "project"), Path(name, "home")
        (root / "d").mkdir(parents=True)
        (root / "empty").mkdir()
        home.mkdir()
        (root / "a").write_text("one\n")
        (root / "d/a").write_bytes(b"\0one\xff")
        (root / "a").chmod(0o640)
        (root / "d/a").chmod(0o755)
        (root / "link").symlink_to("d/a")
        act(root, home)


@given(CALLS, st.booleans())
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=40)
def test_undoing_all_calls_in_reverse_restores_every_byte_and_mode(calls, undo_again):
    def act(root: Path, home: Path) -> None:
        project = open_project(root, read_environment({"HOME": str(home)}))
        states = [snapshot(root)]
        with open_runtime(project, agent=None, approver=YesApprover("test")) as runtime:
            for made in calls:
                if runtime.call(made.tool, made.arguments).status == "ok":
                    states.append(snapshot(root))
                else:
                    assert snapshot(root) == states[-1]
        with open_past(project) as past:
            done = [past_call.entry_id for past_call in past.calls]
        assert len(done) == len(states) - 1
        for entry, before, after in zip(
            reversed(done), reversed(states[:-1]), reversed(states[1:]), strict=True
        ):
            assert snapshot(root) == after
            undo = undone(project, entry)
            assert snapshot(root) == before
            if undo_again:
                undone(project, undo)
                assert snapshot(root) == after
                undone(project, undone_of(project))
                assert snapshot(root) == before
        assert temporaries(root) == []

    in_a_project(act)


def undone(project, entry: str) -> str:
    """Undo one call; the entry of the undo."""
    with open_past(project) as past:
        result = past.undo(past.find(entry)).result
        assert result.refusal is None, result
    return undone_of(project)


def undone_of(project) -> str:
    with open_past(project) as past:
        return past.calls[-1].entry_id
