"""What this user knows of a plane's ledgers from outside the plane."""

from dataclasses import dataclass
from pathlib import Path

from paddock.assembly.anchoring import ledger_settings
from paddock.assembly.auditing import (
    Audit,
    audit_ledger,
    is_held_elsewhere,
    is_known_outside,
)
from paddock.assembly.project import Project
from paddock.ledger.keys import load_key
from paddock.ledger.verify.verifying import Verification, verify
from paddock.plane.environment import anchor_directory, ledger_key_path
from paddock.plane.layout import LedgerName


@dataclass(frozen=True, slots=True)
class PlaneWitness:
    """See `LedgerWitness`. The key that a ledger was made with lies in the user's configuration."""

    project: Project

    def expects(self, name: LedgerName) -> bool:
        return is_held_elsewhere(self.project.layout, self.project.environment, name)

    def knows_plane(self) -> bool:
        """See `LedgerWitness`. What knows the highest ledger knows the others by its entries."""
        layout, environment = self.project.layout, self.project.environment
        if ledger_settings(environment).signer or self._key_file(LedgerName.GOVERNANCE).exists():
            return True
        return self._anchors.exists() and is_known_outside(layout, environment)

    def verify(self, name: LedgerName, path: Path) -> Verification:
        """See `LedgerWitness`.

        Threat: a ledger that was cut off, or put back to an earlier copy, is whole in itself.
        """
        is_signed_here = ledger_settings(self.project.environment).signer
        is_known = self._key_file(name).exists() or self._anchors.exists()
        if not is_known and not is_signed_here:
            return verify(str(path))  # a plane that somebody else made: nothing is known of it here
        return audit_ledger(self.project.layout, self.project.environment, name, Audit(full=True))

    def problem(self, name: LedgerName, found: Verification) -> str:
        """See `LedgerWitness`.

        Threat: another ledger, whole in itself, was put in this one's place.
        """
        file = self._key_file(name)
        if not file.exists() or found.genesis is None:
            return ""
        expected = str(load_key(str(file)).verifier)
        is_own = found.genesis.public_key == expected
        return "" if is_own else "it was made with another key than this plane's"

    @property
    def _anchors(self) -> Path:
        """What was kept of this plane here: it stands where the keys are lost, too."""
        return anchor_directory(self.project.layout, self.project.environment)

    def _key_file(self, name: LedgerName) -> Path:
        return ledger_key_path(self.project.layout, self.project.environment, name)
