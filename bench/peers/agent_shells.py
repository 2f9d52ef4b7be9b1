"""The shell that an agent framework gives its agents: `agent_shells.py PACKAGE ROOT LINE`."""

import asyncio
import os
import sys


def by_deepagents(root: str, line: str) -> str:
    from deepagents.backends import LocalShellBackend

    backend = LocalShellBackend(root_dir=root, virtual_mode=True, inherit_env=True)
    return backend.execute(line).output


def by_anthropic(root: str, line: str) -> str:
    from anthropic.lib.tools.agent_toolset import AgentToolContext, beta_agent_toolset_20260401

    tools = {
        tool.name: tool for tool in beta_agent_toolset_20260401(AgentToolContext(workdir=root))
    }

    async def call() -> object:
        return await tools["bash"].call({"command": line})

    return str(asyncio.run(call()))


def by_inspect_ai(root: str, line: str) -> str:
    from inspect_ai.util._sandbox.local import LocalSandboxEnvironment

    async def call() -> str:
        os.chdir(root)
        done = await LocalSandboxEnvironment().exec(["bash", "-c", line], cwd=root)
        return done.stdout + done.stderr

    return asyncio.run(call())


SHELLS = {"deepagents": by_deepagents, "anthropic": by_anthropic, "inspect_ai": by_inspect_ai}

if __name__ == "__main__":
    package, root, line = sys.argv[1:]
    print(SHELLS[package](root, line))
