"""Faults planted in an archive (G0A), and what comes of installing it on a real plane."""

import json

import pytest

from paddock.packages.archive import read_archive
from paddock.packages.rows import ArchiveRefusedError
from paddock.values.entries import digest_of
from tests.support.packages import Member, gzipped, manifest_json, tar_bytes
from tests.support.planted import PLANTED, planted_archive, planted_files


def with_manifest(change):
    found = manifest_json(
        planted_files(), package_id=PLANTED, dependencies=["PKG-KERNEL-001"], layer=4
    )
    text = change(json.dumps(found))
    rest = [Member(path, content) for path, content in planted_files().items()]
    return gzipped(tar_bytes([Member("manifest.json", text.encode()), *rest]))


def declaring(path, **more):
    """What is declared is what is there; only that it may not be brought."""
    content = b"{}\n"
    asset = {"path": path, "sha256": digest_of(content), "classification": "text"} | more
    manifest = manifest_json({}, package_id=PLANTED, assets=[asset])
    text = json.dumps(manifest).encode()
    return gzipped(tar_bytes([Member("manifest.json", text), Member(path, content)]))


def twice_declared():
    found = manifest_json(planted_files(), package_id=PLANTED)
    found["assets"] *= 2
    rest = [Member(path, content) for path, content in planted_files().items()]
    return gzipped(tar_bytes([Member("manifest.json", json.dumps(found).encode()), *rest]))


OWN_PLACES = {
    "it brings an operator's key": lambda: declaring(f"HOT/registries/keys/{'0' * 32}.json"),
    "it brings its own approval": lambda: declaring(f"HOT/registries/approvals/WO-{'0' * 32}.json"),
    "it brings another package's receipt": lambda: declaring(
        "HOT/installed/PKG-KERNEL-001/receipt.json"
    ),
    "it brings a ledger": lambda: declaring("HOT/ledger/governance.jsonl"),
    "it brings what is kept beside a ledger": lambda: declaring("HO1/ledger/ho1m.d/head"),
    "it brings a key's folder in another case": lambda: declaring("HOT/Registries/KEYS/a.json"),
    "it brings an object": lambda: declaring("objects/notes/x"),
    "it brings an agent": lambda: declaring("agents/admin/agent.json"),
    "it brings something beside the tiers": lambda: declaring("paddock.toml"),
    "it brings a file named as a tier": lambda: declaring("HOT"),
    "it brings work into scratch": lambda: declaring("HO2/scratch/x"),
}
"""Whole archives, which G0A passes: that nobody may bring this is for the plane to say."""
ARCHIVES = {
    "it brings a trailing slash": lambda: declaring("HOT/kernel/x/"),
    "it brings a name with a dot behind": lambda: declaring("HOT/kernel/./x"),
    "it declares a file twice": twice_declared,
    "it declares its own manifest": lambda: declaring("manifest.json"),
    "a hash with a space": lambda: with_manifest(lambda text: text.replace("sha256:", "sha256: ")),
    "a hash that is one digit short": lambda: with_manifest(
        lambda text: text.replace(digest_of(b"A note.\n"), digest_of(b"A note.\n")[:-1])
    ),
    "the hash of nothing": lambda: with_manifest(
        lambda text: text.replace(digest_of(b"A note.\n"), digest_of(b""))
    ),
    "a manifest that goes on": lambda: with_manifest(lambda text: text + "{}"),
    "a manifest with NaN": lambda: with_manifest(
        lambda text: text.replace('"layer": 4', '"layer": NaN')
    ),
    "a key twice, deep down": lambda: with_manifest(
        lambda text: text.replace('"path":', '"path": "HOT/kernel/y", "path":')
    ),
    "a disk's zeros": lambda: b"\0" * len(planted_archive()),
}


EVERY = ARCHIVES | OWN_PLACES


@pytest.mark.parametrize("make", ARCHIVES.values(), ids=ARCHIVES)
def test_g0a_finds_what_was_planted_in_an_archive(make):
    read_archive(planted_archive())
    read_archive(with_manifest(str))

    with pytest.raises(ArchiveRefusedError):
        read_archive(make())


@pytest.mark.parametrize("make", EVERY.values(), ids=EVERY)
def test_what_was_planted_in_an_archive_is_not_installed(real, make, tmp_path):
    archive = tmp_path / "x.tar.gz"
    archive.write_bytes(make())
    real.command("package", "uninstall", PLANTED)
    before = sorted(real.root.rglob("*"))

    assert real.operator.run("package", "install", str(archive), "--dev").status == 2
    assert sorted(real.root.rglob("*")) == before
