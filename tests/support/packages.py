"""Packages in the making: sources, archives good and bad, and a plane to put them in."""

import gzip
import io
import json
import os
import tarfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from paddock.ledger.append import LedgerFile
from paddock.ledger.format.lines import Genesis
from paddock.ledger.signing import make_key
from paddock.packages.archive import Archive, PackedFile, read_archive, write_archive
from paddock.packages.change import AcceptanceResult, Depot, NoAcceptance
from paddock.packages.install import InstallWish, install, uninstall
from paddock.packages.installed import check_package, read_installed
from paddock.packages.ledger import PackageLedger
from paddock.packages.manifest import Manifest, parse_manifest
from paddock.plane.layout import BARE_DIRECTORIES, PlaneLayout
from paddock.storage.disk import Disk
from paddock.storage.journal import Journal
from paddock.storage.objects import ObjectStore
from paddock.values.decisions import PlaneKind
from paddock.values.entries import digest_of
from paddock.workspace import Workspace

PROGRAM = b"#!/bin/sh\nexit 0\n"
NOW = 1_800_000_000.0
KEY = make_key("tester/operator", bytes(range(32)))


def manifest_json(files: Mapping[str, bytes], **fields: Any) -> dict[str, Any]:
    """A manifest as a person writes one; `fields` replace what is usual."""
    config = fields.pop("config", ())
    return {
        "package_id": "PKG-A-001",
        "version": "1.0.0",
        "schema_version": 1,
        "title": "A package",
        "description": "It brings some files.",
        "spec_id": "SPEC-A-001",
        "framework_id": "FMWK-000",
        "plane_id": "hot",
        "layer": 1,
        "dependencies": [],
        "assets": [
            {
                "path": path,
                "sha256": digest_of(content),
                "classification": "config" if path in config else "text",
            }
            for path, content in files.items()
        ],
        "acceptance": [],
        **fields,
    }


def manifest_of(files: Mapping[str, bytes], **fields: Any) -> Manifest:
    return parse_manifest(json.dumps(manifest_json(files, **fields)).encode(), "manifest.json")


def archive_bytes(files: Mapping[str, bytes], **fields: Any) -> bytes:
    """An archive as `pack` makes it; what begins with #! is a program."""
    manifest = manifest_of(files, **fields)
    packed = (
        PackedFile(path, content, 0o755 if content.startswith(b"#!") else 0o644)
        for path, content in files.items()
    )
    return write_archive(manifest, tuple(packed))


def archive_of(files: Mapping[str, bytes], **fields: Any) -> Archive:
    return read_archive(archive_bytes(files, **fields))


def lay_source(
    root: Path, files: Mapping[str, bytes], manifest: Mapping[str, Any] | None = None, **fields: Any
) -> Path:
    """A source directory; `manifest` where it is to say something else than what is there."""
    root.mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        os.chmod(target, 0o755 if content.startswith(b"#!") else 0o644)
    shown = manifest_json(files, **fields) if manifest is None else manifest
    (root / "manifest.json").write_text(json.dumps(shown, indent=2))
    return root


class Member(Struct, frozen=True, dict=True):
    """A member of a tar archive, as an attacker writes it."""

    name: str
    content: bytes = b""
    kind: bytes = tarfile.REGTYPE
    link: str = ""
    mode: int = 0o644
    mtime: int = 0
    uid: int = 0
    uname: str = ""


def tar_bytes(members: Sequence[Member], form: int = tarfile.USTAR_FORMAT) -> bytes:
    """An archive by another program than ours."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for member in members:
            info = tarfile.TarInfo(member.name)
            info.size, info.mode, info.mtime = len(member.content), member.mode, member.mtime
            info.type, info.linkname = member.kind, member.link
            info.uid, info.uname = member.uid, member.uname
            tar.addfile(info, io.BytesIO(member.content))
    return out.getvalue()


def members_of(files: Mapping[str, bytes], **fields: Any) -> list[Member]:
    """The members of a good archive, to be spoiled."""
    text = json.dumps(manifest_json(files, **fields)).encode()
    return [Member("manifest.json", text), *(Member(path, files[path]) for path in files)]


def gzipped(tar: bytes) -> bytes:
    return gzip.compress(tar, mtime=0)


class Runner:
    """Acceptance commands that need no sandbox: `pass` passes, everything else fails."""

    def __init__(self, before=None) -> None:
        self.ran: list[str] = []
        self._before = before

    def run(self, acceptance, staged):
        self.ran.append(acceptance.command)
        if self._before is not None:
            self._before(staged)
        passed = acceptance.command == "pass"
        return AcceptanceResult(acceptance.command, passed, 0 if passed else 1, "", 0.0)


class Bench(Struct, dict=True):
    """A plane without a command line."""

    root: Path
    depot: Depot
    clock: list[float]

    @property
    def layout(self) -> PlaneLayout:
        return self.depot.layout

    def install(self, files: Mapping[str, bytes], wish: InstallWish | None = None, **fields: Any):
        return install(self.depot, archive_of(files, **fields), wish or InstallWish(dev=True))

    def uninstall(self, package_id: str = "PKG-A-001"):
        return uninstall(self.depot, package_id)

    def write(self, path: str, content: bytes) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        return target

    def tree(self) -> dict[str, bytes | str | None]:
        return plane_tree(self.root)

    def log(self):
        return self.depot.ledger.read()

    def events(self) -> list[str]:
        return [stored.entry.event_type for stored in self.log().entries][1:]


def plane_tree(root: Path) -> dict[str, bytes | str | None]:
    """What packages could have changed: everything but ledgers and the plane's own store."""
    found: dict[str, bytes | str | None] = {}
    for folder, folders, files in os.walk(root):
        base = os.path.relpath(folder, root)
        if base == ".":
            folders[:] = [name for name in folders if name != "objects"]
        if os.path.basename(folder) == "ledger":
            folders.clear()
            continue
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            key = os.path.relpath(path, root)
            mode = os.lstat(path).st_mode & 0o777
            if os.path.islink(path):
                found[key] = os.readlink(path)
            elif os.path.isdir(path):
                found[key + "/"] = None
            else:
                found[f"{key} {mode:o}"] = Path(path).read_bytes()
    return found


@contextmanager
def open_bench(
    root: Path,
    runner=None,
    disk: Disk | None = None,
    store_bytes_max: int = 1_000_000_000,
    before_entry=None,
) -> Generator[Bench]:
    """The plane at `root`, made where it is missing.

    `before_entry` is called when the packages ledger is opened to append: of an install, when
    the files are in their places.
    """
    for name in BARE_DIRECTORIES if not (root / "HOT").exists() else ():
        (root / name).mkdir(parents=True, mode=0o700)
    config = root / "HOT/config/admin_config.json"
    if not config.exists():
        config.write_bytes(b"{}\n")
    layout = PlaneLayout(root, PlaneKind.BARE)
    clock = [NOW]
    used = disk or Disk()
    with ExitStack() as held:
        depot = Depot(
            layout=layout,
            workspace=held.enter_context(Workspace.open(str(root), disk=used)),
            objects=held.enter_context(ObjectStore(str(layout.objects), bytes_max=store_bytes_max)),
            journal=held.enter_context(Journal(str(layout.objects / "journal"), used)),
            ledger=PackageLedger(
                layout.ledger_paths()["packages"], _Ledger(layout, before_entry).open
            ),
            clock=lambda: clock[0],
            acceptance=runner or NoAcceptance(),
        )
        yield Bench(root, depot, clock)


class StoppedError(Exception):
    """Stands for a kill: nothing of ours catches it."""


def stop() -> None:
    raise StoppedError


class _Ledger(Struct, frozen=True, dict=True):
    layout: PlaneLayout
    before: Callable[[], None] | None

    def open(self) -> LedgerFile:
        if self.before is not None:
            self.before()
        path = self.layout.ledger_paths()["packages"]
        genesis = Genesis("test/packages", "HOT", str(KEY.verifier))
        create = None if path.exists() else genesis
        return LedgerFile(str(path), create=create, clock=time.time, randomness=os.urandom)


def require_whole(bench: Bench) -> None:
    """What always holds between two commands: files, receipts and ledger tell one story."""
    layout = bench.layout
    installed = read_installed(layout)
    assert installed.problems == ()
    owned: set[str] = set()
    for package in installed.packages.values():
        checked = check_package(package, bench.depot.workspace)
        assert checked == (), checked
        owned |= set(package.manifest.by_path)
    last: dict[str, Any] = {}
    told = [stored.entry.call_id for stored in bench.log().entries if stored.entry.call_id]
    assert len(set(told)) == len(told), "a change is on record twice"
    for stored in bench.log().entries:
        metadata = stored.entry.metadata
        if "package_id" in metadata and stored.entry.event_type != "PACKAGE_APPROVED":
            gone = stored.entry.event_type == "PACKAGE_UNINSTALLED"
            last[metadata["package_id"]] = None if gone else (metadata["digest"], stored.id)
    said = {name: value for name, value in last.items() if value is not None}
    assert said == {
        name: (each.manifest.digest, each.receipt.ledger_entry)
        for name, each in installed.packages.items()
    }
    strays = [name for name in _files(bench.root) if name not in owned]
    assert strays == [], strays
    assert not bench.depot.pending.exists()
    assert os.listdir(layout.objects / "journal") == []
    left = sorted(os.listdir(layout.objects / "packages"))
    assert left == ["lock"], left


def _files(root: Path) -> list[str]:
    """Files under the governed places, hidden temporaries included."""
    found: list[str] = []
    for place in ("HOT/kernel", "HOT/scripts", "HOT/schemas", "HOT/tests", "HO1", "HO2"):
        for folder, folders, files in os.walk(root / place):
            if "ledger" in folders:
                folders.remove("ledger")
            found += [os.path.relpath(os.path.join(folder, name), root) for name in files]
    return found


class Meddling(Disk):
    """Somebody writes to the file when the journal's entry is made, once it is armed."""

    def __init__(self, path: Path, content: bytes) -> None:
        super().__init__()
        self.path = path
        self.content = content
        self.is_armed = False

    def create(self, dir_fd: int, name: str, mode: int = 0o600) -> int:
        if self.is_armed and name.endswith(".entry"):
            self.is_armed = False
            self.path.write_bytes(self.content)
        return super().create(dir_fd, name, mode)
