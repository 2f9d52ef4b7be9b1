"""A plane that `paddock init --bare` made, with a life behind it, to plant faults in."""

import base64
import json
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paddock.gates.results import GateResult, Status
from paddock.ledger.signing import SigningKey
from paddock.packages.rows import Failure
from paddock.packages.signing import find_operator_key, make_approval, write_approval
from paddock.values.entries import digest_of
from tests.support.changes import memory_directory
from tests.support.gates import Plane, failed_files
from tests.support.packages import archive_bytes
from tests.support.planes import Operator, operator_in

PLANTED = "PKG-PLANTED-001"
"""What came after the plane was made: approved, depending on something, with two commands."""
SLOW = "HO2/scratch/slow"
"""Where this stands, the second command of that package does not come back."""
KERNEL, REGISTRIES, SKILLS = "PKG-KERNEL-001", "PKG-REGISTRIES-001", "PKG-SKILLS-001"
ORDER = 2**252 + 27742317777372353535851937790883648493
"""Of the curve's group (RFC 8032, 5.1): a signature's second half is below it."""

Spoil = Callable[["RealPlane"], object]
File = str | Callable[["RealPlane"], str]
Faults = dict[str, tuple[File, Spoil]]
"""What was planted → the file that the gate has to name, and how it is planted."""


def planted_files(number: int = 1) -> dict[str, bytes]:
    return {f"HOT/kernel/planted-{number}/note.md": b"A note.\n"}


def planted_archive(number: int = 1, **fields: Any) -> bytes:
    usual: dict[str, Any] = {
        "package_id": f"PKG-PLANTED-{number:03}",
        "spec_id": "SPEC-KERNEL-001",
        "layer": 4,
        "dependencies": ["PKG-KERNEL-001"],
    }
    return archive_bytes(planted_files(number), **(usual | fields))


class RealPlane(Plane, kw_only=True):
    """The plane at the one place that its witness knows; `kept` is how it was."""

    operator: Operator
    kept: Path

    # Asking

    def check(self, gate: str) -> GateResult:
        """One gate, by the command line."""
        ran = self.operator.run("gate", "--gate", gate, "--json")
        (found,) = ran.json["gates"]
        failures = tuple(Failure(**each) for each in found["failures"])
        return GateResult(
            found["gate"], Status(found["status"]), found["checks"], failures, found["note"]
        )

    @property
    def key(self) -> SigningKey:
        found = find_operator_key(self.operator.environment())
        assert found is not None
        return found

    @property
    def key_file(self) -> str:
        (found,) = self.at("HOT/registries/keys").iterdir()
        return f"HOT/registries/keys/{found.name}"

    def json(self, path: str) -> Any:
        return json.loads(self.at(path).read_bytes())

    # Spoiling

    def restore(self) -> None:
        """Plane and home as they were kept."""
        for place in (self.operator.plane, self.operator.home):
            shutil.rmtree(place)
            shutil.copytree(self.kept / place.name, place, symlinks=True)

    def command(self, *arguments: str) -> None:
        ran = self.operator.run(*arguments)
        assert ran.status == 0, (ran.out, ran.err)

    def install(self, archive: bytes, *, dev: bool = False) -> None:
        """As an operator does it; with `dev` nobody approves."""
        file = self.operator.base / "planted.tar.gz"
        file.write_bytes(archive)
        if not dev:
            self.command("package", "approve", str(file))
        self.command("package", "install", str(file), *(["--dev"] if dev else []))

    def put_back(self, part: str) -> None:
        """A part of the plane as it was when it was made."""
        self.remove(part)
        old = self.kept / "early" / part
        if old.is_dir():
            shutil.copytree(old, self.at(part), symlinks=True)
        elif old.exists():
            shutil.copy2(old, self.at(part))

    def approve_again(self, package_id: str, **fields: Any) -> None:
        """The approval of a package anew, signed by the plane's own operator."""
        path = self.at(self.approval_of(package_id))
        found = json.loads(path.read_bytes()) | fields
        path.unlink()
        moment = found.get("expires_at", 4_000_000_000)
        scope = tuple(found["scope"])
        made = make_approval(self.key, found["wo_id"], found["digest"], scope, moment)
        write_approval(self.layout, made)

    def forge(self, package_id: str, dependencies: list[str], **fields: Any) -> None:
        """Other dependencies in manifest, receipt and ledger, each agreeing with the others."""
        self.forge_package(package_id, dependencies=dependencies, **fields)
        self.edit_install(package_id, dependencies=dependencies)

    def forge_row(self, path: str, **fields: Any) -> None:
        """Another row of a registry; its package, receipt and past vouch for it."""
        self.edit_json(path, **fields)
        digest = digest_of(self.at(path).read_bytes())
        folder = f"HOT/installed/{REGISTRIES}"
        told = {
            name: [
                each | ({"sha256": digest} if each["path"] == path else {})
                for each in self.json(f"{folder}/{file}")[name]
            ]
            for name, file in (("assets", "manifest.json"), ("files", "receipt.json"))
        }
        self.edit_json(f"{folder}/receipt.json", files=told["files"])
        self.forge_package(REGISTRIES, assets=told["assets"])


@contextmanager
def real_plane() -> Generator[RealPlane]:
    """Made, something installed, worked on, checkpoints of all of it kept outside."""
    with memory_directory() as base:
        operator = operator_in(base).make()
        plane = RealPlane(operator.plane, operator=operator, kept=base / "kept")
        plane.command("gate", "--gate", "G1")
        work(operator)
        shutil.copytree(operator.plane, plane.kept / "early", symlinks=True)
        plane.install(
            planted_archive(
                acceptance=[
                    {"command": "test -f HOT/kernel/planted-1/note.md", "timeout_s": 20},
                    {"command": f"test ! -e {SLOW} || sleep 30", "timeout_s": 5},
                ]
            )
        )
        work(operator)
        for place in (operator.plane, operator.home):
            shutil.copytree(place, plane.kept / place.name, symlinks=True)
        yield plane


def work(operator: Operator) -> None:
    """Calls, and a checkpoint of each ledger that they left something in."""
    for _ in range(2):
        ran = operator.call("list_files")
        assert ran.status == 0, (ran.out, ran.err)
    for name in ("ho1m", "governance"):
        ran = operator.run("ledger", "checkpoint", "--ledger", name)
        assert ran.status == 0, ran.err


def passes_until(real: RealPlane, gate: str, fault: tuple[File, Spoil]) -> None:
    """Two-sided: the gate passes, the fault is planted, and the gate names its file."""
    file, spoil = fault
    named = file if isinstance(file, str) else file(real)
    assert real.check(gate).status is Status.PASS

    spoil(real)

    assert named in failed_files(real.check(gate))


def moved_behind_a_link(p: RealPlane, path: str) -> None:
    """The same bytes, somewhere that anybody can write."""
    p.at(path).rename(p.at("HO2/scratch/moved"))
    p.at(path).symlink_to(p.at("HO2/scratch/moved"))


def manifest(package_id: str) -> str:
    return f"HOT/installed/{package_id}/manifest.json"


def receipt(package_id: str) -> str:
    return f"HOT/installed/{package_id}/receipt.json"


def approval(p: RealPlane) -> str:
    return p.approval_of(PLANTED)


def key_file(p: RealPlane) -> str:
    return p.key_file


def with_order_added(text: str) -> str:
    """Another encoding of the same signature, which a lax verifier takes."""
    raw = base64.b64decode(text)
    number = int.from_bytes(raw[32:], "little") + ORDER
    return base64.b64encode(raw[:32] + number.to_bytes(32, "little")).decode()


def thief_instead(p: RealPlane) -> None:
    path = approval(p)
    p.enrol_thief()
    p.approve_as_thief(PLANTED)
    assert p.at(path).exists()
