"""The admin shell in front of a test: its home, its project or plane, and a terminal."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from paddock.apps.admin.plain import PlainScreen
from paddock.apps.admin.session import Setting
from paddock.apps.admin.shell import run_lines
from paddock.assembly.bootstrap import init_bare_plane
from paddock.assembly.project_open import init_project, open_project
from paddock.assembly.trust import review_trust, trust_policy
from paddock.ledger.query import Filter, query
from paddock.plane.environment import Environment, read_environment
from tests.support import forked
from tests.support.admin_program import SANDBOXES, Examined
from tests.support.repository import ROOT
from tests.support.terminals import Terminal

PADDOCK = Path(sys.executable).parent / "paddock"
POLICY = """
[profiles.standard]
allow = ["tool:file:view **", "tool:search:*", "tool:output:*", "tool:shell:*"]
ask = ["tool:file:create **", "tool:file:delete **", "tool:file:str_replace **"]
deny = ["tool:file:create migrations/**"]
"""
RISKY = {"CP_ADMIN_ENABLE_RISKY_TOOLS": "1"}
_SHELL = """
import sys
from tests.support import forked
from tests.support.admin_program import main
sys.exit(main(sys.argv[1], sys.argv[2:]))
"""


class Site(Struct, frozen=True, dict=True):
    """`base` holds a home, and where the shell is started: a project or a plane."""

    base: Path
    here: Path

    @property
    def home(self) -> Path:
        return self.base / "home"

    def variables(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """What the shell's process has in its environment."""
        return {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(ROOT),
            **(more or {}),
        }

    def environment(self, more: Mapping[str, str] | None = None) -> Environment:
        return read_environment(self.variables(more))

    def open(
        self,
        *options: str,
        sandbox: str = "full",
        columns: int = 80,
        rows: int = 24,
        **variables: str,
    ) -> Terminal:
        """The shell on a terminal, on a host that enforces what is said."""
        return Terminal.fork(
            _SHELL, [sandbox, *options], self.variables(variables), self.here, columns, rows
        )

    def pipe(self, text: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """`paddock admin` on a pipe."""
        ran = self.pipe_bytes(text.encode(), *options, **variables)
        said = (ran.stdout.decode(), ran.stderr.decode())
        return subprocess.CompletedProcess(ran.args, ran.returncode, *said)

    def pipe_bytes(
        self, content: bytes, *options: str, **variables: str
    ) -> subprocess.CompletedProcess[bytes]:
        """`paddock admin` on a pipe that holds anything."""
        return forked.run(
            forked.CONSOLE,
            ["admin", *options],
            env=self.variables(variables),
            cwd=self.here,
            given=content,
        )

    def script(self, *steps: Any) -> str:
        """`--model` for one user's message: these model turns."""
        file = self.base / "steps.json"
        file.write_text(json.dumps(steps))
        return f"scripted:../{file.name}"

    def use_server(self, wire: str, url: str) -> str:
        """`--model` for a server on this machine that speaks this API; its key is TEST_KEY."""
        table = {"provider": "anthropic", "model": "test-model", "base_url": url}
        if wire != "anthropic":
            table |= {"provider": "openai", "base_url": f"{url}/v1", "api": wire}
        rows = [f"{name} = {json.dumps(value)}" for name, value in table.items()]
        file = self.environment().user_config
        file.parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(["[providers.local]", *rows, 'api_key_env = "TEST_KEY"', ""])
        file.write_text(text)
        return "local"

    def shell(
        self, text: str, *, model: str | None = None, sandbox: str = "full", **variables: str
    ) -> tuple[int, str]:
        """The shell in this process, on a pipe; its status and what it showed."""
        everything = self.variables({"TEST_KEY": "sk-test", **variables})
        project = open_project(self.here, read_environment(everything))
        if model is not None:
            model = model.replace("scripted:..", f"scripted:{self.base}")
        setting = Setting(project, None, model, everything, Examined(SANDBOXES[sandbox]))
        out = io.StringIO()
        source = io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")
        return run_lines(setting, PlainScreen(out), source), out.getvalue()

    def entries(self, ledger: str, event_type: str | None = None) -> list[Any]:
        """What is on record."""
        paths = sorted(self.base.rglob(f"{ledger}.jsonl"))
        rows = [row for path in paths for row in query(str(path), Filter(event_type)).entries]
        return [row.entry for row in rows]


def new_project(base: Path, policy: str = POLICY) -> Site:
    """A trusted project with a README."""
    site = Site(base, base / "project")
    site.home.mkdir(parents=True)
    (site.here / ".git").mkdir(parents=True)
    (site.here / "README.md").write_text("# Widgets\nhello teh world\n")
    environment = site.environment()
    init_project(site.here, environment)
    (site.here / "paddock.toml").write_text(policy)
    trust_policy(review_trust(site.here, environment), environment, by="test")
    return site


def new_plane(base: Path, profile: str = "production") -> Site:
    """A bare plane."""
    site = Site(base, base / "plane")
    site.home.mkdir(parents=True)
    init_bare_plane(site.here, site.environment(), profile)
    return site


def _settled_call(found: re.Match[str]) -> str:
    """A call's line whose arguments are cut: as if its duration had four digits."""
    head, arguments, decision, duration = found.groups()
    return f"{head}{arguments[: len(arguments) - (4 - len(duration))]}…{decision}N ms"


_CHANGING = (
    (r"SES-[0-9a-f]{16}", "SES-0123456789abcdef"),
    (r"CALL-[0-9a-f]{16}", "CALL-0123456789abcdef"),
    (r"builtin_[0-9a-f]{16}", "builtin_0123456789abcdef"),
    (r"sha256:[0-9a-f]{16}(?=…)", "sha256:0123456789abcdef"),
    (r"sha256:[0-9a-f]{64}", f"sha256:{'0123456789abcdef' * 4}"),
    (r"scripted:/\S+", "scripted:steps.json"),
    (r"^(  #\d+ \w+ \w+ )(.*)…( · .* · )(\d+) ms$", _settled_call),
    (r"(?<!\w)\d+ ms$", "N ms"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "2026-01-31T12:00:00"),
)


def settled(text: str) -> str:
    """A screen without what is different each time."""
    rows = text.split("\n")
    for pattern, stands in _CHANGING:
        rows = [re.sub(pattern, stands, row) for row in rows]
    return "\n".join(rows)
