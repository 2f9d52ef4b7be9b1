"""Contents under salted digests: kept whole, found by the digest, and gone with their salt."""

import hashlib
import os
from pathlib import Path

import pytest

from paddock.errors import IntegrityError
from paddock.storage.history import SALT_BYTES, BlobStore


def store(path: Path) -> BlobStore:
    return BlobStore(path / "objects" / "blobs", os.urandom)


def test_a_content_is_found_by_its_salted_digest_also_by_another_process(tmp_path: Path) -> None:
    blobs = store(tmp_path)
    digest = blobs.put(b"personal")
    blobs.sync()
    blobs.close()
    again = store(tmp_path)
    assert (again.read(digest), again.has(digest)) == (b"personal", True)
    again.close()


def test_the_digest_is_over_salt_and_content_and_the_salt_stands_with_the_content_alone(
    tmp_path: Path,
) -> None:
    blobs = BlobStore(tmp_path / "blobs", lambda count: b"\7" * count)
    digest = blobs.put(b"yes")
    blobs.sync()
    salted = b"\7" * SALT_BYTES + b"yes"
    assert digest == hashlib.sha256(salted).hexdigest()
    assert (tmp_path / "blobs" / digest).read_bytes() == salted
    blobs.close()


def test_equal_contents_have_digests_that_do_not_tell(tmp_path: Path) -> None:
    blobs = store(tmp_path)
    assert blobs.put(b"yes") != blobs.put(b"yes")
    blobs.close()


def test_what_is_erased_is_gone_whole_and_no_other_is(tmp_path: Path) -> None:
    blobs = store(tmp_path)
    kept, erased = blobs.put(b"kept"), blobs.put(b"erased")
    blobs.sync()
    assert blobs.erase(erased) is True
    assert (blobs.read(erased), blobs.read(kept)) == (None, b"kept")
    assert blobs.erase(erased) is False
    assert b"erased" not in b"".join(
        path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    )
    blobs.close()


def test_what_is_erased_does_not_come_back_under_the_name_that_it_had_first(tmp_path: Path) -> None:
    blobs = store(tmp_path)
    digest = blobs.put(b"erased")
    blobs.sync()
    place = tmp_path / "objects" / "blobs"
    # As a power cut may leave it: the rename to its digest half on the device.
    first = place / "incoming" / ("0" * 32 + ".held")
    os.link(place / digest, first)
    assert blobs.erase(digest) is True
    assert (first.exists(), blobs.read(digest)) == (False, None)
    first.write_bytes(b"another")
    assert blobs.erase(digest) is False
    assert first.read_bytes() == b"another"
    blobs.close()


def test_who_only_asks_makes_nothing(tmp_path: Path) -> None:
    blobs = store(tmp_path)
    assert (blobs.read("0" * 64), blobs.has("0" * 64), blobs.erase("0" * 64)) == (
        None,
        False,
        False,
    )
    blobs.close()
    assert list(tmp_path.iterdir()) == []


def test_a_changed_content_and_what_is_no_digest_are_refused(tmp_path: Path) -> None:
    blobs = store(tmp_path)
    digest = blobs.put(b"content")
    blobs.sync()
    file = tmp_path / "objects" / "blobs" / digest
    file.chmod(0o600)
    file.write_bytes(b"\0" * SALT_BYTES + b"another")
    with pytest.raises(IntegrityError, match="damaged"):
        blobs.read(digest)
    with pytest.raises(IntegrityError):
        blobs.read("../../escape")
    blobs.close()
