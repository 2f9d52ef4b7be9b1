"""`paddock doctor` on a host where nothing holds a command: what it says becomes of one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.disks import mounted_tmpfs
from tests.support.places import run_command

ROOT = Path(__file__).parents[2]

# Without namespaces no stage works; without rule sets there is no Landlock.
UNDER_A_FILTER = """
import struct, sys
from paddock.apps.cli.main import console
from paddock.kernel.syscalls import call_number, this_machine
from paddock.kernel.syscalls import set_no_new_privileges
from paddock.kernel.seccomp import install_filter
clone, unshare = (call_number(name, this_machine()) for name in ("clone", "unshare"))
landlock = 444  # landlock_create_ruleset(2), on every machine
program = (
    (0x20, 0, 0, 0),  # the call's number
    (0x15, 6, 0, landlock),
    (0x15, 4, 0, unshare),
    (0x15, 0, 2, clone),
    (0x20, 0, 0, 16),  # its first argument
    (0x45, 1, 0, 0x10000000),  # CLONE_NEWUSER
    (0x06, 0, 0, 0x7FFF0000),
    (0x06, 0, 0, 0x00050000 | 1),  # EPERM
    (0x06, 0, 0, 0x00050000 | 38),  # ENOSYS
)
set_no_new_privileges()
install_filter(b"".join(struct.pack("<HBBI", *each) for each in program))
console()
"""


def last_line(project: Path, home: Path, *arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", UNDER_A_FILTER, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=project,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}/src", "HOME": str(home)},
    )
    return ran.stdout.splitlines()[-1]


@pytest.mark.needs("linux")
def test_where_nothing_holds_a_command_the_doctor_says_what_the_policy_makes_of_it(tmp_path: Path):
    project, home = tmp_path / "project", tmp_path / "home"
    (project / ".git").mkdir(parents=True)
    home.mkdir()
    refused = last_line(project, home, "doctor")
    assert refused.startswith("files: fenced. commands: refused; ")
    (project / "paddock.toml").write_text('[shell]\nenforcement = "best-effort"\n')
    # As long as nobody has trusted it, it lifts nothing.
    assert last_line(project, home, "doctor") == refused
    last_line(project, home, "trust", "--yes")
    assert last_line(project, home, "doctor") == (
        "files: fenced. commands: unconfined (enforcement = best-effort)"
    )
    (project / "paddock.toml").write_text('[shell]\nenforcement = "required"\n')
    last_line(project, home, "trust", "--yes")
    assert last_line(project, home, "doctor") == refused


@pytest.mark.needs("root")
def test_where_the_state_is_read_only_doctor_and_calls_say_what_to_do(tmp_path: Path):
    project, home = tmp_path / "project", tmp_path / "home"
    (project / ".git").mkdir(parents=True)
    home.mkdir()

    def run(*arguments: str) -> tuple[int, str, str]:
        ran = run_command(*arguments, variables={"HOME": str(home)}, here=project)
        return ran.status, ran.out, ran.err

    def remount(mode: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{mode}", str(home)], check=True)

    with mounted_tmpfs(home, "size=8m"):
        assert run("call", "ls")[0] == 0
        remount("ro")
        doctor, call = run("doctor"), run("call", "ls")
        remount("rw")
        assert run("call", "ls")[0] == 0
        again = run("doctor")

    verdict = "no call can run here until this is fixed: its records"
    assert (doctor[0], doctor[1].splitlines()[-1]) == (0, verdict)
    assert f"{home}/.local/state/paddock: Read-only file system" in doctor[1]
    assert (call[0], call[1]) == (5, "")
    assert call[2].endswith("check permissions and that the file system is writable\n")
    assert again[1].splitlines()[-1].startswith("files: fenced. commands: ")
