"""Answer by rules, without a key or a network: the model that comes with Paddock.

It recognises requests for Paddock's own tools, in plain English or written as calls. It runs them
one step after another, and answers from their results. It knows only the conversation in the
request, calls only tools that the request offers, and says when it does not understand.
"""

import json
import re
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from paddock import limits
from paddock.pattern import lazy_pattern
from paddock.providers.builtin_rules import TEXT, TOOLS, Wish, Wishes, find_wishes, unquoted
from paddock.providers.gateway import TextSink, cancelled_turn
from paddock.providers.structured import (
    TurnBuilder,
    as_list,
    as_map,
    as_text,
    read_object,
)
from paddock.text.show import quote
from paddock.values.calls import Cancel, Json, Refusal
from paddock.values.models import (
    AssistantMessage,
    ModelRequest,
    ModelTurn,
    OutputSchema,
    Stop,
    ToolAnswer,
    ToolAnswers,
    ToolSchema,
    Usage,
    UserMessage,
)

WHO: Final = (
    "I am Paddock's built-in model: a small set of rules, not a language model. "
    "I need no key and no network, and I know only requests for Paddock's own tools."
)
_GREETING: Final = lazy_pattern(
    r"(?:hello|hi|hey|hallo|good\s+(?:morning|afternoon|evening|day))\b.{0,40}",
    re.IGNORECASE | re.DOTALL,
)
_THANKS: Final = lazy_pattern(r"(?:thanks|thank\s+you|bye|goodbye)\b.{0,40}", re.IGNORECASE)
_HELP: Final = lazy_pattern(
    r"(?:help|what\s+can\s+(?:you|i)\s+(?:do|ask|say).{0,20}|who\s+are\s+you|what\s+are\s+you"
    r"|what\s+(?:tools|commands)\s+.{0,30}|how\s+do(?:es)?\s+.{0,20}work)\W*",
    re.IGNORECASE,
)


def small_talk(sentence: str, tools: Collection[str]) -> str:
    said = sentence.strip()
    if _GREETING.fullmatch(said):
        example = next((tool.example for name, tool in TOOLS.items() if name in tools), "help")
        return f"Hello. {WHO} Ask me what I can do, or try: {example}"
    if _THANKS.fullmatch(said):
        return "You are welcome."
    return help_text(tools) if _HELP.fullmatch(said) else ""


def help_text(tools: Iterable[str]) -> str:
    there = list(tools)
    if not there:
        return f"{WHO} I have no tools here, so I cannot look up or do anything."
    rows = [f"  {name}: {TOOLS[name].example if name in TOOLS else name}" for name in there]
    form = f"{there[0]} name=value"
    return "\n".join([WHO, "Here I can call:", *rows, f"Or write the call itself: {form}"])


def not_here(wishes: Wishes, tools: Sequence[str]) -> str:
    wanted = " or ".join(dict.fromkeys(wish.tool for wish in wishes))
    have = ", ".join(tools) or "none"
    return f"That needs the tool {wanted}, which I do not have here. My tools are: {have}."


def report(answers: Sequence[ToolAnswer], left: int) -> str:
    parts = [_part(answer) for answer in answers]
    if left:
        parts.append(f"I stopped there, with {left} more of your requests not done.")
    return "\n\n".join(parts)


def _part(answer: ToolAnswer) -> str:
    shown = answer.content[: limits.builtin_answer_chars_max]
    missing = len(answer.content) - len(shown)
    cut = (
        f"\n[the result has {missing} more characters, which are not repeated here]"
        if missing
        else ""
    )
    if answer.is_error:
        return f"{answer.tool} failed:\n{shown}{cut}"
    lead = (answer.tool in TOOLS and TOOLS[answer.tool].lead) or f"{answer.tool}:"
    return f"{lead}\n{shown or '(nothing)'}{cut}"


_QUESTION: Final = lazy_pattern(
    r"(?:what|which|who|when|where|why|how|is|are|do|does|can)\b", re.IGNORECASE
)

_ACTS: Final = {
    "greeting": ("greeting", "social", "phatic", "chat", "conversation"),
    "question": ("question", "query", "information_request", "inquiry", "request"),
    "command": ("command", "request", "directive", "instruction", "action"),
    "statement": ("statement", "assertion", "inform", "other", "unknown"),
}
"""A speech act, and its names in schemas, best first."""
_AMBIGUITY: Final = {
    False: ("low", "none", "clear", "unambiguous"),
    True: ("high", "ambiguous", "medium", "unclear"),
}
_NUMBERS: Final = {
    False: {"boolean": False, "number": 0.1, "integer": 0},
    True: {"boolean": True, "number": 0.9, "integer": 1},
}
"""An ambiguity, if the schema does not ask for a word."""
_EMPTY: Final[Mapping[str, Json]] = {
    "boolean": False,
    "integer": 0,
    "number": 0,
    "array": [],
    "object": {},
}


def fit_answer(output: OutputSchema, sentence: str, answer: str) -> Mapping[str, Json]:
    """Build an object for the schema, from the kind of sentence and `answer` as text.

    It may not fit the schema: the caller checks it, and rules cannot fill an arbitrary schema.
    """
    properties = as_map(output.schema.get("properties"))
    wanted = as_list(output.schema.get("required")) or list(properties)
    act = speech_act(sentence)
    is_unclear = act == "statement"
    known: Mapping[str, tuple[tuple[str, ...], Mapping[str, Json]]] = {
        "speech_act": (_ACTS[act], {}),
        "ambiguity": (_AMBIGUITY[is_unclear], _NUMBERS[is_unclear]),
    }
    found: dict[str, Json] = {}
    for name in map(str, wanted):
        schema = as_map(properties.get(name))
        words, others = known.get(name, ((answer,), _EMPTY))
        by_word = {str(value).lower(): value for value in as_list(schema.get("enum"))}
        if by_word:
            best = next((by_word[word] for word in words if word in by_word), None)
            found[name] = [*by_word.values()][-1] if best is None else best
        else:
            found[name] = others.get(as_text(schema.get("type")), words[0])
    return found


def speech_act(sentence: str) -> str:
    if _HELP.fullmatch(sentence.strip()):
        return "question"
    if small_talk(sentence, ()):
        return "question" if sentence.rstrip().endswith("?") else "greeting"
    if sentence.rstrip().endswith("?") or _QUESTION.match(sentence.strip()):
        return "question"
    return "command" if find_wishes(sentence) else "statement"


_PAIR: Final = lazy_pattern(r"""\s*(\w+)=("(?:\\.|[^"\\])*"|'[^']*'|[^\s"']*)(?=\s|$)""", re.DOTALL)
_SEPARATOR: Final = lazy_pattern(rf"({TEXT})|(\n+|,?\s+(?:and\s+)?then\s+)", re.IGNORECASE)


def parse_call(sentence: str, tools: Mapping[str, ToolSchema]) -> Wish | None:
    """Parse a call in its exact form `tool name=value`; None for any other sentence.

    A value gets the type of its name in the tool's schema. If it does not fit, or the name is
    unknown, it stays text, and the tool reports the error.
    """
    name, _, rest = sentence.strip().partition(" ")
    tool = tools.get(name)
    if tool is None:
        return None
    rest = rest.strip()
    if rest.startswith("{"):
        given = read_object(rest)
        return None if isinstance(given, Refusal) else Wish(name, given)
    properties = as_map(tool.parameters.get("properties"))
    if _PAIR.sub("", rest):
        return None
    pairs = _PAIR.findall(rest)
    return Wish(name, {key: _value(text, as_map(properties.get(key))) for key, text in pairs})


def _value(text: str, schema: Mapping[str, Json]) -> Json:
    kind = schema.get("type")
    if kind in {"integer", "number", "boolean", "array", "object"}:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    if text.startswith('"'):
        try:
            return json.loads(text, strict=False)
        except ValueError:
            return text[1:-1]
    return unquoted(text) if text.startswith("'") else text


def split_steps(text: str) -> list[str]:
    marked = _SEPARATOR.sub(lambda found: found[1] or "\0", text)
    return [step.strip() for step in marked.split("\0") if step.strip()]


MODEL: Final = "paddock-rules-1"
_MARKED: Final = lazy_pattern(r"<user_message>(.*?)</user_message>", re.DOTALL)
"""The marks around the user's words in a prompt that contains more."""


class BuiltinModel:
    name = "builtin"
    model = MODEL

    def route(
        self,
        request: ModelRequest,
        *,
        on_text: TextSink | None = None,
        cancel: Cancel | None = None,
    ) -> ModelTurn:
        if cancel is not None and cancel.is_cancelled:
            return cancelled_turn(self.model)
        sentence, since = _asked(request)
        reply = _next(request, sentence, since)
        builder, text, stop = TurnBuilder(request), "", Stop.TOOL_USE
        if isinstance(reply, Wish):
            call_id = f"builtin_{secrets.token_hex(8)}"
            builder.read(call_id, reply.tool, json.dumps(dict(reply.arguments)))
        else:
            text, stop = reply, Stop.END_TURN
            if request.output is not None:
                fitted = dict(fit_answer(request.output, sentence, reply))
                text = json.dumps(fitted, ensure_ascii=False)
        if on_text is not None and text:
            for line in text.splitlines(keepends=True):
                on_text.text(line)
        return builder.turn(text, stop, Usage(), model=self.model, stop_raw=stop.value)

    def close(self) -> None:
        pass


def _asked(request: ModelRequest) -> tuple[str, list[AssistantMessage | ToolAnswers]]:
    since: list[AssistantMessage | ToolAnswers] = []
    for message in reversed(request.messages):
        if isinstance(message, UserMessage):
            marked = _MARKED.findall(message.text)
            return (marked[-1] if marked else message.text).strip(), since[::-1]
        since.append(message)
    return "", since[::-1]


def _next(
    request: ModelRequest, sentence: str, since: list[AssistantMessage | ToolAnswers]
) -> str | Wish:
    tools = {tool.name: tool for tool in request.tools}
    talk = small_talk(sentence, tools)
    if talk:
        return talk
    steps = split_steps(sentence)
    exact = [parse_call(step, tools) for step in steps]
    plans = [(one,) if one else find_wishes(step) for one, step in zip(exact, steps, strict=True)]
    unknown = [step for step, wishes in zip(steps, plans, strict=True) if not wishes]
    if unknown or not steps:
        # Start no step before all of them are understood.
        said = quote(unknown[0] if unknown else sentence)
        return f"I do not understand {said}.\n{help_text(tools)}"
    came = [answer for each in since if isinstance(each, ToolAnswers) for answer in each.answers]
    left = len(plans) - len(came)
    if came and (left <= 0 or came[-1].is_error):
        return report(came, max(0, left))
    wishes = plans[len(came)]
    possible = [wish for wish in wishes if wish.tool in tools]
    if not possible:
        before = f"{report(came, 0)}\n\n" if came else ""
        return before + not_here(wishes, list(tools))
    return possible[0]
