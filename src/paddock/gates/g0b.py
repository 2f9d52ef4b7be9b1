"""G0B: every file under a governed root is owned, and every owned file is there, unchanged.

Proves: below HOT, HO2 and HO1 stands nothing but what installed packages brought, at exactly
their content, type and mode; and the plane's own files, each of the one form that it can
have. Hidden files, links, special files and empty directories count as well. Configuration
is owned by path: it loads, governance holds the digest of its present content, and its mode
gives nobody more than the one it was brought with. What is kept beside a ledger has a name that
a ledger gives. No directory there can be written by others, and nothing is somebody else's.

Cannot prove: anything of `HO2/scratch`, `agents` and `objects`, where work is left, nor of
what stands beside the tiers in the plane's root; what a ledger says (G6); whose keys and
approvals these are (G2, G5). It tells what is so now, not what was a moment ago.
"""

from collections.abc import Mapping
from typing import Final

from paddock import limits
from paddock.gates.g0b_config import config_problem
from paddock.gates.g0b_own import (
    LEDGER_DIRECTORIES,
    WAITING_CALLS,
    OwnFile,
    find_ledger_detail,
    find_own_problem,
    is_waiting_call,
    own_paths,
)
from paddock.gates.ground import NOTHING_INSTALLED, Ground
from paddock.gates.names import G0B
from paddock.gates.results import GateResult
from paddock.gates.tally import Tally
from paddock.gates.walk import Kind, Standing, walk
from paddock.ledger.details import Detail
from paddock.packages.installed import InstalledPackage, file_problem
from paddock.plane.bare import BARE_DIRECTORIES
from paddock.plane.files import WRITABLE_BY_OTHERS, trusted_owners
from paddock.plane.layout import TIERS
from paddock.text.show import quote

FREE: Final = "HO2/scratch"
"""Where work may be left."""
_SPECIAL_BITS: Final = 0o7000
"""Set-id and sticky bits, which no package brings and no receipt tells."""


def check(ground: Ground) -> GateResult:
    tally = Tally(G0B)
    tally.fail(ground.deviations)
    owners = _owners(ground, tally)
    for path, owner in owners.items():
        tally.look(path, _owned_problem(path, owner, ground))
    places = _Places(ground, owners)
    users = trusted_owners(ground.layout.root)
    for standing in walk(ground.layout.root, TIERS, (FREE,)):
        if standing.owner not in users:
            # Threat: who owns a file can write it, whatever its mode is now.
            tally.look(standing.path, f"it belongs to user {standing.owner}")
        if standing.path not in owners:
            tally.look(standing.path, places.problem(standing))
        elif standing.kind is Kind.FILE and _is_too_open(standing, owners[standing.path]):
            tally.look(standing.path, f"its mode is {standing.mode:04o}")
    if not owners and not places.own:
        tally.discount()  # Directories alone are nothing to own.
    return tally.result(NOTHING_INSTALLED)


def _owners(ground: Ground, tally: Tally) -> dict[str, InstalledPackage]:
    """Every path that a package brought, with the one package whose it is."""
    listing: dict[str, list[InstalledPackage]] = {}
    for package in ground.installed.packages.values():
        for path in package.manifest.by_path:
            listing.setdefault(path, []).append(package)
    owners: dict[str, InstalledPackage] = {}
    for path, packages in sorted(listing.items()):
        if len(packages) != 1:
            names = ", ".join(package.package_id for package in packages)
            tally.look(path, f"it has {len(packages)} owners: {names}")
        owners[path] = packages[0]
    return owners


def _owned_problem(path: str, owner: InstalledPackage, ground: Ground) -> str:
    problem = file_problem(owner, path, ground.tools.workspace)
    if problem or not owner.manifest.by_path[path].is_config:
        return problem
    return config_problem(path, ground)


def _is_too_open(standing: Standing, owner: InstalledPackage) -> bool:
    """Whether its mode says more than what was brought.

    Threat: operators edit configuration, so its content may be anything that is on record.
    A policy that others can write is theirs; kept closer than it was brought it is fine.
    """
    if owner.manifest.by_path[standing.path].is_config:
        return bool(standing.mode & ~owner.files[standing.path].mode)
    return bool(standing.mode & _SPECIAL_BITS)


class _Places:
    """What may stand where no package brought anything."""

    def __init__(self, ground: Ground, owners: Mapping[str, InstalledPackage]) -> None:
        self._ground = ground
        self.own = own_paths(ground)
        self._directories = {*BARE_DIRECTORIES, FREE, WAITING_CALLS}
        for path in (*owners, *self.own):
            above = path.rpartition("/")[0]
            while above:
                self._directories.add(above)
                above = above.rpartition("/")[0]

    def problem(self, standing: Standing) -> str:
        """What is wrong with it; empty where it may stand there, as it is."""
        path = standing.path
        if standing.is_too_deep:
            return f"it lies {limits.path_depth_max} directories deep: nobody looked into it"
        if path in self._directories:
            return self._directory_problem(standing)
        if path in self.own:
            return find_own_problem(standing, self.own[path])
        if is_waiting_call(path):
            return find_own_problem(standing, OwnFile())
        directory = path.rpartition("/")[0]
        if directory in LEDGER_DIRECTORIES:
            return self._ledger_problem(standing, directory)
        detail = find_ledger_detail(path)
        if detail is not None:
            return (
                self._directory_problem(standing)
                if detail is Detail.DIRECTORY
                else (find_own_problem(standing, OwnFile()))
            )
        return f"no package owns this {standing.kind.value}"

    def _directory_problem(self, standing: Standing) -> str:
        if standing.kind is not Kind.DIRECTORY:
            return f"it is a {standing.kind.value}, and should be a directory"
        if standing.mode & WRITABLE_BY_OTHERS:
            return f"others can write there: its mode is {standing.mode:04o}"
        return ""

    def _ledger_problem(self, standing: Standing, directory: str) -> str:
        name = standing.path.rpartition("/")[2]
        pattern = LEDGER_DIRECTORIES[directory]
        matched = pattern.fullmatch(name)
        if matched is None:
            return f"no ledger is called {quote(name)}"
        wanted = Kind.DIRECTORY if matched["details"] else Kind.FILE
        if standing.kind is not wanted:
            return f"it is a {standing.kind.value}, and should be a {wanted.value}"
        if standing.mode & WRITABLE_BY_OTHERS:
            return f"others can write to it: its mode is {standing.mode:04o}"
        return ""
