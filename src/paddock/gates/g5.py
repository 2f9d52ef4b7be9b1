"""G5: signatures, and the digest of the whole installed set.

Proves: the set that is installed has exactly the digest that the packages ledger comes to;
an operator of this plane has signed a set; every package is in the set that was signed last,
or came later with an approval or a signature of its own that holds; every signature that
came with a package holds, by a key that counts or, where an operator vouched for the package
since, counted when it came; and the plane's keys are exactly those that an operator vouched
for, each by one who counted before, from the plane's first key on.

Cannot prove: whose the first key is. That is settled when the plane is made, and kept from
being changed later by checkpoints of the ledger (G6).
"""

from paddock.errors import IntegrityError
from paddock.gates.authority import keys_at, standing_problem
from paddock.gates.ground import MADE_WITH_DEV, NOTHING_INSTALLED, Ground
from paddock.gates.names import G5
from paddock.gates.results import GateResult, not_applicable
from paddock.gates.tally import Tally
from paddock.packages.installed import InstalledPackage
from paddock.packages.ledger import LEDGER_FILE, RecordedPackage
from paddock.packages.manifest import INSTALLED, manifest_path, receipt_path
from paddock.packages.signing import Keys, verify_signature
from paddock.packages.vouching import find_key_problems


def check(ground: Ground) -> GateResult:
    if ground.tools.plane_is_dev:
        return not_applicable(G5, MADE_WITH_DEV)
    if ground.is_empty and not ground.keys and not ground.vouched.statements:
        return not_applicable(G5, NOTHING_INSTALLED)
    tally = Tally(G5)
    tally.fail(ground.deviations)
    _look_at_set(ground, tally)
    tally.fail(find_key_problems(ground.vouched, ground.keys))
    tally.count(len(ground.keys))
    for told in ground.record.packages.values():
        tally.look(manifest_path(told.package_id), _vouching_problem(told, ground))
    for package in ground.installed.packages.values():
        if package.receipt.signature is not None:
            tally.look(receipt_path(package.package_id), _signature_problem(package, ground))
    return tally.result(NOTHING_INSTALLED)


def _look_at_set(ground: Ground, tally: Tally) -> None:
    """The set as a whole: its digest, and the statements about it."""
    found, told = ground.installed.digest, ground.record.set_digest
    tally.look(INSTALLED, "" if found == told else f"the digest of the set is {found}, not {told}")
    tally.fail(ground.vouched.problems)
    if not ground.vouched.statements:
        tally.look(
            LEDGER_FILE, "nobody has signed the installed set: paddock package sign --installed"
        )
    tally.count(ground.vouched.statements)


def _vouching_problem(told: RecordedPackage, ground: Ground) -> str:
    """Why nobody vouches for a package; empty where somebody does."""
    if told.row in ground.vouched.rows:
        return ""
    package = ground.installed.packages.get(told.package_id)
    if package is not None and package.receipt.signature is not None:
        return ""  # whether that holds is asked for every signature
    problem = standing_problem(told, ground)
    return f"nobody vouches for it: {problem}" if problem else ""


def _signature_problem(package: InstalledPackage, ground: Ground) -> str:
    signature = package.receipt.signature
    if signature is None:
        return ""
    try:
        verify_signature(signature, package.manifest.digest, _keys_of_install(package, ground))
    except IntegrityError as error:
        return error.message
    return ""


def _keys_of_install(package: InstalledPackage, ground: Ground) -> Keys:
    told = ground.record.packages.get(package.package_id)
    found = (each.seq for each in ground.entries if told is not None and each.id == told.entry_id)
    seq = next(found, None)
    return ground.keys if told is None or seq is None else keys_at(seq, told, ground)
