"""The ways by which an agent runs a day's lines: each takes a site, and gives what every line said."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from msgspec import Struct

from paddock.apps.hook.context import command_program
from paddock.apps.hook.lean.flow import quote
from paddock.assembly.project_open import open_project
from paddock.assembly.runtimes import open_runtime
from paddock.runtime.approvals import NoApprover
from tests.support import forked
from tests.support.host import clients_folder
from tests.support.real_clients import Session, wants
from tests.support.wire_server import WireServer
from tests.support.wire_words import says
from tests.work.sites import PADDOCK, Site

TIMEOUT_S = 600


class Said(Struct, frozen=True, dict=True):
    """How one line ended; `status` None where the door does not say."""

    status: int | None
    text: str


Door = Callable[[Site], list[Said]]


def run_shell(site: Site) -> list[Said]:
    """The tool itself, in Python, with nobody to ask."""
    said: list[Said] = []
    project = open_project(site.root, site.environment)
    with open_runtime(project, agent=None, approver=NoApprover()) as runtime:
        for step in site.day:
            result = runtime.call("run_shell", {"command": step.line, "timeout": TIMEOUT_S})
            code = result.details.get("exit_code")
            said.append(Said(code if isinstance(code, int) else None, result.content))
    return said


def mcp(site: Site) -> list[Said]:
    """The MCP server, by the SDK's own client."""
    said: list[Said] = []

    async def work() -> None:
        variables = {**site.variables, "PYTHONPATH": os.pathsep.join(sys.path)}
        program, *arguments = [*forked.command(forked.CONSOLE), "mcp"]
        server = StdioServerParameters(
            command=program, args=arguments, cwd=str(site.root), env=variables
        )
        async with Client(server, read_timeout_seconds=TIMEOUT_S) as client:
            for step in site.day:
                arguments = {"command": step.line, "timeout": TIMEOUT_S}
                result = await client.call_tool("run_shell", arguments)
                found = result.structured_content or {}
                text = "\n".join(getattr(block, "text", "") for block in result.content)
                code = found.get("exit_code", _code_in(text))
                said.append(Said(code, text or json.dumps(found)))

    anyio.run(work)
    return said


def _code_in(text: str) -> int | None:
    first = text.partition("\n")[0]
    number = first.removeprefix("exit code ").partition(" ")[0]
    return int(number) if first.startswith("exit code ") and number.isdigit() else None


def hook(site: Site) -> list[Said]:
    """The hook, asked as Claude Code asks it; its answer is carried out as that client would."""
    said: list[Said] = []
    variables = {
        **site.variables,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "CLAUDECODE": "1",
        "CLAUDE_PROJECT_DIR": str(site.root),
    }
    # The line of a wrapped command starts its program: how that starts is seen elsewhere.
    start = _quoted(command_program())
    forked_start = _quoted(forked.command(forked.WRAPPED))
    for number, step in enumerate(site.day):
        event = {
            "session_id": "a-day",
            "cwd": str(site.root),
            "hook_event_name": "PreToolUse",
            "tool_name": "Bash",
            "tool_input": {"command": step.line, "timeout": TIMEOUT_S * 1000},
            "tool_use_id": f"toolu_{number}",
        }
        asked = _run(
            [*forked.command(forked.CONSOLE), "hook"], site.root, variables, json.dumps(event)
        )
        answer = json.loads(asked.stdout or "{}").get("hookSpecificOutput", {})
        if answer.get("permissionDecision") != "allow":
            said.append(Said(None, asked.stdout + asked.stderr))
            continue
        line = answer.get("updatedInput", event["tool_input"])["command"]
        if answer.get("updatedInput"):
            assert start in line
            line = line.replace(start, forked_start, 1)
        ran = _run(["/bin/bash", "-c", line], site.root, variables)
        said.append(Said(ran.returncode, ran.stdout + ran.stderr))
    return said


def _quoted(words: Sequence[str]) -> str:
    return " ".join(map(quote, words))


def _run(
    argv: list[str], here: Path, variables: dict[str, str], given: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, cwd=here, env=variables, input=given, capture_output=True, text=True, check=False
    )


def claude(site: Site) -> list[Said]:
    """The real Claude Code, with the hook installed, and a model that says these lines."""
    variables = {
        **site.variables,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "CLAUDE_CONFIG_DIR": str(site.home / ".claude"),
    }
    (site.home / ".claude").mkdir(exist_ok=True)
    installed = _run(
        [*PADDOCK, "hook", "install", "--yes", "--scope", "user"], site.root, variables
    )
    assert installed.returncode == 0, installed.stderr
    turns = [
        wants("Bash", command=step.line, description="work", timeout=TIMEOUT_S * 1000)
        for step in site.day
    ]
    with WireServer() as server:
        server.say(*turns, says("done"))
        variables |= {
            "PATH": f"{clients_folder()}:{variables['PATH']}",
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "no-key",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "BASH_MAX_TIMEOUT_MS": str(TIMEOUT_S * 1000),
        }
        argv = [str(clients_folder() / "claude"), "-p", "go", "--output-format", "json"]
        ran = _run(argv, site.root, variables)
        session = Session(ran.stdout, ran.stderr, tuple(server.requests))
    answers = session.answers()
    return [_of_claude(answers.get(turn.calls[0].id, "no answer: " + ran.stderr)) for turn in turns]


def _of_claude(text: str) -> Said:
    """Claude Code says `Exit code N` first where a command failed."""
    shown = text
    with contextlib.suppress(ValueError):
        shown = json.loads(text) if text[:1] == '"' else text
    first, _, _ = shown.partition("\n")
    if first.startswith("Exit code "):
        return Said(int(first.removeprefix("Exit code ")), shown)
    return Said(None if "hook error" in shown or "no answer" in shown else 0, shown)


DOORS: dict[str, Door] = {"run_shell": run_shell, "mcp": mcp, "hook": hook}
