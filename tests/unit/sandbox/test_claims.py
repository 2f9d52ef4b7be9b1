"""Directories that are somebody's until he ends: what is swept, and what is never touched."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.sandbox.staging_area import claim, sweep

pytestmark = pytest.mark.needs("linux")

HOLD = """
import os, sys, time
from paddock.sandbox.staging_area import claim
held = claim(os.open(sys.argv[1], os.O_RDONLY), "held-")
os.mkdir("below", dir_fd=held.fd)
print(held.name, flush=True)
time.sleep(1000)
"""


@pytest.fixture
def home(tmp_path: Path):
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_a_claim_stands_until_it_is_released(home: int):
    held = claim(home, "held-")
    os.mkdir("below", dir_fd=held.fd)
    sweep(home, "held-")
    assert (os.listdir(home), os.listdir(held.fd)) == ([held.name], ["below"])

    held.release()
    assert os.listdir(home) == []


def test_a_killed_process_leaves_what_the_next_one_sweeps(home: int, tmp_path: Path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        sweep(home, "held-")
        assert (os.listdir(home), os.listdir(tmp_path / name)) == ([name], ["below"])
        process.send_signal(signal.SIGKILL)

    sweep(home, "held-")
    assert os.listdir(home) == []


def test_a_child_that_forgets_a_claim_leaves_it_to_its_parent(home: int):
    held = claim(home, "held-")
    child = os.fork()
    if child == 0:
        held.forget()
        os._exit(0)
    os.waitpid(child, 0)
    sweep(home, "held-")
    assert os.listdir(home) == [held.name]
    held.release()


def test_only_what_is_named_like_a_claim_is_swept_and_no_link_is_followed(
    home: int, tmp_path: Path
):
    (tmp_path / "elsewhere/kept").mkdir(parents=True)
    (tmp_path / f"held-{'0' * 16}").symlink_to("elsewhere")
    (tmp_path / f"held-{'1' * 16}").write_text("a file")
    (tmp_path / "held-of-somebody").mkdir()
    (tmp_path / f"held-{'2' * 16}.bak").mkdir()
    (tmp_path / f"held-{'3' * 16}/kept").mkdir(parents=True)
    before = sorted(os.listdir(home))

    sweep(home, "held-")

    assert sorted(os.listdir(home)) == sorted(set(before) - {f"held-{'3' * 16}"})
    assert os.listdir(tmp_path / "elsewhere") == ["kept"]


@pytest.mark.needs("root")
def test_what_is_another_users_is_not_swept(home: int, tmp_path: Path):
    name = f"held-{'0' * 16}"
    (tmp_path / name).mkdir()
    os.chown(tmp_path / name, 65_534, 65_534)

    sweep(home, "held-")

    assert os.listdir(home) == [name]
