"""What is installed, built and tested in real projects: by kind, the user's part and the agent's.

The user's part runs on the host and may use the network; the agent's runs in the sandbox,
from what the user has put into `.packages`, a local index. The host has what the projects
need to be built and tested: a C compiler, autoconf, libtool, redis-server, npm, git-lfs.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from tests.work.sites import LIBRARY, Step, on_host, tests_for

FILE = "PADDOCK-DAY.md"

_CERTIFICATES = [
    f"{name}={value}" for name, value in os.environ.items() if name.endswith("_CA_CERTS")
]
"""Where the network has a certificate of its own, programs find it by variables."""
_TOOLS = ".packages/tools"
_PATH = f"export PATH=$PWD/{_TOOLS}/node_modules/node/bin:$PWD/{_TOOLS}/node_modules/.bin:$PATH"
_PNPM = "$(node -p \"require('./package.json').packageManager.split('+')[0]\")"
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
    # What waits for a network that drops what it is sent: the agent has none.
    "c": (
        "sed -i '/^static void test_async_polling/,/^}/s/config.type == CONN_TCP.*CONN_SSL/0/' test.c",
        "git commit -q -m 'Test without a network' test.c",
    ),
    # Its own age and trust of packages are asked of a registry, which the agent does not reach.
    "monorepo": (
        "sed -i '/^trustPolicy:/d; s/^minimumReleaseAge:.*/minimumReleaseAge: 0/' pnpm-workspace.yaml",
        "git commit -q -m 'Trust the lock file' pnpm-workspace.yaml",
        f"mkdir -p {_TOOLS} && echo '{{}}' > {_TOOLS}/package.json",
        f"pnpm={_PNPM}; cd {_TOOLS} && npm install --no-audit --no-fund --silent node@24 $pnpm",
        f"{_PATH}; pnpm fetch --ignore-scripts --store-dir .packages/store",
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
        *LIBRARY,
        Step("autoreconf -i >/dev/null 2>&1"),
        Step("./configure -q --with-oniguruma=no --disable-docs --disable-maintainer-mode"),
        Step("make -s -j2"),
    ),
    "monorepo": (
        Step(
            f"{_PATH}; pnpm install --offline --frozen-lockfile --ignore-scripts"
            " --store-dir .packages/store"
        ),
        Step(f"{_PATH}; pnpm build"),
    ),
}
_TESTS: Mapping[str, str] = {
    "python": ".venv/bin/python -m pytest -q tests",
    "node": "npx mocha --require test/support/env --reporter dot --check-leaks test/",
    "c": "REDIS_PORT=$((50000 + SECONDS)) make -s check >/dev/null 2>&1",
    "filters": "make -s check >/dev/null 2>&1",
    "monorepo": f"({_PATH}; pnpm vitest run --tags-filter='!slow' --testTimeout=60000)",
}


def prepare(kind: str, root: Path, home: Path) -> None:
    """Do what the user does before an agent comes."""
    for line in _USERS.get(kind, ()):
        on_host(root, home, "env", *_CERTIFICATES, "bash", "-c", line)


def day(kind: str, seconds: int) -> tuple[Step, ...]:
    """The lines with which the agent's day begins."""
    test = tests_for(seconds, _TESTS.get(kind, "git status --short >/dev/null"))
    return (*_AGENTS.get(kind, ()), test)
