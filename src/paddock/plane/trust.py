"""Which policy files the user has looked at and accepted.

Kept in the user's state directory, out of every agent's reach. A file is trusted
by its real path and by the digest of its bytes: a copy elsewhere, or one changed
byte, is another file.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from paddock import limits
from paddock.errors import ConfigError
from paddock.plane.environment import Environment
from paddock.plane.layout import path_id
from paddock.plane.paths import real_path
from paddock.plane.strict_json import parse_object, write_object
from paddock.storage.atomic import make_directories, read_file, replace_file, require_private
from paddock.values.digests import digest_of

_KEYS: Final = frozenset({"path", "digest", "trusted_at"})


@dataclass(frozen=True, slots=True)
class TrustAnswer:
    """Whether a file is trusted, and why not."""

    trusted: bool
    reason: str = ""
    """Empty exactly when `trusted`."""


@dataclass(frozen=True, slots=True)
class TrustRecord:
    """What the user accepted."""

    path: Path
    digest: str
    trusted_at: str


def find_trust(file: Path, content: bytes, environment: Environment) -> TrustAnswer:
    """Whether the user trusts exactly `content` at `file`. Never raises for what is stored.

    Threat: a clone brings a policy file, a pull or an agent changes it: both
    have another digest than the one that was accepted. A trust store that
    others can write, or that does not load, answers no.
    """
    real = _real(file)
    try:
        record = _read_record(real, environment)
    except ConfigError as error:
        return TrustAnswer(False, f"the record of its trust does not load: {error.message}")
    if record is None:
        return TrustAnswer(False, "it was never trusted")
    if record.path != real:
        return TrustAnswer(False, "the record of its trust names another file")
    if record.digest != digest_of(content):
        return TrustAnswer(False, "it has changed since it was trusted")
    return TrustAnswer(True)


def is_trusted(file: Path, content: bytes, environment: Environment) -> bool:
    """`find_trust` without the reason."""
    return find_trust(file, content, environment).trusted


def find_trust_record(file: Path, content: bytes, environment: Environment) -> TrustRecord | None:
    """The record by which exactly `content` at `file` is trusted, if it is."""
    if not is_trusted(file, content, environment):
        return None
    return _read_record(_real(file), environment)


def plan_trust(file: Path, content: bytes, now: datetime) -> TrustRecord:
    """The trust in `content` at `file`: what is put on record before `write_trust`.

    Give the bytes that were shown, not the file's newest: the answer was about those.
    """
    return TrustRecord(_real(file), digest_of(content), now.astimezone(UTC).isoformat())


def write_trust(record: TrustRecord, environment: Environment) -> None:
    """Trust what `record` names from now on, in place of what was trusted there.

    Raises:
        ConfigError: others can write the trust store.
        HostError: it could not be written.
    """
    path = _record_path(record.path, environment)
    make_directories(path.parent)
    require_private(path.parent)
    digest, trusted_at = record.digest, record.trusted_at
    replace_file(
        path,
        write_object({"path": str(record.path), "digest": digest, "trusted_at": trusted_at}),
    )


def parse_trust(content: bytes, file: str) -> TrustRecord:
    """The record that `content` is; `file` is for messages.

    Raises:
        ConfigError: it does not load.
    """
    fields = parse_object(content, file)
    fields.require_only(_KEYS)
    return TrustRecord(Path(fields.text("path")), fields.text("digest"), fields.text("trusted_at"))


def _read_record(real: Path, environment: Environment) -> TrustRecord | None:
    path = _record_path(real, environment)
    require_private(path.parent)
    content = read_file(path, limits.plane_record_bytes_max)
    return None if content is None else parse_trust(content, str(path))


def trust_record_path(file: Path, environment: Environment) -> Path:
    """Where the record of the trust in `file` stands, or would stand."""
    return _record_path(_real(file), environment)


def _record_path(real: Path, environment: Environment) -> Path:
    return environment.trust / f"{path_id(real)}.json"


def _real(file: Path) -> Path:
    """The file by the real path of its directory: its own last name is never a link."""
    return real_path(file.parent) / file.name
