"""What a collector keeps of each host, as values.

Pure.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from paddock.ledger.format.encoding import PREV_OF_GENESIS
from paddock.ledger.format.lines import VerifierKey
from paddock.ledger.format.merkle import EMPTY_ROOT


@dataclass(frozen=True, slots=True)
class Chain:
    """One ledger of one host, and the key that a person enrolled for it."""

    host: str
    ledger: str
    tier: str
    key: VerifierKey


@dataclass(frozen=True, slots=True)
class Head:
    """How far a chain was taken in: an accepted checkpoint, and what the next lines go on from.

    `edge` is the tree's right edge, the smallest subtree first. It is not signed, and need
    not be: from a wrong one no later root comes out right.
    """

    size: int
    root: bytes
    leaf: str
    edge: tuple[bytes, ...]
    note: str


NOTHING_YET: Final = Head(0, EMPTY_ROOT, PREV_OF_GENESIS, (), "")
"""Of a chain that was enrolled and not pushed."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A checkpoint that was accepted, and when, by the store's clock (RFC 3339, UTC)."""

    head: Head
    at: str


@dataclass(frozen=True, slots=True)
class Offer:
    """Lines `start` to `stop` of a host's ledger, and the checkpoint that covers them.

    All of it is a claim. `edge` is the right edge of the tree of the lines before `start`, as
    the sender has them: from there the lines make the signed root, whatever is here.
    `number` is the store's, in the order of arrival; `sender` is whom the store knows the
    connection by.
    """

    host: str
    ledger: str
    start: int
    stop: int
    note: str
    edge: tuple[bytes, ...] = ()
    number: int = 0
    sender: str = ""


class RefusalCode(StrEnum):
    """Why an offer was not taken. Stable."""

    NOT_ENROLLED = "collector.not_enrolled"
    NOTE = "collector.note"
    """No checkpoint that the enrolled key signed."""
    SIZE = "collector.size"
    """Not as many lines as the checkpoint says."""
    GAP = "collector.gap"
    """Lines between what is here and what is offered are missing."""
    BEHIND = "collector.behind"
    """All of it is here already: an offer that was sent twice, or an older one. Dropped, and
    not kept: nothing is wrong with who sent it."""
    LINE = "collector.line"
    """Bytes that are no entry."""
    GENESIS = "collector.genesis"
    """Line 0 is not that of the enrolled ledger."""
    CHAIN = "collector.chain"
    """A line does not follow the one before it."""
    FORKED = "collector.forked"
    """Other lines than those that were taken in before, which the key signed: two histories
    of one ledger."""
    ROOT = "collector.root"
    """The lines do not make the root that was signed."""


@dataclass(frozen=True, slots=True)
class OfferRefusal:
    """Why an offer was not taken."""

    code: RefusalCode
    message: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The newest offer that was refused with this code, and how many were.

    Its note is kept, its lines are not.
    """

    offer: Offer
    refusal: OfferRefusal
    at: str
    times: int


@dataclass(frozen=True, slots=True)
class Progress:
    """What a pushing host may know of one of its chains.

    `waiting` is how far this sender's offers reach that nobody has looked at yet, 0 for none;
    `refused` the code of its last offer that was refused since something was taken in.
    """

    ledger: str
    accepted: int
    waiting: int
    refused: str
