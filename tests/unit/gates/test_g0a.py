"""G0A: an archive holds exactly what its manifest declares."""

import json

import pytest

from paddock.packages.archive import read_archive
from paddock.packages.rows import ArchiveRefusedError
from tests.support.bad_archives import made
from tests.support.packages import (
    Member,
    archive_bytes,
    gzipped,
    manifest_json,
    members_of,
    tar_bytes,
)

FILES = {"HOT/kernel/a.txt": b"a\n", "HOT/kernel/b.txt": b"b\n"}


def test_a_good_archive_passes_and_every_file_counts():
    archive = read_archive(archive_bytes(FILES))

    assert {file.path: file.content for file in archive.files} == FILES


def spoiled(change) -> bytes:
    members = members_of(FILES)
    changed = change(members)
    return gzipped(tar_bytes(changed if isinstance(changed, list) else members))


def manifest_with(**fields) -> Member:
    return Member("manifest.json", json.dumps(manifest_json(FILES) | fields).encode())


def assets(change):
    found = manifest_json(FILES)["assets"]
    change(found)
    return found


MUTANTS = {
    "an emptied file": lambda m: m.__setitem__(1, Member("HOT/kernel/a.txt", b"")),
    "two contents swapped": lambda m: [
        m[0],
        Member(m[1].name, m[2].content),
        Member(m[2].name, m[1].content),
    ],
    "another case": lambda m: m.__setitem__(1, Member("HOT/kernel/A.txt", b"a\n")),
    "an asset taken out of the manifest": lambda m: m.__setitem__(
        0, manifest_with(assets=assets(lambda a: a.pop()))
    ),
}


@pytest.mark.parametrize("change", MUTANTS.values(), ids=MUTANTS)
def test_an_archive_that_is_not_what_it_declares_fails(change):
    with pytest.raises(ArchiveRefusedError) as refused:
        read_archive(spoiled(change))

    assert refused.value.failure.reason


def test_the_malicious_set_fails():
    for content in made().values():
        with pytest.raises(ArchiveRefusedError):
            read_archive(content)
