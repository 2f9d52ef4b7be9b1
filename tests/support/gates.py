"""Planes for gates: one that every gate passes, and ways to spoil a copy of it."""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from paddock.gates.checks import CHECKS, CHECKS_FOR_MODELS, run_gate
from paddock.gates.evidence import GateEvidence, LedgerWitness
from paddock.gates.results import GateResult, Status, gate_entry
from paddock.ledger.append import LedgerFile
from paddock.ledger.format.lines import Genesis
from paddock.ledger.signing import make_key
from paddock.ledger.verify import Verification, verify
from paddock.packages.install import InstallWish, install
from paddock.packages.installed import digest_of_rows
from paddock.packages.ledger import PackageLedger
from paddock.packages.signing import (
    enrol_key,
    make_approval,
    public_half,
    sign_digest,
    write_approval,
)
from paddock.packages.statements import approve, sign_installed_set
from paddock.plane import records
from paddock.plane.admin import parse_admin_config
from paddock.plane.layout import PlaneLayout
from paddock.values.decisions import PlaneKind
from paddock.values.entries import Entry, digest_of
from paddock.workspace import Workspace
from tests.support.changes import memory_directory
from tests.support.packages import KEY, NOW, PROGRAM, Bench, Runner, archive_of, open_bench

THIEF = make_key("thief/operator", bytes(range(1, 33)))
CONFIG = b"{}\n"
SETTINGS = b'{"a": 1}\n'
POLICY = b"# nothing\n"


class _NoWitness:
    """Of a plane about which nothing is known outside."""

    def expects(self, name: str) -> bool:
        return False

    def knows_plane(self) -> bool:
        return False

    def verify(self, name: str, path: Path) -> Verification:
        return verify(str(path))

    def problem(self, name: str, found: Verification) -> str:
        return ""


NO_WITNESS = _NoWitness()


def row(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


REGISTRIES = {
    "HOT/registries/frameworks/FMWK-000.json": row(
        framework_id="FMWK-000", title="The base", specs=["SPEC-A-001", "SPEC-R-001"]
    ),
    "HOT/registries/frameworks/FMWK-100.json": row(
        framework_id="FMWK-100", title="Another", specs=["SPEC-C-001"]
    ),
    "HOT/registries/specs/SPEC-A-001.json": row(
        spec_id="SPEC-A-001", framework_id="FMWK-000", title="A"
    ),
    "HOT/registries/specs/SPEC-R-001.json": row(
        spec_id="SPEC-R-001", framework_id="FMWK-000", title="R"
    ),
    "HOT/registries/specs/SPEC-C-001.json": row(
        spec_id="SPEC-C-001", framework_id="FMWK-100", title="C"
    ),
}
BASE = {
    "HOT/config/admin_config.json": CONFIG,
    "HOT/config/policy.toml": POLICY,
    "HOT/config/settings.json": SETTINGS,
    "HOT/kernel/a.txt": b"a\n",
    "HOT/kernel/sub/deep.txt": b"deep\n",
    "HOT/scripts/run.sh": PROGRAM,
    "HO2/kernel/two.txt": b"two\n",
    "HO1/contracts/PRC-A.json": b"{}\n",
}
CONFIGS = ("HOT/config/admin_config.json", "HOT/config/policy.toml", "HOT/config/settings.json")
TOP = {"HOT/kernel/top.txt": b"top\n"}


def install_approved(
    bench: Bench, files: dict[str, bytes], *, signed: bool = False, **fields: Any
) -> None:
    """As an operator does it."""
    archive = archive_of(files, **fields)
    approve(bench.depot, archive.manifest, KEY, (), 3_600)
    signature = sign_digest(KEY, archive.manifest.digest) if signed else None
    install(bench.depot, archive, InstallWish(signature=signature))


def make_plane(root: Path) -> None:
    """A plane of three packages: approved, one of them signed, the set of all signed at last."""
    with open_bench(root, Runner()) as bench:
        (root / CONFIGS[0]).write_bytes(CONFIG)
        install_approved(bench, REGISTRIES, package_id="PKG-R-001", spec_id="SPEC-R-001", layer=0)
        install_approved(
            bench,
            BASE,
            config=CONFIGS,
            dependencies=["PKG-R-001"],
            acceptance=[
                {"command": "pass", "timeout_s": 5},
                {"command": "pass", "timeout_s": 6},
            ],
            signed=True,
        )
        sign_installed_set(bench.depot, KEY)
        install_approved(
            bench,
            TOP,
            package_id="PKG-T-001",
            dependencies=["PKG-A-001"],
            layer=2,
            spec_id="SPEC-C-001",
            framework_id="FMWK-100",
            acceptance=[{"command": "pass", "timeout_s": 5}],
        )
        layout = bench.layout
        tell_governance(layout, Entry("PLANE_CREATED"))
        tell_config(layout, {name: digest_of(BASE[name]) for name in CONFIGS})
        for name in ("ho2m", "ho1m"):
            with closing(open_ledger(layout, name)) as ledger:
                ledger.append([Entry("NOTE", reason=str(each)) for each in range(3)])


def make_plain_plane(root: Path) -> "Plane":
    """A plane with one package that depends on nothing and declares no command."""
    with open_bench(root, Runner()) as bench:
        install_approved(bench, {"HOT/kernel/a.txt": b"a\n"})
        tell_governance(bench.layout, Entry("PLANE_CREATED"))
    return Plane(root)


def tell_config(layout: PlaneLayout, files: dict[str, Any]) -> None:
    """Governance holds these digests from now on."""
    config = parse_admin_config(CONFIG, layout.admin_config)
    tell_governance(layout, records.config_changed({}, files, config))


def tell_governance(layout: PlaneLayout, *entries: Entry) -> None:
    with closing(open_ledger(layout, "governance")) as ledger:
        ledger.append(list(entries))


def open_ledger(layout: PlaneLayout, name: str) -> LedgerFile:
    path = layout.ledger_paths()[name]
    genesis = Genesis(f"test/{name}", path.parent.parent.name, str(KEY.verifier))
    create = None if path.exists() else genesis
    return LedgerFile(str(path), create=create, clock=time.time, randomness=os.urandom)


class Plane(Struct, dict=True):
    """A copy of such a plane, to be spoiled."""

    root: Path
    is_dev: bool = False
    runner: Any = None
    witness: LedgerWitness = NO_WITNESS
    now: float = NOW

    @property
    def layout(self) -> PlaneLayout:
        return PlaneLayout(self.root, PlaneKind.BARE)

    # Asking

    @contextmanager
    def ground(self) -> Generator[GateEvidence]:
        with Workspace.open(str(self.root)) as workspace:
            ledger = PackageLedger(self.ledger("packages"), self._open_packages)
            yield GateEvidence(
                layout=self.layout,
                workspace=workspace,
                ledger=ledger,
                acceptance=self.runner or Runner(),
                witness=self.witness,
                now=self.now,
                plane_is_dev=self.is_dev,
            )

    def check(self, gate: str) -> GateResult:
        """One gate, as an operator runs it."""
        with self.ground() as ground:
            return run_gate(gate, CHECKS[gate], ground)

    def check_for_model(self, gate: str) -> GateResult:
        with self.ground() as ground:
            return run_gate(gate, CHECKS_FOR_MODELS[gate], ground)

    def record(self, result: GateResult) -> None:
        with self.ground() as ground:
            digest = ground.installed.digest
        tell_governance(self.layout, gate_entry(result, digest, "operator"))

    def _open_packages(self) -> LedgerFile:
        return open_ledger(self.layout, "packages")

    # Spoiling

    def at(self, path: str) -> Path:
        return self.root / path

    def ledger(self, name: str) -> Path:
        return self.layout.ledger_paths()[name]

    def write(self, path: str, content: bytes, mode: int = 0o644) -> Path:
        target = self.at(path)
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        target.write_bytes(content)
        os.chmod(target, mode)
        return target

    def remove(self, path: str) -> None:
        target = self.at(path)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink()

    def edit_json(self, path: str, **fields: Any) -> None:
        """Change members of a JSON object and keep the form in which our own files are."""
        target = self.at(path)
        found = json.loads(target.read_bytes()) | fields
        is_manifest = target.name == "manifest.json"
        target.write_bytes(_canonical(found) if is_manifest else _indented(found))

    def edit_package(self, package_id: str, **fields: Any) -> None:
        """Another manifest, and a receipt that says that this was installed."""
        folder = f"HOT/installed/{package_id}"
        self.edit_json(f"{folder}/manifest.json", **fields)
        digest = digest_of(self.at(f"{folder}/manifest.json").read_bytes())
        version = json.loads(self.at(f"{folder}/manifest.json").read_bytes())["version"]
        self.edit_json(f"{folder}/receipt.json", digest=digest, version=version)

    def forge_package(self, package_id: str, **fields: Any) -> None:
        """Another package in the place of one, with receipt and past: nobody vouched for it."""
        self.edit_package(package_id, **fields)
        folder = f"HOT/installed/{package_id}"
        digest = digest_of(self.at(f"{folder}/manifest.json").read_bytes())
        bare = json.loads(self.at(f"{folder}/receipt.json").read_bytes()) | {"ledger_entry": ""}
        written = {"digest": digest, "receipt": digest_of(_indented(bare))}

        def change(entries: list[dict]) -> None:
            rows: dict[str, tuple[str, str, str]] = {}
            for entry in entries:
                metadata = entry["metadata"]
                if entry["event_type"] != "PACKAGE_INSTALLED":
                    continue
                name = metadata["package_id"]
                metadata |= written if name == package_id else {}
                rows[name] = (name, metadata["version"], metadata["digest"])
                metadata["set_digest"] = digest_of_rows(rows.values())

        self.rechain("packages", change)

    def edit_receipt(self, package_id: str, **fields: Any) -> None:
        """Another receipt, and a past in which it was written."""
        path = f"HOT/installed/{package_id}/receipt.json"
        self.edit_json(path, **fields)
        bare = json.loads(self.at(path).read_bytes()) | {"ledger_entry": ""}
        self.edit_install(package_id, receipt=digest_of(_indented(bare)))

    def rechain(self, name: str, change: Callable[[list[dict]], list[dict] | None]) -> None:
        """Write a ledger anew, whole in itself, and drop what is kept beside it."""
        path = self.ledger(name)
        entries = [json.loads(line) for line in path.read_bytes().splitlines()]
        changed = change(entries)
        write_chain(path, entries if changed is None else changed)

    def edit_install(self, package_id: str, **metadata: Any) -> None:
        """Another past: the ledger tells something else of an install, and chains."""

        def change(entries: list[dict]) -> None:
            for entry in entries:
                is_it = entry["metadata"].get("package_id") == package_id
                if is_it and entry["event_type"] == "PACKAGE_INSTALLED":
                    entry["metadata"] |= metadata

        self.rechain("packages", change)

    @contextmanager
    def bench(self) -> Generator[Bench]:
        """To install and approve in it."""
        with open_bench(self.root, self.runner or Runner()) as bench:
            yield bench

    # What stands there

    def wo_of(self, package_id: str) -> str:
        receipt = self.at(f"HOT/installed/{package_id}/receipt.json")
        return json.loads(receipt.read_bytes())["wo_id"]

    def approval_of(self, package_id: str) -> str:
        return f"HOT/registries/approvals/{self.wo_of(package_id)}.json"

    @property
    def key_file(self) -> str:
        return f"HOT/registries/keys/{public_half(KEY).key_id}.json"

    def enrol_thief(self) -> None:
        enrol_key(self.layout, public_half(THIEF))

    def approve_as_thief(self, package_id: str) -> None:
        """The approval of a package, by somebody else under the same name."""
        path = self.at(self.approval_of(package_id))
        found = json.loads(path.read_bytes())
        path.unlink()
        made = make_approval(
            THIEF, found["wo_id"], found["digest"], tuple(found["scope"]), NOW + 3_600
        )
        write_approval(self.layout, made)

    def approve_again(self, package_id: str, **fields: Any) -> None:
        """The approval of a package anew, by its own operator, of something else."""
        path = self.at(self.approval_of(package_id))
        found = json.loads(path.read_bytes()) | fields
        path.unlink()
        expires_at = fields.get("expires_at", NOW + 3_600)
        made = make_approval(
            KEY, found["wo_id"], found["digest"], tuple(found["scope"]), expires_at
        )
        write_approval(self.layout, made)


def write_chain(path: Path, entries: list[dict]) -> None:
    """A ledger of these entries, each chained to the one before."""
    prev, lines = "0" * 64, []
    for seq, entry in enumerate(entries):
        body = {name: value for name, value in entry.items() if name not in {"seq", "prev"}}
        line = json.dumps(body | {"seq": seq, "prev": prev}, separators=(",", ":"))
        encoded = line.encode()
        prev = hashlib.sha256(b"\0" + encoded).hexdigest()
        lines.append(encoded + b"\n")
    path.write_bytes(b"".join(lines))
    shutil.rmtree(path.with_suffix(".d"), ignore_errors=True)


def _canonical(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode() + b"\n"


def _indented(value: Any) -> bytes:
    from paddock.plane.json_files import write_object

    return write_object(value)


@contextmanager
def copies() -> Generator[Callable[[], Plane]]:
    """A plane made once, and as many copies of it as are asked for."""
    with ExitStack() as held:
        base = held.enter_context(memory_directory())
        make_plane(base / "made")
        count = iter(range(1_000_000))

        def copy() -> Plane:
            root = base / f"copy-{next(count)}"
            shutil.copytree(base / "made", root, symlinks=True)
            return Plane(root)

        yield copy


def failed_files(result: GateResult) -> set[str]:
    assert result.status is Status.FAIL, result
    return {failure.file for failure in result.failures}


def with_dev(plane: Plane) -> Plane:
    return replace(plane, is_dev=True)
