"""Claude with Paddock's tools in this process, and its own tools judged by the same policy.

    pip install 'paddock[claude-agent-sdk]'
    python examples/claude_agent.py path/to/project

The SDK's client asks a model: Anthropic's with ANTHROPIC_API_KEY, or a server of your own with
ANTHROPIC_BASE_URL, as in the tests, where this runs offline.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ResultMessage,
    ToolUseBlock,
    query,
)

import paddock
from paddock.integrations.claude_agent_sdk import PaddockServer


def approve(request: paddock.ApprovalRequest) -> bool:
    """A person's answer would go here; this one says no to everything that policy asks about."""
    print("asked:", *request.actions)
    return False


async def prompt() -> AsyncIterator[dict[str, Any]]:
    text = "Mend the typo in README.md, and tell me what stands in .env."
    yield {"type": "user", "message": {"role": "user", "content": text}}


async def main(root: str) -> None:
    with PaddockServer(root, approver=approve) as server:
        options = ClaudeAgentOptions(
            cwd=root,
            mcp_servers={server.name: server.config},
            # What the client would ask about its own tools, the same policy answers.
            can_use_tool=server.permission_callback(),
        )
        async for message in query(prompt=prompt(), options=options):
            if isinstance(message, AssistantMessage):
                for block in message.content:
                    if isinstance(block, ToolUseBlock):
                        print("call:", block.name)
            if isinstance(message, ResultMessage):
                print(message.result)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "."))
