"""Signed statements about the whole installed set and the keys that may change it.

    PACKAGE_SET_SIGNED   {set_digest, keys[{key_id, public_key}], after, key_id, signature}

A statement is only in the packages ledger, so no file can be out of date or restored. Its Ed25519
signature covers the compact JSON of `statement` ("installed-set"), `after`, `set_digest`, `keys`
(their ids, sorted) and `key_id`. `after` is the id of the previous entry that changed packages or
keys, so an old statement cannot be repeated.

The plane's first key needs no statement; a later key is valid once a statement by a valid key lists
it. An install accepts an approval only by a valid key that is in `HOT/registries/keys`.

Threat: else who can write there could install, and only the next gate would say so.
"""

import base64
import secrets
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from paddock.errors import ConfigError, IntegrityError
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.signing import SigningKey
from paddock.packages import ledger, signing
from paddock.packages.change import Depot, changing, require_installed
from paddock.packages.installed import InstalledPackage, InstalledSet, SetRow, read_installed
from paddock.packages.manifest import KEYS, Manifest, approval_file, key_file, version_key
from paddock.packages.rows import Failure, GateRefusedError
from paddock.plane.json_files import JsonFile
from paddock.text.json import Strict, compact_json
from paddock.values import entries as events

STATEMENT: Final = "installed-set"
_VOUCHING: Final = "paddock package sign --installed"
ABOUT_PACKAGES: Final = frozenset(
    {
        events.OPERATOR_KEY_ENROLLED,
        events.PACKAGE_APPROVED,
        events.PACKAGE_INSTALLED,
        events.PACKAGE_SET_SIGNED,
        events.PACKAGE_UNINSTALLED,
    }
)
"""Entries that change packages or keys; the others are about the ledger itself."""


class _KeyRow(Strict, frozen=True):
    key_id: str
    public_key: str


class SignedSet(Strict, frozen=True):
    set_digest: str
    keys: tuple[_KeyRow, ...]
    after: str
    key_id: str
    signature: str

    def signed_bytes(self) -> bytes:
        return compact_json(
            {
                "statement": STATEMENT,
                "after": self.after,
                "set_digest": self.set_digest,
                "keys": [key.key_id for key in self.keys],
                "key_id": self.key_id,
            }
        )


def sign_installed_set(depot: Depot, key: SigningKey) -> SignedSet:
    """Vouch for all packages of a plane and its keys; change nothing else.

    On a plane without a key this key becomes the first.
    """
    with changing(depot):
        require_known(depot, key)
        enrol_first(depot, key)
        return sign_now(depot, key)


def sign_now(depot: Depot, key: SigningKey) -> SignedSet:
    """Like `sign_installed_set`, with the lock held and the key known to be enrolled."""
    installed = read_installed(depot.layout)
    record = depot.ledger.read()
    deviations = ledger.find_deviations(record, installed)
    if deviations:
        first = deviations[0]
        raise IntegrityError(
            f"the installed set is not signed: {first}",
            where=first.file,
            hint="paddock gate --gate G6",
        )
    keys = signing.read_keys(depot.layout)
    listed = tuple(
        _KeyRow(key_id, base64.b64encode(keys[key_id].public).decode("ascii"))
        for key_id in sorted(keys)
    )
    after, key_id = last_telling(record.entries), signing.public_half(key).key_id
    draft = SignedSet(installed.digest, listed, after, key_id, "")
    signed = replace(draft, signature=signing.sign_bytes(key, draft.signed_bytes()))
    depot.ledger.append(
        events.Entry(
            event_type=events.PACKAGE_SET_SIGNED,
            decision="allow",
            reason="an operator vouches for all that is installed",
            metadata=to_builtins(signed),
        )
    )
    return signed


def require_known(depot: Depot, key: SigningKey) -> None:
    keys = signing.read_keys(depot.layout)
    public = signing.public_half(key)
    if keys and public.key_id not in keys:
        # Threat: somebody else's plane, whose own operators decide about changes.
        raise ConfigError(
            f"key {public.key_id} is not enrolled in this plane",
            where=KEYS,
            hint="ask one of its operators to enroll your public key, then: paddock package sign"
            " --installed",
        )


def enrol_first(depot: Depot, key: SigningKey) -> bool:
    """Make `key` the plane's first if it has none; return True if it did."""
    if signing.read_keys(depot.layout):
        return False
    # Recorded first: without an entry the key could sign no valid statement.
    depot.ledger.append(ledger.enrolled_entry(signing.public_half(key)))
    signing.enrol_key(depot.layout, signing.public_half(key))
    return True


def last_telling(entries: Sequence[StoredEntry]) -> str:
    """Return the id of the newest entry that a statement has to follow; empty if none."""
    found = (stored.id for stored in reversed(entries) if stored.entry.event_type in ABOUT_PACKAGES)
    return next(found, "")


class Vouched(Struct):
    statements: int = 0
    keys: signing.Keys = field(default_factory=dict[str, signing.PublicKey])
    """The keys that are valid now: listed by the newest valid statement."""
    known: dict[str, signing.PublicKey] = field(default_factory=dict[str, signing.PublicKey])
    rows: frozenset[SetRow] = frozenset()
    listings: list[tuple[int, signing.Keys]] = field(default_factory=list[tuple[int, signing.Keys]])
    """The entry number of each valid statement, and the keys that are valid from there."""
    problems: list[Failure] = field(default_factory=list[Failure])
    first: str | None = None

    @property
    def valid(self) -> Collection[str | None]:
        """The ids of the keys that are valid now: before the first statement, the first one's."""
        return self.keys.keys() or {self.first}

    @property
    def newest_seq(self) -> int:
        """-1 if no statement is valid."""
        return self.listings[-1][0] if self.listings else -1

    def counting_at(self, seq: int) -> signing.Keys:
        """Return the keys that were valid when that entry was written.

        These are the keys of the last statement before it and of the first one after it, which
        vouches for the packages installed by then and lists the operators of that time.
        """
        before = [keys for at, keys in self.listings if at < seq][-1:]
        after = [keys for at, keys in self.listings if at > seq][:1]
        return {key_id: key for keys in (*before, *after) for key_id, key in keys.items()}

    def enrol(self, stored: StoredEntry) -> None:
        """Record the plane's first key; a second one needs a statement."""
        key_id = stored.entry.metadata.get("key_id")
        if isinstance(key_id, str) and self.first in {None, key_id}:
            self.first = key_id  # a killed writer left the entry without the key
        else:
            self._note(stored, "a key was enrolled on a plane that had one")

    def state(self, stored: StoredEntry, before: Sequence[StoredEntry]) -> None:
        """Add the next statement: it is valid if its author's key was valid before."""
        self.statements += 1
        told = JsonFile(ledger.LEDGER_FILE, stored.entry.metadata)
        try:
            signed = told.convert(SignedSet)
            listed = _keys_of(told, signed)
        except ConfigError as error:
            self._note(stored, error.message)
            return
        record = ledger.replay(before)
        problem = self._problem(signed, listed, before, record.set_digest)
        if problem:
            self._note(stored, problem)
            return
        self.keys = listed
        self.known |= listed
        self.listings.append((stored.seq, listed))
        self.rows = frozenset(package.row for package in record.packages.values())

    def _problem(
        self,
        signed: SignedSet,
        listed: signing.Keys,
        before: Sequence[StoredEntry],
        set_digest: str,
    ) -> str:
        maker = listed.get(signed.key_id)
        if signed.key_id not in self.valid or maker is None:
            return f"the set was signed by {signed.key_id}, which is not a valid key here"
        if not maker.verifies(signed.signed_bytes(), signed.signature):
            return "the signature of the set is invalid"
        if signed.after != last_telling(before):
            return "the signature of the set is for another place in the ledger"
        if signed.set_digest != set_digest:
            return f"the signature is for the set {signed.set_digest}, not for {set_digest}"
        return ""

    def _note(self, stored: StoredEntry, why: str) -> None:
        self.problems.append(Failure(ledger.LEDGER_FILE, f"entry {stored.seq}: {why}"))


def read_vouched(entries: Sequence[StoredEntry]) -> Vouched:
    """Replay statements and enrolments; faults are in `problems`, not raised."""
    vouched = Vouched()
    for place, stored in enumerate(entries):
        if stored.entry.event_type == events.OPERATOR_KEY_ENROLLED:
            vouched.enrol(stored)
        elif stored.entry.event_type == events.PACKAGE_SET_SIGNED:
            vouched.state(stored, entries[:place])
    return vouched


def find_key_problems(vouched: Vouched, keys: signing.Keys) -> Iterator[Failure]:
    for key_id in sorted(keys.keys() - vouched.keys.keys()):
        why = f"no operator of this plane has vouched for this key: {_VOUCHING}"
        yield Failure(key_file(key_id), why)
    for key_id in sorted(vouched.keys.keys() - keys.keys()):
        yield Failure(key_file(key_id), "the key is gone")


def _keys_of(told: JsonFile, signed: SignedSet) -> dict[str, signing.PublicKey]:
    keys: dict[str, signing.PublicKey] = {}
    for each in signed.keys:
        key = signing.parse_public_key(each.public_key)
        if key is None or key.key_id != each.key_id:
            raise told.error("keys", "the key does not match its id", "base64 of 32 bytes")
        keys[key.key_id] = key
    return keys


#     G5  the version is not below the last installed one; a signature, if there is one, is valid
#     G2  an approval for exactly this digest: signed by a key in the plane, unused, in time,
#         and covering every path
#
# On a plane made with `--dev`, or with `--dev` on another plane, only the version is checked; on
# the other plane, the gates G2 and G5 fail afterwards.


def require_no_rollback(
    manifest: Manifest, old: InstalledPackage | None, record: ledger.Record
) -> None:
    """Refuse a version below the last one. Raises: GateRefusedError: G5.

    Threat: an old version with a known vulnerability, signed and approved when it was new.
    """
    problem = rollback_problem(manifest, old, record)
    if problem:
        raise GateRefusedError(
            "G5",
            [Failure(manifest.package_id, problem)],
            hint="nothing was changed; to go back, pack the old content under a higher version",
        )


def rollback_problem(
    manifest: Manifest, old: InstalledPackage | None, record: ledger.Record
) -> str:
    package_id, version = manifest.package_id, None if old is None else old.manifest.version
    known = (record.last_versions.get(package_id), version)
    key = version_key(manifest.version)
    for last in known:
        last_key = None if last is None else version_key(last)
        if key is not None and last_key is not None and key < last_key:
            return f"version {manifest.version} is below {last}, which was installed before"
    return ""


def require_signature(
    manifest: Manifest, signature: signing.Signature | None, keys: signing.Keys
) -> None:
    if signature is None:
        return
    try:
        signing.verify_signature(signature, manifest.digest, keys)
    except IntegrityError as error:
        hint = f"nothing was changed; {error.hint}" if error.hint else ""
        raise GateRefusedError(
            "G5", [Failure(manifest.package_id, error.message)], hint=hint
        ) from error


def require_approval(
    depot: Depot, package_id: str, claim: signing.ApprovalClaim, used: Collection[str]
) -> signing.PackageApproval:
    """Return the valid approval that expires first. Raises: GateRefusedError: G2; ConfigError."""
    keys = signing.read_keys(depot.layout)
    valid = read_vouched(depot.ledger.read().entries).valid
    refused: list[Failure] = []
    holding: list[signing.PackageApproval] = []
    for approval in signing.read_approvals(depot.layout):
        problem = signing.approval_problem(approval, claim, keys, used)
        if not problem and approval.key_id not in valid:
            problem = f"no operator of this plane has vouched for its key: {_VOUCHING}"
        if not problem:
            holding.append(approval)
        elif approval.digest == claim.digest:
            refused.append(Failure(approval_file(approval.wo_id), problem))
    if holding:
        return min(holding, key=lambda each: (each.expires, each.wo_id))
    raise GateRefusedError(
        "G2",
        refused or [Failure(package_id, "this digest is not approved on this plane")],
        hint="paddock package approve ARCHIVE",
    )


class Approved(Struct, frozen=True):
    approval: signing.PackageApproval
    enrolled: bool
    settles_install: bool
    """The package was installed without an approval: that install has used this one."""
    rollback: str
    """Why no install will accept the package: its version is too low; else empty."""


def approve(
    depot: Depot, manifest: Manifest, key: SigningKey, scope: tuple[str, ...], expires_s: float
) -> Approved:
    """Approve one package on one plane. Without `scope`, exactly the paths of an install.

    A plane without a key gets this one as its first; if nothing is installed yet, the empty set is
    signed with it.
    """
    with changing(depot):
        installed = require_installed(depot)
        require_known(depot, key)
        old = installed.packages.get(manifest.package_id)
        # An upgrade removes files that only the version before had.
        had = () if old is None else tuple(old.manifest.by_path)
        paths = tuple(dict.fromkeys((*manifest.by_path, *had)))
        now = depot.clock()
        approval = signing.make_approval(
            key,
            f"WO-{secrets.token_hex(16)}",
            manifest.digest,
            scope or signing.exact_scope(paths),
            now + expires_s,
        )
        enrolled = enrol_first(depot, key)
        if not installed.packages and not read_vouched(depot.ledger.read().entries).statements:
            # With nothing installed there is nothing to check first.
            sign_now(depot, key)
        signing.write_approval(depot.layout, approval)
        settles = False
        if old is not None and old.manifest.digest == manifest.digest:
            settles = _settle_install(depot, manifest, approval, installed)
        rollback = rollback_problem(manifest, old, depot.ledger.read())
        return Approved(approval, enrolled, settles, rollback)


def _settle_install(
    depot: Depot, manifest: Manifest, approval: signing.PackageApproval, installed: InstalledSet
) -> bool:
    record = depot.ledger.read()
    if record.approval_of(manifest.package_id, manifest.digest) is not None:
        return False
    if ledger.find_deviations_of(manifest.package_id, record, installed):
        return False  # the installed files differ from the ledger: an approval repairs nothing
    claim = signing.ApprovalClaim(manifest.digest, tuple(manifest.by_path), depot.clock())
    if approval.key_id not in read_vouched(record.entries).valid or signing.approval_problem(
        approval, claim, signing.read_keys(depot.layout), record.used_approvals
    ):
        return False  # its key is not valid, or its scope narrower than the installed files
    depot.ledger.append(ledger.approved_entry(manifest.package_id, manifest.version, approval))
    return True
