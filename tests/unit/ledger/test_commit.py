import errno
import os
import shutil
import signal
import threading

import pytest

from paddock.errors import HostError, LedgerBusyError, LedgerDamagedError
from paddock.ledger.disk import SystemDisk, Waiting, hang_bell
from paddock.ledger.head import TURN_OFFSET, HeadFile
from paddock.ledger.lock import FileLock
from tests.support.children import start
from tests.support.ledgers import assert_holds, hang_no_bell, note, open_ledger

BELLS = {"bell": hang_bell, "no bell": hang_no_bell}
WRITERS = 4
APPENDS = 25
COMMITS_OFFSET = 1024
LOOKS, AROUND_SLEEP, AFTER_LEAD = 250, 2, 1
SLEEPERS_OFFSET = 3072


@pytest.fixture(params=BELLS)
def waiting(request):
    return Waiting(bell=BELLS[request.param])


@pytest.fixture
def path(tmp_path):
    return os.path.join(tmp_path, "x.jsonl")


def commit_lock(path):
    return FileLock(SystemDisk(), os.path.join(os.path.dirname(path), "x.d", "slock"), Waiting())


def head_of(path):
    return HeadFile(SystemDisk(), os.path.join(os.path.dirname(path), "x.d", "head"), create=True)


def append_all(ledger, writer):
    for number in range(APPENDS):
        ledger.append([note(f"{writer}.{number}")])


def wanted(writer):
    return [f"{writer}.{number}" for number in range(APPENDS)]


def fork_writer(path, waiting, writer):
    return start(lambda _: append_all(open_ledger(path, waiting=waiting), writer))


def test_every_process_gets_its_commits(path, waiting):
    open_ledger(path).close()

    children = [fork_writer(path, waiting, writer) for writer in range(WRITERS)]

    assert [child.end()[0] for child in children] == [0] * WRITERS
    for writer in range(WRITERS):
        assert_holds(path, wanted(writer))


def test_processes_with_a_bell_and_without_one_work_together(path):
    open_ledger(path).close()

    bells = [hang_bell, hang_no_bell] * (WRITERS // 2)
    children = [fork_writer(path, Waiting(bell=bell), each) for each, bell in enumerate(bells)]

    assert [child.end()[0] for child in children] == [0] * WRITERS
    for writer in range(WRITERS):
        assert_holds(path, wanted(writer))


def test_every_thread_of_a_process_gets_its_commits(path, waiting):
    ledger = open_ledger(path, waiting=waiting)
    threads = [threading.Thread(target=append_all, args=(ledger, each)) for each in range(WRITERS)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for writer in range(WRITERS):
        assert_holds(path, wanted(writer))


def test_when_a_leader_is_killed_one_of_those_who_wait_leads(path, waiting):
    ledgers = [open_ledger(path, waiting=waiting) for _ in range(3)]
    pending = [ledger.write([note(f"{each}")]) for each, ledger in enumerate(ledgers)]
    ready, told = os.pipe()
    leader = os.fork()
    if leader == 0:
        commit_lock(path).acquire()
        os.write(told, b"x")
        signal.pause()
    os.read(ready, 1)
    threads = [threading.Thread(target=each.wait) for each in pending]
    for thread in threads:
        thread.start()

    os.kill(leader, signal.SIGKILL)

    os.waitpid(leader, 0)
    for thread in threads:
        thread.join()
    assert head_of(path).read().durable.entries == 4
    assert_holds(path, ["0", "1", "2"])
    os.close(ready)
    os.close(told)


class SlowBell:
    """Nobody rings it; the time passes that was asked for."""

    def __init__(self):
        self.now = 0.0
        self.seen = []
        self.slept = []

    def hang(self, descriptor, offset):
        assert offset == TURN_OFFSET
        assert os.fstat(descriptor).st_size == 4096
        return self

    def wait(self, seen, timeout_s):
        self.seen.append(seen)
        self.slept.append(timeout_s)
        self.now += timeout_s

    def wake(self):
        self.slept.append("woke")


def test_no_sleep_is_long_and_all_of_them_are_as_long_as_was_said(path):
    bell = SlowBell()
    waiting = Waiting(monotonic=lambda: bell.now, bell=bell.hang, commit_timeout_s=1.0)
    ledger = open_ledger(path, waiting=waiting)
    pending = ledger.write([note("one")])
    turn = head_of(path).read().turn
    leader = commit_lock(path)
    leader.acquire()
    bell.slept.clear()

    with pytest.raises(LedgerBusyError, match=f"locked by process {os.getpid()}; waited 1 s"):
        pending.wait()

    assert set(bell.seen) == {turn}
    assert sum(bell.slept) == pytest.approx(1.0)
    assert all(0 <= slept <= 0.05 for slept in bell.slept)
    bell.slept.clear()
    leader.release()
    pending.wait()
    assert bell.slept == ["woke"]


def test_whoever_leads_passes_the_turn_after_the_lock_is_free(path):
    free_at_turn = []

    class Bell(SlowBell):
        def wake(self):
            lock = commit_lock(path)
            free_at_turn.append((lock.try_acquire(), head.read().turn))
            os.close(lock.descriptor)

    open_ledger(path).close()
    head = head_of(path)
    ledger = open_ledger(path, waiting=Waiting(bell=Bell().hang))
    before = head.read().turn
    free_at_turn.clear()
    head.announce_sleeper()

    ledger.append([note("one")])
    ledger.append([note("two")])

    ((is_free, turn),) = free_at_turn
    assert is_free
    assert turn != before
    assert turn == head.read().turn
    assert not head.has_sleepers()


def test_where_nobody_sleeps_nobody_is_woken(path):
    bell = SlowBell()
    ledger = open_ledger(path, waiting=Waiting(bell=bell.hang))
    bell.slept.clear()

    ledger.append([note("one")])

    assert bell.slept == []


class Announcing(SystemDisk):
    """Something happens right before it says that it is about to sleep, or right after."""

    def __init__(self):
        self.before = self.after = lambda: None

    def write(self, descriptor, data, offset, /):
        is_said = (offset, data) == (SLEEPERS_OFFSET, b"\1")
        if is_said:
            act, self.before = self.before, lambda: None
            act()
        written = os.pwrite(descriptor, data, offset)
        if is_said:
            act, self.after = self.after, lambda: None
            act()
        return written


@pytest.mark.parametrize("moment", ["before", "after"])
def test_whoever_is_about_to_sleep_sees_a_commit_that_ends_around_that(path, moment):
    bell, disk = SlowBell(), Announcing()
    waiting = Waiting(monotonic=lambda: bell.now, bell=bell.hang, commit_timeout_s=1.0)
    ledger = open_ledger(path, disk=disk, waiting=waiting)
    pending = ledger.write([note("one")])
    leader = commit_lock(path)
    leader.acquire()
    bell.slept.clear()

    def lead():
        leader.release()
        lead_in(path)

    setattr(disk, moment, lead)

    pending.wait()

    assert bell.slept == []


def test_a_leader_that_fails_wakes_those_who_sleep(path):
    bell = SlowBell()
    ledger = open_ledger(path, waiting=Waiting(bell=bell.hang))
    pending = ledger.write([note("one")])
    bell.slept.clear()
    copy_over(path)

    with pytest.raises(LedgerDamagedError, match="replaced"):
        pending.wait()

    assert bell.slept == ["woke"]


class BrokenBell(SlowBell):
    def wait(self, seen, timeout_s):
        raise OSError(errno.EFAULT, "Bad address")


def test_a_bell_that_fails_is_said_so(path):
    ledger = open_ledger(path, waiting=Waiting(bell=BrokenBell().hang))
    pending = ledger.write([note("one")])
    leader = commit_lock(path)
    leader.acquire()

    with pytest.raises(HostError, match="cannot be waited on"):
        pending.wait()

    leader.release()
    pending.wait()
    assert_holds(path, ["one"])


def test_a_leader_does_not_wait_for_writers_who_have_left(path, waiting):
    ledger = open_ledger(path, waiting=waiting)
    head = head_of(path)
    page = head.read()
    head.store_durable(page.durable._replace(cohort=100), page.durable_slot)

    ledger.append([note("one")])

    assert head.read().durable.cohort == 1
    assert_holds(path, ["one"])


def test_a_leader_lets_as_many_in_as_came_last_time(path):
    first, second = open_ledger(path), open_ledger(path)
    head = head_of(path)
    page = head.read()
    head.store_durable(page.durable._replace(cohort=2), page.durable_slot)
    pending = [ledger.write([note(text)]) for ledger, text in ((first, "one"), (second, "two"))]

    for each in pending:
        each.wait()

    assert head.read().durable.cohort == 2
    assert_holds(path, ["one", "two"])


class LooksCounted(SystemDisk):
    """Says how often somebody looked for a commit."""

    def __init__(self):
        self.looks = 0

    def read(self, descriptor, size, offset):
        self.looks += offset == COMMITS_OFFSET
        return os.pread(descriptor, size, offset)


@pytest.mark.parametrize(
    ("yield_s", "wanted"),
    [
        (0.0, [LOOKS + AFTER_LEAD] * 2),
        (0.003, [looks + AROUND_SLEEP + AFTER_LEAD for looks in (1, 0)]),
    ],
)
def test_where_a_yield_takes_a_time_slice_nobody_looks_for_some_waits(path, yield_s, wanted):
    bell, disk = SlowBell(), LooksCounted()

    def now():
        bell.now += yield_s
        return bell.now

    ledger = open_ledger(path, disk=disk, waiting=Waiting(monotonic=now, bell=bell.hang))
    head = head_of(path)
    looks = []
    for text in ("one", "two"):
        page = head.read()
        # In the place of the mark that counts: the other slot has an older one.
        head.store_durable(page.durable._replace(cohort=100), 1 - page.durable_slot)
        disk.looks = 0
        ledger.append([note(text)])
        looks.append(disk.looks)

    assert looks == wanted
    assert_holds(path, ["one", "two"])


def expect(path, cohort):
    """Have the next commit wait for so many appends."""
    head = head_of(path)
    page = head.read()
    head.store_durable(page.durable._replace(cohort=cohort), 1 - page.durable_slot)
    os.close(head.descriptor)


@pytest.mark.parametrize("cohort", [1, 2, 100])
def test_nobody_of_a_cohort_is_acknowledged_in_a_ledger_that_was_replaced(path, cohort):
    ledgers = [open_ledger(path), open_ledger(path)]
    expect(path, cohort)
    pending = [each.write([note("one")]) for each in ledgers]
    os.rename(path, f"{path}.aside")
    os.link(f"{path}.aside", path)
    pending += [each.write([note("two")]) for each in ledgers]
    pending[0].wait()
    os.remove(path)
    shutil.copyfile(f"{path}.aside", path)

    for each in pending[1:]:
        with pytest.raises(LedgerDamagedError, match="replaced"):
            each.wait()


def restore(path):
    shutil.copyfile(f"{path}.backup", f"{path}.new")
    os.rename(f"{path}.new", path)


def remove_folder(path):
    shutil.rmtree(os.path.join(os.path.dirname(path), "x.d"))


class Acting(SystemDisk):
    """At the end of a sync something happens."""

    def __init__(self):
        self.act = lambda: None

    def datasync(self, descriptor, /):
        os.fdatasync(descriptor)
        act, self.act = self.act, lambda: None
        act()


@pytest.mark.parametrize("replace", [restore, remove_folder])
def test_nobody_is_acknowledged_in_a_ledger_that_is_replaced_while_the_leader_syncs(path, replace):
    open_ledger(path).close()
    shutil.copyfile(path, f"{path}.backup")
    disk = Acting()
    pending = [
        each.write([note("x")]) for each in (open_ledger(path), open_ledger(path, disk=disk))
    ]
    disk.act = lambda: replace(path)

    for each in reversed(pending):
        with pytest.raises(LedgerDamagedError, match="replaced"):
            each.wait()


class Stopped(SystemDisk):
    """Whoever has it looks once for a commit, and then sees nothing until it may go on."""

    def __init__(self):
        self.is_armed = False
        self.has_looked = threading.Event()
        self.may_go_on = threading.Event()

    def read(self, descriptor, size, offset, /):
        found = os.pread(descriptor, size, offset)
        if self.is_armed and offset == COMMITS_OFFSET:
            self.is_armed = False
            self.has_looked.set()
            assert self.may_go_on.wait(60)
        return found


def answer_of(ledger, act):
    """What an append is told that has written and looked for a commit before something happens."""
    disk, told = ledger._disk, []

    def append():
        try:
            told.append(len(ledger.append([note("late")]).ids))
        except LedgerDamagedError as refused:
            told.append(type(refused))

    disk.is_armed = True
    appends = threading.Thread(target=append)
    appends.start()
    assert disk.has_looked.wait(60)
    act()
    disk.may_go_on.set()
    appends.join()
    return told


def beside(path, name):
    return os.path.join(os.path.dirname(path), "x.d", name)


def copy_over(path):
    shutil.copyfile(path, f"{path}.copy")
    os.rename(f"{path}.copy", path)


def lead_in(path, **options):
    """Another writer appends, and marks all that there is as durable."""
    open_ledger(path, **options).append([note("led")])


@pytest.fixture
def stopped(path):
    return open_ledger(path, disk=Stopped())


def test_who_waited_for_a_leader_with_the_same_files_is_acknowledged(path, stopped):
    expect(path, 100)

    assert answer_of(stopped, lambda: lead_in(path)) == [1]


def copied(path):
    """Whoever copied the ledger had no lock."""
    copy_over(path)
    lead_in(path)


def put_back(path):
    """The mark is that of a leader of the copy; what is in its place again was not synced."""
    os.link(path, f"{path}.aside")
    copied(path)
    os.replace(f"{path}.aside", path)


def without(name):
    def act(path):
        os.remove(beside(path, name))
        lead_in(path)

    return act


@pytest.mark.parametrize("act", [copied, put_back, without("lock"), without("slock")])
def test_who_has_other_files_than_the_leader_is_not_acknowledged_by_its_mark(path, stopped, act):
    expect(path, 100)

    assert answer_of(stopped, lambda: act(path)) == [LedgerDamagedError]


def test_a_mark_that_names_no_files_says_nothing_about_them(path, stopped):
    expect(path, 100)

    def lead_as_before():
        copied(path)
        head = head_of(path)
        page = head.read()
        head.store_durable(page.durable._replace(sync_ns=1), 1 - page.durable_slot)
        os.close(head.descriptor)

    assert answer_of(stopped, lead_as_before) == [LedgerDamagedError]


def test_which_files_these_are_is_another_answer_after_a_rotation(path):
    leader = open_ledger(path)
    rotating = open_ledger(path, disk=Stopped(), segment_bytes=1_500)
    rotating.append([note("x" * 900)])
    rotating.append([note("y" * 900)])
    assert rotating._files.active.current.base
    expect(path, 100)

    def lead_in_a_copy():
        copy_over(path)
        leader.append([note("led")])

    assert answer_of(rotating, lead_in_a_copy) == [LedgerDamagedError]


def test_what_another_thread_has_open_meanwhile_is_not_what_was_written_to(path, stopped):
    expect(path, 100)

    def go_on_elsewhere():
        copy_over(path)
        lead_in(path, segment_bytes=500)
        lead_in(path, segment_bytes=500)
        stopped.write([note("follows")])
        lead_in(path)

    assert answer_of(stopped, go_on_elsewhere) == [LedgerDamagedError]
    assert stopped._files.active.current.base


def test_a_leader_syncs_and_looks_at_one_file_whatever_is_opened_meanwhile(path):
    disk = Acting()
    ledger = open_ledger(path, disk=disk)
    mine = ledger.write([note("mine")])
    durable = ledger._files.head.read().durable

    def open_a_copy():
        copy_over(path)
        ledger._files.head.store_base(None)
        other = threading.Thread(target=ledger.write, args=([note("other")],))
        other.start()
        other.join()

    disk.act = open_a_copy
    with pytest.raises(LedgerDamagedError, match="replaced"):
        mine.wait()

    assert ledger._files.head.read().durable == durable


def test_who_waits_after_the_commit_looks_beside_the_ledger_too(path):
    ledger = open_ledger(path)
    early, late = ledger.write([note("one")]), ledger.write([note("two")])
    late.wait()
    remove_folder(path)

    with pytest.raises(LedgerDamagedError, match="folder"):
        early.wait()


class Suspended(SystemDisk):
    """A leader that is stopped after its last look at the place, before its mark."""

    def __init__(self):
        self.act = None

    def stat(self, path, /):
        found = os.stat(path)
        if self.act is not None and str(path).endswith("head"):
            act, self.act = self.act, None
            act()
        return found


def test_who_waits_later_than_it_wrote_looks_for_itself(path):
    disk = Suspended()
    waiter, leader = open_ledger(path), open_ledger(path, disk=disk)
    late, led = waiter.write([note("late")]), leader.write([note("led")])
    shutil.copyfile(path, f"{path}.backup")
    refused = []

    def wait_for_late():
        with pytest.raises(LedgerDamagedError, match="replaced") as raised:
            late.wait()
        refused.append(raised.type)

    waits = threading.Thread(target=wait_for_late)

    def restore_and_wait():
        restore(path)
        waits.start()

    disk.act = restore_and_wait
    with pytest.raises(LedgerDamagedError, match="replaced"):
        led.wait()
    waits.join()

    assert refused == [LedgerDamagedError]


def test_a_head_file_in_which_a_commit_does_not_count_is_said_so(path):
    ledger = open_ledger(path)
    pending = ledger.write([note("one")])
    head = head_of(path)
    page = head.read()
    # Of the same number and not as far: no writer makes such a mark.
    head.store_durable(page.durable._replace(generation=page.newest.generation), 0)

    with pytest.raises(HostError, match="changed by something else"):
        pending.wait()


class Syncs(SystemDisk):
    """Keeps which files were synced."""

    def __init__(self):
        self.synced = []

    def datasync(self, descriptor, /):
        os.fdatasync(descriptor)
        self.synced.append(os.fstat(descriptor).st_ino)


def test_a_leader_of_a_file_that_was_replaced_by_its_copy_acknowledges_for_nobody(path):
    disk = Syncs()
    before = open_ledger(path, disk=disk)
    first = before.write([note("one")])
    shutil.copyfile(path, f"{path}.backup")
    restore(path)
    second = open_ledger(path, disk=disk).write([note("two")])
    disk.synced.clear()

    with pytest.raises(LedgerDamagedError, match="replaced"):
        first.wait()
    second.wait()

    assert disk.synced[-1] == os.stat(path).st_ino
    assert_holds(path, ["one", "two"])


@pytest.mark.parametrize("size", [0, 10, 1024, 1100, 1700, 2100, 2571])
@pytest.mark.parametrize("cohort", [1, 100])
def test_an_append_makes_a_head_file_that_was_cut_whole_again(path, size, cohort):
    ledger = open_ledger(path)
    ledger.append([note("one")])
    expect(path, cohort)
    os.truncate(os.path.join(os.path.dirname(path), "x.d", "head"), size)

    ledger.append([note("two")])

    assert head_of(path).read().durable.entries == 3
    assert_holds(path, ["one", "two"])


def test_a_head_file_that_is_cut_while_one_waits_is_no_commit(path):
    bell = SlowBell()
    ledger = open_ledger(path, waiting=Waiting(monotonic=lambda: bell.now, bell=bell.hang))
    expect(path, 100)
    pending = ledger.write([note("one")])
    os.truncate(os.path.join(os.path.dirname(path), "x.d", "head"), 2100)
    bell.slept.clear()

    pending.wait()

    assert bell.slept == ["woke"]
    assert_holds(path, ["one"])
