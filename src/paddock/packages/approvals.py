"""Approvals of changes to a plane: one file each, signed, for one digest, used once.

    HOT/registries/approvals/<wo_id>.json
        {wo_id, digest, scope[], expires, key_id, signature}

The signature covers the compact JSON, in UTF-8, of the other fields in this order. `digest`
is the manifest's, `expires` is RFC 3339 in UTC, `scope` are patterns of paths of the plane
(gitignore's rules, compared exactly as written): everything that the change touches has to
match one. The file stays. That it was used is told by the packages ledger, whose entry
names it; nothing in the file says so, because whoever can write the file could take it back.
"""

import json
import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from paddock import limits
from paddock.errors import ConfigError, HostError, UsageError
from paddock.ledger.keys import SigningKey
from paddock.packages.keys import Keys, is_key_id, public_half, sign_bytes
from paddock.packages.names import is_digest
from paddock.plane.files import (
    FILE_MODE,
    create_file,
    host_errors,
    make_directories,
    read_file,
    require_private,
)
from paddock.plane.layout import PlaneLayout
from paddock.plane.strict_json import parse_object, write_object
from paddock.policy.patterns import Comparison, PathList, compile_target
from paddock.policy.problems import PatternError
from paddock.text.show import quote
from paddock.values.calls import Json

_FIELDS: Final = frozenset({"wo_id", "digest", "scope", "expires", "key_id", "signature"})
_WO_ID: Final = re.compile(r"WO-[0-9a-f]{32}", re.ASCII)
_FILE: Final = re.compile(r"(WO-[0-9a-f]{32})\.json", re.ASCII)
_EXPIRES: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_SPECIAL: Final = re.compile(r"([\\*?\[\] ])")


@dataclass(frozen=True, slots=True)
class Approval:
    """An operator's word that one package may change a plane, within a scope, until a time."""

    wo_id: str
    digest: str
    scope: tuple[str, ...]
    expires: str
    key_id: str
    signature: str

    @property
    def expires_at(self) -> float:
        """Seconds since 1970."""
        return datetime.fromisoformat(self.expires).timestamp()

    def signed_bytes(self) -> bytes:
        """What the signature covers."""
        return _signed_bytes(self.wo_id, self.digest, self.scope, self.expires, self.key_id)

    def as_json(self) -> dict[str, Json]:
        """As it stands in its file."""
        return {
            "wo_id": self.wo_id,
            "digest": self.digest,
            "scope": list(self.scope),
            "expires": self.expires,
            "key_id": self.key_id,
            "signature": self.signature,
        }


@dataclass(frozen=True, slots=True)
class Claim:
    """What an approval is asked for: this package, touching these paths, now."""

    digest: str
    paths: tuple[str, ...]
    now: float
    """Seconds since 1970."""


def make_approval(
    key: SigningKey, wo_id: str, digest: str, scope: tuple[str, ...], expires_at: float
) -> Approval:
    """Approve a package. `expires_at`: seconds since 1970, cut to whole ones.

    Raises:
        UsageError: a pattern that can match nothing, too many or too long ones, or a time out
            of range.
    """
    try:
        moment = datetime.fromtimestamp(int(expires_at), UTC)
    except (ValueError, OverflowError, OSError):
        raise UsageError("the approval would expire at no date", where="--expires") from None
    expires = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    key_id = public_half(key).key_id
    signed = _signed_bytes(wo_id, digest, scope, expires, key_id)
    approval = Approval(wo_id, digest, scope, expires, key_id, sign_bytes(key, signed))
    _require_readable(approval)
    _scope_of(scope)
    return approval


def _require_readable(approval: Approval) -> None:
    # Whoever reads one approval reads all: one that is too long stops every other as well.
    size_bytes = len(_file_bytes(approval))
    if size_bytes > limits.approval_file_bytes_max:
        raise UsageError(
            f"the approval would have {size_bytes} bytes,"
            f" over {limits.approval_file_bytes_max}: its scope has {len(approval.scope)} patterns",
            where="--scope",
            hint="name directories: a pattern such as HOT/kernel/** covers all below",
        )


def exact_scope(paths: Iterable[str]) -> tuple[str, ...]:
    """Patterns that match these paths and nothing else."""
    return tuple(_SPECIAL.sub(r"\\\1", path) for path in sorted(set(paths)))


def approval_path(layout: PlaneLayout, approval: Approval) -> Path:
    """Where an approval stands in a plane."""
    return _directory(layout) / f"{approval.wo_id}.json"


def write_approval(layout: PlaneLayout, approval: Approval) -> Path:
    """Put it into the plane; where it stands.

    Raises: HostError: something stands there already, or it cannot be written.
    """
    path = approval_path(layout, approval)
    make_directories(path.parent)
    if not create_file(path, _file_bytes(approval), FILE_MODE):
        raise HostError(f"an approval {approval.wo_id} stands there already", where=str(path))
    return path


def read_approvals(layout: PlaneLayout) -> tuple[Approval, ...]:
    """Every approval of the plane, by its id.

    Raises:
        ConfigError: a file there does not load, or others can write there.
    """
    directory = _directory(layout)
    require_private(directory)
    if not directory.is_dir():
        return ()
    with host_errors("listing", directory):
        found = sorted(name for name in os.listdir(directory) if _FILE.fullmatch(name))
    return tuple(read_approval(directory / name) for name in found)


def read_approval(path: Path) -> Approval:
    """One approval. That its signature holds is not said by that. Raises: ConfigError."""
    content = read_file(path, limits.approval_file_bytes_max)
    if content is None:
        raise ConfigError(f"there is no approval {quote(path.name)}", where=str(path))
    fields = parse_object(content, str(path))
    fields.require_only(_FIELDS)
    approval = Approval(
        fields.text("wo_id"),
        fields.text("digest"),
        fields.texts("scope", ()),
        fields.text("expires"),
        fields.text("key_id"),
        fields.text("signature"),
    )
    # Threat: a copy under another name would be used a second time.
    if path.name != f"{approval.wo_id}.json" or _WO_ID.fullmatch(approval.wo_id) is None:
        raise fields.error("wo_id", f"wo_id is {quote(approval.wo_id)}", "the file's own name")
    if not is_digest(approval.digest):
        raise fields.error("digest", f"{quote(approval.digest)} is no digest", "sha256:…")
    if not is_key_id(approval.key_id):
        raise fields.error("key_id", f"{quote(approval.key_id)} is no key id", "32 hex digits")
    if not _is_time(approval.expires):
        raise fields.error(
            "expires", f"expires is {quote(approval.expires)}", "such as 2026-01-31T12:00:00Z"
        )
    return approval


def signature_problem(approval: Approval, keys: Keys) -> str:
    """Why its signature is worth nothing; empty where it holds."""
    key = keys.get(approval.key_id)
    if key is None:
        return f"its key {approval.key_id} is none of this plane's"
    if not key.verifies(approval.signed_bytes(), approval.signature):
        return "its signature does not hold"
    return ""


def approval_problem(approval: Approval, claim: Claim, keys: Keys, used: Collection[str]) -> str:
    """Why an approval does not allow what is claimed; empty where it does.

    The signature first: what stands in a file that nobody signed is worth nothing.
    """
    problem = signature_problem(approval, keys)
    if problem:
        return problem
    if approval.digest != claim.digest:
        return f"it is for {approval.digest}"
    if approval.wo_id in used:
        return "it was used already"
    if claim.now >= approval.expires_at:
        return f"it expired at {approval.expires}"
    outside = paths_outside(approval, claim.paths)
    if not outside:
        return ""
    first, *others = outside
    more = f" (and {len(others)} more)" if others else ""
    return f"its scope does not cover {quote(first)}{more}"


def paths_outside(approval: Approval, paths: Iterable[str]) -> tuple[str, ...]:
    """Those of `paths` that the scope does not cover."""
    try:
        listed = _scope_of(approval.scope)
    except UsageError:
        return tuple(paths)  # A pattern that cannot be used covers nothing.
    return tuple(path for path in paths if listed.find(path) is None)


def _file_bytes(approval: Approval) -> bytes:
    return write_object(approval.as_json())


def _signed_bytes(
    wo_id: str, digest: str, scope: tuple[str, ...], expires: str, key_id: str
) -> bytes:
    fields: dict[str, Json] = {
        "wo_id": wo_id,
        "digest": digest,
        "scope": list(scope),
        "expires": expires,
        "key_id": key_id,
    }
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def _scope_of(scope: tuple[str, ...]) -> PathList:
    if not 0 < len(scope) <= limits.approval_scope_max:
        raise UsageError(
            f"the scope has {len(scope)} patterns",
            where="--scope",
            hint=f"1 to {limits.approval_scope_max}",
        )
    try:
        patterns = [compile_target(text) for text in scope]
    except PatternError as error:
        raise UsageError(error.message, where="--scope", hint=error.hint) from error
    return PathList(patterns, Comparison.PERMITTING)


def _is_time(text: str) -> bool:
    if _EXPIRES.fullmatch(text) is None:
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _directory(layout: PlaneLayout) -> Path:
    return layout.registries / "approvals"
