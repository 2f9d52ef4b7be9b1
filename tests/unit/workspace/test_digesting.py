"""Versions computed in a second thread, or in whoever wants them first."""

import hashlib
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.workspace.digesting import version_meanwhile
from tests.support.children import end_of

LARGE = bytes(range(256)) * 8192  # 2 MiB


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def threads() -> int:
    return sum(1 for each in threading.enumerate() if each.name == "paddock-version")


@given(st.binary(max_size=200))
def test_a_small_content_is_hashed_at_once(content):
    assert version_meanwhile(content).result() == sha256(content)


def test_large_contents_share_one_thread():
    contents = [LARGE + bytes([number]) for number in range(20)]
    pending = [version_meanwhile(content) for content in contents]

    assert threads() == 1
    assert [each.result() for each in pending] == [sha256(content) for content in contents]
    assert [each.result() for each in pending] == [sha256(content) for content in contents]


@pytest.mark.parametrize("content", [LARGE, LARGE[:1000]], ids=["large", "small"])
def test_a_version_of_pieces_is_that_of_what_they_make_up(content):
    view = memoryview(content)

    assert version_meanwhile(view[:700], b"", view[700:]).result() == sha256(content)


def test_many_may_wait_for_one_version():
    pending = version_meanwhile(LARGE)
    found: list[str] = []
    asking = [threading.Thread(target=lambda: found.append(pending.result())) for _ in range(8)]
    for each in asking:
        each.start()
    for each in asking:
        each.join()

    assert found == [sha256(LARGE)] * 8


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_without_a_thread_whoever_asks_computes_it(monkeypatch):
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)

    def compute() -> None:
        # A forked child, because it has no thread yet that could serve it.
        assert version_meanwhile(LARGE).result() == sha256(LARGE)
        assert threads() == 0

    assert end_of(compute) == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_has_a_thread_of_its_own():
    version_meanwhile(LARGE).result()
    child = os.fork()
    if child == 0:
        is_right = version_meanwhile(LARGE).result() == sha256(LARGE) and threads() == 1
        os._exit(0 if is_right else 1)

    assert os.waitpid(child, 0)[1] == 0
