"""What people do all day still works in a sandbox: the other side of every refusal."""

import os
import shutil
import subprocess

import pytest

from paddock.sandbox.values import Ending
from tests.support.sandboxes import PYTHON, Room, a_room, complained, said

pytestmark = pytest.mark.needs("stage")


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory):
    with a_room(tmp_path_factory.mktemp("work")) as made:
        workspace = made.workspace
        (workspace / "src").mkdir()
        (workspace / "src/module.py").write_text("def double(x):\n    return 2 * x\n")
        (workspace / "test_module.py").write_text(
            "import sys; sys.path.insert(0, 'src')\nfrom module import double\n\n\ndef test_it():\n    assert double(2) == 4\n"
        )
        (workspace / "data").write_text("one\ntwo\nthree\n")
        (workspace / "program.sh").write_text("#!/bin/sh\necho ran\n")
        (workspace / "program.sh").chmod(0o755)
        os.symlink("data", workspace / "link")
        yield made


WORK = {
    # name: (a line for the shell, what it prints)
    "create a file in the root": ("echo hi > new && cat new", "hi\n"),
    "append to a file that was there": ("echo four >> data && tail -n 1 data", "four\n"),
    "make a directory": ("mkdir -p a/b/c && echo x > a/b/c/d && cat a/b/c/d", "x\n"),
    "rename a file": ("mv data renamed && cat renamed | head -n 1 && ls data", "one\n"),
    "rename over a file": ("echo x > y && mv y data && cat data", "x\n"),
    "move a directory that was there": ("mv src source && ls source", "module.py\n"),
    "rename a directory that is new": ("mkdir n && touch n/f && mv n m && ls m", "f\n"),
    "save atomically": (
        "echo new > .data.tmp && sync .data.tmp && mv .data.tmp data && cat data",
        "new\n",
    ),
    "remove a file": ("rm data && ls data 2>/dev/null || echo gone", "gone\n"),
    "remove a directory": ("rm -r src && ls src 2>/dev/null || echo gone", "gone\n"),
    "change a mode": ("chmod 600 data && stat -c %a data", "600\n"),
    "set times": ("touch -d @1000000000 data && stat -c %Y data", "1000000000\n"),
    "follow a link": ("cat link | head -n 1 && ln -s link link2 && readlink link2", "one\nlink\n"),
    "link hard": ("ln data data2 && stat -c %h data2", "2\n"),
    "run a program of the workspace": ("./program.sh", "ran\n"),
    "edit in place": ("sed -i s/one/ONE/ data && head -n 1 data", "ONE\n"),
    "temporary files": (
        "f=$(mktemp) && echo t > $f && cat $f && rm $f && echo $TMPDIR",
        "t\n/tmp\n",
    ),
    "a pipeline": ("seq 1 1000 | sort -rn | head -n 1", "1000\n"),
    "a here-document": ("cat <<X\nhere\nX", "here\n"),
    "background jobs and wait": ("(sleep 0.05; echo b) & wait; echo a", "b\na\n"),
    "signals between its own processes": ("sleep 60 & kill $! && wait $!; echo $?", "143\n"),
    "a FIFO": ("mkfifo p; (echo through > p &) ; cat p; rm p", "through\n"),
    "archives": (
        "tar cf a.tar src && mkdir out && tar xf a.tar -C out && ls out/src",
        "module.py\n",
    ),
    "a lock": ("flock lock -c 'echo locked'", "locked\n"),
    "shared memory files": ("echo s > /dev/shm/s && cat /dev/shm/s", "s\n"),
    "process information": (
        "test -r /proc/cpuinfo && nproc > /dev/null && ps -o comm= -p $$",
        "sh\n",
    ),
    "settings of the kernel can be read": (
        "test $(cat /proc/sys/kernel/pid_max) -gt 0 && echo yes",
        "yes\n",
    ),
    "random numbers": ("head -c 4 /dev/urandom | wc -c && head -c 4 /dev/zero | wc -c", "4\n4\n"),
    "who it is": (
        'test "$(id -u)" = ' + str(os.geteuid()) + " && id -un > /dev/null && echo known",
        "known\n",
    ),
    "the private home": (
        "echo x > ~/.rc && cat ~/.rc && ls -A ~ | sort | tr '\\n' ' '",
        "x\n.gitconfig .rc ",
    ),
    "a deep directory": ("mkdir -p $(seq -s / 1 60) && ls", None),
}


@pytest.mark.parametrize("name", WORK)
def test_ordinary_work_is_done_in_a_shell(room: Room, name: str):
    line, expected = WORK[name]
    before = sorted(os.listdir(room.workspace))

    end = room.shell(line)

    assert end.ending is Ending.EXITED, end
    if expected is not None:
        assert said(end) == expected, complained(end)
    assert sorted(os.listdir(room.workspace)) == before
    assert (room.workspace / "data").read_text() == "one\ntwo\nthree\n"


PROGRAMS = {
    "multiprocessing": """
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(abs, [-1, -2]))
    queue = multiprocessing.get_context("spawn").Queue()
    queue.put(3); print(queue.get())
""",
    "shared memory": """
from multiprocessing import shared_memory
block = shared_memory.SharedMemory(create=True, size=100)
block.buf[0] = 7; print(block.buf[0]); block.close(); block.unlink()
""",
    "a server and its client": """
import http.server, threading, urllib.request
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/data").read())
server.shutdown()
""",
    "IPv6 and datagrams": """
import socket
server = socket.create_server(("::1", 0), family=socket.AF_INET6)
socket.create_connection(server.getsockname()[:2]).sendall(b"six")
print(server.accept()[0].recv(9))
a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); a.bind(("127.0.0.1", 0))
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"udp", a.getsockname()); print(a.recv(9))
""",
    "a pair of sockets": """
import socket
a, b = socket.socketpair(); a.sendall(b"x"); print(b.recv(1))
""",
    "tempfile": """
import tempfile
with tempfile.TemporaryDirectory() as d, tempfile.NamedTemporaryFile(dir=d) as f, tempfile.TemporaryFile() as g:
    f.write(b"x"); g.write(b"x"); print(d.startswith("/tmp/"))
""",
    "asyncio and subprocesses": """
import asyncio
async def main():
    p = await asyncio.create_subprocess_exec("echo", "async", stdout=asyncio.subprocess.PIPE)
    print((await p.communicate())[0])
asyncio.run(main())
""",
    "threads": """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool: print(sum(pool.map(int, "12345678")))
""",
    "a database": """
import sqlite3
base = sqlite3.connect("base.db"); base.execute("pragma journal_mode=wal")
base.execute("create table t(x)"); base.execute("insert into t values (5)"); base.commit()
print(sqlite3.connect("base.db").execute("select x from t").fetchall())
""",
    "a pseudo-terminal": """
import os, pty
pid, fd = pty.fork()
if pid == 0: os.execvp("tty", ["tty"])
print(os.read(fd, 100).startswith(b"/dev/pts/"))
""",
    "memory mapping": """
import mmap
with open("mapped", "wb+") as f:
    f.truncate(4096)
    with mmap.mmap(f.fileno(), 4096) as m: m[0] = 65
    print(open("mapped", "rb").read(1))
""",
    "extended attributes of users": """
import os
os.setxattr("data", "user.note", b"x"); print(os.getxattr("data", "user.note"))
""",
    "inode notification-free polling of times": """
import os
before = os.stat("data").st_mtime_ns
os.utime("data", ns=(1, 1)); print(before != os.stat("data").st_mtime_ns)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_ordinary_programs_come_to_their_end(room: Room, name: str):
    end = room.python(PROGRAMS[name], timeout_s=60)

    assert (end.ending, end.exit_code) == (Ending.EXITED, 0), complained(end)
    assert said(end).strip()


RESOLVING = """
import os, socket
try: print(sorted({answer[4][0] for answer in socket.getaddrinfo("localhost", 80)}))
except socket.gaierror as unknown: print("unknown here", unknown.errno)
print(open("/etc/hosts").read() if os.path.exists("/etc/hosts") else "no hosts")
"""


def test_this_machine_has_the_names_it_has_without_a_sandbox(room: Room):
    # A machine whose hosts file is silent about localhost is not the sandbox's fault.
    free = subprocess.run([PYTHON, "-c", RESOLVING], capture_output=True, text=True, check=True)

    end = room.python(RESOLVING, timeout_s=60)

    assert (end.ending, end.exit_code, said(end)) == (Ending.EXITED, 0, free.stdout)


def test_programs_print_the_same_as_without_a_sandbox(room: Room, tmp_path):
    for name in ("tempfile", "threads", "asyncio and subprocesses", "a pair of sockets"):
        free = subprocess.run(
            [PYTHON, "-c", PROGRAMS[name]],
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
            env={"TMPDIR": "/tmp", "PATH": "/usr/bin:/bin"},
        )
        assert said(room.python(PROGRAMS[name])) == free.stdout


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs the program gcc")
def test_a_program_is_compiled_and_run(room: Room):
    end = room.shell(
        "printf '#include <stdio.h>\\nint main(void){puts(\"compiled\");}' > p.c && gcc -O1 -o p p.c && ./p",
        timeout_s=60,
    )

    assert said(end) == "compiled\n", complained(end)


@pytest.mark.needs("git")
def test_git_works_and_knows_who_commits(room: Room):
    end = room.shell(
        "git init -q . && git add data && git commit -qm first && echo x >> data && git status --short data"
        " && git diff --stat | tail -n 1 && git log --format='%an <%ae> %s'",
        timeout_s=60,
    )

    assert said(end) == (
        " M data\n 1 file changed, 1 insertion(+)\nA Tester <tester@example.org> first\n"
    ), complained(end)


@pytest.mark.needs("git")
def test_git_works_in_a_repository_that_was_there(room: Room):
    home = room.workspace / "repository"
    home.mkdir()
    subprocess.run(
        "git init -q && echo a > a && git add a && git -c user.name=x -c user.email=x@x commit -qm zero",
        shell=True,
        cwd=home,
        check=True,
    )
    try:
        end = room.shell(
            "echo b > a && git status --short && git commit -qam one && git log --format=%s"
            " && git checkout -qb other && git branch --show-current && git stash list",
            cwd="repository",
            timeout_s=60,
        )
        free = subprocess.run(
            ["git", "log", "--format=%s"], cwd=home, capture_output=True, text=True, check=True
        )
    finally:
        shutil.rmtree(home)

    assert said(end) == " M a\none\nzero\nother\n", complained(end)
    assert free.stdout == "zero\n"


def test_pytest_runs(room: Room):
    room.readable = (os.path.dirname(os.path.dirname(pytest.__file__)),)
    code = "import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', 'test_module.py']))"
    end = room.run(
        PYTHON, "-c", f"import sys; sys.path.append({room.readable[0]!r})\n{code}", timeout_s=60
    )
    room.readable = ()

    assert "1 passed" in said(end), complained(end)
