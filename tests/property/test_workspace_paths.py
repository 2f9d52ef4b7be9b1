"""Any text as a path: it stays inside, and is refused only in our own words."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.errors import PaddockError
from paddock.workspace import Workspace
from paddock.workspace.listing import list_directory
from paddock.workspace.read import Pieces
from paddock.workspace.single_change import delete_entry, edit_file, move_entry, write_file
from paddock.workspace.workspace import Openat2Resolution, WalkResolution
from tests.support.disks import tree

NAMES = ["a", "b", "file", "to_dir", "to_file", "out", "out_file", "loop", "up", "missing", "é"]
PIECES = st.one_of(
    st.sampled_from([*NAMES, ".", "..", "...", "", "%2e%2e", "~", "\\", "\0", "\n", "\udc80"]),
    st.text(max_size=5),
)
RELATIVE = st.lists(PIECES, max_size=8).map("/".join)
TEXTS = st.one_of(
    RELATIVE,
    RELATIVE.map(lambda text: "/" + text),
    RELATIVE.map(lambda text: "{root}/" + text),
    RELATIVE.map(lambda text: "{root}" + text),
    RELATIVE.map(lambda text: "/proc/self/root{root}/" + text),
    st.text(max_size=40),
)

BAIT = b"this stands outside"


class Append:
    def apply(self, content: bytes) -> Pieces:
        return content[:100], b"!"


class Ground:
    """One tree for all examples: what they make stays, and is part of the next one."""

    def __init__(self) -> None:
        self.base = tempfile.TemporaryDirectory(prefix="paddock-property-")
        base = Path(self.base.name)
        self.root = base / "ws"
        for folder in ("ws/a/b", "outside/a", "ws-evil"):
            (base / folder).mkdir(parents=True)
        for file in ("outside/file", "outside/a/file", "ws-evil/file"):
            (base / file).write_bytes(BAIT)
        for file in ("ws/a/file", "ws/file"):
            (base / file).write_bytes(b"inside")
        for name, target in {
            "to_dir": "a",
            "to_file": "a/file",
            "out": "../outside",
            "out_file": "../outside/file",
            "loop": "loop",
            "a/up": "..",
            "up": "../ws",
        }.items():
            (self.root / name).symlink_to(target)
        self.workspaces = [
            Workspace.open(str(self.root), resolution())
            for resolution in (Openat2Resolution, WalkResolution)
        ]

    def elsewhere(self) -> dict[str, object]:
        base = Path(self.base.name)
        return {name: tree(base / name) for name in ("outside", "ws-evil")} | {
            "names": sorted(path.name for path in base.iterdir())
        }


@pytest.fixture(scope="module")
def ground():
    ground = Ground()
    yield ground
    for workspace in ground.workspaces:
        workspace.close()
    ground.base.cleanup()


def attempt(act) -> object:
    """What came out, or which of our own refusals. Anything else fails the test."""
    try:
        return act()
    except PaddockError as refusal:
        return type(refusal).__name__, refusal.message.split("\n")


@pytest.mark.needs("openat2")
@given(text=TEXTS, other=TEXTS)
def test_whatever_is_asked_for_nothing_outside_changes_or_is_read(ground, text, other):
    text, other = (t.replace("{root}", str(ground.root)) for t in (text, other))
    before = ground.elsewhere()
    for workspace in ground.workspaces:
        for act in (
            lambda w: w.read_all(w.resolve_read(text), 1000),
            lambda w: list_directory(w, w.resolve_read(text), 3, 100),
            lambda w: write_file(w, w.resolve_write(text), b"written"),
            lambda w: edit_file(w, w.resolve_write(text), Append()),
            lambda w: move_entry(w, w.resolve_entry(text), w.resolve_write(other)),
            lambda w: delete_entry(w, w.resolve_entry(text)),
        ):
            found = attempt(lambda act=act, workspace=workspace: act(workspace))
            assert found != BAIT
    assert ground.elsewhere() == before
    assert not any(".paddock-" in name for name in tree(ground.root))


@pytest.mark.needs("openat2")
@given(text=TEXTS)
def test_both_resolutions_find_the_same(ground, text):
    text = text.replace("{root}", str(ground.root))
    by_openat2, by_walk = ground.workspaces
    for name in ("resolve_read", "resolve_write", "resolve_entry"):
        found = attempt(lambda name=name: getattr(by_openat2, name)(text))
        assert found == attempt(lambda name=name: getattr(by_walk, name)(text))


@pytest.mark.needs("openat2")
@given(text=TEXTS)
def test_a_resolved_path_is_canonical_and_resolves_to_itself(ground, text):
    text = text.replace("{root}", str(ground.root))
    workspace = ground.workspaces[0]
    try:
        found = workspace.resolve_read(text)
    except PaddockError:
        return
    for path in (found.asked, found.real):
        assert path.relative == "." or not {"", ".", ".."} & set(path.relative.split("/"))
    again = workspace.resolve_read(found.real.relative)
    assert (again.asked, again.real) == (found.real, found.real)
