"""Searching contents: the first matches of a tree by path and line, the same every time.

Two phases. ripgrep walks the tree itself, in parallel, which is the fastest there
is. If it proposes no more than is shown, that is all there is, and sorting makes an order.

If it proposes more, which proposals came first is chance, so they are thrown away. Our
own walk then gives the files in byte order, as far as they are needed, and ripgrep
searches them in growing batches until enough is confirmed.
"""

import contextlib

from paddock.errors import PathNotAFileError, PermissionDeniedError
from paddock.storage.atomic import held_open
from paddock.text.show import quote
from paddock.workspace.failures import converting
from paddock.workspace.paths import WorkspacePath
from paddock.workspace.resolve import READ_DIRECTORY
from paddock.workspace.search.asked import ContentFound, ShownPaths, Wanted
from paddock.workspace.search.binaries import read_binary_sign
from paddock.workspace.search.child import require_enterable
from paddock.workspace.search.engine import Proposals, SearchEngine
from paddock.workspace.search.globs import EVERYTHING, Entered, SearchGlob
from paddock.workspace.search.ordered import OrderedSearch
from paddock.workspace.search.program import NEVER, tree_command
from paddock.workspace.search.proposals import ProposalReader
from paddock.workspace.search.until import Until
from paddock.workspace.search.walk import IgnoreLookup, Walk, WalkTerms, too_deep_above
from paddock.workspace.workspace import Workspace


def search_content(
    workspace: Workspace,
    shown: ShownPaths,
    path: WorkspacePath,
    wanted: Wanted,
    glob: SearchGlob = EVERYTHING,
    until: Until | None = None,
) -> ContentFound:
    """Lines that match, of one file or of every file below a directory.

    A directory that is named is searched even if a rule ignores it, or its name is one
    that is passed by elsewhere.

    Raises:
        PathNotFoundError, SpecialFileError, PathError: `path` cannot be read.
        PermissionDeniedError: `path` is a file that may not be viewed.
        InvalidPatternError: the regular expression cannot be used.
        HostError: ripgrep cannot be run, or the disk fails.
    """
    is_one_file = is_file(workspace, path)
    engine = SearchEngine(workspace, shown, wanted, until or Until(), reads_past_nul=is_one_file)
    search = OrderedSearch(engine)
    if is_one_file:
        require_viewable(engine, path)
        engine.remarks.binary = read_binary_sign(workspace, path)
        if engine.remarks.binary is None:
            search.search(iter([path.relative]))
    else:
        with converting(path, "list"):
            _search_below(workspace, engine, search, path, glob)
    engine.check()
    return search.found


def require_viewable(engine: SearchEngine, path: WorkspacePath) -> None:
    """Raises: PermissionDeniedError for a file that may not be viewed."""
    if not engine.may_show(path.relative):
        raise PermissionDeniedError(
            f"{quote(path.relative)} may not be viewed",
            hint="search elsewhere, or ask a person to change the policy",
        )


def is_file(workspace: Workspace, path: WorkspacePath) -> bool:
    """Whether `path` is a file, or else a directory.

    Raises: PathNotFoundError, SpecialFileError, PathError: it is neither, or not readable.
    """
    try:
        with workspace.open_file(path):
            return True
    except PathNotAFileError:
        return False


def _search_below(
    workspace: Workspace,
    engine: SearchEngine,
    search: OrderedSearch,
    path: WorkspacePath,
    glob: SearchGlob,
) -> None:
    wanted, tree = engine.wanted, workspace
    terms = WalkTerms(NEVER, honours_ignore=True, glob=glob)
    command = tree_command(wanted.regex, glob, wanted.matches_max + 1)
    proposals: Proposals = {}
    with held_open(tree.resolution.open(tree.root_fd, path.relative, READ_DIRECTORY)) as fd:
        require_enterable(fd)
        child = engine.start(command, fd)
    with child:
        area = _Below(workspace, path, glob)
        engine.read(child, ProposalReader(), proposals, wanted.matches_max, area)
    if sum(map(len, proposals.values())) <= search.left:
        engine.remarks.too_deep.update(area.too_deep)
        search.confirm(proposals)
        return
    with contextlib.closing(Walk(tree, path, terms, engine.until)) as walk:
        search.search(walk.paths())
        engine.remarks.is_late = engine.remarks.is_late or walk.is_late
        engine.remarks.unreadable.update(filter(engine.may_name, walk.unreadable))
        engine.remarks.too_deep.update(filter(engine.may_name, walk.too_deep))


class _Below:
    """A directory that ripgrep walks; some of what it finds is not meant.

    ripgrep reads no rules above its directory, for it would not stop at the workspace's root,
    and takes rules for less than git does. So all rules are ours to apply, as a walk does.
    """

    __slots__ = (
        "_base",
        "_entered",
        "_glob",
        "_ignored",
        "_last",
        "_path",
        "_tree",
        "prefix",
        "too_deep",
    )

    def __init__(self, workspace: Workspace, path: WorkspacePath, glob: SearchGlob) -> None:
        self.prefix = "" if path.is_root else path.relative + "/"
        self._base = len(self.prefix)
        self._glob = glob
        self._entered = Entered(glob)
        self._tree = workspace
        self._path = path
        self._ignored: IgnoreLookup | None = None
        self._last = ("", False)
        self.too_deep: set[str] = set()
        """Directories that a walk does not look into, and ripgrep found something in."""

    def means(self, path: str) -> bool:
        # One after the other, a file is asked about as often as it has pieces of output.
        if path != self._last[0]:
            self._last = (path, self._is_meant(path))
        return self._last[1]

    def _is_meant(self, path: str) -> bool:
        name, below = path.rpartition("/")[2], path[self._base :]
        if not self._glob.matches(name, below, is_directory=False):
            return False
        if not self._entered.holds(below):
            return False
        # Only where something was found: the rules cost a look into each directory.
        if self._ignored is None:
            self._ignored = IgnoreLookup(self._tree, self._path)
        if self._ignored.ignores(path):
            return False
        deep = too_deep_above(path)
        if deep:
            self.too_deep.add(deep)
        return not deep
