"""A client in front of a project: its events, both ways to judge them, what is recorded."""

import json
import marshal
import os
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from msgspec import Struct, field

from paddock.apps.hook.context import FullContext, make_image, open_context
from paddock.apps.hook.full import HookInput, answer
from paddock.apps.hook.lean import flow
from paddock.apps.hook.lean.handler import Attempt
from paddock.apps.hook.lean.image import HookContext
from paddock.apps.hook.lean.records import LeanRecord
from paddock.apps.hook.lean.request import HookEvent, parse_event
from paddock.ledger.query import Filter, query
from paddock.ledger.verify import verify
from tests.support.places import Place
from tests.support.trusting import record_trust

LAUNCHER = Path(__file__).parents[2] / "src" / "paddock" / "apps" / "hook" / "launch.py"
NO_RANDOMNESS = bytes(range(16))
TODAY = "2026-11-20"


def installed_command(program: Path = LAUNCHER) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", str(program))


class Said(Struct, frozen=True, dict=True):
    """An answer as a client reads it."""

    raw: bytes

    @property
    def fields(self) -> dict[str, Any]:
        return json.loads(self.raw).get("hookSpecificOutput", {}) if self.raw else {}

    @property
    def word(self) -> str:
        return self.fields.get("permissionDecision", "none")

    @property
    def reason(self) -> str:
        return self.fields.get("permissionDecisionReason", "")

    @property
    def context(self) -> str:
        return self.fields.get("additionalContext", "")

    @property
    def message(self) -> str:
        return json.loads(self.raw).get("systemMessage", "") if self.raw else ""


class Client(Struct, dict=True):
    """Claude Code in a project, as far as a hook sees it."""

    place: Place
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def root(self) -> str:
        return str(self.place.project)

    @property
    def environment(self) -> dict[str, str]:
        home = str(self.place.home)
        return {"HOME": home, "CLAUDE_PROJECT_DIR": self.root, **self.variables}

    def event(self, tool: str = "", /, **fields: Any) -> bytes:
        """One event; `{root}` in its texts stands for the project."""
        base = {"hook_event_name": "PreToolUse", "session_id": "SES-1", "cwd": self.root}
        named = {"tool_name": tool, "tool_input": {}} if tool else {}
        return json.dumps(self.filled({**base, **named, **fields})).encode()

    def filled(self, value: Any) -> Any:
        """The value with the project in the place of `{root}`."""
        if isinstance(value, str):
            return value.replace("{root}", self.root)
        if isinstance(value, dict):
            return {key: self.filled(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.filled(each) for each in value]
        return value

    def ask(self, tool: str = "", /, client: str = "", **fields: Any) -> Said:
        """What the full path says."""
        return self.say(self.event(tool, **fields), client)

    def words(self, commands: Iterable[str]) -> dict[str, str]:
        """What the full path says of each command."""
        return {each: self.ask("Bash", tool_input={"command": each}).word for each in commands}

    def say(self, data: bytes, client: str = "", *, keeps_image: bool = False) -> Said:
        """What the full path says to these bytes."""
        return Said(
            answer(HookInput(data, client, self.environment, self.root, keeps_image=keeps_image))
        )

    def lean(self, data: bytes, client: str = "") -> Said:
        """What the lean path says. Raises: DeclinedError, ShapeError."""
        return Said(Attempt(data, client, self.environment).answer())

    def start(
        self, data: bytes, *arguments: str, program: Path = LAUNCHER, **more: Any
    ) -> subprocess.CompletedProcess[bytes]:
        """The installed command as the client starts it."""
        return subprocess.run(
            [*installed_command(program), *arguments],
            input=data,
            env=self.environment,
            cwd=self.root,
            capture_output=True,
            check=False,
            **more,
        )

    def reads_commands(self) -> None:
        """Have the user's own configuration say that commands are read and not confined."""
        path = self.place.environment.user_config
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('[hook]\nshell = "read"\n')

    def write_policy(self, text: str | dict[str, Any], *, trusted: bool = True) -> None:
        """The project's policy: TOML as text, JSON as a dictionary."""
        name = "paddock.toml" if isinstance(text, str) else "paddock.json"
        content = (text if isinstance(text, str) else json.dumps(text)).encode()
        path = self.place.project / name
        path.write_bytes(content)
        if trusted:
            record_trust(path, content, self.place.environment, datetime.now(UTC))

    @property
    def ledger(self) -> Path:
        """The ledger of hook decisions, once there is one."""
        return next((self.place.home / ".local/state/paddock/planes").glob("*/HO1/ledger/*.jsonl"))

    def entries(self, event_type: str = "HOOK_DECISION") -> list[Any]:
        """The entries of one type, oldest first; the ledger is whole."""
        assert verify(str(self.ledger)).problems == ()
        return [row.entry for row in query(str(self.ledger), Filter(event_type)).entries]


class RememberedPorts:
    """Keeps what would be recorded."""

    def __init__(self) -> None:
        self.records: list[LeanRecord] = []

    def append(self, record: LeanRecord) -> None:
        self.records.append(record)

    def wrap(self, judged: flow.LeanJudged, is_asked: bool) -> str:
        return json.dumps({"directory": judged.directory, "asked": is_asked})


class BothWays(Struct, dict=True):
    """One project's policy as the full path has it, and as its image holds it."""

    client: Client
    ground: FullContext
    image: Any

    @classmethod
    def of(cls, client: Client, name: str = "claude") -> "BothWays":
        asked = parse_event(client.event("Read", tool_input={"file_path": "{root}/x"}), name)
        ground = open_context(asked, client.environment, client.root, TODAY)
        (ground.project.layout.ledger_paths()["ho1m"]).touch()
        body = make_image(ground, name, client.environment)
        return cls(client, ground, None if body is None else marshal.loads(body))

    def full(self, data: bytes, name: str = "claude") -> tuple[bytes, dict[str, Any]]:
        """Answer and record of the policy engine."""
        asked = parse_event(data, name)
        ground = open_context(asked, self.client.environment, self.client.root, TODAY)
        return self._run(asked, ground)

    def lean(self, data: bytes, name: str = "claude") -> tuple[bytes, dict[str, Any]]:
        """Answer and record of the image. Raises: DeclinedError."""
        asked = parse_event(data, name)
        return self._run(asked, HookContext(self.image, asked, self.ground.start, TODAY))

    def _run(self, asked: HookEvent, ground: HookContext) -> tuple[bytes, dict[str, Any]]:
        ports = RememberedPorts()
        # What one way has said is not said already for the other.
        ground.warned = "/nowhere/at/all"
        with patch("posix.urandom", lambda size: NO_RANDOMNESS[:size]):
            said = flow.answer(asked, ground, asked.cwd or self.client.root, ports)
        (record,) = ports.records
        return said, vars(record)


def processes(count: int, act: Any) -> None:
    """`act(number)` in so many processes at once; all end well."""
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                act(number)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * count
