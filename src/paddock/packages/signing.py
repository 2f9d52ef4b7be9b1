"""Operators' keys (Ed25519, RFC 8032), signatures of packages, approvals.

    <user's configuration>/keys/operator.key      the private half: mode 0600, never in a plane
    HOT/registries/keys/<key_id>.json             {key_id, algorithm, public_key}

A key id is the first 32 hexadecimal digits of the SHA-256 of the public key's 32 bytes: it names
exactly one key, and every reader of a key checks it.

Threat: who can put a file into `HOT/registries/keys` can approve packages. Packages contain no
file there (`manifest.OWN_PLACES`), agents cannot write there (the policy's own files), links do
not count, and others cannot write the directory. `statements` knows who vouched for a key; G5
checks it.
"""

import base64
import hashlib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, cast

from msgspec import Meta, Struct, to_builtins
from msgspec.structs import asdict, replace

from paddock import limits
from paddock.errors import ConfigError, HostError, IntegrityError, UsageError
from paddock.ledger.format.lines import decode_base64
from paddock.ledger.format.notes import SIGNATURE_BYTES, is_signed
from paddock.ledger.signing import SigningKey, create_key, load_key
from paddock.packages.manifest import APPROVALS, KEYS, Digest, approval_file, key_file
from paddock.pattern import lazy_pattern
from paddock.plane.environment import Environment, operator_key_path
from paddock.plane.json_files import load_file, names_in, parse_file, write_object
from paddock.plane.layout import PlaneLayout
from paddock.policy.pathset import Comparison, PathList, compile_target
from paddock.policy.positions import PatternError
from paddock.storage import atomic
from paddock.text.json import Strict, compact_json
from paddock.text.show import quote
from paddock.values.calls import Json

ALGORITHM: Final = "Ed25519"
_KEY_NAME: Final = "paddock/operator"
_PUBLIC_BYTES: Final = 32
_KEY_FILE: Final = lazy_pattern(r"([0-9a-f]{32})\.json", re.ASCII)


class PublicKey(Struct, frozen=True):
    public: bytes

    @property
    def key_id(self) -> str:
        return hashlib.sha256(self.public).hexdigest()[:32]

    def verifies(self, message: bytes, signature: str) -> bool:
        raw = decode_base64(signature) or b""
        return len(raw) == SIGNATURE_BYTES and is_signed(self.public, raw, message)


Keys = Mapping[str, PublicKey]


def sign_bytes(key: SigningKey, message: bytes) -> str:
    return base64.b64encode(key.sign(message)).decode("ascii")


def timestamp_of(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def public_half(key: SigningKey) -> PublicKey:
    return PublicKey(key.verifier.public)


def parse_public_key(text: str) -> PublicKey | None:
    raw = decode_base64(text) or b""
    return PublicKey(raw) if len(raw) == _PUBLIC_BYTES else None


def find_operator_key(environment: Environment) -> SigningKey | None:
    path = operator_key_path(environment)
    return load_key(str(path)) if os.path.lexists(path) else None


def make_operator_key(environment: Environment) -> SigningKey:
    path = operator_key_path(environment)
    atomic.make_directories(path.parent)
    atomic.require_private(path.parent)
    if not os.path.lexists(path):
        try:
            create_key(str(path), _KEY_NAME, os.urandom)
        except HostError:
            # Another process has just created it, or it cannot be created.
            if not os.path.lexists(path):
                raise
    return load_key(str(path))


def enrol_key(layout: PlaneLayout, key: PublicKey) -> bool:
    """Enroll the key in the plane: from now on it may approve. Return True if it was new."""
    path = layout.root / key_file(key.key_id)
    atomic.make_directories(path.parent)
    if atomic.create_file(path, key_bytes(key), atomic.FILE_MODE):
        return True
    _read_key(path, key.key_id)
    return False


def key_bytes(key: PublicKey) -> bytes:
    public = base64.b64encode(key.public).decode("ascii")
    return write_object(_KeyFile(key.key_id, ALGORITHM, public))


class _KeyFile(Strict, frozen=True):
    key_id: str
    algorithm: str
    public_key: str


def read_keys(layout: PlaneLayout) -> Keys:
    directory = layout.root / KEYS
    found: dict[str, PublicKey] = {}
    for name in _names_in(directory):
        matched = _KEY_FILE.fullmatch(name)
        if matched is None:
            raise ConfigError(
                f"{quote(name)} is not a key's file name", where=str(directory), hint="remove it"
            )
        found[matched[1]] = _read_key(directory / name, matched[1])
    return found


def _names_in(directory: Path) -> list[str]:
    atomic.require_private(directory)
    return names_in(directory)


def _read_key(path: Path, key_id: str) -> PublicKey:
    content = atomic.read_file(path, limits.key_file_bytes_max)
    read = parse_file(content or b"", str(path)).convert(_KeyFile)
    key = parse_public_key(read.public_key)
    if read.algorithm != ALGORITHM or key is None:
        raise ConfigError(f"{quote(str(path))} is not an Ed25519 key", where=str(path))
    if not key.key_id == read.key_id == key_id:
        raise ConfigError(
            f"{quote(str(path))} contains the key {key.key_id}, but has another key's name",
            where=str(path),
            hint="remove it, or give it its own name",
        )
    return key


# `ARCHIVE.sig` beside an archive contains `{digest, key_id, signature}`. The signature covers the
# 71 characters of the manifest's digest, so it is valid for that package in any archive of it.

SUFFIX: Final = ".sig"
SIGNATURE_MODE: Final = 0o644


class Signature(Strict, frozen=True):
    digest: str
    key_id: str
    signature: str

    def as_json(self) -> dict[str, Json]:
        return asdict(self)


def sign_digest(key: SigningKey, digest: str) -> Signature:
    return Signature(digest, public_half(key).key_id, sign_bytes(key, digest.encode("ascii")))


def verify_signature(signature: Signature, digest: str, keys: Keys) -> None:
    if signature.digest != digest:
        raise IntegrityError(
            f"the signature is for {signature.digest}, not for {digest}",
            hint="sign it again (paddock package sign ARCHIVE), or remove ARCHIVE.sig",
        )
    key = keys.get(signature.key_id)
    if key is None:
        raise IntegrityError(
            f"unknown key {quote(signature.key_id)}",
            hint="the plane's keys are in HOT/registries/keys",
        )
    if not key.verifies(digest.encode("ascii"), signature.signature):
        raise IntegrityError(f"invalid signature of key {signature.key_id}")


def signature_path(archive: Path) -> Path:
    return archive.with_name(archive.name + SUFFIX)


def write_signature(archive: Path, signature: Signature) -> Path:
    path = signature_path(archive)
    atomic.replace_file(path, write_object(signature), mode=SIGNATURE_MODE)
    return path


def read_signature(archive: Path) -> Signature | None:
    path = signature_path(archive)
    content = atomic.read_file_through_links(path, limits.key_file_bytes_max)
    return None if content is None else parse_file(content, str(path)).convert(Signature)


#     HOT/registries/approvals/<wo_id>.json
#         {wo_id, digest, scope[], expires, key_id, signature}
#
# The signature covers the compact JSON, in UTF-8, of the other fields in this order. `digest`
# is the manifest's, `expires` is RFC 3339 in UTC, `scope` are patterns of paths of the plane
# (gitignore's rules, compared exactly as written): every path that the change touches has to match
# one. The file stays. The packages ledger records its use by its name; the file itself does not,
# since who can write the file could remove that.

_FILE: Final = lazy_pattern(r"(WO-[0-9a-f]{32})\.json", re.ASCII)
_ESCAPES: Final = str.maketrans({special: f"\\{special}" for special in "\\*?[] "})


class PackageApproval(Strict, frozen=True):
    wo_id: Annotated[str, Meta(pattern=r"^WO-[0-9a-f]{32}\Z")]
    digest: Digest
    scope: tuple[str, ...]
    expires: Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z\Z")]
    key_id: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
    signature: str

    @property
    def expires_at(self) -> float:
        return datetime.fromisoformat(self.expires).timestamp()

    def signed_bytes(self) -> bytes:
        fields = self.as_json()
        del fields["signature"]
        return compact_json(fields)

    def as_json(self) -> dict[str, Json]:
        return cast("dict[str, Json]", to_builtins(self))


class ApprovalClaim(Struct, frozen=True):
    digest: str
    paths: tuple[str, ...]
    now: float


def make_approval(
    key: SigningKey, wo_id: str, digest: str, scope: tuple[str, ...], expires_at: float
) -> PackageApproval:
    """`expires_at`: seconds since 1970, rounded down."""
    try:
        expires = timestamp_of(expires_at)
    except (ValueError, OverflowError, OSError):
        raise UsageError("--expires: date out of range", where="--expires") from None
    draft = PackageApproval(wo_id, digest, scope, expires, public_half(key).key_id, "")
    approval = replace(draft, signature=sign_bytes(key, draft.signed_bytes()))
    _require_readable(approval)
    _scope_of(scope)
    return approval


def _require_readable(approval: PackageApproval) -> None:
    # All approvals are read together: one that is too long would block every install.
    size_bytes = len(write_object(approval))
    if size_bytes > limits.approval_file_bytes_max:
        raise UsageError(
            f"the approval would have {size_bytes} bytes,"
            f" more than {limits.approval_file_bytes_max}:"
            f" its scope has {len(approval.scope)} patterns",
            where="--scope",
            hint="name directories: a pattern such as HOT/kernel/** covers everything below",
        )


def exact_scope(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(path.translate(_ESCAPES) for path in sorted(set(paths)))


def write_approval(layout: PlaneLayout, approval: PackageApproval) -> Path:
    path = layout.root / approval_file(approval.wo_id)
    atomic.make_directories(path.parent)
    if not atomic.create_file(path, write_object(approval), atomic.FILE_MODE):
        raise HostError(f"the approval {approval.wo_id} exists already", where=str(path))
    return path


def read_approvals(layout: PlaneLayout) -> tuple[PackageApproval, ...]:
    directory = layout.root / APPROVALS
    names = filter(_FILE.fullmatch, _names_in(directory))
    return tuple(read_approval(directory / name) for name in names)


def read_approval(path: Path) -> PackageApproval:
    """Read one approval. Its signature is not verified."""
    given = load_file(path, limits.approval_file_bytes_max)
    if given is None:
        raise ConfigError(f"approval {quote(path.name)} does not exist", where=str(path))
    approval = given.convert(PackageApproval)
    given.require_once("scope", approval.scope)
    # Threat: a copy under another name would pass for a second approval.
    if path.name != f"{approval.wo_id}.json":
        raise given.error("wo_id", f"wo_id is {quote(approval.wo_id)}", "the file's own name")
    try:
        datetime.fromisoformat(approval.expires)
    except ValueError:
        said = f"expires is {quote(approval.expires)}"
        raise given.error("expires", said, "such as 2026-01-31T12:00:00Z") from None
    return approval


def signature_problem(approval: PackageApproval, keys: Keys) -> str:
    key = keys.get(approval.key_id)
    if key is None:
        return f"its key {approval.key_id} is not enrolled in this plane"
    if not key.verifies(approval.signed_bytes(), approval.signature):
        return "its signature is invalid"
    return ""


def approval_problem(
    approval: PackageApproval, claim: ApprovalClaim, keys: Keys, used: Collection[str]
) -> str:
    """Return why an approval does not allow this use; empty if it does.

    Verify the signature first: until then nothing in the file counts.
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
    return scope_problem(approval, claim.paths)


def scope_problem(approval: PackageApproval, paths: Iterable[str]) -> str:
    outside = paths_outside(approval, paths)
    if not outside:
        return ""
    first, *others = outside
    more = f" (and {len(others)} more)" if others else ""
    return f"its scope does not cover {quote(first)}{more}"


def paths_outside(approval: PackageApproval, paths: Iterable[str]) -> tuple[str, ...]:
    try:
        listed = _scope_of(approval.scope)
    except UsageError:
        return tuple(paths)  # An invalid pattern covers nothing.
    return tuple(path for path in paths if listed.find(path) is None)


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
