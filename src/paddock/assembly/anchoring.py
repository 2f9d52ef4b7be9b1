"""Where the checkpoints of each ledger go: into the tier above, and from the top outside."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paddock.errors import ConfigError
from paddock.ledger.anchors import Anchor, CommandAnchor, DirectoryAnchor, GitAnchor
from paddock.ledger.format.notes import SignedCheckpoint
from paddock.ledger.sealing import KeptLedger
from paddock.plane.environment import Environment, anchor_directory, plane_title
from paddock.plane.layout import LedgerName, PlaneLayout
from paddock.plane.trust import read_user_policy
from paddock.policy.engine import PolicySource, load_policy
from paddock.policy.settings import LedgerSettings
from paddock.text.show import quote
from paddock.values.entries import CHECKPOINT, Entry

LEDGER_ABOVE: Final = {
    LedgerName.HO1M: LedgerName.HO2M,
    LedgerName.HO2M: LedgerName.GOVERNANCE,
    LedgerName.PACKAGES: LedgerName.GOVERNANCE,
}
"""Which ledger takes a ledger's checkpoints as entries."""


@dataclass(frozen=True, slots=True)
class TierAbove:
    """The ledger above: a checkpoint becomes an entry there, and is covered there at once."""

    ledger: LedgerName
    open: Callable[[], KeptLedger]

    def take(self, signed: SignedCheckpoint) -> None:
        with closing(self.open()) as above:
            above.append([checkpoint_entry(self.ledger, signed)])
            above.seal()


@dataclass(frozen=True, slots=True)
class Outside:
    """The anchor of the highest ledger."""

    layout: PlaneLayout
    environment: Environment

    def take(self, signed: SignedCheckpoint) -> None:
        """See `sealing.Above`. Raises: also ConfigError where the configuration does not load."""
        find_anchor(self.layout, self.environment, signed.checkpoint.origin).store(signed)


def checkpoint_entry(ledger: LedgerName, signed: SignedCheckpoint) -> Entry:
    checkpoint = signed.checkpoint
    return Entry(
        CHECKPOINT,
        metadata={
            "ledger": ledger,
            "origin": checkpoint.origin,
            "size": checkpoint.size,
            "root": checkpoint.root.hex(),
            "note": signed.note,
        },
    )


def find_anchor(layout: PlaneLayout, environment: Environment, origin: str) -> Anchor:
    """The anchor of this user's configuration; without one, a directory beside the planes.

    Threat: a repository or a command that a project could name would run on the host, and
    whoever names a place of their own has the proof there. The user's own file alone counts.

    Raises: ConfigError.
    """
    settings = ledger_settings(environment).anchor
    title = plane_title(layout)
    variables = program_variables(environment)
    if settings.git:
        return GitAnchor(
            _place(settings.git, environment), f"{title}.{LedgerName.GOVERNANCE}", variables
        )
    if settings.command:
        return CommandAnchor(settings.command, origin, variables)
    if settings.directory:
        return DirectoryAnchor(
            _place(settings.directory, environment) / title / LedgerName.GOVERNANCE
        )
    return DirectoryAnchor(anchor_directory(layout, environment) / LedgerName.GOVERNANCE)


def ledger_settings(environment: Environment) -> LedgerSettings:
    """What the user's own configuration says of ledgers. Raises: ConfigError."""
    file = read_user_policy(environment)
    if file is None:
        return LedgerSettings()
    return load_policy(None, PolicySource(file.path.name, file.content)).settings.ledger


def program_variables(environment: Environment) -> list[tuple[str, str]]:
    """What an anchor or a signer gets: all but what git was told about another repository."""
    return [each for each in environment.variables if not each[0].startswith("GIT_")]


def _place(text: str, environment: Environment) -> Path:
    path = environment.home / text[2:] if text.startswith("~/") else Path(text)
    if not path.is_absolute():
        raise ConfigError(
            f"the anchor {quote(text)} is a relative path",
            where=str(environment.user_config),
            hint="give an absolute one, or one that begins with ~/",
        )
    if "\0" in text:
        raise ConfigError(
            f"the anchor {quote(text)} holds a NUL, and no path does",
            where=str(environment.user_config),
        )
    return path
