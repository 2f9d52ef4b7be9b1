"""What the file tools refuse, and what no command can bring about: the same set?

    python -m tests.kernel.equivalence [--triples 2000] [--seed N]

A triple is a policy, a path and an operation. The tools do the operation in one tree,
through the door; a command does it in another, by one of several ways; then both trees
are looked at. Many triples share one policy and one command, each in a directory of its
own. Besides, everything that the command left otherwise than it was must be something
that policy allows, path by path.

`generated` and `.git` are left out: those only commands write.
"""

import argparse
import os
import random
import stat
import sys
import tempfile
from collections import Counter
from pathlib import Path

from msgspec import Struct, field

from paddock.assembly.project_open import open_project
from paddock.plane.environment import read_environment
from paddock.policy.decide import decide
from paddock.policy.engine import Writer
from paddock.values.decisions import Action, Agent, Outcome
from tests.support.shells import Terminal, Yard, hide

OPERATIONS = (
    *("create", "overwrite", "rename onto", "link", "delete", "remove directory"),
    *("rename directory", "chmod", "read"),
)
FILES = (
    "notes.txt",
    "app.key",
    "src/main.py",
    "src/token.pem",
    "src/deep/data.env",
    "conf/site.yml",
)
NEW = (
    "new.txt",
    "new.key",
    "src/new.py",
    "made/up/x.pem",
    "src/Data.ENV",
    "conf/extra.yml",
    "vault/n",
)
FOLDERS = ("src", "src/deep", "conf")
CHAIN = (Agent("main", "standard"),)
MARK = "what was there"
WRITTEN = "what was written"

PATTERNS = (
    *("*.key", "*.pem", "*.env", "conf/", "vault/", "src/*.py", "/t*/src/deep/", "**/conf/*.yml"),
    *("*.txt", "main.py", "/t?1/**", "src/deep", "!notes.txt"),
)
RULES = (
    *(
        "create **/conf/**",
        "delete src/*",
        "create *.py",
        "mode *.txt",
        "link new*",
        "delete *.yml",
    ),
    *("create made/**", "mode src/**", "link **", "delete conf"),
)

WAYS = {
    "create": (
        "echo {w} > {p}",
        'python3 -c \'open("{p}", "x").write("{w}\\n")\'',
        "echo {w} > {t} && mv {t} {p}",
    ),
    "overwrite": (
        "echo {w} > {p}",
        "echo {w} > {t} && cp {t} {p} && rm {t}",
        "echo {w} | dd of={p} conv=notrunc 2>/dev/null; truncate -s $((${{#w}} + 0)) /dev/null; echo {w} > {p}",
        'python3 -c \'import mmap,os; f=open("{p}","r+b"); f.truncate(0); f.write(b"{w}\\n")\'',
        "rm -f {p}; echo {w} > {p}",
    ),
    "rename onto": ("echo {w} > {t} && mv -f {t} {p}", "echo {w} > {t} && ln -f {t} {p} && rm {t}"),
    "link": ("ln -s target {p}", "ln -s target {t} && mv {t} {p}"),
    "delete": ("rm -f {p}", "mv {p} /tmp/gone{n}", "python3 -c 'import os; os.unlink(\"{p}\")'"),
    "remove directory": ("rm -rf {p}", "mv {p} /tmp/gone{n}", "find {p} -depth -delete"),
    "rename directory": ("mv {p} {p}2", "cp -a {p} {p}2 && rm -rf {p}"),
    "chmod": (
        "chmod 600 {p}",
        "python3 -c 'import os; os.chmod(\"{p}\", 0o600)'",
        "cp -p {p} {t} && chmod 600 {t} && mv -f {t} {p}",
    ),
    "read": (
        "cat {p}",
        "cp {p} /tmp/r{n} && cat /tmp/r{n}",
        "python3 -c 'print(open(\"{p}\").read())'",
        "ln {p} {t} && cat {t}; rm -f {t}",
    ),
}


class Triple(Struct, frozen=True, dict=True):
    """One operation on one path, in a directory of its own."""

    number: int
    operation: str
    name: str
    way: str

    @property
    def home(self) -> str:
        return f"t{self.number}"

    @property
    def path(self) -> str:
        return f"{self.home}/{self.name}"

    def line(self) -> str:
        names = {"p": self.path, "t": f"{self.home}/tmp.tmp", "w": WRITTEN, "n": self.number}
        parent = os.path.dirname(self.path)
        made = f"mkdir -p {parent}; " if self.operation in {"create", "link"} else ""
        return f"echo BEGIN {self.number}; {made}{{ {self.way.format(**names)}; }} 2>/dev/null"


class Tally(Struct, dict=True):
    """What was found so far."""

    both: Counter = field(default_factory=Counter)
    neither: Counter = field(default_factory=Counter)
    differ: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.both.total() + self.neither.total() + len(self.differ)

    @property
    def shares(self) -> tuple[float, float]:
        return self.both.total() / self.count, self.neither.total() / self.count


def a_policy(rng: random.Random) -> str:
    protected = rng.sample(PATTERNS, rng.randint(1, 4))
    secret = rng.sample([p for p in PATTERNS[:7] if not p.startswith("!")], rng.randint(0, 2))
    rules = rng.sample(RULES, rng.randint(0, 3))
    half = len(rules) // 2
    quoted = lambda texts: ", ".join(f'"{text}"' for text in texts)  # noqa: E731
    actions = [f"tool:file:{rule}" for rule in rules]
    return (
        f"[paths]\nprotected = [{quoted(protected)}]\nsecret = [{quoted(secret)}]\ngenerated = []\n"
        f'[profiles.standard]\nallow = ["tool:*"]\ndeny = [{quoted(actions[half:])}]\n'
        f"ask = [{quoted(actions[:half])}]\n"
    )


def some_triples(rng: random.Random, count: int) -> list[Triple]:
    found = []
    for number in range(count):
        operation = rng.choice(OPERATIONS)
        names = FILES
        if operation in {"create", "link"}:
            names = NEW
        elif "directory" in operation:
            names = FOLDERS
        found.append(Triple(number, operation, rng.choice(names), rng.choice(WAYS[operation])))
    return found


def furnish(yard: Yard, triples: list[Triple]) -> None:
    for triple in triples:
        yard.write({f"{triple.home}/{name}": f"{MARK}\n" for name in FILES})


def by_tools(terminal: Terminal, triple: Triple) -> bool:
    """Whether the tools do it, all of it."""
    path, operation = triple.path, triple.operation
    root = terminal.yard.root
    if operation in {"create", "overwrite", "rename onto"}:
        return _called(terminal, "create_file", path=path, content=f"{WRITTEN}\n")
    if operation == "delete":
        return _called(terminal, "delete_file", path=path)
    if operation == "read":
        result = terminal.call("view", path=path)
        return result.refusal is None and MARK in result.content
    if operation in {"link", "chmod"}:
        # No tool does it; policy says whether one might.
        actions = [Action("file", "mode", path)]
        if operation == "link":
            actions = [Action("file", "create", path), Action("file", "link", path)]
        return terminal.judge.decide(actions).outcome is Outcome.ALLOW
    below = sorted(str(p.relative_to(root)) for p in (root / path).rglob("*"))
    if operation == "rename directory":
        files = [name for name in below if (root / name).is_file()]
        for name in files:
            moved = f"{path}2{name[len(path) :]}"
            if not _called(terminal, "move_file", path=name, to=moved):
                return False
    return all(_called(terminal, "delete_file", path=name) for name in [*_left(root, below), path])


def _left(root: Path, below: list[str]) -> list[str]:
    return [name for name in reversed(below) if os.path.lexists(root / name)]


def _called(terminal: Terminal, tool: str, **arguments: str) -> bool:
    return terminal.call(tool, **arguments).refusal is None


def by_command(root: Path, triple: Triple, printed: str) -> bool:
    """Whether the command brought it about, all of it, as the workspace shows."""
    path = root / triple.path
    operation = triple.operation
    if operation in {"create", "overwrite", "rename onto"}:
        return path.is_file() and path.read_text() == f"{WRITTEN}\n"
    if operation == "link":
        return path.is_symlink()
    if operation in {"delete", "remove directory"}:
        return not os.path.lexists(path)
    if operation == "chmod":
        return stat.S_IMODE(path.stat().st_mode) == 0o600
    if operation == "read":
        return MARK in printed.partition(f"BEGIN {triple.number}\n")[2].partition("BEGIN ")[0]
    moved = Path(f"{path}2")
    wanted = sorted(n[len(triple.name) + 1 :] for n in FILES if n.startswith(f"{triple.name}/"))
    found = sorted(str(p.relative_to(moved)) for p in moved.rglob("*") if p.is_file())
    return found == wanted and not path.exists()


def unlawful(terminal: Terminal, before: dict[str, tuple], after: dict[str, tuple]) -> list[str]:
    """Every path that is not as it was though policy does not allow that."""
    found = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        operation = "delete" if new is None else "create"
        if old is not None and new is not None and old[0] == new[0]:
            operation = "mode"
        is_folder = (new or old)[0] is None
        said = decide(terminal.policy, CHAIN, [Action("file", operation, name)], Writer.COMMAND)
        # A directory is made for what lands in it, as file tools make parents.
        is_for_others = (
            is_folder
            and operation == "create"
            and any(other.startswith(f"{name}/") and after[other][0] is not None for other in after)
        )
        if said.outcome is not Outcome.ALLOW and not is_for_others:
            found.append(f"{operation} {name}: {said.reason}")
    return found


def looks(root: Path) -> dict[str, tuple]:
    found: dict[str, tuple] = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = (os.readlink(path), 0)
        elif path.is_dir():
            found[name] = (None, stat.S_IMODE(path.lstat().st_mode))
        else:
            found[name] = (path.read_bytes(), stat.S_IMODE(path.lstat().st_mode))
    return found


class JudgedTerminal(Terminal):
    """A terminal whose policy can be asked."""

    policy: object = None
    judge: object = None


def try_batch(base: Path, rng: random.Random, count: int, tally: Tally) -> None:
    """One policy, `count` triples, one command."""
    text = a_policy(rng)
    triples = some_triples(rng, count)
    yards = [Yard(base / name, text).make() for name in ("tools", "command")]
    for yard in yards:
        furnish(yard, triples)
    done = {}
    with yards[0].opened() as terminal:
        judged = _judged(terminal)
        for triple in triples:
            done[triple.number] = by_tools(judged, triple)
    with yards[1].opened() as terminal:
        judged = _judged(terminal)
        root = yards[1].root
        before = looks(root)
        said = terminal.run(hide("\n".join(triple.line() for triple in triples)), timeout=120)
        assert not said["timed_out"], said
        assert not said.get("conflict"), said
        after = looks(root)
        tally.wrong += [f"{text}\n{each}" for each in unlawful(judged, before, after)]
        for triple in triples:
            could = by_command(root, triple, said["stdout"])
            if could != done[triple.number]:
                refused = [
                    r for r in said["changes_refused"] if r["path"].startswith(triple.home + "/")
                ]
                tally.differ.append(
                    f"{triple}: tools {done[triple.number]}, command {could}\n{text}\n{refused}"
                )
            else:
                (tally.both if could else tally.neither)[triple.operation] += 1


def _judged(terminal: Terminal) -> JudgedTerminal:
    from paddock.runtime.prepared import PolicyJudge

    yard = terminal.yard
    project = open_project(yard.root, read_environment(yard.all_variables))
    return JudgedTerminal(
        yard, terminal.runtime, project.policy, PolicyJudge(project.policy, CHAIN)
    )


def try_all(count: int, seed: int, batch: int = 60) -> Tally:
    """At least `count` triples."""
    rng, tally = random.Random(seed), Tally()
    while tally.count < count:
        with tempfile.TemporaryDirectory() as base:
            try_batch(Path(base), rng, batch, tally)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--triples", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    tally = try_all(options.triples, options.seed)
    for problem in (*tally.differ, *tally.wrong):
        print(problem)
    both, neither = tally.shares
    print(f"{tally.count} triples: done by both {both:.0%}, by neither {neither:.0%}")
    print(f"{len(tally.differ)} differ, {len(tally.wrong)} unlawful")
    for operation in OPERATIONS:
        print(f"  {operation:18}{tally.both[operation]:6} done{tally.neither[operation]:6} refused")
    is_balanced = min(both, neither) >= 0.3
    return 0 if is_balanced and not tally.differ and not tally.wrong else 1


if __name__ == "__main__":
    sys.exit(main())
