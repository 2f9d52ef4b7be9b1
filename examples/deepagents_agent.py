"""A deep agent whose files and commands go through Paddock. Offline: its model has five turns.

pip install 'paddock[deepagents]'
python examples/deepagents_agent.py path/to/project
"""

import sys
from typing import Any

from deepagents import create_deep_agent
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, ToolMessage

from paddock.integrations.deepagents import PaddockBackend


class ScriptedModel(FakeMessagesListChatModel):
    """Says these messages, one a request."""

    def bind_tools(self, *_: Any, **__: Any) -> "ScriptedModel":
        return self


def calling(name: str, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call-{name}"}])


def main(root: str) -> None:
    with PaddockBackend(root) as backend:
        where = backend.runtime.root  # paths are those of the host
        turns = [
            calling("grep", pattern="teh", path=where),
            calling(
                "edit_file", file_path=f"{where}/README.md", old_string="teh", new_string="the"
            ),
            calling("execute", command="wc -l < README.md"),
            # What policy keeps secret is neither read nor listed, however the model asks.
            calling("read_file", file_path=f"{where}/.env"),
            AIMessage("README.md is right now, and .env is not for me."),
        ]
        agent = create_deep_agent(model=ScriptedModel(responses=turns), backend=backend)
        done = agent.invoke({"messages": [("user", "Mend the README.")]})
        for message in done["messages"]:
            if isinstance(message, ToolMessage):
                print(f"{message.name}: {message.text.replace(where, '…')}")
        print(done["messages"][-1].text)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ".")
