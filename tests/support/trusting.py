"""Trust as a person gave it earlier: in the store, with no ledger told of it."""

from datetime import datetime
from pathlib import Path

from paddock.plane.environment import Environment
from paddock.plane.trust import TrustRecord, plan_trust, write_trust


def record_trust(
    file: Path, content: bytes, environment: Environment, now: datetime
) -> TrustRecord:
    """Trust `content` at `file` from now on."""
    record = plan_trust(file, content, now)
    write_trust(record, environment)
    return record
