"""G0B: nothing under a governed root that nobody owns, and everything owned as it was brought."""

import json
import os
import shutil
import socket

import pytest

from paddock.gates.results import Status
from paddock.values.entries import digest_of
from tests.support.gates import failed_files, tell_config


def link(plane, path, to):
    plane.remove(path) if os.path.lexists(plane.at(path)) else None
    plane.at(path).symlink_to(to)


def fifo(plane, path):
    os.mkfifo(plane.at(path))


def bind(plane, path):
    here = os.getcwd()
    os.chdir(plane.at(path).parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(os.path.basename(path))
    finally:
        os.chdir(here)


def rename(plane, path, to):
    plane.at(path).rename(plane.at(to))


def replaced_by_copy_behind_a_link(plane, path):
    shutil.copytree(plane.at(path), plane.at("HO2/scratch/copy"))
    plane.remove(path)
    plane.at(path).symlink_to(plane.at("HO2/scratch/copy"))


TAKEN = [
    {"path": "HOT/kernel/top.txt", "from": "PKG-A-001", "sha256": digest_of(b"a\n"), "mode": "644"}
]


def brought_twice(plane, path):
    """Another past, in which a second package brought the very same file."""
    folder = plane.at("HOT/installed/PKG-T-001")
    manifest = json.loads((folder / "manifest.json").read_bytes())
    receipt = json.loads((folder / "receipt.json").read_bytes())
    row = {"path": path, "sha256": digest_of(plane.at(path).read_bytes())}
    files = sorted([*receipt["files"], {**row, "mode": "644"}], key=lambda each: each["path"])
    plane.edit_json("HOT/installed/PKG-T-001/receipt.json", files=files)
    more = [*manifest["assets"], {**row, "classification": "text"}]
    assets = sorted(more, key=lambda each: each["path"])
    plane.forge_package("PKG-T-001", assets=assets)


def test_a_file_has_one_package(plane):
    brought_twice(plane, "HOT/kernel/a.txt")

    failures = plane.check("G0B").failures

    assert [(each.file, each.reason) for each in failures] == [
        ("HOT/kernel/a.txt", "it has 2 owners: PKG-A-001, PKG-T-001")
    ]


ORPHANS = {
    "a file": lambda p: p.write("HOT/kernel/x.txt", b"x"),
    "an empty file": lambda p: p.write("HOT/scripts/x", b""),
    "a hidden file": lambda p: p.write("HOT/kernel/.x", b"x"),
    "a hidden file deep down": lambda p: p.write("HOT/kernel/sub/.x/.y", b"x"),
    "a name of our temporaries": lambda p: p.write(f"HOT/kernel/.paddock-{'0' * 32}.tmp", b"x"),
    "a cache": lambda p: p.write("HOT/kernel/__pycache__/a.pyc", b"x"),
    "a copy in another case": lambda p: p.write("HOT/kernel/A.txt", b"a\n"),
    "an empty directory": lambda p: p.at("HOT/kernel/empty").mkdir(),
    "an empty directory in a tier": lambda p: p.at("HO1/more").mkdir(),
    "a file in the session tier": lambda p: p.write("HO2/kernel/x", b"x"),
    "a file at the top of a tier": lambda p: p.write("HO2/x", b"x"),
    "a prompt contract": lambda p: p.write("HO1/contracts/PRC-X.json", b"{}"),
    "a row of a registry": lambda p: p.write("HOT/registries/specs/SPEC-X.json", b"{}"),
    "a registry": lambda p: p.write("HOT/registries/more/X.json", b"{}"),
    "a file of configuration": lambda p: p.write("HOT/config/more.json", b"{}"),
    "a link to an owned file": lambda p: link(p, "HOT/kernel/l", "a.txt"),
    "a link that leads nowhere": lambda p: link(p, "HOT/kernel/l", "nowhere"),
    "a FIFO": lambda p: fifo(p, "HOT/kernel/f"),
    "a socket": lambda p: bind(p, "HOT/kernel/s"),
    "a file among ledgers": lambda p: p.write("HOT/ledger/x.jsonl", b""),
    "a ledger of another tier": lambda p: p.write("HO2/ledger/governance.jsonl", b""),
    "a directory among ledgers": lambda p: p.at("HOT/ledger/x.d").mkdir(),
    "a file that no ledger keeps": lambda p: p.write("HOT/ledger/governance.d/anything", b""),
    "a hidden file beside a ledger": lambda p: p.write("HO1/ledger/ho1m.d/.x", b""),
    "a directory that no ledger keeps": lambda p: p.at("HOT/ledger/packages.d/open").mkdir(),
    "a file that no checkpoint is": lambda p: p.write("HOT/ledger/governance.d/checkpoints/x", b""),
    "a link beside a ledger": lambda p: link(p, "HOT/ledger/governance.d/lock", "/etc/passwd"),
    "a FIFO beside a ledger": lambda p: fifo(p, "HOT/ledger/governance.d/next"),
    "a directory in the place of a lock": lambda p: p.at("HOT/ledger/governance.d/next").mkdir(),
    "a program beside a ledger": lambda p: p.write("HOT/ledger/governance.d/next", b"", 0o4755),
    "an open file beside a ledger": lambda p: p.write("HOT/ledger/governance.d/next", b"", 0o666),
    "a file in a checkpoints' place": lambda p: p.write("HO2/ledger/ho2m.d/torn", b""),
    "torn ends of everybody's": lambda p: (
        p.at("HOT/ledger/governance.d/torn").mkdir(),
        p.at("HOT/ledger/governance.d/torn").chmod(0o777),
    ),
    "a file beside a receipt": lambda p: p.write("HOT/installed/PKG-A-001/x", b""),
    "a file among packages": lambda p: p.write("HOT/installed/x", b""),
    "a directory among packages": lambda p: p.at("HOT/installed/PKG-X").mkdir(),
    "a file among approvals": lambda p: p.write("HOT/registries/approvals/x.json", b"{}"),
    "a directory among approvals": lambda p: p.at("HOT/registries/approvals/more").mkdir(),
    "a file among calls": lambda p: p.write("HOT/registries/approvals/calls/x.json", b"{}"),
    "a file among keys": lambda p: p.write("HOT/registries/keys/x.pem", b""),
    "a name that is no text": lambda p: os.close(
        os.open(os.fsencode(p.at("HOT/kernel")) + b"/\xff", os.O_CREAT | os.O_WRONLY)
    ),
}
CHANGES = {
    "a byte more": lambda p: p.write("HOT/kernel/sub/deep.txt", b"deep\n\n"),
    "an emptied file": lambda p: p.write("HOT/kernel/sub/deep.txt", b""),
    "a missing file": lambda p: p.remove("HOT/kernel/sub/deep.txt"),
    "a missing directory": lambda p: p.remove("HOT/kernel/sub"),
    "a program that is none any more": lambda p: p.at("HOT/scripts/run.sh").chmod(0o644),
    "a file that others can write": lambda p: p.at("HOT/kernel/sub/deep.txt").chmod(0o666),
    "a set-id program": lambda p: p.at("HOT/scripts/run.sh").chmod(0o4755),
    "a directory in a file's place": lambda p: (
        p.remove("HOT/kernel/sub/deep.txt"),
        p.at("HOT/kernel/sub/deep.txt").mkdir(),
    ),
    "a FIFO in a file's place": lambda p: (
        p.remove("HOT/kernel/sub/deep.txt"),
        fifo(p, "HOT/kernel/sub/deep.txt"),
    ),
    "a linked tier": lambda p: replaced_by_copy_behind_a_link(p, "HO1"),
    "a file in a directory's place": lambda p: (
        p.remove("HOT/schemas"),
        p.write("HOT/schemas", b""),
    ),
    "a directory that others can write": lambda p: p.at("HOT/kernel/sub").chmod(0o777),
    "two contents swapped": lambda p: (
        p.write("HOT/kernel/sub/deep.txt", b"two\n"),
        p.write("HO2/kernel/two.txt", b"deep\n"),
    ),
    "a linked ledger": lambda p: (
        rename(p, "HO1/ledger/ho1m.jsonl", "HO2/scratch/ho1m.jsonl"),
        link(p, "HO1/ledger/ho1m.jsonl", p.at("HO2/scratch/ho1m.jsonl")),
    ),
    "linked packages": lambda p: replaced_by_copy_behind_a_link(p, "HOT/installed"),
    "linked approvals": lambda p: replaced_by_copy_behind_a_link(p, "HOT/registries/approvals"),
    "a linked scratch": lambda p: (p.remove("HO2/scratch"), link(p, "HO2/scratch", "/tmp")),
    "a manifest in another form": lambda p: p.write(
        "HOT/installed/PKG-A-001/manifest.json",
        json.dumps(
            json.loads(p.at("HOT/installed/PKG-A-001/manifest.json").read_bytes()), indent=1
        ).encode(),
    ),
    "a receipt with a byte more": lambda p: p.write(
        "HOT/installed/PKG-A-001/receipt.json",
        p.at("HOT/installed/PKG-A-001/receipt.json").read_bytes() + b"\n",
        0o600,
    ),
    "a receipt of another package": lambda p: shutil.copy(
        p.at("HOT/installed/PKG-T-001/receipt.json"), p.at("HOT/installed/PKG-A-001/receipt.json")
    ),
    "a receipt that took a file over": lambda p: p.edit_json(
        "HOT/installed/PKG-T-001/receipt.json", handed_over=TAKEN
    ),
    "a receipt that took a file over, in another past": lambda p: p.edit_receipt(
        "PKG-T-001", handed_over=TAKEN
    ),
    "a receipt that lets a file be a program, in another past": lambda p: p.edit_receipt(
        "PKG-R-001",
        files=[
            {**each, "mode": "755"}
            for each in json.loads(p.at("HOT/installed/PKG-R-001/receipt.json").read_bytes())[
                "files"
            ]
        ],
    ),
    "a receipt that others can write": lambda p: p.at("HOT/installed/PKG-A-001/receipt.json").chmod(
        0o666
    ),
    "a key that others can write": lambda p: p.at(p.key_file).chmod(0o622),
    "an approval that does not load": lambda p: p.write(p.approval_of("PKG-A-001"), b"{}"),
}
CONFIGS = {
    "is missing": lambda p: p.remove("HOT/config/settings.json"),
    "does not load": lambda p: p.write("HOT/config/settings.json", b"{"),
    "holds a key twice": lambda p: p.write("HOT/config/settings.json", b'{"a": 1, "a": 2}'),
    "was changed, and nobody was told": lambda p: p.write("HOT/config/settings.json", b"{}"),
    "is a link": lambda p: link(p, "HOT/config/settings.json", "admin_config.json"),
    "is a directory": lambda p: (
        p.remove("HOT/config/settings.json"),
        p.at("HOT/config/settings.json").mkdir(),
    ),
    "is an admin's that does not load": lambda p: p.write(
        "HOT/config/admin_config.json", b'{"tool_profile": "Development"}'
    ),
    "is told by no governance": lambda p: p.remove("HOT/ledger/governance.jsonl"),
}


@pytest.mark.parametrize("spoil", ORPHANS.values(), ids=ORPHANS)
def test_what_nobody_owns_is_found(plane, spoil):
    spoil(plane)

    assert plane.check("G0B").status is Status.FAIL


@pytest.mark.parametrize("spoil", CHANGES.values(), ids=CHANGES)
def test_what_is_not_as_it_was_brought_is_found(plane, spoil):
    spoil(plane)

    assert plane.check("G0B").status is Status.FAIL


@pytest.mark.parametrize("spoil", CONFIGS.values(), ids=CONFIGS)
def test_configuration_has_to_load_and_to_be_on_record(plane, spoil):
    spoil(plane)

    assert plane.check("G0B").status is Status.FAIL


def test_each_failure_names_its_file_and_nothing_else_fails(plane):
    plane.write("HOT/kernel/.hidden", b"x")
    plane.remove("HO2/kernel/two.txt")
    plane.at("HOT/scripts/run.sh").chmod(0o700)

    assert failed_files(plane.check("G0B")) == {
        "HOT/kernel/.hidden",
        "HO2/kernel/two.txt",
        "HOT/scripts/run.sh",
    }


def test_configuration_that_was_edited_and_told_passes(plane):
    plane.write("HOT/config/settings.json", b'{"b": 2}\n')
    names = ("admin_config.json", "policy.toml", "settings.json")
    files = {f"HOT/config/{name}": plane.at(f"HOT/config/{name}").read_bytes() for name in names}
    tell_config(plane.layout, {name: digest_of(content) for name, content in files.items()})

    assert plane.check("G0B").status is Status.PASS


@pytest.mark.parametrize(
    "leave",
    [
        lambda p: p.write("HO2/scratch/work/x.txt", b"x"),
        lambda p: link(p, "HO2/scratch/link", "/etc/passwd"),
        lambda p: p.write("agents/a/workspace/x", b"x"),
        lambda p: p.write("objects/zz", b"x"),
        lambda p: p.write("PKG-A-001.tar.gz", b"an archive beside the tiers"),
        lambda p: p.write("HOT/ledger/governance.0000000000000042.jsonl", b"", 0o600),
        lambda p: p.write("HOT/ledger/governance.d/next", b"", 0o600),
        lambda p: p.write("HOT/ledger/governance.d/tree.edge.new", b"", 0o600),
        lambda p: p.write(
            f"HOT/ledger/governance.d/checkpoints/.paddock-{'0' * 32}.tmp", b"", 0o600
        ),
        lambda p: p.write(f"HO1/ledger/ho1m.d/torn/12-{'a' * 64}.pending", b"", 0o600),
        lambda p: p.write(f"HO1/ledger/ho1m.d/by-type/{'0' * 16}-{'1' * 16}", b"", 0o600),
        lambda p: p.write(
            f"HOT/registries/approvals/calls/APR-{'0' * 16}.{'0' * 32}.json", b"{}", 0o600
        ),
    ],
)
def test_work_and_what_is_the_planes_own_is_no_orphan(plane, leave):
    leave(plane)

    assert plane.check("G0B").status is Status.PASS


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    "path",
    [
        *("HOT", "HOT/kernel", "HOT/kernel/sub/deep.txt", "HOT/config/policy.toml"),
        *("HOT/ledger/governance.jsonl", "HOT/ledger/governance.d", "HO2/scratch"),
        "HOT/installed/PKG-A-001/receipt.json",
    ],
)
def test_what_somebody_else_owns_fails_whatever_its_mode_is(plane, path):
    os.chown(plane.at(path), 12345, 12345)

    result = plane.check("G0B")

    assert [(each.file, each.reason) for each in result.failures] == [
        (path, "it belongs to user 12345")
    ]


@pytest.mark.needs("root")
def test_a_plane_in_a_home_that_was_mounted_into_a_container_is_its_owners(plane):
    os.chown(plane.root.parent, 12345, 12345)
    os.chown(plane.at("HOT/kernel/sub/deep.txt"), 12345, 12345)
    try:
        assert plane.check("G0B").status is Status.PASS
    finally:
        os.chown(plane.root.parent, os.geteuid(), os.getegid())


def test_what_lies_too_deep_is_not_looked_into_and_is_a_failure(plane):
    deep = os.open(plane.at("HO2/kernel"), os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=deep)
        below = os.open("d", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(deep)

    result = plane.check("G0B")

    assert result.status is Status.FAIL
    assert result.failures[-1].reason == "it is 256 directories deep, and was not checked"


def test_a_package_that_is_upgraded_or_gone_leaves_nothing_to_complain_of(plane):
    with plane.bench() as bench:
        bench.uninstall("PKG-T-001")

    assert plane.check("G0B").status is Status.PASS
    assert plane.at("HOT/kernel/a.txt").read_bytes() == b"a\n"


def test_what_cannot_be_listed_is_a_failure(plane):
    plane.at("HOT/kernel/sub").chmod(0)
    try:
        result = plane.check("G0B")
    finally:
        plane.at("HOT/kernel/sub").chmod(0o700)
    # Root may list anything, and finds the mode itself.
    assert result.status is (Status.PASS if os.geteuid() == 0 else Status.FAIL)
