"""What packages put below /etc for everybody can be read by commands, and nothing else there."""

import os
import shutil
from pathlib import Path

import pytest

from paddock.policy.settings import SYSTEM_READ
from tests.support.shells import Terminal, a_terminal

pytestmark = pytest.mark.needs("stage")

CLOSED = (
    *("shadow", "gshadow", "sudoers", "environment", "machine-id", "ssh", "pip.conf", "npmrc"),
    *("gitconfig", "fstab", "mysql", "postgresql", "apt", "profile.d", "security", "wgetrc"),
)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory):
    with a_terminal(tmp_path_factory.mktemp("etc")) as made:
        yield made


def test_the_list_has_what_people_missed_and_no_secret():
    wanted = ("os-release", "fonts", "timezone", "java-17-openjdk", "maven", "python3", "perl")
    wanted += ("manpath.config",)
    assert {f"/etc/{name}" for name in (*wanted, "python3.11", "ssl")} <= set(SYSTEM_READ)
    assert not {f"/etc/{name}" for name in CLOSED} & set(SYSTEM_READ)


def test_what_is_listed_is_there_and_what_is_not_is_not(terminal: Terminal):
    listed = [path for path in SYSTEM_READ if path.startswith("/etc/") and Path(path).exists()]
    tested = " ".join((*listed, *(f"/etc/{name}" for name in CLOSED)))
    said = terminal.run(f"for each in {tested}; do test -e $each && echo $each; done; true")
    assert said["stdout"].split() == listed
    assert terminal.run("cat /etc/os-release")["stdout"] == Path("/etc/os-release").read_text()


@pytest.mark.parametrize("name", ["java-17-openjdk", "perl", "fonts", "python3"])
def test_what_is_below_is_read_and_not_written(terminal: Terminal, name: str):
    if not os.path.isdir(f"/etc/{name}"):
        pytest.skip("not installed here")
    assert terminal.run(f"find /etc/{name}/ -type f | xargs cat | wc -c")["stderr"] == ""
    assert terminal.run(f"touch /etc/{name}/planted")["exit_code"] != 0
    assert not os.path.exists(f"/etc/{name}/planted")


def test_java_of_the_distribution_runs(terminal: Terminal):
    if shutil.which("javac") is None or not os.path.exists("/etc/java-17-openjdk"):
        pytest.skip("no Java here")
    terminal.yard.write(
        {
            "A.java": "class A { public static void main(String[] a) throws Exception {"
            ' System.out.println(java.security.MessageDigest.getInstance("SHA-256"));'
            ' System.out.println(new java.security.SecureRandom() != null ? "ran" : ""); } }'
        }
    )
    assert "ran" in terminal.run("java A.java")["stdout"]
