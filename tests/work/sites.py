"""Projects of five kinds, each as a user would have it on the disk before an agent starts.

Small ones are made here. With PADDOCK_WORK_PROJECTS, a folder of bare repositories named by
kind (`python.git`, `node.git`, `c.git`, `filters.git`, `monorepo.git`), real ones are cloned;
`real.py` says what is installed, built and tested in them.
"""

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct, field

from paddock.plane.environment import read_environment

POLICY = "# the built-in policy\n"
SECRET = "TOKEN=only-the-user-has-this\n"
KEY = "a key for tests, in the repository\n"
OWN_KEY = "the key that the user put in its place\n"


class Step(Struct, frozen=True, dict=True):
    """One line that the agent runs; `status` None where any end will do."""

    line: str
    status: int | None = 0
    says: str = ""


class Site(Struct, frozen=True, dict=True):
    """A workspace, and what in it and around it is the user's alone."""

    base: Path
    root: Path
    day: tuple[Step, ...]
    kept: Mapping[Path, bytes] = field(default_factory=dict)
    """What only the user has: the same after the day."""
    made: tuple[str, ...] = ()
    """What the day leaves, relative to the root."""

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def variables(self) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}

    def git(self, *arguments: str, where: Path | None = None) -> str:
        """The user's own git."""
        return on_host(where or self.root, self.home, "git", *arguments)

    @property
    def environment(self):
        return read_environment(self.variables)


def on_host(where: Path, home: Path, *argv: str) -> str:
    variables = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    done = subprocess.run(
        argv, cwd=where, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (argv, done.stdout, done.stderr)
    return done.stdout


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


COMMON = {
    "README.md": "one\ntwo\nthree\n",
    ".env.example": "TOKEN=\n",
    "certs/test.key": KEY,
    ".gitignore": ".env\n.venv/\nnode_modules/\n.packages/\nbuild/\n*.o\nagent_sandbox/\n",
}
"""In every repository: what looks secret and is tracked, what is secret and is not."""


def git_day(file: str = "README.md") -> tuple[Step, ...]:
    """A day with git: branch, commit, conflict, stash, rebase, clean."""
    return (
        Step("git status --short"),
        Step("git switch -q -c feature"),
        Step(f"sed -i '1s/.*/from the feature/' {file} && echo new > notes.txt"),
        Step("git add -A && git commit -q -m 'Add a feature'"),
        Step("git switch -q -"),
        Step(f"sed -i '1s/.*/from main/' {file} && git commit -q -am 'Change the same line'"),
        Step("git merge feature", status=1, says="CONFLICT"),
        Step("git status --short", says="UU"),
        Step(f"grep -v '^[<=>]\\{{7\\}}' {file} > merged.tmp && mv merged.tmp {file}"),
        Step("git commit -q -a -m 'Merge the feature'"),
        Step(f"echo unfinished >> {file} && git stash -q"),
        Step(f"tail -n 1 {file}"),
        Step("git stash pop -q && git diff --stat", says="1 file changed"),
        Step(f"git checkout -q -- {file}"),
        Step("git switch -q -c topic HEAD~1"),
        Step("echo topic > topic.txt && git add topic.txt && git commit -q -m 'Add a topic'"),
        Step("git rebase -q -", status=0),
        Step("git log --oneline -n 3", says="Add a topic"),
        Step("touch junk.tmp && git clean -q -f && test ! -e junk.tmp"),
        Step("git fsck --no-dangling"),
        Step("git status --short --branch"),
    )


def tests_for(seconds: int, line: str) -> Step:
    """A run of tests that takes so long."""
    return Step(
        f"end=$((SECONDS+{seconds})); while :; do {line} || exit 1; [ $SECONDS -ge $end ] && break; done"
    )


def begin(base: Path, kind: str, files: Mapping[str, str]) -> Path:
    """A home with a name and an address, and a clone of what has these files."""
    home, origin = base / "home", base / "origin.git"
    home.mkdir(parents=True)
    config = {"user.name": "Ada", "user.email": "ada@example.org", "init.defaultBranch": "main"}
    config |= {"protocol.file.allow": "always", "commit.gpgSign": "false"}
    for key, value in config.items():
        on_host(base, home, "git", "config", "--global", key, value)
    real = os.environ.get("PADDOCK_WORK_PROJECTS")
    first = base / "first"
    if real:
        on_host(base, home, "git", "clone", "-q", f"{real}/{kind}.git", str(first))
        on_host(first, home, "git", "switch", "-q", "-C", "main")
        ignore = first / ".gitignore"
        own = ignore.read_text() if ignore.exists() else ""
        write(
            first,
            {name: text for name, text in COMMON.items() if name.startswith((".env", "certs"))},
        )
        package = {
            "packages/cli/certs/test.key": KEY,
            "packages/cli/PADDOCK-DAY.md": "one\ntwo\nthree\n",
        }
        write(first, package if kind == "monorepo" else {})
        write(
            first, {"PADDOCK-DAY.md": "one\ntwo\nthree\n", ".gitignore": own + COMMON[".gitignore"]}
        )
    else:
        first.mkdir()
        on_host(first, home, "git", "init", "-q")
        write(first, {**COMMON, **files})
    on_host(first, home, "git", "add", "-A", "-f", "--", ".")
    on_host(first, home, "git", "commit", "-q", "-m", "Begin")
    on_host(base, home, "git", "clone", "-q", "--bare", str(first), str(origin))
    return origin


def settle(base: Path, root: Path) -> dict[Path, bytes]:
    """What the user has besides what the repository holds."""
    (root / ".env").write_text(SECRET)
    (root / "certs/test.key").write_text(OWN_KEY)
    return {root / ".env": SECRET.encode(), root / "certs/test.key": OWN_KEY.encode()}


def clone(base: Path, origin: Path, name: str = "project", *options: str) -> Path:
    root = base / name
    on_host(base, base / "home", "git", "clone", "-q", *options, str(origin), str(root))
    return root


Maker = Callable[[Path, int], Site]


def is_real() -> bool:
    """Whether real projects are worked in."""
    return bool(os.environ.get("PADDOCK_WORK_PROJECTS"))


def a_day(kind: str, root: Path, home: Path, seconds: int, *small: Step) -> tuple[Step, ...]:
    """The lines of a day: of a real project, or those given here, and then the work with git."""
    if not is_real():
        return (*small, *git_day())
    from tests.work import real  # it needs the steps of this module

    real.prepare(kind, root, home)
    return (*real.day(kind, seconds), *git_day(real.FILE))


def wheel(folder: Path, name: str, code: str) -> None:
    """A wheel of one module (PEP 427)."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", code)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        rows = [f"{name}.py,,", f"{info}/METADATA,,", f"{info}/WHEEL,,", f"{info}/RECORD,,"]
        archive.writestr(f"{info}/RECORD", "\n".join(rows) + "\n")


def python(base: Path, seconds: int) -> Site:
    """A package with a virtual environment, a dependency from a local index, tests."""
    test = "import unittest, helper\nclass T(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(helper.WORD, 'yes')\n"
    root = clone(
        base, begin(base, "python", {"src/app.py": "import helper\n", "tests/test_app.py": test})
    )
    wheel(root / ".packages", "helper", "WORD = 'yes'\n")
    kept = settle(base, root)
    day = a_day(
        "python",
        root,
        base / "home",
        seconds,
        Step("python3 -m venv .venv"),
        Step(
            ".venv/bin/pip install -q --disable-pip-version-check --no-index --find-links .packages helper"
        ),
        Step("test -s .venv/lib/python3*/site-packages/pip/_vendor/certifi/cacert.pem"),
        Step(".venv/bin/python -m compileall -q src"),
        tests_for(seconds, ".venv/bin/python -m unittest -q tests/test_app.py"),
    )
    return Site(base, root, day, kept, (".venv/bin/python", ".venv/lib"))


def node(base: Path, seconds: int) -> Site:
    """A package with a dependency."""
    files = {
        "package.json": '{"name": "app", "version": "1.0.0", "scripts": {"build": "node build.js", "test": "node test.js"}}\n',
        "build.js": "require('fs').mkdirSync('build', {recursive: true}); require('fs').writeFileSync('build/out.js', '1')\n",
        "test.js": "if (require('dep') !== 'yes') process.exit(1)\n",
    }
    root = clone(base, begin(base, "node", files))
    dependency = root / ".packages/dep"
    write(
        dependency,
        {
            "package.json": '{"name": "dep", "version": "1.0.0"}\n',
            "index.js": "module.exports = 'yes'\n",
            ".env": "X=1\n",
        },
    )
    on_host(root / ".packages", base / "home", "npm", "pack", "--silent", "./dep")
    kept = settle(base, root)
    day = a_day(
        "node",
        root,
        base / "home",
        seconds,
        Step("npm install --offline --no-audit --no-fund --no-save ./.packages/dep-1.0.0.tgz"),
        Step("npm run -s build"),
        tests_for(seconds, "npm test -s"),
    )
    made = (
        ("node_modules",)
        if is_real()
        else ("node_modules/dep/index.js", "node_modules/dep/.env", "build/out.js")
    )
    return Site(base, root, day, kept, made)


def c(base: Path, seconds: int) -> Site:
    """A program that is built."""
    files = {
        "main.c": '#include <stdio.h>\nint main(void) { puts("built"); return 0; }\n',
        "Makefile": "build/app: main.c\n\tmkdir -p build\n\tcc -o $@ main.c\ncheck: build/app\n\t./build/app | grep -q built\n",
    }
    root = clone(base, begin(base, "c", files))
    kept = settle(base, root)
    day = a_day(
        "c", root, base / "home", seconds, Step("make -j4"), tests_for(seconds, "make -s check")
    )
    return Site(base, root, day, kept, () if is_real() else ("build/app",))


LIBRARY = (
    Step("echo change >> lib/lib.txt && git -C lib commit -q -am 'Change the library'"),
    Step("git add lib && git commit -q -m 'Take the new library'"),
    Step("git submodule status", says="lib"),
)
"""Work in a submodule."""


def filters(base: Path, seconds: int) -> Site:
    """A repository with a submodule, and a filter of the user's."""
    origin = begin(base, "filters", {})
    home, library = base / "home", base / "library"
    for key, value in (("clean", "tr a-z b-za"), ("smudge", "tr b-za a-z"), ("required", "true")):
        on_host(base, home, "git", "config", "--global", f"filter.rot.{key}", value)
    library.mkdir()
    on_host(library, home, "git", "init", "-q")
    write(library, {"lib.txt": "library\n"})
    on_host(library, home, "git", "add", "-A")
    on_host(library, home, "git", "commit", "-q", "-m", "Begin the library")
    root = clone(base, origin)
    on_host(root, home, "git", "submodule", "--quiet", "add", str(library), "lib")
    write(
        root,
        {} if is_real() else {"data.rot": "plain text\n", ".gitattributes": "*.rot filter=rot\n"},
    )
    on_host(root, home, "git", "add", "-A")
    on_host(root, home, "git", "commit", "-q", "-m", "Add a library and filtered data")
    kept = settle(base, root)
    day = a_day(
        "filters",
        root,
        base / "home",
        seconds,
        Step("git show :data.rot", says="qmbjo"),
        Step("echo more text >> data.rot && git commit -q -am 'More data'"),
        Step("git show HEAD:data.rot", says="npsf ufyu"),
        *LIBRARY,
        tests_for(seconds, "git status --short >/dev/null"),
    )
    return Site(base, root, day, kept, ("lib/lib.txt",))


MONOREPO = {
    "packages/a/index.txt": "a\n",
    "packages/a/README.md": "one\ntwo\nthree\n",
    "packages/a/certs/test.key": KEY,
    "packages/b/index.txt": "b\n",
}


def worktree(base: Path, seconds: int) -> Site:
    """A linked worktree of a monorepo."""
    main = clone(base, begin(base, "monorepo", MONOREPO), "main")
    root = base / "project"
    on_host(main, base / "home", "git", "worktree", "add", "-q", str(root), "-b", "work")
    kept = settle(base, root)
    (main / "only-in-main").write_text("the user's\n")
    kept |= {
        main / "only-in-main": b"the user's\n",
        main / "README.md": (main / "README.md").read_bytes(),
    }
    day = a_day(
        "monorepo",
        root,
        base / "home",
        seconds,
        tests_for(seconds, "git status --short >/dev/null"),
    )
    return Site(base, root, day, kept)


def below(base: Path, seconds: int) -> Site:
    """One package of a monorepo: the workspace lies below the repository's root."""
    main = clone(base, begin(base, "monorepo", MONOREPO), "main")
    root = main / ("packages/cli" if is_real() else "packages/a")
    kept = settle(base, root)
    outside = main / ("package.json" if is_real() else "packages/b/index.txt")
    outside.write_text("changed by the user\n")
    kept |= {outside: b"changed by the user\n"}
    day = a_day(
        "below",
        root,
        base / "home",
        seconds,
        tests_for(seconds, "git status --short >/dev/null"),
    )
    return Site(base, root, day, kept)


SITES: Mapping[str, Maker] = {
    "python": python,
    "node": node,
    "c": c,
    "filters": filters,
    "worktree": worktree,
    "below": below,
}
PROGRAMS = {"node": "npm", "c": "make"}
PADDOCK = [sys.executable, "-c", "from paddock.apps.cli.main import console; console()"]
