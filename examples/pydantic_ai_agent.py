"""A Pydantic AI agent with Paddock's tools, and a person who approves. Offline: a scripted model.

pip install 'paddock[pydantic-ai]'
python examples/pydantic_ai_agent.py path/to/project
"""

import asyncio
import sys

from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

import paddock
from paddock.integrations.pydantic_ai import PaddockToolset

TURNS = [
    # What policy keeps secret is a failed result, which the model reads; nobody is asked.
    [ToolCallPart("view", {"path": ".env"})],
    # Under `ask = ["tool:file:delete **"]` the run ends with a question.
    [ToolCallPart("delete_file", {"path": "src/widgets.py"}, tool_call_id="delete")],
    [TextPart("It is gone, and nobody gets to see .env.")],
]


async def main(root: str) -> None:
    model = FunctionModel(lambda messages, info: ModelResponse(parts=TURNS.pop(0)))
    with paddock.open(root) as runtime:
        toolset = PaddockToolset(runtime)
        agent = Agent(model, toolsets=[toolset], output_type=[str, DeferredToolRequests])
        run = await agent.run("Clean up.")
        while isinstance(run.output, DeferredToolRequests):
            requests = run.output
            for call in requests.approvals:
                # A person would be shown requests.metadata[call.tool_call_id]["question"].
                print("asked:", call.tool_name, call.args["path"])
            run = await agent.run(
                message_history=run.all_messages(),
                deferred_tool_results=requests.build_results(
                    approve_all=True, metadata=requests.metadata
                ),
            )
        print(run.output)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "."))
