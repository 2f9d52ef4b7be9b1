"""The built-in model's answers where a schema says what they must look like."""

import re
from collections.abc import Mapping
from typing import Final

from paddock.providers.builtin_answers import is_help, small_talk
from paddock.providers.builtin_wishes import find_wishes
from paddock.providers.wire_json import as_list, as_map
from paddock.values.calls import Json
from paddock.values.models import OutputSchema

_QUESTION: Final = re.compile(
    r"(?:what|which|who|when|where|why|how|is|are|do|does|can)\b", re.IGNORECASE
)

_ACTS: Final = {
    "greeting": ("greeting", "social", "phatic", "chat", "conversation"),
    "question": ("question", "query", "information_request", "inquiry", "request"),
    "command": ("command", "request", "directive", "instruction", "action"),
    "statement": ("statement", "assertion", "inform", "other", "unknown"),
}
"""A speech act under the names that schemas give it, best first."""
_AMBIGUITY: Final = {
    False: ("low", "none", "clear", "unambiguous"),
    True: ("high", "ambiguous", "medium", "unclear"),
}


def fit_answer(output: OutputSchema, sentence: str, answer: str) -> Mapping[str, Json]:
    """An object for the schema: what it can tell of the sentence, and `answer` as text.

    It need not fit: whoever asked checks it, and a schema for something else is
    beyond a set of rules.
    """
    properties = as_map(output.schema.get("properties"))
    wanted = as_list(output.schema.get("required")) or list(properties)
    return {
        str(name): _member(str(name), as_map(properties.get(str(name))), sentence, answer)
        for name in wanted
    }


def speech_act(sentence: str) -> str:
    """`greeting`, `question`, `command` or `statement`."""
    if is_help(sentence):
        return "question"
    if small_talk(sentence, ()):
        return "question" if sentence.rstrip().endswith("?") else "greeting"
    if sentence.rstrip().endswith("?") or _QUESTION.match(sentence.strip()):
        return "question"
    return "command" if find_wishes(sentence) else "statement"


def _member(name: str, schema: Mapping[str, Json], sentence: str, answer: str) -> Json:
    if name == "speech_act":
        return _choose(schema, _ACTS[speech_act(sentence)])
    if name == "ambiguity":
        return _ambiguity(schema, is_unclear=speech_act(sentence) == "statement")
    kind = schema.get("type")
    if schema.get("enum"):
        return _choose(schema, ())
    simple: dict[str, Json] = {
        "string": answer,
        "boolean": False,
        "integer": 0,
        "number": 0,
        "array": [],
        "object": {},
    }
    return simple.get(kind, answer) if isinstance(kind, str) else answer


def _choose(schema: Mapping[str, Json], names: tuple[str, ...]) -> Json:
    allowed = as_list(schema.get("enum"))
    if not allowed:
        return names[0] if names else ""
    by_word = {str(value).lower(): value for value in allowed}
    return next((by_word[name] for name in names if name in by_word), allowed[-1])


def _ambiguity(schema: Mapping[str, Json], *, is_unclear: bool) -> Json:
    kind = schema.get("type")
    if kind == "boolean":
        return is_unclear
    if kind == "number":
        return 0.9 if is_unclear else 0.1
    if kind == "integer":
        return 1 if is_unclear else 0
    return _choose(schema, _AMBIGUITY[is_unclear])
