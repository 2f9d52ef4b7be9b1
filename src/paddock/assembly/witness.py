"""What this user knows of a plane's ledgers from outside the plane."""

from dataclasses import dataclass
from pathlib import Path

from paddock.assembly.project import Project
from paddock.ledger.keys import load_key
from paddock.ledger.verify import Verification
from paddock.plane.keys import ledger_key_path


@dataclass(frozen=True, slots=True)
class PlaneWitness:
    """See `LedgerWitness`. The key that a ledger was made with lies in the user's configuration."""

    project: Project

    def expects(self, name: str) -> bool:
        """See `LedgerWitness`."""
        del name
        return False

    def problems(self, name: str, path: Path, found: Verification) -> tuple[str, ...]:
        """See `LedgerWitness`.

        # Threat: another ledger, whole in itself, was put in this one's place.
        """
        del path
        file = ledger_key_path(self.project.layout, self.project.environment, name)
        if not file.exists() or found.genesis is None:
            return ()  # a plane that somebody else made: nothing is known of it here
        expected = str(load_key(str(file)).verifier)
        if found.genesis.public_key != expected:
            return ("it was made with another key than this plane's",)
        return ()
