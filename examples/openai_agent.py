"""Two agents of the OpenAI Agents SDK whose work goes through Paddock. Offline: scripted models.

pip install 'paddock[openai-agents]'
python examples/openai_agent.py path/to/project
"""

import asyncio
import sys

from agents import Agent, ApplyPatchTool, RunConfig, Runner, ShellTool
from agents.sandbox import SandboxAgent, SandboxRunConfig
from agents.testing import ScriptedModel, assistant_message, function_call
from openai.types.responses import ResponseFunctionShellToolCall
from openai.types.responses.response_function_shell_tool_call import Action

import paddock
from paddock.integrations.openai_agents import (
    PaddockSandboxClient,
    patch_editor,
    shell_executor,
)

# Without this the SDK would send traces to its maker.
QUIET = RunConfig(tracing_disabled=True)


def show(result: object) -> None:
    for item in result.new_items:
        if item.type == "tool_call_output_item":
            print(item.output.strip().splitlines()[-1])
    print(result.final_output)


async def in_a_sandbox(root: str) -> None:
    """An agent that has a whole sandbox: its shell and its patches are the SDK's own tools."""
    model = ScriptedModel(
        [
            [function_call("exec_command", {"cmd": "wc -l README.md"}, call_id="1")],
            # What policy keeps secret is not there for a command.
            [function_call("exec_command", {"cmd": "cat .env"}, call_id="2")],
            [assistant_message("README.md has three lines, and .env is not for me.")],
        ]
    )
    agent = SandboxAgent(name="sandboxed", model=model)
    with PaddockSandboxClient(root) as client:
        config = RunConfig(sandbox=SandboxRunConfig(client=client), tracing_disabled=True)
        show(await Runner.run(agent, "How long is the README?", run_config=config))


async def with_tools(root: str) -> None:
    """A plain agent with two of OpenAI's own tools, over one runtime."""
    action = Action(commands=["head -1 README.md", "echo x > .git/config"])
    call = ResponseFunctionShellToolCall(
        id="1", call_id="1", action=action, status="completed", type="shell_call"
    )
    model = ScriptedModel([[call], [assistant_message("I may read, and not change git.")]])
    with paddock.open(root) as runtime:
        agent = Agent(
            name="plain",
            model=model,
            tools=[
                ShellTool(executor=shell_executor(runtime)),
                ApplyPatchTool(editor=patch_editor(runtime)),
            ],
        )
        show(await Runner.run(agent, "What is this project?", run_config=QUIET))


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else "."
    asyncio.run(in_a_sandbox(where))
    asyncio.run(with_tools(where))
