"""A Strands agent whose commands and files go through Paddock. Offline: its model has three turns.

pip install 'paddock[strands]'
python examples/strands_agent.py path/to/project
"""

import json
import sys
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from strands import Agent
from strands.models import Model

from paddock.integrations.strands import PaddockSandbox


class ScriptedModel(Model):
    """Says these turns, one a request: a text, or a tool and its input."""

    def __init__(self, turns: Sequence[str | tuple[str, dict[str, Any]]]) -> None:
        self._turns = list(turns)

    async def stream(self, *_: Any, **__: Any) -> AsyncGenerator[dict[str, Any], None]:
        turn = self._turns.pop(0)
        yield {"messageStart": {"role": "assistant"}}
        if isinstance(turn, str):
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": turn}}}
        else:
            name, given = turn
            use = {"name": name, "toolUseId": f"call-{len(self._turns)}"}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(given)}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if isinstance(turn, str) else "tool_use"}}

    async def structured_output(self, *_: Any, **__: Any) -> AsyncGenerator[Any, None]:
        raise NotImplementedError
        yield

    def update_config(self, **_: Any) -> None: ...

    def get_config(self) -> dict[str, Any]:
        return {}


def main(root: str) -> None:
    with PaddockSandbox(root) as sandbox:
        model = ScriptedModel(
            [
                ("sandbox_shell", {"command": "wc -l README.md"}),
                # What policy keeps secret is not read, however the model asks.
                ("sandbox_shell", {"command": "cat .env"}),
                "README.md has three lines, and .env is not for me.",
            ]
        )
        agent = Agent(model=model, sandbox=sandbox, callback_handler=None)
        print(agent("How long is the README?"))
        for message in agent.messages:
            for block in message["content"]:
                if "toolResult" in block:
                    print(block["toolResult"]["status"], block["toolResult"]["content"])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ".")
