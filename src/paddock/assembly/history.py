"""The history of a plane, as every runtime writes it."""

from collections.abc import Sequence
from typing import Final

from paddock.assembly.project import Project
from paddock.storage.disk import Disk
from paddock.storage.history import History, SeenStore
from paddock.storage.journal import Journal
from paddock.workspace.recover import Recovered, RecoveredSet, recover
from paddock.workspace.resolve import detect_resolution

JOURNAL: Final = "journal"


def open_history(project: Project) -> History:
    """The history, opened for good when something is first written."""
    bytes_max = project.policy.settings.history.bytes_max
    return History(str(project.layout.objects), bytes_max=bytes_max)


def look_at_history(project: Project) -> SeenStore:
    """The history, for reading: nothing of it is made or written.

    Raises: ConfigError, HostError.
    """
    return SeenStore.look(str(project.layout.objects))


def settle_sets(project: Project) -> tuple[Recovered, ...]:
    """Complete, or undo, every set of changes that a killed process left half done.

    Costs one look at a directory where there is none.

    Raises: ConfigError, HostError.
    """
    directory = project.layout.objects / JOURNAL
    if not directory.is_dir() or not any(directory.iterdir()):
        return ()
    with open_journal(project) as journal:
        return recover(journal, Disk(), detect_resolution())


def notices_of(found: Sequence[Recovered]) -> tuple[str, ...]:
    """What a person is to be told of sets that a killed process left, and that left something."""
    return tuple(
        f"a set of changes that was cut short {'waits' if is_waiting else 'left something'}: {why}"
        for is_waiting, why in ((each.settled is RecoveredSet.WAITING, each.why) for each in found)
        if why
    )


def open_journal(project: Project) -> Journal:
    """The one journal of the plane's changes. Raises: ConfigError, HostError."""
    return Journal.open(str(project.layout.objects / JOURNAL), Disk())
