"""Ordinary work through `run_shell`: numbered, and what has to be there afterwards is looked at."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct

from tests.support.shells import OPEN, Terminal, Yard, refused

pytestmark = [
    pytest.mark.needs("stage"),
    pytest.mark.needs("bash"),
    pytest.mark.needs("git"),
]

POLICY = (
    '[paths]\nprotected = [".git/", ".env*", "*.key"]\ngenerated = ["node_modules/", "__pycache__/", ".venv/"]\n'
    + OPEN
)
Check = Callable[[Terminal, dict], object]


class Work(Struct, frozen=True, dict=True):
    line: str
    check: Check
    needs: tuple[str, ...] = ()


def lands(*names: str) -> Check:
    return lambda terminal, _: all(os.path.lexists(terminal.yard.root / name) for name in names)


def prints(text: str) -> Check:
    return lambda _, said: text in said["stdout"]


def log_says(text: str) -> Check:
    return lambda terminal, _: text in terminal.yard.git("log", "--oneline", "-1")


SERVER = """
import http.server, threading, urllib.request
class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"hello over loopback")
    def log_message(self, *a): pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello)
threading.Thread(target=s.serve_forever, daemon=True).start()
print(urllib.request.urlopen(f"http://127.0.0.1:{s.server_port}/").read().decode())
"""
POOL = """
import multiprocessing as m
if __name__ == "__main__":
    with m.Pool(3) as pool: print(sum(pool.map(abs, range(-100, 0))))
    q = m.Queue(); p = m.Process(target=q.put, args=("queued",)); p.start(); print(q.get()); p.join()
    with m.Lock(): print("locked", m.Value("i", 7).value)
"""
WORK = {
    "create a file and a directory": Work("mkdir -p a/b && echo 1 > a/b/c", lands("a/b/c")),
    "save atomically": Work(
        "echo new > .t && sync .t && mv .t data",
        lambda t, _: (t.yard.root / "data").read_text() == "new\n",
    ),
    "rename a directory": Work("mv src lib", lands("lib/module.py")),
    "temporary files": Work(
        "f=$(mktemp); echo t > $f; cat $f; python3 -c 'import tempfile; print(tempfile.mkdtemp())'",
        prints("/tmp/"),
    ),
    "edit in place": Work("sed -i s/one/ONE/ data && grep -c ONE data", prints("1")),
    "find, sort and count": Work("find . -name '*.py' | sort | wc -l", prints("3")),
    "archive and unpack": Work(
        "tar czf /tmp/all.tgz src && mkdir out && tar xzf /tmp/all.tgz -C out",
        lands("out/src/module.py"),
    ),
    "compile and run C": Work(
        "printf '#include <stdio.h>\\nint main(){puts(\"compiled\");}' > m.c && cc -o m m.c && ./m",
        prints("compiled"),
        ("cc",),
    ),
    "make": Work(
        "printf 'all: x\\nx:\\n\\techo made > x\\n' > Makefile && make && make",
        lands("x"),
        ("make",),
    ),
    "pytest": Work(
        "python3 -m pytest -q -p no:cacheprovider test_module.py", prints("1 passed"), ("pytest",)
    ),
    "unittest": Work("python3 -m unittest -q test_unit 2>&1", prints("OK")),
    "multiprocessing": Work(
        f"cat > p.py <<'X'\n{POOL}\nX\npython3 p.py", prints("5050\nqueued\nlocked 7")
    ),
    "a server and its client inside one command": Work(
        f"python3 - <<'X'\n{SERVER}\nX", prints("hello over loopback")
    ),
    "a server in the background and a client": Work(
        "python3 -m http.server 8765 --bind 127.0.0.1 >/dev/null 2>&1 & for i in $(seq 100); do python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:8765/data\").read().decode())' 2>/dev/null && break; done; kill %1",
        prints("one"),
    ),
    "socket pairs": Work(
        "python3 -c 'import socket; a, b = socket.socketpair(); a.send(b\"pair\"); print(b.recv(9))'",
        prints("pair"),
    ),
    "sqlite": Work(
        'python3 -c \'import sqlite3; c = sqlite3.connect("db"); c.execute("create table t(x)"); c.execute("insert into t values (7)"); c.commit(); print(c.execute("select x from t").fetchone())\'',
        lands("db"),
    ),
    "a virtual environment and a local package": Work(
        "python3 -m venv --without-pip .venv && python3 -m pip --python .venv install -q --no-index --find-links wheels toy && .venv/bin/python -c 'import toy; print(toy.WORD)'",
        prints("a toy"),
        ("pip",),
    ),
    "git status, diff and log": Work(
        "echo more >> data && git status --short && git diff --stat && git log --oneline",
        prints("first"),
    ),
    "git commit": Work(
        "echo more >> data && git add data && git commit -qm second", log_says("second")
    ),
    "git branches and merges": Work(
        "git checkout -q -b side && echo s > side && git add side && git commit -qm side && git checkout -q main && git merge -q --no-ff -m merged side",
        log_says("merged"),
    ),
    "git stash and rebase": Work(
        "git checkout -q -b topic && echo t > topic && git add topic && git commit -qm topic && git checkout -q main && echo m > m && git add m && git commit -qm main2 && git rebase -q main topic && echo x >> data && git stash -q && git stash pop -q",
        log_says("topic"),
    ),
    "git rm, mv and another version of the index": Work(
        "echo n > n && git add n && git commit -qm n && git mv n o && git update-index --index-version 4 && echo p > p && git add p && git commit -qm moved && git rm -q p && git commit -qm taken",
        log_says("taken"),
    ),
    "folders with some of the names of a repository": Work(
        "mkdir -p a/objects a/refs b/objects && echo x > a/config && echo x > b/HEAD && echo x > b/config && mkdir objects refs && echo x > config",
        lambda t, _: all(
            (t.yard.root / name).exists() for name in ("a/refs", "b/HEAD", "b/config", "config")
        ),
    ),
    "git tags and gc": Work(
        "git tag v1 && git gc -q && git tag",
        lambda t, s: "v1" in s["stdout"] and "v1" in t.yard.git("tag"),
    ),
    "node": Work(
        'node -e \'require("fs").writeFileSync("n.txt", "node"); console.log(1+1)\'',
        lands("n.txt"),
        ("node",),
    ),
    "npm from a local package": Work(
        "npm install --offline --no-audit --no-fund --silent ./pkg && node -e 'console.log(require(\"pkg\").word)'",
        prints("packed"),
        ("npm",),
    ),
    "threads and signals": Work(
        'python3 -c \'import threading, signal, os; t = threading.Thread(target=print, args=("thread",)); t.start(); t.join(); signal.signal(10, lambda *a: print("signal")); os.kill(os.getpid(), 10)\'',
        prints("thread\nsignal"),
    ),
    "a pseudo-terminal": Work("python3 -c 'import pty; pty.spawn([\"tty\"])'", prints("/dev/pts/")),
    "thousands of files": Work(
        "mkdir many && cd many && seq 3000 | xargs touch && ls | wc -l", lands("many/3000")
    ),
}


def furnish(yard: Yard) -> None:
    yard.write(
        {
            "data": "one\ntwo\n",
            "src/module.py": "def double(x):\n    return 2 * x\n",
            "test_module.py": "import sys; sys.path.insert(0, 'src')\nfrom module import double\n\n\ndef test_it():\n    assert double(2) == 4\n",
            "test_unit.py": "import unittest\n\n\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertTrue(1)\n",
            "pkg/package.json": '{"name": "pkg", "version": "1.0.0", "main": "i.js"}',
            "pkg/i.js": "exports.word = 'packed'",
            "package.json": '{"name": "project", "version": "1.0.0", "private": true}',
            ".gitignore": ".venv/\nnode_modules/\n__pycache__/\n",
        }
    )
    (yard.root / "wheels").mkdir()
    with zipfile.ZipFile(yard.root / "wheels/toy-1.0-py3-none-any.whl", "w") as wheel:
        about = "toy-1.0.dist-info"
        wheel.writestr("toy.py", "WORD = 'a toy'\n")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
        wheel.writestr(
            f"{about}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(
            f"{about}/RECORD", f"toy.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n"
        )
    (yard.home / ".gitconfig").write_text(
        "[user]\n\tname = U\n\temail = u@example.org\n[init]\n\tdefaultBranch = main\n"
    )
    yard.git("init", "-q", "-b", "main", ".")
    yard.git("add", ".")
    yard.git("commit", "-qm", "first")


@pytest.fixture
def terminal(tmp_path: Path):
    python = os.path.dirname(os.path.realpath(sys.executable))
    yard = Yard(tmp_path, POLICY, {"PATH": f"{python}:{os.environ['PATH']}"})
    yard.home.mkdir()
    yard.make()
    furnish(yard)
    with yard.opened() as made:
        yield made


def lacking(needs: tuple[str, ...]) -> str:
    """What this host has not; programs by their name, modules of Python by theirs."""
    for name in needs:
        if name in {"pytest", "pip"}:
            python = os.path.realpath(sys.executable)
            done = subprocess.run([python, "-S", "-c", "0"], capture_output=True, check=False)
            found = subprocess.run(
                [python, "-m", name, "--version"], capture_output=True, env={}, check=False
            )
            if done.returncode or found.returncode:
                return f"needs {name} beside the interpreter"
        elif shutil.which(name) is None:
            return f"needs the program {name}"
    return ""


def test_the_list_is_long_enough(capsys):
    with capsys.disabled():
        print(f"\n{len(WORK)} pieces of ordinary work")
    assert len(WORK) >= 21


@pytest.mark.parametrize(("number", "name"), list(enumerate(WORK, 1)))
def test_ordinary_work_is_done_and_committed(terminal: Terminal, number: int, name: str):
    work = WORK[name]
    why = lacking(work.needs)
    if why:
        pytest.skip(why)
    said = terminal.run(work.line, timeout=120)

    assert work.check(terminal, said), said
    assert said["exit_code"] == 0, said
    assert refused(said) == {}, said
    assert terminal.yard.git("fsck", "--strict") is not None


def test_a_clone_of_a_repository_in_the_workspace_copies_and_is_told_so(terminal: Terminal):
    failed = terminal.call("run_shell", command="git clone . copy")
    assert (failed.details["exit_code"], failed.details["files_changed"]) == (128, [])
    assert "use git clone --no-hardlinks]" in failed.content

    # No command writes a policy, so that a copy with one could not land whole.
    terminal.yard.git("rm", "-q", "--cached", "paddock.toml")
    terminal.yard.git("commit", "-qm", "without policy")
    works = terminal.call(
        "run_shell", command="git clone -q --no-hardlinks . copy && git -C copy fsck"
    )
    assert works.details["exit_code"] == 0
    assert "copy/data" in works.details["files_changed"]
    assert "--no-hardlinks" not in works.content
