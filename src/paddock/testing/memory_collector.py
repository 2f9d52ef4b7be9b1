"""A collector without a database, in lists.

It implements the port of `paddock.collector.chains` and passes the same contract tests as
`PostgresStore`.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

from msgspec.structs import replace

from paddock.collector.chains import (
    OFFERS_MAX,
    Accepted,
    Chain,
    ChainHead,
    Offer,
    OfferRefusal,
    Progress,
    Refused,
)
from paddock.errors import ConfigError

_NO_TIME = "1970-01-01T00:00:00.000000Z"
_SENDER = "memory"

_Name = tuple[str, str]


class MemoryCollector:
    """See `Store`. For one thread, with a constant time and a single sender."""

    def __init__(self) -> None:
        self._chains: dict[_Name, Chain] = {}
        self._lines: dict[_Name, dict[int, bytes]] = {}
        self._accepted: dict[_Name, list[Accepted]] = {}
        self._offers: dict[int, tuple[Offer, list[bytes]]] = {}
        self._refused: list[tuple[Offer, OfferRefusal]] = []
        self._refused_since: dict[_Name, str] = {}
        self._count = 0

    def enroll(self, chain: Chain) -> bool:
        name = _name(chain)
        known = self._chains.setdefault(name, chain)
        if known != chain:
            raise ConfigError(
                f"the ledger {chain.ledger} of host {chain.host!a} is enrolled with another key",
                hint="a key is never replaced: enroll the host under another name",
            )
        is_new = name not in self._lines
        self._lines.setdefault(name, {})
        self._accepted.setdefault(name, [])
        return is_new

    def chains(self) -> Sequence[Chain]:
        return [self._chains[name] for name in sorted(self._chains)]

    def accepted(self, chain: Chain) -> Sequence[Accepted]:
        return list(self._accepted[_name(chain)])

    def newest(self, chain: Chain) -> Accepted | None:
        found = self._accepted[_name(chain)]
        return found[-1] if found else None

    def lines(self, chain: Chain) -> Iterator[tuple[int, bytes]]:
        return iter(sorted(self._lines[_name(chain)].items()))

    def progress(self, host: str) -> Sequence[Progress]:
        found: list[Progress] = []
        for chain in self.chains():
            if chain.host != host:
                continue
            newest = self.newest(chain)
            accepted = 0 if newest is None else newest.head.size
            refused = self._refused_since.get(_name(chain), "")
            found.append(Progress(chain.ledger, accepted, self.waiting(chain), refused))
        return found

    def send(self, offer: Offer, parts: Iterable[bytes]) -> None:
        laid = list(parts)
        self._count += 1
        self._offers[self._count] = replace(offer, number=self._count, sender=_SENDER), laid

    def offers(self, after: int = 0) -> Sequence[Offer]:
        laid = [offer for offer, _ in self._offers.values() if offer.number > after]
        return laid[:OFFERS_MAX]

    def waiting(self, chain: Chain) -> int:
        laid = [offer for offer, _ in self._offers.values()]
        stops = [each.stop for each in laid if (each.host, each.ledger) == _name(chain)]
        return max(stops, default=0)

    @contextmanager
    def taking(self, chain: Chain, offer: Offer) -> Generator[bool]:
        before = dict(self._lines[_name(chain)])
        try:
            yield offer.number in self._offers
        except BaseException:
            self._lines[_name(chain)] = before
            raise

    def parts(self, offer: Offer) -> Iterator[bytes]:
        return iter(self._offers[offer.number][1])

    def stored(self, chain: Chain, start: int, stop: int) -> Iterable[bytes]:
        lines = self._lines[_name(chain)]
        return [lines[seq] for seq in range(start, stop) if seq in lines]

    def add(self, chain: Chain, start: int, lines: Sequence[bytes]) -> None:
        self._lines[_name(chain)] |= dict(enumerate(lines, start))

    def keep(self, chain: Chain, offer: Offer, head: ChainHead) -> None:
        self._accepted[_name(chain)].append(Accepted(head, _NO_TIME))
        self._refused_since.pop(_name(chain), None)
        del self._offers[offer.number]

    def drop(self, offer: Offer) -> None:
        self._offers.pop(offer.number, None)

    def refuse(self, offer: Offer, refusal: OfferRefusal) -> None:
        if self._offers.pop(offer.number, None) is not None:
            self._refused.append((offer, refusal))
            self._refused_since[offer.host, offer.ledger] = refusal.code.value

    def refused(self, host: str, ledger: str) -> Sequence[Refused]:
        newest: dict[str, Refused] = {}
        for offer, refusal in self._refused:
            if (offer.host, offer.ledger) == (host, ledger):
                before = newest.get(refusal.code)
                times = 1 if before is None else before.times + 1
                newest[refusal.code] = Refused(offer, refusal, _NO_TIME, times)
        return [newest[code] for code in sorted(newest)]

    def steady(self) -> nullcontext[None]:
        return nullcontext()

    def close(self) -> None:
        """See `Store`."""


def _name(chain: Chain) -> _Name:
    return chain.host, chain.ledger
