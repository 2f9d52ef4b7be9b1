"""The status line and the badge: what holds right now. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from paddock.sandbox.values import Held

_FREE: Final = frozenset({"builtin", "scripted"})
"""Providers that cost nothing."""
_GAP: Final = "  "


@dataclass(frozen=True, slots=True)
class Sandboxed:
    """How far the kernel holds commands on this host. `refused`: none runs at all."""

    enforcement: Held
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

    @property
    def cost(self) -> str:
        """Money. No prices are known, so it is either nothing or not known."""
        return "none" if self.provider in _FREE or not self.tokens else "unknown"

    @property
    def badges(self) -> tuple[str, ...]:
        """What must not be overlooked: empty where everything is as strict as it can be."""
        found: list[str] = []
        if self.gate_is_open:
            found.append("DEVELOPMENT TOOLS ARE ON")
        sandbox = self.sandbox
        if sandbox.enforcement is not Held.FULL:
            said = "commands are refused" if sandbox.refused else f"held by {sandbox.backend}"
            if sandbox.enforcement is Held.NONE and not sandbox.refused:
                said = "commands run unconfined"
            found.append(f"SANDBOX {sandbox.enforcement.value.upper()}: {said}")
        return tuple(found)


def status_text(status: Status, width: int | None = None) -> str:
    """The status line, in the longest of its forms that fits into `width` columns."""
    left = "" if status.tokens_left is None else f" ({status.tokens_left:,} left)"
    forms = (_long(status, left), _long(status, ""), _short(status), _shortest(status))
    texts = [_GAP.join(form) for form in forms]
    if width is None:
        return texts[0]
    return next((text for text in texts if len(text) <= width), texts[-1][:width])


def _long(status: Status, left: str) -> Sequence[str]:
    return (
        f"agent {status.agent}",
        f"profile {status.profile}",
        f"model {status.provider}:{status.model}",
        f"gate {_gate(status)}",
        f"sandbox {status.sandbox}",
        f"tokens {status.tokens:,}{left}",
        f"cost {status.cost}",
    )


def _short(status: Status) -> Sequence[str]:
    return (
        f"{status.agent}/{status.profile}",
        status.provider,
        f"gate {_gate(status)}",
        f"sandbox {status.sandbox}",
        f"tokens {status.tokens:,}",
        f"cost {status.cost}",
    )


def _shortest(status: Status) -> Sequence[str]:
    # What is held and what is not comes first: the rest may be cut.
    return (
        f"gate {_gate(status)}",
        f"sandbox {status.sandbox}",
        status.agent,
        status.provider,
        f"{status.tokens:,} tokens",
    )


def _gate(status: Status) -> str:
    return "open" if status.gate_is_open else "closed"
