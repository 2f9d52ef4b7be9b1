"""Vouching for the whole installed set, and for the keys that may change it.

    PACKAGE_SET_SIGNED   {set_digest, keys[{key_id, public_key}], after, key_id, signature}

Such a statement stands in the packages ledger and nowhere else, so there is no file that
could lag behind, or be put back. Its Ed25519 signature covers the compact JSON of
`statement` ("installed-set"), `after`, `set_digest`, `keys` (their ids, sorted) and
`key_id`. `after` is the id of the entry before it that changed packages or keys: an old
statement that is written once more does not fit there.

The plane's first key needs nobody; from then on a key counts when a statement lists it
that was made by a key which counted before.

Threat: whoever can put a file into `HOT/registries/keys`, and approvals of his own beside
it, is an operator to everyone who only looks there.
"""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from paddock.errors import ConfigError, IntegrityError
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.keys import SigningKey
from paddock.packages.changing import changing
from paddock.packages.depot import Depot
from paddock.packages.installed import SetRow, read_installed
from paddock.packages.keys import (
    Keys,
    PublicKey,
    enrol_key,
    parse_public_key,
    public_half,
    read_keys,
    sign_bytes,
)
from paddock.packages.log import enrolled_entry
from paddock.packages.names import KEYS, key_file
from paddock.packages.recorded import LEDGER_FILE, find_deviations, replay
from paddock.packages.refusals import Failure
from paddock.plane.strict_json import Fields
from paddock.values.calls import Json
from paddock.values.entries import Entry
from paddock.values.events import (
    OPERATOR_KEY_ENROLLED,
    PACKAGE_APPROVED,
    PACKAGE_INSTALLED,
    PACKAGE_SET_SIGNED,
    PACKAGE_UNINSTALLED,
)

STATEMENT: Final = "installed-set"
_TELLING: Final = frozenset(
    {
        OPERATOR_KEY_ENROLLED,
        PACKAGE_APPROVED,
        PACKAGE_INSTALLED,
        PACKAGE_SET_SIGNED,
        PACKAGE_UNINSTALLED,
    }
)
"""The entries that change what a statement is about."""


@dataclass(frozen=True, slots=True)
class SignedSet:
    """An operator's word for a whole set and for the keys of its plane."""

    set_digest: str
    keys: tuple[PublicKey, ...]
    """By their ids."""
    after: str
    key_id: str
    signature: str

    def signed_bytes(self) -> bytes:
        """What the signature covers."""
        return _signed_bytes(self.set_digest, self.keys, self.after, self.key_id)

    def as_json(self) -> dict[str, Json]:
        """As it stands in its entry."""
        return {
            "set_digest": self.set_digest,
            "keys": [
                {
                    "key_id": key.key_id,
                    "public_key": base64.b64encode(key.public).decode("ascii"),
                }
                for key in self.keys
            ],
            "after": self.after,
            "key_id": self.key_id,
            "signature": self.signature,
        }


def sign_installed_set(depot: Depot, key: SigningKey) -> SignedSet:
    """Vouch for all that is installed on a plane, and for its keys. Nothing else is changed.

    On a plane without a key this one becomes its first.

    Raises:
        ConfigError: the plane has keys, and this is none of them.
        IntegrityError: the packages ledger does not tell of what stands there.
        HostError, LedgerBusyError, LedgerFullError.
    """
    with changing(depot):
        require_known(depot, key)
        enrol_first(depot, key)
        return sign_now(depot, key)


def sign_now(depot: Depot, key: SigningKey) -> SignedSet:
    """As `sign_installed_set`, for whoever holds the lock and knows that the key counts."""
    installed = read_installed(depot.layout)
    log = depot.ledger.read()
    deviations = find_deviations(replay(log.entries), installed)
    if deviations:
        first = deviations[0]
        raise IntegrityError(
            f"the installed set is not signed: {first}",
            where=first.file,
            hint="paddock gate --gate G6",
        )
    keys = _sorted(read_keys(depot.layout))
    after = last_telling(log.entries)
    key_id = public_half(key).key_id
    signature = sign_bytes(key, _signed_bytes(installed.digest, keys, after, key_id))
    signed = SignedSet(installed.digest, keys, after, key_id, signature)
    depot.ledger.append(_entry(signed))
    return signed


def require_known(depot: Depot, key: SigningKey) -> None:
    """Refuse a key that is none of a plane that has keys. Raises: ConfigError."""
    keys = read_keys(depot.layout)
    public = public_half(key)
    if keys and public.key_id not in keys:
        # Threat: a plane of somebody else, whose own operators decide what changes it.
        raise ConfigError(
            f"your key {public.key_id} is none of this plane's",
            where=KEYS,
            hint="have one of its operators put your public key there, then: paddock package sign"
            " --installed",
        )


def enrol_first(depot: Depot, key: SigningKey) -> bool:
    """Make `key` the plane's first, where it has none; whether it was.

    On record first: a key without an entry is nobody's.
    """
    if read_keys(depot.layout):
        return False
    depot.ledger.append(enrolled_entry(public_half(key)))
    enrol_key(depot.layout, public_half(key))
    return True


def last_telling(entries: Sequence[StoredEntry]) -> str:
    """The id of the newest entry that a statement has to follow; empty where there is none."""
    found = (stored.id for stored in reversed(entries) if stored.entry.event_type in _TELLING)
    return next(found, "")


# Reading


@dataclass(frozen=True, slots=True)
class Vouched:
    """What the statements of a ledger come to."""

    statements: int = 0
    keys: Mapping[str, PublicKey] = field(default_factory=dict[str, PublicKey])
    """That count now: those of the newest statement that holds."""
    known: Mapping[str, PublicKey] = field(default_factory=dict[str, PublicKey])
    """That ever counted."""
    rows: frozenset[SetRow] = frozenset()
    """The packages that the newest statement vouches for."""
    listings: tuple[tuple[int, Keys], ...] = ()
    """The place of each statement that holds, and the keys that count from there on."""
    problems: tuple[Failure, ...] = ()

    @property
    def newest_seq(self) -> int:
        """The place of the newest statement that holds; -1 where there is none."""
        return self.listings[-1][0] if self.listings else -1

    def counting_at(self, seq: int) -> Keys:
        """The keys that counted when that entry was written.

        Said by the statement before it, and by the first one after it: that one vouches for
        what stands there by then, with these for the plane's operators.
        """
        before = [keys for at, keys in self.listings if at < seq][-1:]
        after = [keys for at, keys in self.listings if at > seq][:1]
        return {key_id: key for keys in (*before, *after) for key_id, key in keys.items()}


def read_vouched(entries: Sequence[StoredEntry]) -> Vouched:
    """Follow the statements of a packages ledger. Raises nothing for what stands there."""
    reading = _Reading(entries)
    for place, stored in enumerate(entries):
        if stored.entry.event_type == OPERATOR_KEY_ENROLLED:
            reading.enrol(stored)
        elif stored.entry.event_type == PACKAGE_SET_SIGNED:
            reading.state(place, stored)
    return Vouched(
        reading.statements,
        reading.keys,
        reading.known,
        reading.rows,
        tuple(reading.listings),
        tuple(reading.problems),
    )


def find_key_problems(vouched: Vouched, keys: Keys) -> Iterator[Failure]:
    """Keys in the plane that nobody vouched for, and keys that were vouched for and are gone."""
    for key_id in sorted(keys.keys() - vouched.keys.keys()):
        why = "no operator of this plane vouched for this key: paddock package sign --installed"
        yield Failure(key_file(key_id), why)
    for key_id in sorted(vouched.keys.keys() - keys.keys()):
        yield Failure(key_file(key_id), "the key is gone")


class _Reading:
    """The state of one pass."""

    def __init__(self, entries: Sequence[StoredEntry]) -> None:
        self._entries = entries
        self._first: str | None = None
        self.statements = 0
        self.keys: dict[str, PublicKey] = {}
        self.known: dict[str, PublicKey] = {}
        self.rows: frozenset[SetRow] = frozenset()
        self.listings: list[tuple[int, Keys]] = []
        self.problems: list[Failure] = []

    def enrol(self, stored: StoredEntry) -> None:
        """The plane's first key; a second one needs a statement."""
        key_id = stored.entry.metadata.get("key_id")
        if isinstance(key_id, str) and self._first in {None, key_id}:
            self._first = key_id  # a killed writer leaves the entry without the key
        else:
            self._note(stored, "a key was enrolled on a plane that had one")

    def state(self, place: int, stored: StoredEntry) -> None:
        """The next statement: it counts where a key made it that counted before."""
        self.statements += 1
        try:
            signed = parse_signed_set(Fields(LEDGER_FILE, stored.entry.metadata))
        except ConfigError as error:
            self._note(stored, error.message)
            return
        record = replay(self._entries[:place])
        problem = self._problem(signed, place, record.set_digest)
        if problem:
            self._note(stored, problem)
            return
        self.keys = {key.key_id: key for key in signed.keys}
        self.known |= self.keys
        self.listings.append((stored.seq, self.keys))
        self.rows = frozenset(package.row for package in record.packages.values())

    def _problem(self, signed: SignedSet, place: int, set_digest: str) -> str:
        counting = set(self.keys) or {self._first}
        listed = {key.key_id: key for key in signed.keys}
        maker = listed.get(signed.key_id)
        if signed.key_id not in counting or maker is None:
            return f"the set was signed by {signed.key_id}, whose word does not count here"
        if not maker.verifies(signed.signed_bytes(), signed.signature):
            return "the signature of the set does not hold"
        if signed.after != last_telling(self._entries[:place]):
            return "the signature of the set was made at another place of the ledger"
        if signed.set_digest != set_digest:
            return f"the signature is of the set {signed.set_digest}, not of {set_digest}"
        return ""

    def _note(self, stored: StoredEntry, why: str) -> None:
        self.problems.append(Failure(LEDGER_FILE, f"entry {stored.seq}: {why}"))


def parse_signed_set(fields: Fields) -> SignedSet:
    """The statement that an entry's metadata is. Raises: ConfigError."""
    fields.require_only(frozenset({"set_digest", "keys", "after", "key_id", "signature"}))
    return SignedSet(
        fields.text("set_digest"),
        tuple(map(_key, fields.tables("keys"))),
        fields.text("after"),
        fields.text("key_id"),
        fields.text("signature"),
    )


def _key(fields: Fields) -> PublicKey:
    key = parse_public_key(fields.text("public_key"))
    if key is None or key.key_id != fields.text("key_id"):
        raise fields.error("public_key", "it is not the key of that id", "base64 of 32 bytes")
    return key


def _entry(signed: SignedSet) -> Entry:
    return Entry(
        event_type=PACKAGE_SET_SIGNED,
        decision="allow",
        reason="an operator vouches for all that is installed",
        metadata=signed.as_json(),
    )


def _signed_bytes(set_digest: str, keys: Sequence[PublicKey], after: str, key_id: str) -> bytes:
    fields: dict[str, Json] = {
        "statement": STATEMENT,
        "after": after,
        "set_digest": set_digest,
        "keys": [key.key_id for key in keys],
        "key_id": key_id,
    }
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def _sorted(keys: Keys) -> tuple[PublicKey, ...]:
    return tuple(keys[key_id] for key_id in sorted(keys))
