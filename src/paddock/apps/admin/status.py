"""The status line and the badge: what holds right now. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from paddock.sandbox.values import Enforcement

_FREE: Final = frozenset({"builtin", "scripted"})
"""Providers that cost nothing."""
_GAP: Final = "  "
_UNKNOWN: Final = "unknown"
_MODEL_CHARS_MIN: Final = 7
_EXACT_BELOW: Final = 10_000
"""Tokens; more are counted in thousands where there is little room."""


@dataclass(frozen=True, slots=True)
class Sandboxed:
    """How far the kernel holds commands on this host. `refused`: none runs at all."""

    enforcement: Enforcement
    backend: str = ""
    refused: bool = False

    def __str__(self) -> str:
        return self.enforcement.value


@dataclass(frozen=True, slots=True)
class Status:
    """Everything that the status line says. `tokens_left` None: there is no limit."""

    agent: str
    profile: str
    provider: str
    model: str
    gate_is_open: bool
    sandbox: Sandboxed
    tokens: int = 0
    tokens_left: int | None = None
    made_with_dev: bool = False

    @property
    def cost(self) -> str:
        """Money. No prices are known, so it is either nothing or not known."""
        return "none" if self.provider in _FREE or not self.tokens else _UNKNOWN

    @property
    def badges(self) -> tuple[str, ...]:
        """What must not be overlooked: empty where everything is as strict as it can be."""
        found: list[str] = []
        if self.made_with_dev:
            found.append("DEV PLANE")
        if self.gate_is_open:
            found.append("DEVELOPMENT TOOLS ARE ON")
        sandbox = self.sandbox
        if sandbox.enforcement is not Enforcement.FULL:
            said = "commands are refused" if sandbox.refused else f"held by {sandbox.backend}"
            if sandbox.enforcement is Enforcement.NONE and not sandbox.refused:
                said = "commands run unconfined"
            found.append(f"SANDBOX {sandbox.enforcement.value.upper()}: {said}")
        return tuple(found)


def status_text(status: Status, width: int | None = None) -> str:
    """The status line, in the longest of its forms that fits into `width` columns."""
    left = "" if status.tokens_left is None else f" ({status.tokens_left:,} left)"
    forms = (_long(status, left), _long(status, ""), _short(status, status.model))
    texts = [_GAP.join(form) for form in forms]
    if width is None:
        return texts[0]
    # The model's name gives way before anything else does, but not all of it.
    room = max(len(status.model) + width - len(texts[-1]), _MODEL_CHARS_MIN)
    cut = _GAP.join(_short(status, f"{status.model[: room - 1]}…"))
    texts += [cut, _GAP.join(_shortest(status))]
    return next((text for text in texts if len(text) <= width), texts[-1][:width])


def _long(status: Status, left: str) -> Sequence[str]:
    return (
        f"agent {status.agent}",
        f"profile {status.profile}",
        f"model {status.provider}:{status.model}",
        f"dual gate {_gate(status)}",
        f"sandbox {status.sandbox}",
        f"tokens {status.tokens:,}{left}",
        f"cost {status.cost}",
    )


def _short(status: Status, model: str) -> Sequence[str]:
    return (
        f"{status.agent}/{status.profile}",
        model,
        f"dual gate {_gate(status)}",
        f"sandbox {status.sandbox}",
        f"tokens {_brief(status.tokens)}",
        f"cost {'?' if status.cost == _UNKNOWN else status.cost}",
    )


def _shortest(status: Status) -> Sequence[str]:
    # What is held and what is not comes first: the rest may be cut.
    return (
        f"dual gate {_gate(status)}",
        f"sandbox {status.sandbox}",
        status.agent,
        status.provider,
        f"{status.tokens:,} tokens",
    )


def _brief(tokens: int) -> str:
    return f"{tokens:,}" if tokens < _EXACT_BELOW else f"{tokens // 1000:,}k"


def _gate(status: Status) -> str:
    return "open" if status.gate_is_open else "closed"
