"""G0A: an archive holds exactly what its manifest declares."""

import json

import pytest

from paddock.gates import checks
from paddock.gates.results import Status
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
    result = checks.check_archive(archive_bytes(FILES))

    assert (result.status, result.checks, result.failures) == (Status.PASS, 3, ())


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
    "an extra file": lambda m: m.append(Member("HOT/kernel/c.txt", b"c")),
    "a hidden extra file": lambda m: m.append(Member("HOT/kernel/.c", b"c")),
    "a missing file": lambda m: m.pop(1),
    "no manifest": lambda m: m.pop(0),
    "a changed file": lambda m: m.__setitem__(1, Member("HOT/kernel/a.txt", b"A\n")),
    "an emptied file": lambda m: m.__setitem__(1, Member("HOT/kernel/a.txt", b"")),
    "two contents swapped": lambda m: [
        m[0],
        Member(m[1].name, m[2].content),
        Member(m[2].name, m[1].content),
    ],
    "another case": lambda m: m.__setitem__(1, Member("HOT/kernel/A.txt", b"a\n")),
    "a file twice": lambda m: m.append(m[1]),
    "a hash without its name": lambda m: m.__setitem__(
        0, manifest_with(assets=assets(lambda a: a[0].update(sha256=a[0]["sha256"][7:])))
    ),
    "a hash in capitals": lambda m: m.__setitem__(
        0, manifest_with(assets=assets(lambda a: a[0].update(sha256=a[0]["sha256"].upper())))
    ),
    "a hash that is short": lambda m: m.__setitem__(
        0, manifest_with(assets=assets(lambda a: a[0].update(sha256=a[0]["sha256"][:-1])))
    ),
    "a name that leads out": lambda m: m.append(Member("../x", b"")),
    "an absolute name": lambda m: m.append(Member("/etc/x", b"")),
    "a link": lambda m: m.append(Member("HOT/kernel/l", kind=b"2", link="a.txt")),
    "an asset declared and not there": lambda m: m.__setitem__(
        0,
        manifest_with(assets=assets(lambda a: a.append({**a[0], "path": "HOT/kernel/z.txt"}))),
    ),
    "an asset taken out of the manifest": lambda m: m.__setitem__(
        0, manifest_with(assets=assets(lambda a: a.pop()))
    ),
}


@pytest.mark.parametrize("change", MUTANTS.values(), ids=MUTANTS)
def test_an_archive_that_is_not_what_it_declares_fails(change):
    result = checks.check_archive(spoiled(change))

    assert result.status is Status.FAIL
    assert result.failures[0].reason


@pytest.mark.parametrize(
    "content", [b"", b"x", archive_bytes(FILES)[:-9], archive_bytes(FILES) + b"x"]
)
def test_no_archive_or_half_of_one_fails(content):
    assert checks.check_archive(content).status is Status.FAIL


def test_the_malicious_set_fails():
    for name, content in made().items():
        assert checks.check_archive(content).status is Status.FAIL, name
