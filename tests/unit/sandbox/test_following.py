"""The digest of a file that grows."""

import hashlib
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.sandbox.following import FollowingDigest

PIECE = bytes(range(256)) * 4096  # 1 MiB


@pytest.fixture
def fd():
    opened = os.memfd_create("grows")
    yield opened
    os.close(opened)


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "paddock-digest"]


@given(st.lists(st.binary(max_size=50), max_size=8))
def test_a_small_file_is_hashed_at_the_end_and_without_a_thread(pieces):
    fd = os.memfd_create("grows")
    digest = FollowingDigest(fd)
    size = 0
    for piece in pieces:
        size += os.write(fd, piece)
        digest.grown_to(size)

    assert threads() == []
    assert digest.hexdigest(size) == hashlib.sha256(b"".join(pieces)).hexdigest()
    os.close(fd)


def test_a_large_file_is_hashed_behind_its_writer(fd):
    digest = FollowingDigest(fd)
    for number in range(1, 14):
        os.write(fd, PIECE)
        digest.grown_to(number * len(PIECE))

    assert threads() == ["paddock-digest"]
    assert digest.hexdigest(13 * len(PIECE)) == hashlib.sha256(PIECE * 13).hexdigest()
    assert threads() == []


def test_a_thread_nobody_asks_ends_with_close(fd):
    digest = FollowingDigest(fd)
    os.write(fd, PIECE * 5)
    digest.grown_to(5 * len(PIECE))
    digest.close()
    digest.close()

    assert threads() == []


def test_a_file_that_became_shorter_is_an_error_and_no_digest(fd):
    digest = FollowingDigest(fd)
    os.write(fd, b"short")

    with pytest.raises(OSError, match="shorter"):
        digest.hexdigest(6)


def test_a_file_that_became_shorter_under_the_thread_is_an_error_too(fd):
    digest = FollowingDigest(fd)
    digest.grown_to(5 * len(PIECE))

    with pytest.raises(OSError, match="shorter"):
        digest.hexdigest(5 * len(PIECE))


def test_without_a_thread_all_is_hashed_at_the_end(fd, monkeypatch):
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    digest = FollowingDigest(fd)
    os.write(fd, PIECE * 5)
    digest.grown_to(5 * len(PIECE))

    assert digest.hexdigest(5 * len(PIECE)) == hashlib.sha256(PIECE * 5).hexdigest()
