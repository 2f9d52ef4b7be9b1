"""What is known of a ledger from outside it, and what G6 asks of whoever knows it.

A ledger by itself cannot tell that it was replaced as a whole, put back to an earlier copy,
or cut off at its end together with everything beside it. `judge_ledger` is the one place
where G6 looks at a ledger: first the ledger itself, line by line, then what its witness says.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from paddock.errors import HostError, LedgerDamagedError
from paddock.ledger.verify import Verification, verify
from paddock.packages.refusals import Failure


class LedgerWitness(Protocol):
    """Knows ledgers of a plane from outside the plane: their keys, signed heads kept elsewhere."""

    def expects(self, name: str) -> bool:
        """Whether there has to be a ledger of that name, whatever stands in the plane."""
        ...

    def problems(self, name: str, path: Path, found: Verification) -> tuple[str, ...]:
        """What is wrong with a ledger that verifies by itself: not its key, rolled back.

        Raises: ConfigError, IntegrityError, HostError: what is kept outside cannot be read.
        """
        ...


class _NoWitness:
    """Of a plane about which nothing is known outside."""

    def expects(self, name: str) -> bool:
        """See `LedgerWitness`."""
        del name
        return False

    def problems(self, name: str, path: Path, found: Verification) -> tuple[str, ...]:
        """See `LedgerWitness`."""
        del name, path, found
        return ()


NO_WITNESS: Final[LedgerWitness] = _NoWitness()


@dataclass(frozen=True, slots=True)
class LedgerFinding:
    """What G6 found of one ledger."""

    entries: int
    """That were read and verified; 0 where there is no such ledger yet."""
    failures: tuple[Failure, ...] = ()


def judge_ledger(
    name: str, path: Path, file: str, witness: LedgerWitness, *, is_required: bool
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
        found = _verified(path)
    except (HostError, LedgerDamagedError) as error:
        return LedgerFinding(0, (Failure(file, error.message.replace(str(path), name)),))
    failures = [
        Failure(file, f"line {each.line} (entry {each.seq}): {each.kind}: {each.detail}")
        for each in found.problems
    ]
    if found.problems_omitted:
        failures.append(Failure(file, f"{found.problems_omitted} more problems"))
    if not failures and found.torn_bytes:
        cut = f"{found.torn_bytes} bytes follow the last whole entry"
        failures.append(Failure(file, f"{cut}: an append was cut short"))
    if not failures:
        failures += [Failure(file, problem) for problem in witness.problems(name, path, found)]
    return LedgerFinding(found.entries, tuple(failures))


def _verified(path: Path) -> Verification:
    found = verify(str(path))
    # Somebody may be appending right now; then the second look finds the entry whole.
    return verify(str(path)) if found.torn_bytes else found


def _missing(
    name: str, path: Path, file: str, witness: LedgerWitness, *, is_required: bool
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
