"""Searching contents with an account of what was passed by, and why.

Nothing is left out by `.gitignore`. Each file is looked at by the workspace before
ripgrep is given its name: what may not be viewed, is too large or is binary is counted.
"""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from paddock import limits
from paddock.errors import HostError, ToolError
from paddock.workspace.failures import converting
from paddock.workspace.paths import WorkspacePath, unchecked_path
from paddock.workspace.search.asked import ContentFound, ShownPaths, Wanted
from paddock.workspace.search.binaries import binary_sign
from paddock.workspace.search.content import is_file, require_viewable
from paddock.workspace.search.engine import SearchEngine
from paddock.workspace.search.globs import SearchGlob
from paddock.workspace.search.ordered import OrderedSearch
from paddock.workspace.search.until import Until
from paddock.workspace.search.walk import Walk, WalkTerms
from paddock.workspace.workspace import Workspace

SKIPPED_NAMES: Final = frozenset({".git", "__pycache__", "node_modules", ".DS_Store"})


class Skipped(Struct, frozen=True):
    """How many entries were passed by; what may not even be named is not counted."""

    by_name: int = 0
    forbidden: int = 0
    too_large: int = 0
    binary: int = 0
    unreadable: int = 0


class CountedFound(Struct):
    found: ContentFound
    files_searched: int
    skipped: Skipped


def search_counted(
    workspace: Workspace,
    shown: ShownPaths,
    path: WorkspacePath,
    wanted: Wanted,
    glob: SearchGlob,
    until: Until | None = None,
) -> CountedFound:
    """As `search_content`, of one file or of every file below a directory."""
    engine = SearchEngine(workspace, shown, wanted, until or Until(), reads_past_nul=True)
    search = OrderedSearch(engine)
    choice = _Choice(workspace, shown)
    if is_file(workspace, path):
        require_viewable(engine, path)
        search.search(choice.of(iter([path.relative])))
    else:
        with converting(path, "list"):
            terms = WalkTerms(SKIPPED_NAMES, honours_ignore=False, glob=glob)
            walk = Walk(workspace, path, terms, engine.until)
            try:
                choice.walk = walk
                search.search(choice.of(walk.paths()))
                engine.remarks.is_late = engine.remarks.is_late or walk.is_late
                engine.remarks.unreadable.update(filter(engine.may_name, walk.unreadable))
                engine.remarks.too_deep.update(filter(engine.may_name, walk.too_deep))
            finally:
                walk.close()
    engine.check()
    searched, skipped = choice.up_to(search.found)
    return CountedFound(search.found, searched, skipped)


class _Choice(Struct):
    workspace: Workspace
    shown: ShownPaths
    walk: Walk | None = None
    skipped: Skipped = Skipped()
    chosen: list[tuple[str, Skipped]] = field(default_factory=list[tuple[str, Skipped]])

    def of(self, paths: Iterator[str]) -> Iterator[str]:
        for path in paths:
            if not self.shown.is_shown(path):
                continue
            reason = self._reason(path)
            if reason:
                count: int = getattr(self.skipped, reason)
                self.skipped = replace(self.skipped, **{reason: count + 1})
                continue
            self.chosen.append((path, self._account()))
            yield path

    def up_to(self, found: ContentFound) -> tuple[int, Skipped]:
        """How many files were searched, and what was skipped; batches read ahead of the end."""
        if found.has_more and found.files:
            last = found.files[-1].path
            for number, (path, skipped) in enumerate(self.chosen, 1):
                if path == last:
                    return number, skipped
        return len(self.chosen), self._account()

    def _account(self) -> Skipped:
        by_name = 0 if self.walk is None else self.walk.passed_by
        return replace(self.skipped, by_name=by_name)

    def _reason(self, path: str) -> str:
        if not self.shown.may_view(path):
            return "forbidden"
        try:
            with self.workspace.open_file(unchecked_path(path)) as file:
                if file.size_bytes > limits.dev_searched_file_bytes_max:
                    return "too_large"
                start = file.read_start(limits.binary_probe_bytes)
                return "binary" if binary_sign(start, file.size_bytes) else ""
        except HostError:
            raise
        except ToolError:
            return "unreadable"
