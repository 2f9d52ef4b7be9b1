"""Landlock without namespaces: what is refused, what still works, what is admitted not to be held.

Every refusal is two-sided: the act works without the backend, and the effect is absent with it.
"""

import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from paddock.errors import SandboxUnavailableError
from paddock.kernel.landlock import landlock_abi
from paddock.policy.engine import PolicySource, load_policy
from paddock.sandbox.inside.supervisor import hold
from paddock.sandbox.landlock import gaps, identity_for
from paddock.values.decisions import Agent, Permissions
from tests.support.landlocked import Held, plan_for
from tests.support.users import give_to_plain_user, plain_ids, run_as_plain_user

pytestmark = pytest.mark.needs("landlock")


@pytest.fixture
def ground(tmp_path):
    """A workspace with something protected and something secret, and an outside with bait."""
    workspace, outside, scratch = tmp_path / "ws", tmp_path / "outside", tmp_path / "scratch"
    for folder in (
        workspace / "src",
        workspace / ".git/hooks",
        workspace / "sub/deep",
        outside,
        scratch,
    ):
        folder.mkdir(parents=True)
    for name, text in {
        "ws/top.txt": "top\n",
        "ws/src/a.py": "a = 1\n",
        "ws/.env": "SECRET=1\n",
        "ws/.git/config": "[core]\n",
        "ws/.git/HEAD": "ref: refs/heads/main\n",
        "ws/sub/deep/site.pem": "PEM\n",
        "ws/sub/free.txt": "free\n",
        "outside/file": "outside\n",
    }.items():
        (tmp_path / name).write_text(text)
    give_to_plain_user(tmp_path)
    return Held(workspace, scratch)


def contents(root) -> dict[str, str]:
    return {
        str(path.relative_to(root)): path.read_text(errors="replace") if path.is_file() else ""
        for path in sorted(root.rglob("*"))
        if not path.is_symlink()
    }


def free(line: str, ground: Held) -> int:
    """The same line without the backend, as the same user."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "TMPDIR": str(ground.scratch),
        "HOME": str(ground.scratch),
    }
    codes: list[int] = []
    read_end, write_end = os.pipe()

    def act():
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=ground.workspace,
            env=environment,
            capture_output=True,
            check=False,
        )
        os.write(write_end, str(done.returncode).encode())

    run_as_plain_user(act)
    os.close(write_end)
    with os.fdopen(read_end) as told:
        codes.append(int(told.read()))
    return codes[0]


REFUSED = {
    "write outside": "echo x > ../outside/file",
    "create outside": "echo x > ../outside/new",
    "append outside through a link": "ln -s ../../outside/file src/l && echo x >> src/l",
    "truncate outside": "truncate -s 0 ../outside/file",
    "delete outside": "rm ../outside/file",
    "move out": "mv src/a.py ../outside/a",
    "hard link out": "ln src/a.py ../outside/a",
    "read outside": "cat ../outside/file",
    "list outside": "ls ../outside",
    "change a protected file": "echo x >> sub/deep/site.pem",
    "replace a protected file": "echo x > src/n && mv src/n sub/deep/site.pem",
    "remove a protected file": "rm sub/deep/site.pem",
    "move the directory of a protected file": "mv sub/deep sub/elsewhere",
    "move an ancestor of a protected file": "mv sub sub2 && mkdir -p sub/deep && echo x > sub/deep/site.pem",
    "git hook": "echo x > .git/hooks/pre-commit",
    "git hook as a link": "ln -s ../../src/a.py .git/hooks/pre-commit",
    "git configuration": "echo x >> .git/config",
    "move .git": "mv .git elsewhere",
    "read a secret": "cat .env",
    "hard link of a secret": "ln .env src/copy",
    "copy a secret": "cp .env src/copy",
    "rename a secret": "mv .env src/copy",
    "new secret beside one": "echo x > .env.local",
    "FIFO": "mkfifo src/fifo",
    "device that hides a name below": 'python3 -c \'import ctypes; assert ctypes.CDLL(None).renameat2(-100, b"src/a.py", -100, b"src/b.py", 4) == 0\'',
    "setuid": "cp /bin/true src/su && chmod 4755 src/su",
    "shared memory file": "echo x > /dev/shm/paddock-test-$$ && rm /dev/shm/paddock-test-$$",
    "write the shared temporary directory": "echo x > /tmp/paddock-test-$$ && rm /tmp/paddock-test-$$",
    "user namespace": "unshare --user true",
    "socket": "python3 -c 'import socket; socket.socket()'",
    "unix socket": "python3 -c 'import socket; socket.socket(socket.AF_UNIX)'",
    "shared memory": "python3 -c 'import ctypes; c = ctypes.CDLL(None); i = c.shmget(0, 4096, 0o1600); assert i >= 0; c.shmctl(i, 0, None)'",
    "message queue": "python3 -c 'import ctypes; c = ctypes.CDLL(None); i = c.msgget(0, 0o1600); assert i >= 0; c.msgctl(i, 0, None)'",
    "posix message queue": "python3 -c 'import ctypes, os; c = ctypes.CDLL(None); n = b\"/paddock-%d\" % os.getpid(); assert c.mq_open(n, os.O_CREAT | os.O_RDWR, 0o600, None) >= 0; c.mq_unlink(n)'",
    "memory file": "python3 -c 'import os; os.memfd_create(\"x\")'",
}


@pytest.mark.parametrize("line", REFUSED.values(), ids=REFUSED)
def test_an_attack_that_works_without_the_backend_is_refused_by_it(ground, line):
    before = contents(ground.workspace.parent)
    said = ground.run(line)
    after = contents(ground.workspace.parent)
    assert said.code != 0, said
    new = {name for name in after if name not in before}
    assert {name: after[name] for name in before} == before
    assert new <= {"ws/src/n", "ws/src/su"}, new
    if "ln -s" in line:
        (ground.workspace / "src/l").unlink(missing_ok=True)
    for name in new:
        (ground.workspace.parent / name).unlink()
    assert free(line, ground) == 0


WORKS = {
    "read": "cat top.txt src/a.py sub/free.txt",
    "list": "ls -la . src sub sub/deep .git",
    "edit": "echo x >> src/a.py",
    "edit beside a secret": "echo x >> top.txt",
    "create": "echo x > src/new.py",
    "mkdir and remove": "mkdir -p src/x/y && rmdir src/x/y src/x",
    "atomic save": "echo x > src/.a.tmp && mv src/.a.tmp src/a.py",
    "delete": "rm src/a.py",
    "rename": "mv src/a.py src/b.py",
    "exchange": 'echo x > src/b.py && python3 -c \'import ctypes; assert ctypes.CDLL(None).renameat2(-100, b"src/a.py", -100, b"src/b.py", 2) == 0\'',
    "link inside": "ln -s a.py src/l && cat src/l",
    "temporary file": "f=$(mktemp) && echo x > $f && cat $f",
    "home": "echo x > ~/file",
    "python": "python3 -c 'import tempfile; tempfile.TemporaryFile().write(b\"x\")'",
    "devices": "echo x > /dev/null && head -c 4 /dev/urandom > /dev/null",
    "processes": "cat /proc/self/status | grep -q NoNewPrivs && ls /proc/self/fd > /dev/null",
    "pipes and children": "for i in 1 2 3; do echo $i & done | sort | wc -l",
    "read of a repository": "cat .git/HEAD",
    "signal to itself": "sleep 9 & kill $! && wait $! || true",
}


@pytest.mark.parametrize("line", WORKS.values(), ids=WORKS)
def test_ordinary_work_runs(ground, line):
    said = ground.run(line)
    assert said.code == 0, said


def test_nothing_new_is_made_beside_a_protected_name_and_everything_elsewhere(ground):
    assert ground.run("echo x > new.txt").code != 0
    assert ground.run("echo x > sub/deep/new.txt").code != 0
    assert ground.run("echo x > src/new.txt").code == 0
    (ground.workspace / ".env").unlink()
    os.rename(ground.workspace / ".git", ground.workspace.parent / "git")
    os.unlink(ground.workspace / "sub/deep/site.pem")
    assert ground.run("echo x > new.txt").code == 0


def test_what_its_gaps_admit_is_so(ground):
    abi = landlock_abi()
    said = " ".join(gaps(plan_for(ground.workspace), abi))
    assert ground.run("chmod 600 ../outside/file").code == 0
    assert "mode, times and attributes" in said
    assert ".env" in ground.run("ls -a").output
    assert "names of files that may not be read" in said
    assert ground.run("ln -s /etc src/out").code == 0
    assert "symlinks that lead out" in said
    assert ground.run("echo x > src/new.key && cat src/new.key").code == 0
    assert "a protected name can be created" in said
    assert ground.run("ls /tmp").code != 0
    assert ground.run("echo x > $TMPDIR/x && cat $TMPDIR/x").code == 0
    assert "there is no private /tmp: use TMPDIR" in said


def test_an_agents_lists_hold_for_its_commands(ground):
    permissions = Permissions(read=("src/**", "sub/**"), write=("src/**",))
    ground.chain = (Agent("main", "standard", permissions=permissions),)
    assert ground.run("cat src/a.py sub/free.txt").code == 0
    assert ground.run("cat top.txt").code != 0
    assert ground.run("echo x > src/new").code == 0
    assert ground.run("echo x >> sub/free.txt").code != 0
    assert ground.run("echo x > new").code != 0


def test_a_directory_that_a_rule_closes_takes_no_new_name_though_it_is_empty(ground):
    (ground.workspace / "src/closed").mkdir()
    give_to_plain_user(ground.workspace)
    ground.policy = load_policy(
        PolicySource(
            "paddock.toml",
            b'[profiles.standard]\nallow = ["tool:file:*"]\ndeny = ["tool:file:create src/closed/**"]\n',
        )
    )
    assert ground.run("echo x > src/closed/new").code != 0
    assert ground.run("rmdir src/closed").code != 0
    assert ground.run("echo x >> src/a.py").code == 0


def test_every_descendant_ends_with_the_command(ground):
    line = "setsid sleep 1000 & (sleep 1000 &) ; nohup sh -c 'trap : TERM INT HUP; sleep 1000' & exit 3"
    said = ground.run(line)
    assert said.code == 3
    assert said.killed >= 3


def test_a_tree_that_forks_as_fast_as_it_is_killed_ends(ground):
    line = "f() { sleep 0.01; f & }; f & f & f & sleep 0.1; exit 0"
    assert ground.run(line).code == 0
    marks = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert line not in marks


def test_the_secrets_of_other_processes_of_the_same_user_are_closed(ground):
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                uid, gid = plain_ids()
                os.setgroups([])
                os.setresgid(gid, gid, gid)
                os.setresuid(uid, uid, uid)
            os.execve("/bin/sleep", ["sleep", "60"], {"TOKEN": "s3cret"})
        finally:
            os._exit(1)
    try:
        while b"sleep" not in Path(f"/proc/{child}/cmdline").read_bytes():
            time.sleep(0)
        assert free(f"grep -q s3cret /proc/{child}/environ", ground) == 0
        assert ground.run(f"cat /proc/{child}/environ").code != 0
        assert ground.run(f"readlink /proc/{child}/fd/0").code != 0
        assert ground.run(f"kill {child}").code != 0
        os.kill(child, 0)
        for line in (
            f"python3 -c 'import resource as r; r.prlimit({child}, r.RLIMIT_NOFILE, (64, 64))'",
            f"renice -n 19 -p {child}",
            f"taskset -p 1 {child}",
            f"ionice -c 3 -p {child}",
        ):
            limits = Path(f"/proc/{child}/limits").read_text()
            assert ground.run(line).code != 0, line
            assert Path(f"/proc/{child}/limits").read_text() == limits
            assert free(line, ground) == 0, line
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_nothing_is_sent_to_a_named_socket_of_the_host(ground):
    path = ground.workspace.parent / "outside/log"
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        # By a short name: an address has room for a hundred bytes.
        server.bind(f"/proc/self/fd/{folder}/log")
        os.close(folder)
        path.chmod(0o777)
        server.settimeout(5)
        line = (
            "python3 -c 'import socket; a, b = socket.socketpair(socket.AF_UNIX,"
            ' socket.SOCK_DGRAM); a.sendto(b"x", "../outside/log")\''
        )
        assert ground.run(line).code != 0
        assert free(line, ground) == 0
        assert server.recv(9) == b"x"
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.recv(9)
    path.unlink()


@pytest.mark.loopback
def test_the_hosts_loopback_is_reached_only_where_policy_says_host(ground):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        line = f"python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}))'"
        assert ground.run(line).code != 0
        ground.network = "host"
        assert ground.run(line).code == 0


def test_a_path_that_became_a_link_gets_no_right(ground):
    root_fd = os.open(ground.workspace, os.O_PATH)
    os.rename(ground.workspace / "src", ground.workspace / "old")
    os.symlink(ground.workspace.parent / "outside", ground.workspace / "src")
    try:
        assert ground.run("echo x > src/file").code != 0
        assert (ground.workspace.parent / "outside/file").read_text() == "outside\n"
    finally:
        os.close(root_fd)


@pytest.mark.needs("root")
def test_root_never_stays_root(ground):
    with pytest.raises(SandboxUnavailableError, match="belongs to root"):
        identity_for(0, (0, 0))
    assert identity_for(0, (1000, 1000)) == (1000, 1000)
    assert identity_for(1000, (0, 0)) is None
    assert ground.run("id -u").output.strip() == str(plain_ids()[0])
    child = os.fork()
    if child == 0:
        code = 1
        try:
            hold((-1, b""), None)
        except PermissionError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
