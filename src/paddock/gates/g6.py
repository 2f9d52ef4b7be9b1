"""G6: every ledger verifies, and the packages ledger agrees with what is installed.

Proves: of each ledger that every line is whole, in its place and chained to the one before,
and that the file agrees with what is kept beside it; that no ledger is missing which there
has to be; what the plane's witness says of each from outside the plane (its key, signed
heads that are kept elsewhere); and that following the packages ledger from its first entry
comes to exactly the manifests and receipts that stand in the plane.

Cannot prove: entries after the newest checkpoint that is kept outside could have been cut
off or written anew by whoever can write the whole plane. Where nothing outside is known of
its ledgers, as of a plane that was moved or brought, that is all entries, and a note says so.
"""

from dataclasses import replace
from typing import Final

from paddock.gates.ground import Ground
from paddock.gates.ledgers import judge_ledger
from paddock.gates.names import G6
from paddock.gates.results import GateResult, Status
from paddock.gates.tally import Tally
from paddock.plane.layout import LedgerName

NOTHING_OUTSIDE: Final = (
    "nothing outside the plane is known of its ledgers here: what was cut off or put back does "
    "not show; keys are kept by the plane's path: was it moved?"
)


def check(ground: Ground) -> GateResult:
    tally = Tally(G6)
    whole = True
    for name, path in ground.layout.ledger_paths().items():
        ground.tools.watcher.begins(G6, name)
        is_required = name is LedgerName.GOVERNANCE or (
            name is LedgerName.PACKAGES
            and bool(ground.installed.packages or ground.installed.problems)
        )
        file = path.relative_to(ground.layout.root).as_posix()
        found = judge_ledger(name, path, file, ground.tools.witness, is_required=is_required)
        tally.count(found.entries)
        tally.fail(found.failures)
        whole = whole and not (name is LedgerName.PACKAGES and found.failures)
    if whole:
        tally.fail(ground.deviations)
        tally.count(len(ground.record.packages))
    result = tally.result("there is no ledger")
    if result.status is Status.PASS and not ground.tools.witness.knows_plane():
        return replace(result, note=NOTHING_OUTSIDE)
    return result
