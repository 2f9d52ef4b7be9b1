"""G2: packages that changed the plane were approved.

Proves: every package that is installed stands on an approval, given before its install or
after it; and of every approval that was ever used, the file is still there, with an Ed25519
signature of a key of the plane over exactly what it says, for the digest that was installed,
by the key and before the time that the ledger tells, and used once. Of what is installed
now, its scope covers every file, and the key is one of the plane still, or was one when the
approval was used and a present operator has vouched for the package since. An approval that
waits to be used is signed too.

Cannot prove: the scope of what was replaced or uninstalled since (its files are not told any
more), nor that whoever held the key was right. Files changed without a package are G0B's.
"""

from collections import Counter

from paddock.gates.authority import standing_problem, use_problem
from paddock.gates.ground import MADE_WITH_DEV, Ground
from paddock.gates.names import G2
from paddock.gates.results import GateResult, not_applicable
from paddock.gates.tally import Tally
from paddock.packages.manifest import approval_file, manifest_path
from paddock.packages.signing import signature_problem


def check(ground: Ground) -> GateResult:
    if ground.tools.plane_is_dev:
        return not_applicable(G2, MADE_WITH_DEV)
    tally = Tally(G2)
    tally.fail(ground.deviations)
    for told in ground.record.packages.values():
        tally.look(manifest_path(told.package_id), standing_problem(told, ground))
    _look_at_uses(ground, tally)
    used = {use.wo_id for use in ground.record.uses}
    for wo_id, approval in ground.approvals.items():
        if wo_id not in used:
            tally.look(approval_file(wo_id), signature_problem(approval, ground.keys))
    return tally.result("no package has changed this plane")


def _look_at_uses(ground: Ground, tally: Tally) -> None:
    # An operator who left vouched for what was done while he was one.
    keys = {**ground.vouched.known, **ground.keys}
    times = Counter(use.wo_id for use in ground.record.uses)
    for use in ground.record.uses:
        file, approval = approval_file(use.wo_id), ground.approvals.get(use.wo_id)
        if approval is None:
            why = f"{use.package_id} was installed with it (entry {use.seq})"
            tally.look(file, f"{why}, and it is not there")
        elif times[use.wo_id] > 1:
            tally.look(file, f"it was used {times[use.wo_id]} times")
        else:
            tally.look(file, use_problem(use, approval, keys))
