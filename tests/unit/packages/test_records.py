"""Receipts, transactions and registries: read as they were written, or not at all."""

import json
from pathlib import Path

import pytest

from paddock.errors import ConfigError, IntegrityError
from paddock.packages.change import PendingChange, transaction_of
from paddock.packages.install import PlanePackages
from paddock.packages.installed import (
    Framework,
    InstalledFile,
    InstallReceipt,
    Spec,
    parse_receipt,
    read_installed,
    read_registries,
)
from paddock.packages.rows import State
from paddock.packages.signing import sign_digest
from paddock.plane.json_files import write_object
from paddock.plane.layout import PlaneLayout
from paddock.values.decisions import PlaneKind
from paddock.values.entries import Entry
from paddock.workspace import Workspace
from tests.support.changes import memory_directory
from tests.support.packages import KEY, Runner, open_bench

DIGEST = "sha256:" + "ab" * 32
RECEIPT = InstallReceipt(
    package_id="PKG-A",
    version="1.0.0",
    digest=DIGEST,
    archive=DIGEST,
    transaction="TX-" + "0" * 32,
    ledger_entry="LED-1",
    installed_at="2026-01-01T00:00:00Z",
    wo_id="WO-1",
    dev=False,
    signature=sign_digest(KEY, DIGEST),
    files=(InstalledFile("HOT/a", DIGEST, "755"),),
)
ENTRY = Entry(
    "PACKAGE_INSTALLED",
    "WO-1",
    "allow",
    "why",
    call_id="TX-" + "0" * 32,
    metadata={"a": [1, None]},
)
TRANSACTION = transaction_of("PKG-A", (ENTRY, RECEIPT))


def test_a_receipt_is_read_as_it_was_written():
    assert parse_receipt(RECEIPT.to_bytes(), "receipt.json") == RECEIPT


@pytest.mark.parametrize(
    "fields",
    [
        {"format": 2},
        {"digest": "x"},
        {"dev": 0},
        {"wo_id": 5},
        {"files": [{"path": "../a", "sha256": DIGEST, "mode": "644"}]},
        {"files": [{"path": "HOT/a", "sha256": DIGEST, "mode": "4755"}]},
        {"handed_over": [{"path": "HOT/a", "from": "PKG-B", "sha256": DIGEST, "mode": "644"}]},
        {"signature": {"digest": DIGEST}},
        {"more": 1},
    ],
)
def test_a_receipt_that_says_something_else_does_not_load(fields):
    with pytest.raises(ConfigError):
        parse_receipt(json.dumps(json.loads(RECEIPT.to_bytes()) | fields).encode(), "receipt.json")


def pending(root: Path, content: bytes) -> PendingChange:
    layout = PlaneLayout(root, PlaneKind.BARE)
    layout.package_changes.mkdir(parents=True)
    layout.package_transaction.write_bytes(content)
    return PendingChange(layout)


def test_a_transaction_is_read_as_it_was_written(tmp_path: Path):
    read = pending(tmp_path, write_object(TRANSACTION)).read()
    assert read == TRANSACTION
    assert read.changes[0].entry == ENTRY


@pytest.mark.parametrize(
    "fields", [{"format": 1}, {"format": 2}, {"phase": "begun"}, {"id": "TX-0"}]
)
def test_a_transaction_of_another_kind_stops_everything(fields, tmp_path: Path):
    value = json.loads(write_object(TRANSACTION)) | fields
    with pytest.raises(IntegrityError):
        pending(tmp_path, json.dumps(value).encode()).read()


@pytest.fixture
def bench():
    with memory_directory() as base, open_bench(base / "plane", Runner()) as bench:
        bench.install({"HOT/kernel/a": b"a"})
        yield bench


def problems(bench) -> str:
    installed = read_installed(bench.layout)
    assert len(installed.packages) + len(installed.problems) == 1
    return "".join(map(str, installed.problems))


@pytest.mark.parametrize("name", ["manifest.json", "receipt.json"])
@pytest.mark.parametrize("what", ["gone", "empty", "link", "other"])
def test_a_package_whose_records_do_not_agree_is_no_installed_package(name, what, bench):
    path = bench.root / "HOT/installed/PKG-A-001" / name
    content = path.read_bytes()
    path.unlink()
    if what == "empty":
        path.write_bytes(b"")
    elif what == "link":
        path.symlink_to(bench.write("HOT/kernel/copy", content))
    elif what == "other":
        path.write_bytes(content.replace(b"1.0.0", b"1.0.1"))
    assert problems(bench) != ""


def test_an_installed_manifest_has_one_form(bench):
    path = bench.root / "HOT/installed/PKG-A-001/manifest.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()), indent=1))
    assert "form" in problems(bench)


def test_a_receipt_lists_the_files_of_its_manifest(bench):
    path = bench.root / "HOT/installed/PKG-A-001/receipt.json"
    value = json.loads(path.read_bytes())
    value["files"] = []
    path.write_text(json.dumps(value))
    assert "list different files" in problems(bench)


def test_a_package_under_another_name_is_none(bench):
    directory = bench.root / "HOT/installed"
    (directory / "PKG-A-001").rename(directory / "PKG-B")
    assert "named after" in problems(bench)


# Registries


def put(root: Path, name: str, value: object) -> None:
    path = root / "HOT/registries" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def test_specs_and_frameworks_are_read_one_file_each(tmp_path: Path):
    put(tmp_path, "specs/SPEC-A.json", {"spec_id": "SPEC-A", "framework_id": "F", "title": "A"})
    put(tmp_path, "frameworks/F.json", {"framework_id": "F", "title": "F", "specs": ["SPEC-A"]})

    found = read_registries(PlaneLayout(tmp_path, PlaneKind.BARE))

    assert found.specs == {"SPEC-A": Spec("SPEC-A", "F", "A")}
    assert found.frameworks == {"F": Framework("F", "F", ("SPEC-A",))}
    assert found.problems == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("specs/X.json", {"spec_id": "SPEC-A", "framework_id": "F", "title": "A"}),
        ("specs/S.json", {"spec_id": "S", "framework_id": "F"}),
        ("specs/S.json", {"spec_id": "S", "framework_id": "F", "title": "S", "more": 1}),
        ("specs/S.json", []),
        ("specs/S.txt", {}),
        ("frameworks/F.json", {"framework_id": "F", "title": "F", "specs": "SPEC-A"}),
        ("frameworks/F.json", {"framework_id": "F", "title": "F", "specs": ["A", "A"]}),
    ],
)
def test_what_does_not_load_is_named_and_does_not_count(name, value, tmp_path: Path):
    put(tmp_path, name, value)

    found = read_registries(PlaneLayout(tmp_path, PlaneKind.BARE))

    assert (found.specs, found.frameworks) == ({}, {})
    assert [each.file for each in found.problems] == [f"HOT/registries/{name}"]


def test_a_plane_without_registries_has_none(tmp_path: Path):
    found = read_registries(PlaneLayout(tmp_path, PlaneKind.BARE))
    assert (found.specs, found.frameworks, found.problems) == ({}, {}, ())


# Listing


def test_a_package_on_its_way_is_neither_installed_nor_damaged():
    seen = []

    def look():
        packages = PlanePackages(
            bench.layout, bench.depot.ledger, lambda: Workspace.open(str(bench.root))
        )
        seen.append([(row.package_id, row.state) for row in packages.list_all()])

    with memory_directory() as base, open_bench(base / "plane", before_entry=look) as bench:
        (bench.root / "HOT/installed").mkdir(exist_ok=True)
        bench.install({"HOT/kernel/b": b"b"}, package_id="PKG-B")
        bench.install({"HOT/kernel/a": b"a"})
        bench.install({"HOT/kernel/a": b"A"}, version="2.0.0")
        look()
        (bench.root / "HOT/installed/PKG-B/receipt.json").unlink()
        look()
    on_its_way = [("PKG-B", State.INSTALLED), ("PKG-A-001", State.CHANGING)]
    done = [("PKG-A-001", State.INSTALLED), ("PKG-B", State.INSTALLED)]
    damaged = [("PKG-A-001", State.INSTALLED), ("PKG-B", State.DAMAGED)]
    assert seen[1:] == [on_its_way, on_its_way, done, damaged]
