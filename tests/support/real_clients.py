"""The real clients, run against a model's server on this machine."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tests.support.host import clients_folder
from tests.support.places import Ground
from tests.support.wire_server import Raw, Received, Reply, Speak, WireServer
from tests.support.wire_words import Call, Said, responses_events, says

PROGRAM = [sys.executable, "-c", "from paddock.apps.cli.main import console; console()"]
TIMEOUT_S = 120
_numbers = itertools.count(1)


def wants(tool: str, /, **arguments: Any) -> Said:
    """A turn that asks for one call, under an id that no other turn has."""
    call = Call(f"toolu_{next(_numbers)}", tool, json.dumps(arguments))
    return Said((), (call,), "tool_use")


def namespaced(said: Said, namespace: str) -> Raw:
    """A turn whose call is one of a namespace's tools, as Codex wants it of a model."""
    events = responses_events(said)
    for _, event in events:
        for item in [event.get("item"), *event.get("response", {}).get("output", [])]:
            if item is not None and item.get("type") == "function_call":
                item["namespace"] = namespace
    lines = [f"event: {kind}\ndata: {json.dumps(event)}\n\n" for kind, event in events]
    return Raw("".join(lines).encode())


ERRAND = "ERRAND: "
"""What the message to a sub-agent begins with: by it its requests are told from others."""


class TwoAgents:
    """Replies by who asks: in the place of a server's queue, for requests at the same time.

    The main agent hands out an errand, waits for it, and ends; the sub-agent's turns are given.
    """

    def __init__(self, server: WireServer, errand: Said, turns: tuple[Said, ...]) -> None:
        self._requests = server.requests
        self._errand = errand
        self._turns = list(turns)
        self._has_waited = False

    def __len__(self) -> int:
        return len(self._turns)

    def __bool__(self) -> bool:
        return True

    def popleft(self) -> Reply:
        items = self._requests[-1].body["input"]
        if any(_is_errand(item) for item in items):
            return Speak(self._turns.pop(0) if self._turns else says("done"))
        outputs = [item for item in items if item.get("type") == "function_call_output"]
        if not outputs:
            return namespaced(self._errand, "multi_agent_v1")
        if not self._has_waited:
            self._has_waited = True
            agent = json.loads(_text(outputs[0]["output"]))["agent_id"]
            wait = wants("wait_agent", targets=[agent], timeout_ms=20_000)
            return namespaced(wait, "multi_agent_v1")
        return Speak(says("done"))


TASK = "THE-TASK"
"""In a turn's arguments: the command in the background that the client told of last."""


class Turns(deque[Reply]):
    """A server's queue, in whose turns `TASK` becomes what the requests name."""

    def __init__(self, server: WireServer, said: tuple[Said, ...]) -> None:
        super().__init__(map(Speak, said))
        self._requests = server.requests

    def popleft(self) -> Reply:
        reply = super().popleft()
        named = re.findall(r"in background with ID: (\w+)", json.dumps(self._requests[-1].body))
        if not named or not isinstance(reply, Speak):
            return reply
        calls = tuple(
            replace(each, arguments=each.arguments.replace(TASK, named[-1]))
            for each in reply.said.calls
        )
        return Speak(replace(reply.said, calls=calls))


def _is_errand(item: dict[str, Any]) -> bool:
    content = item.get("content")
    return item.get("role") == "user" and any(
        part.get("text", "").startswith(ERRAND) for part in content or ()
    )


class Session(Struct, frozen=True, dict=True):
    """What one run of a client came to."""

    out: str
    err: str
    requests: tuple[Received, ...]

    def answers(self) -> dict[str, str]:
        """What the model was told about each call, by its id; of a repeated one the first."""
        found: dict[str, str] = {}
        for request in self.requests:
            for item in _answers(request.body):
                found.setdefault(*item)
        return found

    def seen(self) -> str:
        """Everything that the model was sent."""
        return json.dumps([request.body for request in self.requests])


def _answers(body: dict[str, Any]) -> Generator[tuple[str, str]]:
    for message in body.get("messages", ()):
        content = message["content"]
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_result":
                yield block["tool_use_id"], _text(block.get("content"))
    for item in body.get("input", ()):
        if item.get("type", "").endswith("call_output"):
            yield item["call_id"], _text(item.get("output"))


def _text(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content)


class Desk(Ground, frozen=True):
    """Somebody's project with a real client in front of it."""

    def environment(self, url: str = "") -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PATH": f"{clients_folder()}:/usr/local/bin:/usr/bin:/bin",
            "TMPDIR": str(self.base / "tmp"),
            "LANG": "C.UTF-8",
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "no-key",
            "CLAUDE_CONFIG_DIR": str(self.home / ".claude"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CODEX_HOME": str(self.home / ".codex"),
            "LOCAL_KEY": "no-key",
        }

    def paddock(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*PROGRAM, *arguments],
            cwd=self.project,
            env=self.environment() | {"PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done

    def claude(self, *said: Said, options: tuple[str, ...] = ()) -> Session:
        """One headless run, the model saying these turns."""
        with WireServer() as server:
            server._state.replies = Turns(server, said)
            program = [str(clients_folder() / "claude"), "-p", "go", *options]
            return self._ran(server, [*program, "--output-format", "json"])

    def codex(self, *said: Said, errand: Said | None = None) -> Session:
        """As `claude`; without Codex's own sandbox and approvals.

        With an `errand` the turns are those of the sub-agent that it is given to.
        """
        with WireServer() as server:
            if errand is None:
                server.say(*said)
            else:
                server._state.replies = TwoAgents(server, errand, said)
            config = self.home / ".codex" / "config.toml"
            config.write_text(config.read_text().replace("@URL@", server.url))
            program = [str(clients_folder() / "codex"), "exec", "--skip-git-repo-check", "--json"]
            bypass = "--dangerously-bypass-approvals-and-sandbox"
            return self._ran(server, [*program, "--dangerously-bypass-hook-trust", bypass, "go"])

    def _ran(self, server: WireServer, program: list[str]) -> Session:
        done = subprocess.run(
            program,
            cwd=self.project,
            env=self.environment(server.url),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert server.replies_left == 0, (done.stdout, done.stderr)
        return Session(done.stdout, done.stderr, tuple(server.requests))


CODEX_CONFIG = """\
model = "scripted-model"
model_provider = "local"
check_for_update_on_startup = false
[analytics]
enabled = false
[features]
plugins = false
[model_providers.local]
name = "local"
base_url = "@URL@/v1"
env_key = "LOCAL_KEY"
wire_api = "responses"
"""


@contextmanager
def desk() -> Generator[Desk]:
    """A project kept in git, and a home, both gone afterwards."""
    # Codex refuses a home below its directory for temporary files.
    with tempfile.TemporaryDirectory(prefix="paddock-desk-") as name:
        made = Desk(Path(name))
        for folder in ("project/.git", "project/src", "home/.claude", "home/.codex", "tmp"):
            (made.base / folder).mkdir(parents=True)
        (made.home / ".codex" / "config.toml").write_text(CODEX_CONFIG)
        yield made


def broken_copy(directory: Path, faults: str) -> Path:
    """A copy of the package whose hook begins with these statements; its launcher."""
    here = Path(__file__).parents[2] / "src" / "paddock"
    package = directory / "paddock"
    shutil.copytree(here, package, ignore=shutil.ignore_patterns("__pycache__"))
    handler = package / "apps" / "hook" / "lean" / "handler.py"
    begin = "        if len(self.data) > INPUT_BYTES_MAX:\n"
    text = handler.read_text()
    assert begin in text
    handler.write_text(text.replace(begin, faults + begin, 1))
    return package / "apps" / "hook" / "launch.py"
