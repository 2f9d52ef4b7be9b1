"""What verification finds, as values."""

from dataclasses import dataclass
from enum import StrEnum

from paddock.ledger.format.genesis import Genesis
from paddock.ledger.format.lines import LineFault
from paddock.ledger.ports import Head


class ChainFault(StrEnum):
    """What is wrong with a line's place, or with the ledger as a whole."""

    GENESIS = "genesis"
    MISSING = "missing"
    OUT_OF_ORDER = "out_of_order"
    CHANGED = "changed"
    CUT = "cut"
    HEAD = "head"
    SEGMENT = "segment"
    CHECKPOINT = "checkpoint"
    """A checkpoint that is none, or that the ledger's key did not sign."""
    ROLLED_BACK = "rolled_back"
    """More was signed than is here."""
    REWRITTEN = "rewritten"
    """Other entries were signed than are here."""
    ANCHOR = "anchor"
    """The anchor holds no checkpoint, and some were signed."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it was written.

    `line` counts from 1 over all the ledger's files, `offset_bytes` is where that
    line begins, `seq` the sequence number that belongs there. All 0 where it is
    about no place, as a checkpoint that nobody signed.
    """

    kind: LineFault | ChainFault
    line: int
    seq: int
    offset_bytes: int
    detail: str


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A TOOL_INTENT without its TOOL_RESULT: the outcome is unknown, or the call still runs."""

    seq: int
    session_id: str
    agent: str
    call_id: str
    tool: str


@dataclass(frozen=True, slots=True)
class Held:
    """A checkpoint that the ledger is compared with, and where it was kept.

    `is_outside`: not beside the ledger, so that whoever cuts the ledger would have
    to reach there too. `is_authentic`: where it stands is verified by itself, so its
    signature need not be.
    """

    source: str
    note: str
    is_outside: bool = True
    is_authentic: bool = False


@dataclass(frozen=True, slots=True)
class Agreement:
    source: str
    size: int
    is_outside: bool


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a verification may build on: sealed files that were found whole.

    `files` are their starts, sizes, inodes and times, as the system said then; what
    was touched since is read again. `size`, `offset_bytes`, `leaf` and `edge` are the
    place after them; `intents` those that had no result yet.
    """

    files: tuple[tuple[int, ...], ...]
    size: int
    offset_bytes: int
    leaf: str
    edge: tuple[str, ...]
    intents: tuple[Unanswered, ...]


@dataclass(frozen=True, slots=True)
class Verification:
    """What verification found.

    `torn_bytes` follow the last whole line: an append on its way, or a torn one
    that the next append puts aside. `covered_entries` are those below the newest
    checkpoint that is held outside and that the ledger agrees with.
    `unread_entries` were found whole before, and were not read again.
    """

    path: str
    entries: int
    head: Head | None
    genesis: Genesis | None
    problems: tuple[Problem, ...]
    problems_omitted: int
    unanswered: tuple[Unanswered, ...]
    torn_bytes: int
    covered_entries: int = 0
    agreements: tuple[Agreement, ...] = ()
    unread_entries: int = 0
    memory: Remembered | None = None
    """For the next time; None where nothing can be remembered."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing was found. What no checkpoint covers could still be cut or made anew."""
        return not self.problems

    @property
    def uncovered(self) -> str:
        """The window that no checkpoint covers, in words; empty where there is none."""
        if self.covered_entries >= self.entries:
            return ""
        return (
            f"entries {self.covered_entries} to {self.entries - 1} are covered by no exported "
            "checkpoint: they could have been cut off or written anew"
        )
