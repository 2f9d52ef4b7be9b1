"""What every test gets: bounded properties, no network, and skips that cannot hide.

Three settings from outside: HYPOTHESIS_PROFILE (`quick`, `ci`, `torture`),
KERNEL_TESTS=required (a host that lacks something fails instead of skipping),
and who runs the tests (root or a plain user: some behaviour needs one of them).
"""

import atexit
import gc
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import pytest
from _pytest.pathlib import LOCK_TIMEOUT, make_numbered_dir_with_cleanup
from hypothesis import HealthCheck, settings

from tests.support import host

# A deadline per example would be a wall-clock assertion, and a shared machine is slow at times.
settings.register_profile("quick", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=100, deadline=None, derandomize=True, print_blob=True)
settings.register_profile(
    "torture",
    max_examples=5_000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "quick")
)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts us in the background says so for us and, by inheritance, for
    # every program under test: then no Ctrl-C would reach those that wait for one.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    # So does nohup(1), of the hang-up.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


# --- what a run costs -----------------------------------------------------------

# Without compiled files every program that a test starts is compiled again, and so are we.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _in_memory(folder: str = "/dev/shm") -> bool:
    """Whether tests can have their files there: room, and all that a sandbox's layers need."""
    try:
        found = os.statvfs(folder)
        with tempfile.TemporaryDirectory(dir=folder) as tried:
            os.setxattr(tried, "user.tried", b"")
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= 4 << 30


if "TMPDIR" not in os.environ and _in_memory():
    # Tests wait for tens of thousands of syncs, and none can see whether a sync reached a disk:
    # what is written when is told by the fakes. CI's run as a plain user is on its disk.
    os.environ["TMPDIR"] = tempfile.tempdir = "/dev/shm"


if "PYTEST_DEBUG_TEMPROOT" not in os.environ:
    # A run that begins closes the folder that pytest has for all runs of a user (mode 0700). So
    # each has one of its own: in another's tests a plain user would be locked out meanwhile.
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(
        make_numbered_dir_with_cleanup(
            root=Path(tempfile.gettempdir()),
            prefix="run-",
            mode=0o711,
            keep=3,
            lock_timeout=LOCK_TIMEOUT,
            register=atexit.register,
        )
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among twenty thousand tests, now or in any test or its forks."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # Most of a test's garbage goes without it; looking as often as usual takes a twentieth.
        gc.set_threshold(20_000, 10, 10)
        gc.enable()


# --- network ------------------------------------------------------------------


class NetworkBlockedError(RuntimeError):
    """A test tried to reach the network; mark it `loopback` if it means this machine."""


class _Network:
    """Which socket addresses the running test may use."""

    loopback_allowed = False

    @classmethod
    def judge(cls, family: int, address: object) -> None:
        if family not in {socket.AF_INET, socket.AF_INET6}:
            return
        host_name = address[0] if isinstance(address, tuple) else address
        if cls.loopback_allowed and host_name in {"127.0.0.1", "::1", "localhost"}:
            return
        raise NetworkBlockedError(f"network address {address!r} in a test")


class _GuardedSocket(socket.socket):
    """A socket that asks first. The families of this machine alone are free."""

    def connect(self, address: object, /) -> None:
        _Network.judge(self.family, address)
        super().connect(address)

    def connect_ex(self, address: object, /) -> int:
        _Network.judge(self.family, address)
        return super().connect_ex(address)

    def bind(self, address: object, /) -> None:
        _Network.judge(self.family, address)
        super().bind(address)

    def sendto(self, *arguments: object) -> int:
        _Network.judge(self.family, arguments[-1])
        return super().sendto(*arguments)


socket.socket = _GuardedSocket


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Open this machine's own addresses for a test that is marked `loopback`."""
    _Network.loopback_allowed = item.get_closest_marker("loopback") is not None
    try:
        return (yield)
    finally:
        _Network.loopback_allowed = False


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """What was logged meanwhile, by whom ever, with its traceback."""
    told: list[str] = []
    root, form = logging.getLogger(), logging.Formatter()
    handler = logging.Handler()
    handler.emit = lambda record: told.append(form.format(record))
    level = root.level
    root.addHandler(handler)
    yield told
    root.setLevel(level)
    root.removeHandler(handler)


# --- what a host may lack -------------------------------------------------------


_LONGEST: Final = {"work": 0, "property": 1}
"""Folders of tests that take seconds, in their order."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, and refuse a need that nobody can look for.

    A day of work is as long as a thousand other tests: no worker is to be alone with one at the
    end. What is needed under another name than a probe's would never skip and never fail.
    """
    items.sort(key=lambda item: _LONGEST.get(item.path.parent.name, len(_LONGEST)))
    for item in items:
        for marker in item.iter_markers("needs"):
            for what in marker.args:
                if what not in host.PROBES:
                    raise pytest.UsageError(
                        f"{item.nodeid}: unknown need {what!r}; known: {sorted(host.PROBES)}"
                    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what this host cannot show, with the reason."""
    for marker in item.iter_markers("needs"):
        for what in marker.args:
            reason = host.missing(what)
            if reason is not None:
                pytest.skip(reason)


@pytest.fixture(autouse=True)
def ledgers_closed() -> Generator[None]:
    """Close what a test has opened by `tests.support.ledgers` and left open."""
    yield
    ledgers = sys.modules.get("tests.support.ledgers")
    if ledgers is not None:
        ledgers.close_opened()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With KERNEL_TESTS=required a skip is a failure, however it came about.

    Only who runs the tests is no failing: CI runs them both ways.
    """
    report = yield
    if (
        os.environ.get("KERNEL_TESTS") == "required"
        and report.skipped
        and not hasattr(report, "wasxfail")
    ):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        is_said = "axe-core" in reason and "WITHOUT_AXE" in os.environ  # .ci/run has said so
        if not is_said and not any(identity in reason for identity in host.IDENTITY_REASONS):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid}: skipped where nothing may be skipped: {reason}"
    return report


# --- files ----------------------------------------------------------------------


@pytest.fixture(scope="session", autouse=True)
def _reachable_temporaries(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let a plain user pass through pytest's directories, for tests in which root becomes one."""
    if os.geteuid() != 0:
        return
    base = tmp_path_factory.getbasetemp()
    base.chmod(0o711)
    if Path(tempfile.gettempdir()) in base.parents:
        # Between them are pytest's own. Elsewhere (`--basetemp`) what is above is not ours to open.
        for folder in base.parents[: base.parents.index(Path(tempfile.gettempdir()))]:
            folder.chmod(0o711)
