"""The model that comes with Paddock: rules, no key, no network, always there.

It recognises requests for Paddock's own tools, in plain English or written out,
calls them one step after another, and answers from their results. It remembers
nothing but the conversation in the request, calls only tools that the request
offers, and says so when it does not understand.
"""

import json
import re
import secrets
from dataclasses import dataclass
from typing import Final

from paddock.providers import builtin_answers as answers
from paddock.providers.builtin_meanings import Wish, Wishes
from paddock.providers.builtin_structured import fit_answer
from paddock.providers.builtin_syntax import parse_call, split_steps
from paddock.providers.builtin_wishes import find_wishes
from paddock.providers.gateway import cancelled_turn
from paddock.providers.ports import TextSink
from paddock.providers.reading import CallReader, Parts, finish
from paddock.values.calls import Cancel
from paddock.values.models import (
    AssistantMessage,
    ModelRequest,
    ModelTurn,
    Stop,
    ToolAnswer,
    ToolAnswers,
    Usage,
    UserMessage,
)

MODEL: Final = "paddock-rules-1"
_MARKED: Final = re.compile(r"<user_message>(.*?)</user_message>", re.DOTALL)
"""Where a prompt holds more than the user's own words, these stand in between."""


@dataclass(frozen=True, slots=True)
class _Reply:
    """What it does next: say something, or make a call."""

    text: str
    call: Wish | None = None


def new_call_id() -> str:
    return f"builtin_{secrets.token_hex(8)}"


class BuiltinModel:
    """Answers at once, from the request alone. It costs nothing, and says so: no tokens."""

    name = "builtin"
    model = MODEL

    def route(
        self,
        request: ModelRequest,
        *,
        on_text: TextSink | None = None,
        cancel: Cancel | None = None,
    ) -> ModelTurn:
        """The next call, or the answer."""
        if cancel is not None and cancel.is_cancelled:
            return cancelled_turn(self.model)
        sentence, since = _asked(request)
        reply = _next(request, sentence, since)
        reader = CallReader(request)
        if reply.call is not None:
            reader.read(new_call_id(), reply.call.tool, json.dumps(dict(reply.call.arguments)))
        text = reply.text
        if request.output is not None and reply.call is None:
            text = json.dumps(dict(fit_answer(request.output, sentence, text)), ensure_ascii=False)
        if on_text is not None and text:
            for line in text.splitlines(keepends=True):
                on_text.text(line)
        stop = Stop.END_TURN if reply.call is None else Stop.TOOL_USE
        return finish(request, Parts(text, stop, self.model, Usage(), stop.value), reader)

    def close(self) -> None:
        """Nothing to let go of."""


def _asked(request: ModelRequest) -> tuple[str, list[AssistantMessage | ToolAnswers]]:
    """The user's last words, and what has happened since."""
    since: list[AssistantMessage | ToolAnswers] = []
    for message in reversed(request.messages):
        if isinstance(message, UserMessage):
            marked = _MARKED.findall(message.text)
            return (marked[-1] if marked else message.text).strip(), since[::-1]
        since.append(message)
    return "", since[::-1]


def _next(
    request: ModelRequest, sentence: str, since: list[AssistantMessage | ToolAnswers]
) -> _Reply:
    tools = {tool.name: tool for tool in request.tools}
    talk = answers.small_talk(sentence, tools)
    if talk:
        return _Reply(talk)
    steps = split_steps(sentence)
    plans = [_plan(request, step) for step in steps]
    unknown = [step for step, wishes in zip(steps, plans, strict=True) if not wishes]
    if unknown or not steps:
        # Of several steps, none is done before all are understood.
        return _Reply(answers.not_understood(unknown[0] if unknown else sentence, tools))
    came = [answer for each in since if isinstance(each, ToolAnswers) for answer in each.answers]
    left = len(plans) - len(came)
    if came and (left <= 0 or came[-1].is_error):
        return _Reply(answers.report(came, max(0, left)))
    wishes = plans[len(came)]
    possible = [wish for wish in wishes if wish.tool in tools]
    if not possible:
        return _Reply(_before(came) + answers.not_here(wishes, list(tools)))
    return _Reply("", possible[0])


def _before(came: list[ToolAnswer]) -> str:
    return f"{answers.report(came, 0)}\n\n" if came else ""


def _plan(request: ModelRequest, step: str) -> Wishes:
    exact = parse_call(step, {tool.name: tool for tool in request.tools})
    return find_wishes(step) if exact is None else (exact,)
