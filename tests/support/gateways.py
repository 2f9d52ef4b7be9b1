"""MCP servers made for tests, in one Python program each, and a yard whose policy names them."""

import json
import textwrap
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from paddock.assembly.project_open import open_project
from paddock.assembly.trust import review_servers
from paddock.gateway.definitions import Pins, configured
from paddock.plane.environment import read_environment
from tests.support.shells import Terminal, Yard

PLAIN = """
import json, os, socket, sys, threading, time

def say(message):
    sys.stdout.write(json.dumps(message) + "\\n")
    sys.stdout.flush()

def text(said, **more):
    return {"content": [{"type": "text", "text": said}], **more}

def tool(name, description="Say a text.", **more):
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return {"name": name, "description": description, "inputSchema": schema, **more}

TOOLS = [tool("say"), tool("act")]

def act(arguments, id):
    return text("acted")

def answer(message):
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}, "resources": {}, "prompts": {}}
        info = {"name": "made", "version": VERSION}
        say({"jsonrpc": "2.0", "id": id, "result": {"protocolVersion": "2025-06-18",
             "capabilities": capabilities, "serverInfo": info}})
    elif method == "tools/list":
        say({"jsonrpc": "2.0", "id": id, "result": {"tools": TOOLS}})
    elif method == "prompts/list":
        say({"jsonrpc": "2.0", "id": id, "result": {"prompts": PROMPTS}})
    elif method == "resources/list":
        listed = [{"uri": "made:///one", "name": "one"}]
        say({"jsonrpc": "2.0", "id": id, "result": {"resources": listed}})
    elif method == "resources/read":
        contents = [{"uri": params["uri"], "text": "what stands in " + params["uri"]}]
        say({"jsonrpc": "2.0", "id": id, "result": {"contents": contents}})
    elif method == "prompts/get":
        said = [{"role": "user", "content": {"type": "text", "text": "do " + params["name"]}}]
        say({"jsonrpc": "2.0", "id": id, "result": {"messages": said}})
    elif method == "tools/call":
        arguments = params.get("arguments") or {}
        called(params["name"], arguments, id)
    elif id is not None and method is not None:
        say({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "unknown"}})
    elif method is None:
        answered(message)

def called(name, arguments, id):
    result = text(arguments.get("text", "")) if name == "say" else act(arguments, id)
    if result is not None:
        say({"jsonrpc": "2.0", "id": id, "result": result})

def answered(message):
    pass

VERSION, PROMPTS = "1", [{"name": "plan", "description": "Make a plan."}]
"""
LOOP = """
for line in sys.stdin:
    answer(json.loads(line))
"""


def program(own: str = "") -> list[str]:
    """The command of a server; `own` replaces what it names of the plain one."""
    return ["python3", "-c", PLAIN + textwrap.dedent(own) + LOOP]


def table(name: str, own: str = "", **more: Any) -> str:
    """A server's table of a policy."""
    rows = {"command": program(own), **more}
    said = "".join(f"{key} = {toml(value)}\n" for key, value in rows.items())
    return f"\n[mcp.servers.{name}]\n{said}"


def toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


OPEN = '[profiles.standard]\nallow = ["tool:*"]\n'


class Gates(Struct, dict=True):
    """A yard whose policy names servers."""

    yard: Yard

    def review(self, *names: str) -> None:
        project = open_project(self.yard.root, read_environment(self.yard.all_variables))
        for review in review_servers(project, None, names):
            review.accept(by="test")

    def review_as(self, model: str, *names: str) -> None:
        """Take for each what was reviewed of another: what it should be and is not."""
        project = open_project(self.yard.root, read_environment(self.yard.all_variables))
        pins = Pins(project.root, project.environment)
        servers = {each.name: each for each in project.policy.settings.mcp.servers}
        for name in names:
            pins.put(name, replace(pins.read()[model], configured=configured(servers[name])))

    @contextmanager
    def opened(self, *names: str) -> Generator[Terminal, None, None]:
        self.review(*names)
        with self.yard.opened() as terminal:
            yield terminal


def gates(
    base: Path, *tables: str, policy: str = OPEN, variables: Mapping[str, str] | None = None
) -> Gates:
    base.mkdir(exist_ok=True)
    return Gates(Yard(base, policy + "".join(tables), variables or {}).make())
