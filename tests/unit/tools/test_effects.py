import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from paddock import limits
from paddock.errors import HostError, StorageFullError
from paddock.tools.effects import change_from_json, change_json, change_of_path, within_entry
from paddock.tools.spec import Change
from paddock.workspace.changes import ChangedPath, EntryState
from paddock.workspace.paths import EntryKind, unchecked_path

ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64


def file(version: str | None = ONE, mode: int = 0o644) -> EntryState:
    return EntryState(EntryKind.FILE, mode, version)


def link(version: str = TWO) -> EntryState:
    return EntryState(EntryKind.LINK, 0o777, version, "abc")


def directory(mode: int = 0o755) -> EntryState:
    return EntryState(EntryKind.DIRECTORY, mode, None)


@pytest.mark.parametrize(
    ("before", "after", "kept", "change"),
    [
        (None, file(), False, Change("p", "created", None, ONE, mode_after=0o644)),
        (
            None,
            directory(),
            False,
            Change("p", "created", None, None, entry="directory", mode_after=0o755),
        ),
        (None, link(), False, Change("p", "created", None, TWO, entry="link")),
        (file(), file(TWO), True, Change("p", "overwritten", ONE, TWO, mode_after=0o644)),
        (
            file(mode=0o600),
            file(TWO),
            True,
            Change("p", "overwritten", ONE, TWO, mode=0o600, mode_after=0o644),
        ),
        (
            file(),
            file(mode=0o755),
            False,
            Change("p", "mode", ONE, ONE, mode=0o644, mode_after=0o755),
        ),
        (file(), None, True, Change("p", "deleted", ONE, None, mode=0o644)),
        (file(), None, False, Change("p", "deleted", ONE, None, mode=0o644, kept=False)),
        (file(), link(), True, Change("p", "overwritten", ONE, TWO, entry_after="link")),
        (link(), None, False, Change("p", "deleted", TWO, None, entry="link")),
        (
            directory(0o700),
            None,
            False,
            Change("p", "deleted", None, None, entry="directory", mode=0o700),
        ),
        (None, None, False, None),
    ],
)
def test_a_changed_path_is_told_as_a_change(before, after, kept, change):
    if change is not None and change.entry_after == "link":
        change = Change(**{**asdict(change), "mode": 0o644})
    assert change_of_path(ChangedPath(unchecked_path("p"), before, after, kept)) == change


def as_changes(**fields: st.SearchStrategy) -> st.SearchStrategy[Change]:
    return st.fixed_dictionaries(fields).map(lambda found: Change(**found))


texts = st.text(max_size=5)
versions = st.none() | st.sampled_from([ONE, TWO])
entries = st.sampled_from(["file", "link", "directory"])
changes = as_changes(
    path=texts,
    kind=st.sampled_from(["created", "overwritten", "edited", "moved", "deleted", "mode"]),
    before=versions,
    after=versions,
    to=st.none() | texts,
    entry=entries,
    entry_after=st.just("") | entries,
    mode=st.none() | st.integers(0, 0o777),
    mode_after=st.none() | st.integers(0, 0o777),
    made=st.lists(texts, max_size=2).map(tuple),
    kept=st.booleans(),
)


@given(changes)
def test_a_change_comes_back_from_the_ledger_as_it_was(change):
    assert change_from_json(change_json(change)) == change


@pytest.mark.parametrize(
    "kept",
    [
        {},
        {"path": "a", "kind": "burnt", "before": None, "after": None},
        {"path": 3, "kind": "created", "before": None, "after": ONE},
        {"path": "a", "kind": "created", "before": None, "after": 3},
        {"path": "a", "kind": "created", "before": None, "after": ONE, "entry": "socket"},
        {"path": "a", "kind": "deleted", "before": ONE, "after": None, "mode": "rwx"},
        {"path": "a", "kind": "created", "before": None, "after": ONE, "mode_after": 420},
        {"path": "a", "kind": "created", "before": None, "after": ONE, "made": [1]},
    ],
)
def test_what_is_no_change_is_refused(kept):
    with pytest.raises(ValueError, match=r"\S"):
        change_from_json(kept)


def test_what_a_ledger_held_before_there_was_a_history_is_read():
    kept = {"path": "a", "kind": "edited", "before": ONE, "after": TWO}
    assert change_from_json(kept) == Change("a", "edited", ONE, TWO)


def full(content: bytes) -> str:
    raise StorageFullError("no space is left")


def test_a_list_that_cannot_be_kept_is_no_refusal_of_what_has_happened():
    change = Change("a", "created", None, ONE)
    fits = (change,) * limits.effects_listed_max
    assert within_entry(fits, full) == (fits, None)
    with pytest.raises(HostError, match="cannot store the list of 51 changes: no space is left"):
        within_entry((*fits, change), full)
