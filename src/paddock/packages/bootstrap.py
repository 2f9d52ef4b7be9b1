"""The bootstrap: the packages of a new plane, and the archive that contains them.

The second half installs all of them at once.

    CP_BOOTSTRAP.tar.gz
        README.md, install.sh, paddock, requirements.txt
        bootstrap.json          every other file with its SHA-256; the packages in order
        packages/PKG-….tar.gz
        src/paddock/…           our own source: a machine needs only Python and its packages

Everything is built from this program's directory. Nothing depends on a clock, a user, a umask, a
locale or an order of files: the same source builds the same bytes, and the source inside an archive
builds that archive again.
"""

import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paddock import limits
from paddock.errors import ConfigError, UsageError
from paddock.ledger.signing import SigningKey
from paddock.packages import signing
from paddock.packages.archive import (
    Archive,
    PackedFile,
    is_litter,
    read_archive,
    read_members,
    read_source,
    survey_source,
    write_archive,
    write_members,
)
from paddock.packages.change import Depot, Swap, carry_out, changing, transaction_of
from paddock.packages.install import draft_receipt
from paddock.packages.installed import InstallReceipt, Put, digest_of_set
from paddock.packages.ledger import Record, enrolled_entry, installed_entry
from paddock.packages.manifest import (
    FILE_MODE,
    PLANE_MARKER,
    PROGRAM_MODE,
    Digest,
    Manifest,
    approval_file,
    find_collision,
    find_place_problems,
    install_order,
    key_file,
    manifest_path,
    path_problem,
)
from paddock.packages.rows import ArchiveRefusedError, Failure, GateRefusedError
from paddock.packages.statements import ABOUT_PACKAGES, sign_now
from paddock.plane.json_files import load_file, write_object
from paddock.storage.atomic import FILE_MODE as OWN_MODE
from paddock.storage.atomic import host_errors, read_file
from paddock.text.json import Strict
from paddock.text.show import quote, show_name
from paddock.values import entries as events

NAME: Final = "CP_BOOTSTRAP.tar.gz"
INDEX: Final = "bootstrap.json"
FORMAT: Final = 1

PROGRAM: Final = Path(__file__).parents[1]
SOURCES: Final = PROGRAM / "bootstrap" / "packages"
_TOP: Final = {
    "README.md": FILE_MODE,
    "install.sh": PROGRAM_MODE,
    "paddock": PROGRAM_MODE,
    "requirements.txt": FILE_MODE,
}
_PLANE_DIRECTORIES: Final = ("HOT", "HO2", "HO1", "agents", "objects")
_NOT_SHIPPED: Final = frozenset({"ruff.toml"})
"""Only a linter reads it; wheels omit it as well."""


class Unpacked(Struct, frozen=True):
    directory: Path
    archives: tuple[Archive, ...]
    names: frozenset[str]


def load_packages(program: Path = PROGRAM) -> tuple[Archive, ...]:
    directory = program / "bootstrap" / "packages"
    with host_errors("listing", directory):
        sources = sorted(path for path in directory.iterdir() if not is_litter(path.name))
    return _in_order([_packed(source) for source in sources])


def build_bootstrap(program: Path = PROGRAM) -> bytes:
    archives = load_packages(program)
    top = (PackedFile(name, _content(program / "bootstrap" / name), _TOP[name]) for name in _TOP)
    members = [*top, *_source(program)]
    for archive in archives:
        content = write_archive(archive.manifest, archive.files)
        name = _archive_name(archive.manifest.package_id)
        members.append(PackedFile(name, content, FILE_MODE))
    return write_members((*members, _index(members, archives)))


def find_differences(content: bytes, program: Path = PROGRAM) -> tuple[Failure, ...]:
    ours = build_bootstrap(program)
    if content == ours:
        return ()
    theirs, own = read_members(content), read_members(ours)
    found = [Failure(name, "it is not in the archive") for name in sorted(own.keys() - theirs)]
    for name in sorted(theirs):
        if name not in own:
            found.append(Failure(name, "it is in the archive, but not in this distribution"))
        elif theirs[name] != own[name]:
            found.append(Failure(name, "it differs from this distribution's"))
    return tuple(found) or (Failure("", "its files are the same, but its bytes differ"),)


def read_unpacked(directory: Path) -> Unpacked:
    given = load_file(directory / INDEX, limits.manifest_bytes_max)
    if given is None:
        raise UsageError(
            f"{quote(str(directory))} is not an unpacked bootstrap archive: it has no {INDEX}",
            where=str(directory),
        )
    index = given.convert(_Index)
    if index.format != FORMAT:
        raise given.error("format", "the format is not known", f"this version reads {FORMAT}")
    read: dict[str, bytes] = {}
    for name, digest in ((row.path, row.sha256) for row in index.files):
        if path_problem(name) or name.split("/")[0] in _PLANE_DIRECTORIES:
            raise given.error(
                "files", f"{quote(name)} is not a file of an archive", "unpack it again"
            )
        read[name] = _declared(directory, name, digest)
    archives = tuple(_listed(read, name) for name in index.packages)
    if not archives or _in_order(archives) != archives:
        raise given.error("packages", "the packages are in the wrong order", "unpack it again")
    return Unpacked(directory, archives, frozenset({*read, INDEX}))


class _IndexRow(Strict, frozen=True):
    path: str
    sha256: Digest


class _Index(Strict, frozen=True):
    format: int
    packages: tuple[str, ...]
    files: tuple[_IndexRow, ...]


def _packed(source: Path) -> Archive:
    packed = read_source(source)
    if source.name != packed.manifest.package_id:
        wrong = Failure(source.name, "the directory is named after another package")
        raise GateRefusedError("G0A", [wrong])
    # No file needs to be executable (scripts run by `sh FILE`). File systems, unpackers and
    # checkouts lose or add modes, and the bytes have to be the same everywhere.
    files = tuple(replace(file, mode=FILE_MODE) for file in packed.files)
    return Archive(packed.manifest, files, events.digest_of(write_archive(packed.manifest, files)))


def _in_order(archives: Sequence[Archive]) -> tuple[Archive, ...]:
    known = {archive.manifest.package_id: archive for archive in archives}
    ordered = install_order(archive.manifest for archive in archives)
    return tuple(known[manifest.package_id] for manifest in ordered)


def _source(program: Path) -> Iterator[PackedFile]:
    found = survey_source(program)
    if found.refused:
        raise ConfigError(str(found.refused[0]), where=str(program / found.refused[0].file))
    for name in found.files:
        if name.rpartition("/")[2] not in _NOT_SHIPPED:
            yield PackedFile(f"src/paddock/{name}", _content(program / name), FILE_MODE)


def _index(members: Sequence[PackedFile], archives: Sequence[Archive]) -> PackedFile:
    rows = sorted((member.path, events.digest_of(member.content)) for member in members)
    content = write_object(
        {
            "format": FORMAT,
            "packages": [archive.manifest.package_id for archive in archives],
            "files": [{"path": path, "sha256": digest} for path, digest in rows],
        }
    )
    return PackedFile(INDEX, content, FILE_MODE)


def _archive_name(package_id: str) -> str:
    return f"packages/{package_id}.tar.gz"


def _content(path: Path) -> bytes:
    content = read_file(path, limits.package_bytes_max)
    if content is None:
        raise ConfigError(f"{quote(str(path))} is missing from this distribution", where=str(path))
    return content


def _declared(directory: Path, name: str, digest: str) -> bytes:
    content = read_file(directory / name, limits.package_bytes_max)
    if content is None:
        raise ArchiveRefusedError("the index names it, and it is missing", file=name)
    if events.digest_of(content) != digest:
        raise ArchiveRefusedError(
            f"its digest is {events.digest_of(content)}, not {digest}", file=name
        )
    return content


def _listed(read: dict[str, bytes], package_id: str) -> Archive:
    name = _archive_name(package_id)
    if name not in read:
        raise ArchiveRefusedError("the index names the package, but not its file", file=name)
    archive = read_archive(read[name])
    if archive.manifest.package_id != package_id:
        raise ArchiveRefusedError("it contains another package", file=name)
    return archive


# Bootstrap of a plane: install all its packages at once, where no plane exists yet.
#
#     the packages ledger: the operator's key is enrolled
#     the key's public half and approvals   one set of the journal
#     the packages, as one change: files, manifests, receipts, and an entry for each
#     the packages ledger: the set is signed
#     the admin's configuration             by the caller: from then on it is a plane
#
# If it is killed anywhere, no plane exists, and the next bootstrap continues: valid approvals are
# used again, and the change is recovered like any other. Once it is in the ledger, no file may be
# missing. If the ledger has more than such a beginning, this was a plane that lost its
# configuration: nothing is installed there under approvals that it used.
#
# Of an install's checks it makes G0A (as the archives are read), G3, ownership and paths. It does
# not check that configuration loads or that there is room: the packages are this program's own.
# The gate G4 runs acceptance commands later.


class Founding(Struct, frozen=True):
    archives: tuple[Archive, ...]
    key: SigningKey | None
    """The operator's key; None for a plane without approvals (`--dev`)."""
    later: frozenset[str]
    """Files that `found` omits and its caller writes last."""

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        return tuple(archive.manifest for archive in self.archives)


def found(depot: Depot, founding: Founding) -> tuple[Path, ...]:
    """Install all packages; return the created files. The caller holds the plane's lock.

    Raises: as `install`; ConfigError: a key, an approval or a record is not ours.
    """
    _require_sound(founding)
    with changing(depot):
        # Without a ledger, files beside its path belong to one that was being created: no damage.
        log = depot.ledger.read() if depot.ledger.path.exists() else Record()
        _require_beginning(log, founding, depot.ledger.path)
        swap = _swap(depot, founding)
        if not log.holds(events.PACKAGE_INSTALLED):
            _install(depot, founding, swap, _approvals(depot, founding, log))
        elif swap.paths:
            why = f"{quote(swap.paths[0].path)} differs from the recorded set"
            raise _was_a_plane(why, depot.ledger.path)
        # A bootstrap that was killed after it signed does not sign again.
        if founding.key is not None and not log.holds(events.PACKAGE_SET_SIGNED):
            sign_now(depot, founding.key)
    return tuple(depot.layout.root / change.path for change in swap.paths if change.before is None)


def _swap(depot: Depot, founding: Founding) -> Swap:
    swap = Swap(depot.workspace)
    for archive in founding.archives:
        files = {packed.path: packed for packed in archive.files}
        for asset in archive.manifest.assets:
            if asset.path not in founding.later:
                swap.add(Put(asset, None), files)
        manifest = archive.manifest
        swap.write(manifest_path(manifest.package_id), manifest.canonical, FILE_MODE)
    return swap


def _require_sound(founding: Founding) -> None:
    manifests = founding.manifests
    if install_order(manifests) != manifests:
        raise GateRefusedError("G3", [Failure("", "the packages are in the wrong order")])
    failures = [each for manifest in manifests for each in find_place_problems(manifest)]
    paths = Counter(asset.path for manifest in manifests for asset in manifest.assets)
    twice = sorted(path for path, times in paths.items() if times > 1)
    failures += [Failure(path, "two packages contain it") for path in twice]
    collision = find_collision(paths)
    if collision is not None:
        failures.append(Failure(collision[1], f"it is {collision[0]} on some file systems"))
    if failures:
        raise GateRefusedError("G0B", failures)


def _require_beginning(log: Record, founding: Founding, ledger: Path) -> None:
    """Refuse a ledger with more than a bootstrap of these packages.

    An interrupted bootstrap continues only as it began, with or without `--dev`. Threat: packages
    that were removed or changed since would return under their old approvals.
    """
    digests, is_dev = {each.digest for each in founding.manifests}, founding.key is None
    for stored in log.entries:
        entry = stored.entry
        if entry.event_type not in ABOUT_PACKAGES:
            continue
        if not _begins(entry, digests):
            raise _was_a_plane(f"its packages ledger says: {show_name(entry.reason)}", ledger)
        if (entry.metadata.get("dev") is True) is not is_dev:
            how = "without" if is_dev else "with"
            raise ConfigError(
                f"an init {how} --dev was interrupted here",
                where=str(ledger),
                hint=f"continue {how} --dev, or name another directory; nothing was changed",
            )


def _begins(entry: events.Entry, digests: set[str]) -> bool:
    if entry.event_type == events.PACKAGE_INSTALLED:
        return entry.metadata.get("previous") is None and entry.metadata.get("digest") in digests
    return entry.event_type in (events.OPERATOR_KEY_ENROLLED, events.PACKAGE_SET_SIGNED)


def _was_a_plane(why: str, ledger: Path) -> ConfigError:
    return ConfigError(
        f"this plane has lost its {PLANE_MARKER}: {why}",
        where=str(ledger),
        hint="restore that file from a backup, or name another directory; nothing was changed",
    )


def _approvals(
    depot: Depot, founding: Founding, log: Record
) -> Mapping[str, signing.PackageApproval]:
    """Create an approval for each package, by id; reuse those of a killed bootstrap."""
    key, layout = founding.key, depot.layout
    known, standing = signing.read_keys(layout), signing.read_approvals(layout)
    if key is None:
        if known or standing:
            raise ConfigError(
                "the target directory already contains a key or an approval, unusable with --dev",
                where=str(layout.registries),
                hint="create it without --dev, or name another directory; nothing was changed",
            )
        return {}
    public = signing.public_half(key)
    if known.keys() - {public.key_id}:
        raise ConfigError(
            "the target directory already contains another operator's key",
            where=str(layout.registries / "keys"),
            hint="name an empty directory or a new one; nothing was changed",
        )
    if not log.holds(events.OPERATOR_KEY_ENROLLED):
        depot.ledger.append(enrolled_entry(public))
    swap = Swap(depot.workspace)
    swap.write(key_file(public.key_id), signing.key_bytes(public), OWN_MODE)
    found: dict[str, signing.PackageApproval] = {}
    for manifest in founding.manifests:
        approval = _approval(depot, key, manifest, standing)
        found[manifest.package_id] = approval
        swap.write(approval_file(approval.wo_id), write_object(approval), OWN_MODE)
    swap.finish()
    depot.commit(swap.changes, label="founding-approvals")
    return found


def _approval(
    depot: Depot,
    key: SigningKey,
    manifest: Manifest,
    standing: Sequence[signing.PackageApproval],
) -> signing.PackageApproval:
    public, now = signing.public_half(key), depot.clock()
    claim = signing.ApprovalClaim(manifest.digest, tuple(manifest.by_path), now)
    for approval in standing:
        if not signing.approval_problem(approval, claim, {public.key_id: public}, ()):
            return approval
    scope, expires_at = signing.exact_scope(manifest.by_path), now + limits.plane_approval_expires_s
    return signing.make_approval(
        key, f"WO-{secrets.token_hex(16)}", manifest.digest, scope, expires_at
    )


def _install(
    depot: Depot, founding: Founding, swap: Swap, approvals: Mapping[str, signing.PackageApproval]
) -> None:
    key, changes = founding.key, list[tuple[events.Entry, InstallReceipt]]()
    for count, archive in enumerate(founding.archives, start=1):
        manifest = archive.manifest
        approval = approvals.get(manifest.package_id)
        signature = None if key is None else signing.sign_digest(key, manifest.digest)
        receipt = draft_receipt(depot, archive, approval, signature, dev=key is None)
        entry = installed_entry(
            manifest,
            receipt,
            approval,
            previous=None,
            set_digest=digest_of_set(founding.manifests[:count]),
            is_upgrade=False,
        )
        swap.write_receipt(receipt)
        changes.append((entry, receipt))
    swap.finish()
    depot.ledger.open().close()  # Create it: `complete` reads it before it appends.
    carry_out(depot, transaction_of("the bootstrap", *changes), swap)
