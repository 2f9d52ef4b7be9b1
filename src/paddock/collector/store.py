"""What keeps a collector's chains, as a port. `PostgresStore` keeps it, and `MemoryCollector`."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from paddock.collector.chains import Accepted, Chain, Head, Offer, OfferRefusal, Progress, Refused

OFFERS_MAX: Final = 1_000
"""As many are looked at in one go, however many a sender lays down."""


class Taking(Protocol):
    """One chain, locked until the block is left; then all of it is kept, or after an error none."""

    @property
    def head(self) -> Head:
        """How far the chain was taken in."""
        ...

    @property
    def is_waiting(self) -> bool:
        """Whether the offer still waits: another process may have been first."""
        ...

    def parts(self) -> Iterator[bytes]:
        """The offer's lines in order, each with its LF, many in a part."""
        ...

    def stored(self, start: int, stop: int) -> Iterable[bytes]:
        """Lines that were taken in before."""
        ...

    def add(self, start: int, lines: Sequence[bytes]) -> None:
        """Add lines from the number `start` on."""
        ...

    def keep(self, head: Head) -> None:
        """Keep the accepted checkpoint; the offer is done with."""
        ...


class Store(Protocol):
    """Keeps the chains of many hosts. Nothing that was taken in is changed or removed.

    Every method raises HostError where the store cannot be reached or says no.
    """

    def enroll(self, chain: Chain) -> bool:
        """Let a host push a ledger; False where this very key is enrolled already.

        Raises: ConfigError: the host has this ledger with another key.
        """
        ...

    def chains(self) -> Sequence[Chain]:
        """All that are enrolled, by host and ledger."""
        ...

    def accepted(self, chain: Chain) -> Sequence[Accepted]:
        """The checkpoints of a chain that were accepted, the newest last."""
        ...

    def newest(self, chain: Chain) -> Accepted | None: ...

    def lines(self, chain: Chain) -> Iterator[tuple[int, bytes]]:
        """Every line that was taken in, with its number, in order. In a `steady` block."""
        ...

    def progress(self, host: str) -> Sequence[Progress]:
        """What a pushing host may know of its chains, by ledger."""
        ...

    def send(self, offer: Offer, parts: Iterable[bytes]) -> None:
        """Lay an offer down, all of it or nothing. Nobody looked at it yet."""
        ...

    def offers(self, after: int = 0) -> Sequence[Offer]:
        """The first `OFFERS_MAX` of those that wait, in the order of their arrival.

        Those that came after the one with the number `after`.
        """
        ...

    def waiting(self, chain: Chain) -> int:
        """How far the offers that wait for a chain reach, by whomever; 0 for none."""
        ...

    def taking(self, chain: Chain, offer: Offer) -> AbstractContextManager[Taking]:
        """Lock this chain alone, to take an offer in.

        Raises: HostError: also where another holds the chain or the offer.
        """
        ...

    def drop(self, offer: Offer) -> None:
        """Drop an offer that waits. Raises: HostError: also where another holds it."""
        ...

    def refuse(self, offer: Offer, refusal: OfferRefusal) -> None:
        """Drop an offer that waits, and keep why. Raises: HostError: as `drop`."""
        ...

    def refused(self, host: str, ledger: str) -> Sequence[Refused]:
        """What was refused of a chain, enrolled or not: one for each code, by code.

        Threat: who refuses to be quiet must not push what matters out of sight.
        """
        ...

    def steady(self) -> AbstractContextManager[None]:
        """A block in which every answer is of one moment."""
        ...

    def close(self) -> None: ...
