"""What a hostile command would do to the workspace: a numbered list, each tried both ways.

Without a sandbox each reaches its goal; through `run_shell` none does, whoever runs it.
What lies outside of the workspace, and the rest of the kernel, is in `attacks.py`.
"""

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct

from tests.support import forked
from tests.support.disks import temporaries
from tests.support.shells import OPEN, Yard, hide, start

pytestmark = [
    pytest.mark.needs("stage"),
    pytest.mark.needs("bash"),
    pytest.mark.needs("git"),
]

POLICY = (
    '[paths]\nprotected = [".git/", ".env*", "*.key", "*.pem", "HOT/kernel/"]\n'
    'generated = []\nsecret = [".env*"]\n'
    + OPEN
    + "[shell]\nlimits = { processes = 64, memory_mb = 700, file_mb = 100, cpu_s = 20 }\n"
    "[limits]\nchange_set_bytes_max = 200_000_000\n"
)
TOKEN = "hunter2"

Reached = Callable[[Path, Path], bool]


class Attack(Struct, frozen=True, dict=True):
    line: str
    reached: Reached
    """Of the workspace and of the place outside it: whether the goal was reached."""


def says(name: str, text: str) -> Reached:
    return lambda root, _: (
        (root / name).is_file() and text in (root / name).read_text(errors="replace")
    )


def there(name: str) -> Reached:
    return lambda root, _: os.path.lexists(root / name)


def gone(name: str) -> Reached:
    return lambda root, _: not os.path.lexists(root / name)


def outside_says(name: str, text: str) -> Reached:
    return lambda _, outside: text in (outside / name).read_text()


def mode(name: str, bits: int) -> Reached:
    return lambda root, _: bool(
        os.path.lexists(root / name) and stat.S_IMODE(os.lstat(root / name).st_mode) & bits
    )


PY = "python3 - <<'X'\n{}\nX"
ATTACKS = {
    # --- git: whatever makes a later git command run code
    "plant a hook": Attack(
        "echo evil > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit",
        there(".git/hooks/pre-commit"),
    ),
    "edit the configuration": Attack("git config core.fsmonitor evil", says(".git/config", "evil")),
    "append to the configuration": Attack(
        "printf '[core]\\n\\tfsmonitor = evil\\n' >> .git/config", says(".git/config", "evil")
    ),
    "rename a configuration in": Attack(
        "cp .git/config c && echo evil >> c && mv c .git/config", says(".git/config", "evil")
    ),
    "swap the git directory": Attack(
        "mv .git .g && cp -r .g .git && echo evil >> .git/config", says(".git/config", "evil")
    ),
    "replace the git directory by a file": Attack(
        "rm -rf .git && echo 'gitdir: /tmp/evil' > .git", says(".git", "evil")
    ),
    "replace the git directory by a link": Attack(
        "rm -rf .git && mkdir g && ln -s g .git", lambda r, _: (r / ".git").is_symlink()
    ),
    "remove the git directory": Attack("rm -rf .git", gone(".git/HEAD")),
    "leave a lock": Attack("touch .git/index.lock", there(".git/index.lock")),
    "a common directory elsewhere": Attack(
        "echo /tmp/evil > .git/commondir", there(".git/commondir")
    ),
    "objects from elsewhere": Attack(
        "mkdir -p .git/objects/info && echo /tmp/evil > .git/objects/info/alternates",
        there(".git/objects/info/alternates"),
    ),
    "filters by attributes": Attack(
        "mkdir -p .git/info && echo '* filter=evil' > .git/info/attributes",
        there(".git/info/attributes"),
    ),
    "a worktree's configuration": Attack(
        "mkdir -p .git/worktrees/w && echo evil > .git/worktrees/w/config",
        there(".git/worktrees/w/config"),
    ),
    "a submodule of one's own": Attack(
        "mkdir -p .git/modules/m/hooks && echo evil > .git/modules/m/hooks/post-checkout",
        there(".git/modules/m/hooks/post-checkout"),
    ),
    "a hook in a nested repository": Attack(
        "echo evil > a/b/c/d/e/f/.git/hooks/post-checkout",
        there("a/b/c/d/e/f/.git/hooks/post-checkout"),
    ),
    "a new nested repository with a hook": Attack(
        "git init -q new && echo evil > new/.git/hooks/pre-commit",
        there("new/.git/hooks/pre-commit"),
    ),
    "a new nested repository with a configuration": Attack(
        "git init -q new && git -C new config core.fsmonitor evil", says("new/.git/config", "evil")
    ),
    "a bare repository in disguise": Attack(
        "mkdir bare && cd bare && mkdir objects refs && echo 'ref: refs/heads/x' > HEAD && printf '[core]\\n\\tbare = true\\n\\tfsmonitor = evil\\n' > config",
        says("bare/config", "evil"),
    ),
    "the configuration of a bare repository": Attack(
        "printf '[core]\\n\\tfsmonitor = evil\\n' >> store/config", says("store/config", "evil")
    ),
    "a file made into a bare repository's configuration": Attack(
        "mkdir half/refs && printf 'evil\\n' > half/config", says("half/config", "evil")
    ),
    "the last name that a repository wants": Attack("mkdir armed/refs", there("armed/refs")),
    "a bare repository of the workspace itself": Attack(
        "mkdir objects refs && echo 'ref: refs/heads/x' > HEAD && echo evil > config",
        says("config", "evil"),
    ),
    "a repository in two halves": Attack(
        "mkdir -p common/objects common/refs && mkdir two && echo 'ref: refs/heads/x' > two/HEAD"
        " && echo ../common > two/commondir && echo evil > common/config",
        there("two/commondir"),
    ),
    "an index that leads to a hook": Attack(
        PY.format(
            "import hashlib,os,subprocess as s\n"
            "s.run(['git','update-index','--add','--cacheinfo',"
            "'100755,'+'0'*39+'1,.hit/hooks/evil'],check=True)\n"
            "d=open('.git/index','rb').read()[:-20].replace(b'.hit/hooks',b'.git/hooks')\n"
            "open('.git/n','wb').write(d+hashlib.sha1(d).digest());os.rename('.git/n','.git/index')"
        ),
        says(".git/index", ".git/hooks/evil"),
    ),
    "another spelling of the git directory": Attack(
        "mkdir -p sub/.GIT/hooks && echo evil > sub/.GIT/hooks/pre-commit",
        there("sub/.GIT/hooks/pre-commit"),
    ),
    "a rebase that runs something": Attack(
        "mkdir .git/rebase-merge && echo 'exec evil' > .git/rebase-merge/git-rebase-todo",
        there(".git/rebase-merge/git-rebase-todo"),
    ),
    "a hook by a rename of its directory": Attack(
        "mkdir h && echo evil > h/pre-commit && mv .git/hooks .git/h && mv h .git/hooks",
        there(".git/hooks/pre-commit"),
    ),
    # --- secrets and protected names
    "read a secret": Attack("cat .env > seen", says("seen", TOKEN)),
    "read a secret by a link": Attack("ln -s .env l && cat l > seen", says("seen", TOKEN)),
    "read a secret by a hard link": Attack("ln .env l && cat l > seen", says("seen", TOKEN)),
    "read a secret by a rename of its directory": Attack(
        "mv conf c2 && cat c2/.env.prod > seen", says("seen", TOKEN)
    ),
    "read a secret by an archive": Attack(
        "tar cf all.tar . && grep -a hunter2 all.tar > seen", says("seen", TOKEN)
    ),
    "read a secret from python": Attack(
        PY.format("open('seen','w').write(open('.env').read())"), says("seen", TOKEN)
    ),
    "read a secret by a map": Attack(
        PY.format(
            "import mmap;f=open('.env','rb');open('seen','wb').write(mmap.mmap(f.fileno(),0,access=mmap.ACCESS_READ)[:])"
        ),
        says("seen", TOKEN),
    ),
    "edit a secret": Attack("echo evil >> .env", says(".env", "evil")),
    "remove a secret": Attack("rm .env", gone(".env")),
    "rename over a secret": Attack("echo evil > e && mv e .env", says(".env", "evil")),
    "make a new secret": Attack("echo evil > .env.local", there(".env.local")),
    "a new key": Attack("echo evil > src/new.key", there("src/new.key")),
    "a new key in new directories": Attack(
        "mkdir -p x/y/z && echo evil > x/y/z/deep.key", there("x/y/z/deep.key")
    ),
    "a new key in another case": Attack("echo evil > src/NEW.KEY", there("src/NEW.KEY")),
    "a new key as a link": Attack("ln -s a.txt src/l.key", there("src/l.key")),
    "a new key as a directory": Attack(
        "mkdir src/d.key && echo 1 > src/d.key/x", there("src/d.key")
    ),
    "edit a key": Attack("echo evil > src/old.key", says("src/old.key", "evil")),
    "edit a key in place": Attack("sed -i s/old/evil/ src/old.key", says("src/old.key", "evil")),
    "edit a key by a link to it": Attack(
        "ln -s src/old.key l; echo evil > l", says("src/old.key", "evil")
    ),
    "edit a key by a hard link to it": Attack(
        "ln src/old.key l; echo evil > l", says("src/old.key", "evil")
    ),
    "edit a key by /proc": Attack(
        "exec 3<src/old.key; echo evil > /proc/self/fd/3", says("src/old.key", "evil")
    ),
    "truncate a key": Attack(
        "truncate -s 0 src/old.key", lambda r, _: (r / "src/old.key").stat().st_size == 0
    ),
    "remove a key": Attack("rm -f src/old.key", gone("src/old.key")),
    "chmod a key": Attack("chmod 666 src/old.key", mode("src/old.key", 0o022)),
    "exchange a key": Attack(
        PY.format(
            "import ctypes,os;open('e','w').write('evil');print(ctypes.CDLL(None).renameat2(-100,b'e',-100,b'src/old.key',2))"
        ),
        says("src/old.key", "evil"),
    ),
    "swap the directory of a key": Attack(
        "mv src s2 && mkdir src && echo evil > src/old.key", says("src/old.key", "evil")
    ),
    "swap an ancestor": Attack(
        "mv HOT H && mkdir -p HOT/kernel && echo evil > HOT/kernel/code",
        says("HOT/kernel/code", "evil"),
    ),
    "swap an ancestor for a link": Attack(
        "mv HOT H && mkdir e && mkdir e/kernel && echo evil > e/kernel/code && ln -s e HOT",
        says("HOT/kernel/code", "evil"),
    ),
    "edit protected code": Attack("echo evil > HOT/kernel/code", says("HOT/kernel/code", "evil")),
    "new protected code": Attack("echo evil > HOT/kernel/new", there("HOT/kernel/new")),
    "edit the policy": Attack(
        "echo '[paths]' > paddock.toml",
        lambda r, _: (r / "paddock.toml").read_text() == "[paths]\n",
    ),
    "plant a policy": Attack("echo '[paths]' > src/paddock.toml", there("src/paddock.toml")),
    # --- planting what is no file, or leads out
    "plant a FIFO": Attack("mkfifo pipe", there("pipe")),
    "plant a socket": Attack(
        PY.format("import socket;s=socket.socket(socket.AF_UNIX);s.bind('sock')"), there("sock")
    ),
    "plant a link out": Attack("ln -s /etc/shadow l", there("l")),
    "plant a link out by dots": Attack("ln -s ../../../outside/file src/l", there("src/l")),
    "plant a link through a link": Attack("mkdir q && ln -s q/../../.. l", there("l")),
    "plant a link to a secret": Attack("ln -s .env l", there("l")),
    "plant a setuid program": Attack("cp /bin/true s && chmod 4755 s", mode("s", 0o4000)),
    "plant a setgid directory's program": Attack(
        "cp /bin/true s && chmod 2755 s", mode("s", 0o2000)
    ),
    "close a directory": Attack(
        "chmod 000 src", lambda r, _: stat.S_IMODE((r / "src").lstat().st_mode) == 0
    ),
    "plant a closed directory": Attack("mkdir shut && chmod 000 shut", there("shut")),
    "plant a name with a line break": Attack("touch $'a\\nb'", there("a\nb")),
    "plant a name that is no UTF-8": Attack(
        "touch $'a\\xff'", lambda r, _: b"a\xff" in os.listdir(os.fsencode(r))
    ),
    "plant one of our temporaries": Attack(
        "touch .paddock-0123456789abcdef0123456789abcdef.tmp", lambda r, _: bool(temporaries(r))
    ),
    # --- out of the workspace
    "write outside": Attack("echo evil > ../outside/file", outside_says("file", "evil")),
    "write outside by a link that was there": Attack(
        "echo evil > way-out/file", outside_says("file", "evil")
    ),
    "write outside by a hard link that was there": Attack(
        "echo evil > shared", outside_says("shared", "evil")
    ),
    "read outside": Attack("cat ../outside/token > seen", says("seen", TOKEN)),
    "change a mode outside": Attack(
        "chmod 777 ../outside/file", lambda _, o: stat.S_IMODE((o / "file").stat().st_mode) == 0o777
    ),
    "change the mode of a shared file": Attack(
        "chmod 777 shared", lambda _, o: stat.S_IMODE((o / "shared").stat().st_mode) == 0o777
    ),
    "set times outside": Attack(
        "touch -d @1 ../outside/file", lambda _, o: (o / "file").stat().st_mtime == 1
    ),
    # --- what a hostile reader of this list added
    "a git file that leads to a repository made ready": Attack(
        "mkdir -p ready/objects ready/refs && echo 'ref: refs/heads/x' > ready/HEAD"
        " && echo 'gitdir: ../ready' > sub/.git",
        there("sub/.git"),
    ),
    "the configuration of one worktree": Attack(
        "printf '[core]\n\tfsmonitor = evil\n' > .git/config.worktree",
        there(".git/config.worktree"),
    ),
    "a branch that is a link": Attack(
        "mkdir -p .git/refs/heads && ln -s ../../../.env .git/refs/heads/main",
        there(".git/refs/heads/main"),
    ),
    "a strategy that is a program": Attack(
        "mkdir .git/rebase-merge && echo evil > .git/rebase-merge/strategy",
        there(".git/rebase-merge/strategy"),
    ),
    "a bare repository from one that has just been made": Attack(
        "git init -q n2 && mv n2/.git n3 && echo evil >> n3/config", says("n3/config", "evil")
    ),
    "times of a key": Attack(
        "touch -d @1 src/old.key", lambda r, _: (r / "src/old.key").stat().st_mtime == 1
    ),
    "a key behind a mark of overlays": Attack(
        PY.format("import os;os.setxattr('src', 'user.overlay.opaque', b'y')"),
        lambda r, _: "user.overlay.opaque" in os.listxattr(r / "src"),
    ),
    "an access list for others on a key": Attack(
        PY.format(
            "import os,struct\nx=struct.pack('<I',2)+b''.join(struct.pack('<HHI',*e) for e in"
            " [(1,6,2**32-1),(2,6,65534),(4,0,2**32-1),(16,6,2**32-1),(32,0,2**32-1)])\n"
            "os.setxattr('src/old.key','system.posix_acl_access',x)"
        ),
        lambda r, _: "system.posix_acl_access" in os.listxattr(r / "src/old.key"),
    ),
    "exchange a protected directory": Attack(
        "mkdir -p e/kernel && echo evil > e/kernel/code && "
        + PY.format("import ctypes;print(ctypes.CDLL(None).renameat2(-100,b'HOT',-100,b'e',2))"),
        says("HOT/kernel/code", "evil"),
    ),
    "a file in the place of a protected directory": Attack(
        "rm -rf HOT && echo evil > HOT", says("HOT", "evil")
    ),
    "protected code in another case": Attack(
        "mkdir -p hot/KERNEL && echo evil > hot/KERNEL/code", there("hot/KERNEL/code")
    ),
    "a copy that keeps the size and the time of a key": Attack(
        "printf 'evl\n' > e && touch -r src/old.key e && mv e src/old.key",
        says("src/old.key", "evl"),
    ),
    "a file that is mostly holes": Attack(
        "truncate -s 1G holes", lambda r, _: (r / "holes").stat().st_size > 150_000_000
    ),
    "many files that are mostly holes": Attack(
        "for i in 1 2 3; do truncate -s 90M holes$i; done", there("holes3")
    ),
    "a hard link to what a hidden directory holds": Attack(
        "mkdir c9 && ln conf/.env.prod c9/plain && cat c9/plain > seen", says("seen", TOKEN)
    ),
    # --- too much
    "one large file": Attack(
        "head -c 300000000 /dev/zero > big",
        there("big")
        and (lambda r, _: (r / "big").exists() and (r / "big").stat().st_size > 150_000_000),
    ),
    "many files": Attack(
        "for i in $(seq 30); do head -c 10000000 /dev/zero > many$i; done", there("many30")
    ),
    "much memory": Attack(
        PY.format("x = b'x' * 1_500_000_000; open('had','w').write('1')"), there("had")
    ),
    "much memory in many processes": Attack(
        PY.format(
            "import os,time\nfor n in range(6):\n  if os.fork()==0:\n    x=bytearray(b'x')*400_000_000\n    time.sleep(4)\n    os._exit(0)\nfor n in range(6): os.wait()\nopen('had','w').write('1')"
        ),
        there("had"),
    ),
    "many processes": Attack(
        PY.format(
            "import os,time\np=[]\nfor n in range(300):\n  c=os.fork()\n  if c==0:\n    time.sleep(4); os._exit(0)\n  p.append(c)\nopen('had','w').write('1')\nfor c in p: os.waitpid(c,0)"
        ),
        there("had"),
    ),
}


def furnish(base: Path) -> tuple[Path, Path]:
    """A workspace with a repository and things to lose, and a place outside it."""
    root, outside = base / "project", base / "outside"
    outside.mkdir()
    for name in ("file", "shared"):
        (outside / name).write_text("old\n")
    (outside / "token").write_text(TOKEN)
    yard = Yard(base, POLICY)
    root.mkdir()
    yard.write(
        {
            ".env": TOKEN,
            "conf/.env.prod": TOKEN,
            "src/old.key": "old\n",
            "src/a.txt": "a\n",
            "HOT/kernel/code": "old\n",
            "sub/x": "x\n",
            "half/HEAD": "ref: refs/heads/x\n",
            "half/objects/x": "",
            "armed/HEAD": "ref: refs/heads/x\n",
            "armed/objects/x": "",
            "armed/config": "evil\n",
        }
    )
    yard.home.mkdir()
    yard.git("init", "-q", ".")
    shutil.rmtree(root / ".git/hooks")
    (root / ".git/hooks").mkdir()
    yard.git("init", "-q", "a/b/c/d/e/f")
    yard.git("init", "-q", "--bare", "store")
    (root / "way-out").symlink_to("../outside")
    os.link(outside / "shared", root / "shared")
    (root / "paddock.toml").write_text(POLICY)
    return root, outside


def freely(base: Path, attack: Attack) -> bool:
    root, outside = furnish(base)
    environment = {"PATH": os.environ["PATH"], "HOME": str(base / "home")}
    subprocess.run(
        ["bash", "-c", attack.line], cwd=root, env=environment, capture_output=True, check=False
    )
    try:
        return attack.reached(root, outside)
    finally:
        for path in (root, *root.iterdir()):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)


def by_a_client(yard: Yard, line: str) -> str:
    """What a background command of the hook said."""
    session = f"--session={yard.base}/sessions/x"
    given = ["--plane", str(yard.root), "--agent", "main", "--background", session, "--", line]
    ran = forked.run(forked.WRAPPED, given, env=yard.all_variables, cwd=yard.root)
    assert ran.returncode != 126, ran.stderr
    return f"{ran.stdout}{ran.stderr}"


def fenced(base: Path, attack: Attack, *, way: str) -> tuple[bool, str]:
    root, outside = furnish(base)
    yard = Yard(base, POLICY).make()
    if way == "a client's":
        said = by_a_client(yard, hide(attack.line))
        return attack.reached(root, outside), said
    with yard.opened() as terminal:
        if way == "lasting":
            process = start(terminal, hide(attack.line), tty=True)
            process.ended()
            return attack.reached(root, outside), process.said
        result = terminal.call("run_shell", command=hide(attack.line), timeout=60)
    assert result.refusal is None, result.content
    return attack.reached(root, outside), result.content


def test_the_list_is_long_enough(capsys):
    with capsys.disabled():
        print(f"\n{len(ATTACKS)} attacks on the workspace")
    assert len(ATTACKS) >= 69


@pytest.mark.parametrize("way", ["once", "lasting", "a client's"])
@pytest.mark.parametrize(("number", "name"), list(enumerate(ATTACKS, 1)))
def test_an_attack_that_works_in_a_shell_does_not_work_through_the_tool(
    tmp_path: Path, number: int, name: str, way: str
):
    attack = ATTACKS[name]
    (tmp_path / "free").mkdir()
    (tmp_path / "fenced").mkdir()
    assert freely(tmp_path / "free", attack), "without a sandbox it reaches its goal"
    reached, said = fenced(tmp_path / "fenced", attack, way=way)

    assert not reached, said
