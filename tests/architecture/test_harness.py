"""What tests/conftest.py promises to every test."""

import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.repository import ROOT

SKIPPING = """
import pytest

@pytest.mark.skip(reason={reason!r})
def test_skipped():
    pass
"""


def run(
    source: str, directory: Path, *options: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """pytest on one file, under our configuration."""
    test = directory / "test_given.py"
    test.write_text(source, encoding="utf-8")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"),
            *("-c", str(ROOT / "pyproject.toml"), str(test), *options),
        ],
        cwd=ROOT,
        env=inherited | {"KERNEL_TESTS": ""} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def outcome_of(source: str, directory: Path, **environment: str) -> str:
    """pytest's closing line, without the time."""
    done = run(source, directory, **environment)
    return done.stdout.strip().splitlines()[-1].rpartition(" in ")[0]


def test_the_network_is_closed():
    with socket.socket() as client, pytest.raises(RuntimeError, match="network address"):
        client.connect(("127.0.0.1", 9))


@pytest.mark.loopback
def test_a_test_marked_loopback_reaches_this_machine_and_no_other():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()
    with socket.socket() as client, pytest.raises(RuntimeError, match="network address"):
        client.connect(("192.0.2.1", 9))


def test_sockets_of_this_process_stay_open():
    one, other = socket.socketpair()
    with one, other:
        one.sendall(b"x")
        assert other.recv(1) == b"x"


def test_a_skip_is_a_skip_on_a_newcomers_machine(tmp_path: Path):
    assert outcome_of(SKIPPING.format(reason="needs openat2(2)"), tmp_path) == "1 skipped"


def test_a_skip_fails_where_nothing_may_be_skipped(tmp_path: Path):
    source = SKIPPING.format(reason="needs openat2(2)")

    assert outcome_of(source, tmp_path, KERNEL_TESTS="required") == "1 error"


def test_who_runs_the_tests_is_no_failing(tmp_path: Path):
    source = SKIPPING.format(reason="runs as root only")

    assert outcome_of(source, tmp_path, KERNEL_TESTS="required") == "1 skipped"


def test_a_need_that_nobody_can_look_for_stops_the_run(tmp_path: Path):
    source = "import pytest\n\n@pytest.mark.needs('luck')\ndef test_x(): pass\n"

    done = run(source, tmp_path)

    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "unknown need 'luck'" in done.stdout + done.stderr


def test_what_tests_start_is_compiled_once_whatever_the_environment_says(tmp_path: Path):
    source = """
import os, sys

def test_x():
    assert not sys.dont_write_bytecode
    assert "PYTHONDONTWRITEBYTECODE" not in os.environ
"""

    assert outcome_of(source, tmp_path, PYTHONDONTWRITEBYTECODE="1") == "1 passed"


def test_a_warning_is_a_failure(tmp_path: Path):
    source = "import warnings\n\ndef test_x():\n    warnings.warn('careless')\n"

    assert outcome_of(source, tmp_path) == "1 failed"


@pytest.mark.needs("root")
def test_where_somebody_has_the_files_of_tests_nothing_above_is_changed(tmp_path: Path):
    above = tmp_path / "above"
    above.mkdir(mode=0o1777)
    above.chmod(0o1777)
    elsewhere = {"TMPDIR": str(above / "other")}
    (above / "other").mkdir()

    done = run("def test_x(): pass\n", tmp_path, f"--basetemp={above / 'base'}", **elsewhere)

    assert done.returncode == 0, done.stdout
    assert stat.S_IMODE(above.stat().st_mode) == 0o1777
    assert stat.S_IMODE((above / "base").stat().st_mode) == 0o711


def test_each_run_has_directories_of_its_own(tmp_path: Path):
    done = run("def test_given(tmp_path):\n    print(f'at={tmp_path}')\n", tmp_path, "-s")
    (other,) = re.findall("at=(.*)", done.stdout)
    shared = os.path.commonpath([other, tmp_path])
    # A run that begins closes what it shares, and a plain user in a test of another is locked out.
    assert Path(tempfile.gettempdir()).is_relative_to(shared)
