"""What a founding that was stopped left on record, and what is of a plane that stood there.

    OPERATOR_KEY_ENROLLED, PACKAGE_INSTALLED of each package, PACKAGE_SET_SIGNED

Only the beginning of that, by the same word, is gone on with. On record for good is only what
happened once: whoever lost the plane's configuration does not get its packages anew.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from paddock.errors import ConfigError
from paddock.ledger.format.lines import StoredEntry
from paddock.packages.approvals import Approval, signature_problem
from paddock.packages.keys import Keys
from paddock.packages.log import PackageLog
from paddock.packages.manifest import Manifest
from paddock.packages.names import PLANE_MARKER
from paddock.packages.recorded import LEDGER_FILE
from paddock.text.show import quote, show_name
from paddock.values.entries import Entry
from paddock.values.events import (
    OPERATOR_KEY_ENROLLED,
    PACKAGE_APPROVED,
    PACKAGE_INSTALLED,
    PACKAGE_SET_SIGNED,
    PACKAGE_UNINSTALLED,
)

_ABOUT_PACKAGES: Final = frozenset(
    {
        OPERATOR_KEY_ENROLLED,
        PACKAGE_APPROVED,
        PACKAGE_INSTALLED,
        PACKAGE_SET_SIGNED,
        PACKAGE_UNINSTALLED,
    }
)
"""Others begin the ledger, or tell of itself."""


def require_beginning(
    log: PackageLog, manifests: Sequence[Manifest], ledger: Path, *, is_dev: bool
) -> None:
    """Refuse a log that tells of more than a founding of these packages, stopped somewhere.

    Threat: packages that were taken out or changed since come back under the approvals of
    their first install, and nothing on record says so.

    Raises: ConfigError; `ledger` is where the log stands.
    """
    digests = {manifest.digest for manifest in manifests}
    for stored in log.entries:
        entry = stored.entry
        if entry.event_type not in _ABOUT_PACKAGES:
            continue
        if not _begins(entry, digests):
            raise was_a_plane(f"its packages ledger says: {show_name(entry.reason)}", ledger)
        if (entry.metadata.get("dev") is True) is not is_dev:
            how = "without" if is_dev else "with"
            raise ConfigError(
                f"an init {how} --dev was stopped here",
                where=str(ledger),
                hint=f"go on {how} --dev, or name another directory; nothing was changed",
            )


def _begins(entry: Entry, digests: set[str]) -> bool:
    if entry.event_type == PACKAGE_INSTALLED:
        return entry.metadata.get("previous") is None and entry.metadata.get("digest") in digests
    return entry.event_type in (OPERATOR_KEY_ENROLLED, PACKAGE_SET_SIGNED)


def was_a_plane(why: str, ledger: Path) -> ConfigError:
    """What to say where a plane stood, and more of it is there than its beginning."""
    return ConfigError(
        f"a plane stood here that lost its {PLANE_MARKER}: {why}",
        where=str(ledger),
        hint="put that file back from a backup, or name another directory; nothing was changed",
    )


def find_install(log: PackageLog, manifest: Manifest) -> StoredEntry | None:
    """The entry that a stopped founding recorded of this very package."""
    for stored in log.entries:
        entry = stored.entry
        if (
            entry.event_type == PACKAGE_INSTALLED
            and entry.metadata.get("digest") == manifest.digest
        ):
            return stored
    return None


def recorded_approval(known: StoredEntry, standing: Sequence[Approval], keys: Keys) -> Approval:
    """The approval under which a package is on record; its time may be over by now.

    Raises: ConfigError: it is gone, or is another one.
    """
    metadata = known.entry.metadata
    for approval in standing:
        told = (metadata.get("wo_id"), metadata.get("digest"))
        if (approval.wo_id, approval.digest) == told and not signature_problem(approval, keys):
            return approval
    raise ConfigError(
        f"the approval {quote(str(metadata.get('wo_id')))} that a stopped init used is gone, or"
        " is another one",
        where=LEDGER_FILE,
        hint="name an empty directory or a new one; nothing was changed",
    )
