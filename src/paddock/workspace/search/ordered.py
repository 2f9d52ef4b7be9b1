"""Searching files in the order in which they are given, in growing batches."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Final

from paddock.workspace.search.asked import ContentFound, FileLines
from paddock.workspace.search.engine import Proposals, SearchEngine

_FIRST_FILES: Final = 32
"""Few, in one run of one thread: its answer is in order, and can be cut short."""
_BATCH_GROWTH: Final = 4
_BATCH_FILES_MAX: Final = 16_384
_NO_LIMIT: Final = 2**62
"""Of rows: as many as there are, which ripgrep limits for each file."""


class OrderedSearch:
    """Confirms what is proposed, until there is more than is shown."""

    __slots__ = ("_engine", "found")

    def __init__(self, engine: SearchEngine) -> None:
        self._engine = engine
        self.found = ContentFound(remarks=engine.remarks)

    @property
    def is_over(self) -> bool:
        return self.found.has_more or self.found.remarks.is_late

    @property
    def left(self) -> int:
        return self._engine.wanted.matches_max - self.found.matches

    def search(self, paths: Iterator[str]) -> None:
        """Search files, workspace paths in byte order, until enough is confirmed."""
        batch_files = _FIRST_FILES
        while not self.is_over:
            batch = list(itertools.islice(paths, batch_files))
            if not batch:
                return
            in_order = batch_files <= _FIRST_FILES
            left = self.left
            proposals = self._engine.propose(batch, left, in_order=in_order)
            is_cut = sum(map(len, proposals.values())) > left
            if is_cut and not in_order:
                # Some files of this batch were not searched, and which ones is chance.
                batch_files //= _BATCH_GROWTH
                paths = itertools.chain(batch, paths)
                continue
            if is_cut:
                paths = itertools.chain(self._cut_short(batch, proposals), paths)
                continue
            self.confirm(proposals)
            batch_files = min(_BATCH_FILES_MAX, batch_files * _BATCH_GROWTH)

    def _cut_short(self, batch: list[str], proposals: Proposals) -> list[str]:
        """Confirm what came before a run was cut; return the files still to be searched."""
        last = max(batch.index(path) for path in proposals)
        of_last = {batch[last]: proposals.pop(batch[last])}
        self.confirm(proposals)
        if self.is_over:
            return []
        lines = list(self._engine.confirm(of_last, self.left))
        if not any(found.has_more for found in lines):
            # Fewer stand there than was proposed, and whether these are all is not known.
            lines = list(
                self._engine.confirm(
                    self._engine.propose([batch[last]], _NO_LIMIT, in_order=True), self.left
                )
            )
        self.take(lines)
        return batch[last + 1 :]

    def confirm(self, proposals: Proposals) -> None:
        self.take(self._engine.confirm(proposals, self.left))

    def take(self, files: Iterable[FileLines]) -> None:
        found = self.found
        for lines in files:
            found.has_more = lines.has_more
            found.matches += lines.matches
            if lines.numbers:
                found.files.append(lines)
