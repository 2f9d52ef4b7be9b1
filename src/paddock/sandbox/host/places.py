"""Sets of directories: what covers what, what two sets share, what is left around a hole. Pure.

A set of paths stands for everything at and below each of them. Paths are absolute
and real, so comparing whole components is enough.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from paddock.sandbox.host.host_facts import Link, Listing, Standing


def is_below(path: str, place: str) -> bool:
    # Threat: a sibling whose name begins alike (/srv/app-secrets beside /srv/app).
    return path == place or path.startswith(place.rstrip("/") + "/")


def is_covered(path: str, places: Iterable[str]) -> bool:
    return any(is_below(path, place) for place in places)


def directories_above(path: str) -> list[str]:
    """The directories that a relative path lies in, from the top; the root is not among them."""
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def is_changeable(standing: Standing, changeable: Iterable[str]) -> bool:
    """Whether a command that writes in `changeable` says what stands there, or where it leads."""
    places = tuple(changeable)
    names = (standing.real, *(name for name, _ in standing.links))
    return any(is_covered(name, places) for name in names)


def is_led_by(links: Iterable[Link], changeable: Iterable[str]) -> bool:
    """Whether one of `links` stands in one of the places, where a command could have put it."""
    places = tuple(changeable)
    return any(is_covered(name, places) for name, _ in links)


def topmost(paths: Iterable[str]) -> tuple[str, ...]:
    """The same set, sorted, without what lies below another of it."""
    found: list[str] = []
    for path in sorted(set(paths), key=lambda each: each.split("/")):
        if not found or not is_below(path, found[-1]):
            found.append(path)
    return tuple(sorted(found))


def shared(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    ours, theirs = topmost(first), topmost(second)
    both = [path for path in ours if is_covered(path, theirs)]
    both += [path for path in theirs if is_covered(path, ours)]
    return topmost(both)


@dataclass(slots=True)
class Carving:
    """What is left of places around holes in them. `unknown` are those that were not listed."""

    listings: Mapping[str, Listing]
    holes: tuple[str, ...]
    left: list[str] = field(default_factory=list[str])
    links: list[Link] = field(default_factory=list[Link])
    unknown: list[str] = field(default_factory=list[str])

    def carve(self, place: str) -> None:
        if is_covered(place, self.holes):
            return
        if not any(is_below(hole, place) for hole in self.holes):
            self.left.append(place)
            return
        listing = self.listings.get(place)
        if listing is None:
            # Threat: what is not known cannot be cut out, so nothing of it is shown.
            self.unknown.append(place)
            return
        self.links += listing.links
        for name in listing.names:
            self.carve(f"{place.rstrip('/')}/{name}")
