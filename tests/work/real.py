"""What is installed, built and tested in real projects: by kind, the user's part and the agent's.

The user's part runs on the host and may use the network; the agent's runs in the sandbox,
from what the user has put into `.packages`, a local index.
"""

from collections.abc import Mapping
from pathlib import Path

from tests.work.sites import Step, on_host, tests_for

FILE = "PADDOCK-DAY.md"

_USERS: Mapping[str, tuple[str, ...]] = {
    "python": ("python3 -m pip download -q -d .packages pip flit_core pytest setuptools wheel",),
    "node": (
        "npm install --cache .packages/npm --no-audit --no-fund --silent",
        "rm -rf node_modules",
    ),
    "filters": (
        "git lfs install --skip-repo",
        "echo '*.bin filter=lfs diff=lfs merge=lfs -text' >> .gitattributes",
        "head -c 100000 /dev/urandom > data.bin",
        "git add .gitattributes data.bin && git commit -q -m 'Add large data'",
    ),
}
_PIP = ".venv/bin/pip install -q --disable-pip-version-check --no-index --find-links .packages"
_AGENTS: Mapping[str, tuple[Step, ...]] = {
    "python": (
        Step("python3 -m venv .venv"),
        Step(f"{_PIP} pytest flit_core"),
        Step(f"{_PIP} --no-build-isolation -e ."),
    ),
    "node": (
        Step("npm install --offline --cache .packages/npm --no-audit --no-fund --no-save"),
        Step("node -e \"require('./')\""),
    ),
    "c": (Step("make -j4"), Step("make -s hiredis-test")),
    "filters": (
        Step("git show :data.bin", says="git-lfs"),
        Step("head -c 200000 /dev/zero > data.bin && git commit -q -am 'More data'"),
        Step("git show HEAD:data.bin", says="size 200000"),
        Step("git lfs ls-files", says="data.bin"),
    ),
}
_TESTS: Mapping[str, str] = {
    "python": ".venv/bin/python -m pytest -q tests",
    "node": "npx mocha --require test/support/env --reporter dot --check-leaks test/",
    "c": "./hiredis-test 2>&1 | grep -q PASSED",
}


def prepare(kind: str, root: Path, home: Path) -> None:
    """Do what the user does before an agent comes."""
    for line in _USERS.get(kind, ()):
        on_host(root, home, "bash", "-c", line)


def day(kind: str, seconds: int) -> tuple[Step, ...]:
    """The lines with which the agent's day begins."""
    test = tests_for(seconds, _TESTS.get(kind, "git status --short >/dev/null"))
    return (*_AGENTS.get(kind, ()), test)
