"""What G6 asks of one ledger, and of whoever knows it from outside.

`judge_ledger` is the one place where G6 looks at a ledger: it has its witness verify it, with
all that the witness holds.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paddock.errors import HostError, LedgerDamagedError
from paddock.gates.witness import LedgerWitness
from paddock.ledger.verify.verifying import ChainFault, Verification
from paddock.packages.rows import Failure
from paddock.plane.layout import LedgerName

_RESTORED: Final = "if it was restored from a backup: paddock ledger accept-rollback"
_PLACE: Final = re.compile(r"""(['"])/(?:[^'"/]*/)*([^'"/]*)\1""")


@dataclass(frozen=True, slots=True)
class LedgerFinding:
    entries: int
    """That were read and verified; 0 where there is no such ledger yet."""
    failures: tuple[Failure, ...] = ()


def judge_ledger(
    name: LedgerName, path: Path, file: str, witness: LedgerWitness, *, is_required: bool
) -> LedgerFinding:
    """Look at one ledger; `file` is what it is called in a failure.

    Raises: ConfigError, IntegrityError: what is known of it outside cannot be read.
    """
    if not path.exists():
        return _missing(name, path, file, witness, is_required=is_required)
    if path.is_symlink() or not path.is_file():
        # Threat: a link leads to a ledger that grows elsewhere, or to none.
        return LedgerFinding(0, (Failure(file, "it is not a regular file"),))
    try:
        found = _verified(name, path, witness)
    except (HostError, LedgerDamagedError) as error:
        return LedgerFinding(0, (Failure(file, _without_places(error.message)),))
    another = witness.problem(name, found)
    reasons = [another] if another else []
    reasons += map(_without_places, _problems(found))
    return LedgerFinding(found.entries, tuple(Failure(file, why) for why in reasons))


def _verified(name: LedgerName, path: Path, witness: LedgerWitness) -> Verification:
    found = witness.verify(name, path)
    # Somebody may be appending right now; then the second look finds the entry whole.
    return witness.verify(name, path) if found.torn_bytes else found


def _problems(found: Verification) -> Iterator[str]:
    """What a verification found, each in words."""
    for each in found.problems:
        if each.kind in {ChainFault.ROLLED_BACK, ChainFault.REWRITTEN}:
            yield f"{each.detail}; {_RESTORED}"
        else:
            yield f"line {each.line} (entry {each.seq}): {each.kind}: {each.detail}"
    if found.problems_omitted:
        yield f"{found.problems_omitted} more problems"
    if not found.problems and found.torn_bytes:
        yield f"{found.torn_bytes} bytes follow the last whole entry: an append was cut short"


def _without_places(text: str) -> str:
    """Without directories of the host: what a gate says is shown to models."""
    return _PLACE.sub(r"\1…/\2\1", text)


def _missing(
    name: LedgerName, path: Path, file: str, witness: LedgerWitness, *, is_required: bool
) -> LedgerFinding:
    if path.is_symlink():
        return LedgerFinding(0, (Failure(file, "it is a link that leads nowhere"),))
    if path.with_suffix(".d").exists():
        # Threat: a ledger that was removed whole has no line left to complain of.
        why = "it is gone: what is kept beside it says that there was one"
        return LedgerFinding(0, (Failure(file, why),))
    if is_required or witness.expects(name):
        return LedgerFinding(0, (Failure(file, "it is not there, and there has to be one"),))
    return LedgerFinding(0)
