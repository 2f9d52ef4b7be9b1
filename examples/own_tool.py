"""A function of this program as a tool of a model, behind a policy of this program.

Offline: the model is a script. Run it in a directory whose project has no policy of its own,
since a policy without the profile `forecaster` would judge the agent by its `standard` too:

    python examples/own_tool.py [DIRECTORY]
"""

import asyncio
import sys
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

import paddock
from paddock.providers.scripted import Say, ScriptedCall, ScriptedModel
from paddock.values.models import (
    AssistantMessage,
    Message,
    ModelRequest,
    ToolAnswer,
    ToolAnswers,
    UserMessage,
)

# The program's policy is trusted, and stands beside the project's: of both answers the
# stricter counts. Who uses this profile may read, and ask for the weather; nothing else.
POLICY = paddock.Policy.parse("""
[profiles.forecaster]
allow = ["tool:file:view", "tool:search:*", "tool:own:weather"]
""")
AGENT = paddock.AgentSpec("forecaster", profile="forecaster")


@dataclass
class Report:
    """A return value that is no text is JSON for the model."""

    city: str
    days: list[str]


async def weather(
    context: paddock.Context,
    city: str,
    days: Annotated[int, Meta(ge=1, le=7)] = 1,
    units: Literal["c", "f"] = "c",
) -> Report:
    """Say the weather of a city.

    Args:
        city: The city, as in Oslo.
        days: How many days.
        units: Celsius or Fahrenheit.
    """
    # Annotations and docstring are the schema that the model sees. The first parameter is
    # not in it: it knows the call, and shows progress to whoever listens.
    context.progress(f"asking for {city}")
    await asyncio.sleep(0)  # Here a client of a weather service would be awaited.
    if city != "Oslo":
        # What the model did wrong, in words that it reads.
        raise paddock.ToolError(f"no such city: {city}", hint="the cities: Oslo")
    return Report(city, [f"{day} {units}: rain" for day in range(days)])


# What a model would say: a good call, one with a bad argument, one that is not allowed.
TURNS = (
    Say(calls=(ScriptedCall("weather", {"city": "Oslo", "days": 2}),)),
    Say(calls=(ScriptedCall("weather", {"city": "Oslo", "days": 70}),)),
    Say(calls=(ScriptedCall("create_file", {"path": "weather.md", "content": "rain"}),)),
    Say("It rains."),
)


def main(directory: str) -> None:
    """Let the model answer; what it is told is printed."""
    with (
        paddock.open(directory, policy=POLICY, agent=AGENT) as runtime,
        ScriptedModel(TURNS) as model,
    ):
        # `@runtime.tool(permission=…)` over the function does the same.
        runtime.tools.add(weather, permission="tool:own:weather", reads_only=True)
        print("tools:", ", ".join(tool.name for tool in runtime.tools.list_all()))
        messages: list[Message] = [UserMessage("Do I need an umbrella?")]
        while True:
            turn = model.route(ModelRequest(tuple(messages)))
            messages.append(AssistantMessage(turn.text, turn.tool_calls))
            if not turn.tool_calls:
                print(turn.text)
                return
            results = [
                runtime.call(use.name, use.arguments, call_id=use.id, on_output=hear)
                for use in turn.tool_calls
            ]
            print(*(result.content for result in results), sep="\n")
            messages.append(ToolAnswers(tuple(map(ToolAnswer.of, results))))


def hear(stream: str, text: str) -> None:
    """What `progress` says, and what commands print."""
    print(f"[{stream}] {text}", end="")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ".")
