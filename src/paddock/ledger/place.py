"""Whether the files of an open ledger still stand in their places."""

from itertools import chain

from paddock.errors import LedgerDamagedError
from paddock.ledger.disk import Disk
from paddock.ledger.head import FILES, IDENTITY
from paddock.ledger.segments import ActiveSegment, Identity, Segment, find_identity


class LedgerPlace:
    __slots__ = ("_active", "_beside", "_disk", "_named", "path")

    def __init__(
        self, disk: Disk, path: str, active: ActiveSegment, beside: tuple[tuple[str, int], ...]
    ) -> None:
        """`path` of the ledger; `beside`: what keeps writers apart, as path and descriptor.

        Raises: OSError.
        """
        self.path = path
        self._disk = disk
        self._active = active
        self._beside: tuple[tuple[str, Identity], ...] = tuple(
            (path, find_identity(disk, descriptor)) for path, descriptor in beside
        )
        self._named = (active.current, self._name(active.current))

    def files(self, segment: Segment) -> bytes:
        """Which files these are: the segment, and what is beside it. As `head.FILES`."""
        named, files = self._named
        if segment is not named:
            files = self._name(segment)
            self._named = (segment, files)
        return files

    def _name(self, segment: Segment) -> bytes:
        return FILES.pack(*segment.identity, *chain.from_iterable(each for _, each in self._beside))

    def verify(self, segment: Segment) -> None:
        """Refuse if a segment, or what keeps writers apart, is not in its place any more.

        Raises: LedgerDamagedError.
        """
        self._active.verify_in_place(segment)
        self.verify_beside()

    def verify_besides(self, segment: Segment, found: bytes) -> None:
        """As `verify`, where a leader found other files in their places, or does not say which.

        Threat: a file that was put back meanwhile is in its place, and not what was synced.

        Raises: LedgerDamagedError.
        """
        self.verify(segment)
        if found and not found.startswith(IDENTITY.pack(*segment.identity)):
            self._active.verify_sealed(segment)

    def verify_beside(self) -> None:
        """Refuse if what keeps writers apart is not in its place any more.

        Threat: who removes the folder has the next writer make another lock and another head
        file, and two that do not see each other would put aside what the other one wrote.

        Raises: LedgerDamagedError.
        """
        for path, identity in self._beside:
            try:
                is_ours = find_identity(self._disk, path) == identity
            except OSError:
                is_ours = False
            if not is_ours:
                raise LedgerDamagedError(
                    "the folder beside the ledger was removed or replaced while in use",
                    where=ascii(path),
                    hint="end every process that has the ledger open, and start again",
                )
