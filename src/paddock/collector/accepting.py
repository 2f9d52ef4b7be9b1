"""Taking offers in: each is judged here, and taken whole or not at all.

Threat: whoever may push could lay one offer down that can be neither taken nor refused, or
hold a lock on it, and nothing would be taken in any more. So such a one is left, and the
next is looked at.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from paddock.collector.chains import Chain, Head, Offer, OfferRefusal, RefusalCode
from paddock.collector.judging import Judging, open_offer
from paddock.collector.store import Store, Taking
from paddock.errors import HostError

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class Left:
    """An offer that could not be looked at, and waits on: why."""

    message: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of an offer: how far its chain reaches now, or why it was not taken."""

    offer: Offer
    result: Head | OfferRefusal | Left


class _NotTakenError(Exception):
    """Leaves a block of `Store.taking` so that nothing of it is kept."""

    def __init__(self, refusal: OfferRefusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def accept_offers(store: Store, after: int = 0) -> Iterator[Answer]:
    """Judge offers that wait, oldest first: those of `Store.offers`.

    Raises: HostError: the store cannot be reached or says no, whatever the offer.
    """
    for offer in store.offers(after):
        yield Answer(offer, _accept_or_leave(store, offer))


def _accept_or_leave(store: Store, offer: Offer) -> Head | OfferRefusal | Left:
    try:
        return accept_offer(store, offer)
    except HostError as fault:
        # Where it was not this offer's, this raises it again.
        store.chains()
        return Left(fault.message)


def accept_offer(store: Store, offer: Offer) -> Head | OfferRefusal:
    """Take one offer in, or drop it and keep why. Raises: HostError.

    One that is BEHIND is dropped, and that is all: two pushes may overlap.
    """
    chain = find_chain(store, offer.host, offer.ledger)
    try:
        if chain is None:
            raise _NotTakenError(
                OfferRefusal(
                    RefusalCode.NOT_ENROLLED, "no key is enrolled for this host and ledger"
                )
            )
        with store.taking(chain, offer) as taking:
            return _take(chain, offer, taking)
    except _NotTakenError as signal:
        if signal.refusal.code is RefusalCode.BEHIND:
            store.drop(offer)
        else:
            store.refuse(offer, signal.refusal)
        return signal.refusal


def find_chain(store: Store, host: str, ledger: str) -> Chain | None:
    """The chain of a host's ledger, if it is enrolled. Raises: HostError."""
    named = (each for each in store.chains() if (each.host, each.ledger) == (host, ledger))
    return next(named, None)


def _take(chain: Chain, offer: Offer, taking: Taking) -> Head:
    head = taking.head
    if not taking.is_waiting:
        raise _NotTakenError(
            OfferRefusal(RefusalCode.BEHIND, "another process has just looked at it")
        )
    checkpoint = _or_refused(open_offer(chain, head, offer))
    judging = Judging(chain, head, offer, checkpoint, taking.stored)
    at = max(head.size, offer.start)
    for part in taking.parts():
        lines = part.split(b"\n")
        if lines.pop():
            raise _NotTakenError(OfferRefusal(RefusalCode.LINE, f"a line after {at} has no end"))
        new = _or_refused(judging.take(lines))
        taking.add(at, new)
        at += len(new)
    grown = _or_refused(judging.end())
    taking.keep(grown)
    return grown


def _or_refused(found: _Found | OfferRefusal) -> _Found:
    if isinstance(found, OfferRefusal):
        raise _NotTakenError(found)
    return found
