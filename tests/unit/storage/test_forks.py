"""Children that are forked while other threads of their parent keep something."""

import os
import signal
import threading
from collections.abc import Callable

import pytest

from paddock.storage.disk import Disk
from paddock.storage.history import History
from paddock.storage.notes import CallMark, Doing
from paddock.storage.objects import ObjectStore
from paddock.values.entries import digest_of
from tests.support.children import end_of, start

PATIENCE_S = 60
"""After which a test that would hang fails."""

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


class StopsAt(Disk):
    """Writes one content when it is let go, and all others at once."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.reached = threading.Event()
        self.let_go = threading.Event()

    def write(self, fd, content):
        if content == self.content:
            self.reached.set()
            assert self.let_go.wait(PATIENCE_S)
        super().write(fd, content)


def put(store: ObjectStore, content: bytes) -> str:
    digest = store.put_bytes(content)
    store.sync()
    return digest


def end_in_time(act: Callable[[], object]) -> int:
    def patient() -> None:
        signal.alarm(PATIENCE_S)
        act()

    return end_of(patient)


def test_a_child_keeps_contents_of_its_own_while_a_thread_of_its_parent_keeps_one(place):
    disk = StopsAt(b"slow")
    with ObjectStore(str(place), bytes_max=1_000_000, disk=disk) as store:
        staged = store.put_bytes(b"staged")
        slow = threading.Thread(target=store.put_bytes, args=(b"slow",))
        slow.start()
        assert disk.reached.wait(PATIENCE_S)

        def child() -> None:
            assert not store.has(staged)
            assert store.read(put(store, b"own")) == b"own"
            assert not store.has(staged)
            store.close()

        code = end_in_time(child)
        disk.let_go.set()
        slow.join()
        store.sync()
    assert code == 0
    contents = (b"staged", b"slow", b"own")
    with ObjectStore(str(place), bytes_max=1_000_000) as again:
        assert [again.read(digest_of(content)) for content in contents] == list(contents)
        # Each is counted once, by who put it.
        assert again.usage_bytes() == sum(map(len, contents))


def test_a_childs_share_of_the_lock_is_its_own(place):
    with ObjectStore(str(place), bytes_max=0) as store:
        put(store, b"content")
        with store.held():
            lasting, ending = os.pipe()

            def child(writer: int) -> None:
                signal.alarm(PATIENCE_S)
                os.close(ending)
                with store.held():
                    os.write(writer, b"shares")
                    os.read(lasting, 1)

            sharing = start(child)
            os.close(lasting)
            assert os.read(sharing.reader, 6) == b"shares"
        freed = store.prune([])
        os.close(ending)
        assert sharing.end() == (0, b"")
        assert (freed, store.prune([])) == (0, len(b"content"))


def test_a_child_opens_a_history_that_a_thread_of_its_parent_is_opening(place):
    class Slow(StopsAt):
        def make_directory(self, dir_fd, name, mode):
            if threading.current_thread() is not threading.main_thread():
                self.reached.set()
                assert self.let_go.wait(PATIENCE_S)
            super().make_directory(dir_fd, name, mode)

    disk = Slow(b"")
    history = History(str(place), bytes_max=1_000_000, disk=disk)
    slow = threading.Thread(target=lambda: history.store.fd)
    slow.start()
    assert disk.reached.wait(PATIENCE_S)

    def child() -> None:
        history.notes.write(CallMark("C", "tool", "main", "S"), Doing("a", "created"))
        history.close()

    code = end_in_time(child)
    disk.let_go.set()
    slow.join()
    assert code == 0
    history.close()
