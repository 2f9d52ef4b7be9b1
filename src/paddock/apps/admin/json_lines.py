"""A screen for programs: one JSON object a line for everything that happens.

{"kind": "status", "agent": …, "gate_is_open": …, "sandbox": …, "badges": […], …}
{"kind": "text", "lines": […]}                 what a person would be shown
{"kind": "turn", "response": …, "outcome": …}  a turn's result, as `paddock run --json`
"""

import json
import threading
from typing import TextIO

from paddock.agent.results import TurnResult
from paddock.apps.admin.blocks import Block
from paddock.apps.admin.drawing import PlainDrawing
from paddock.apps.admin.status import Status
from paddock.values.calls import Json


class JsonScreen:
    """See the module. ASCII only, so that no terminal can be misled."""

    prompt = ""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._drawing = PlainDrawing()
        self._lock = threading.Lock()

    def show(self, block: Block) -> None:
        self._line({"kind": "text", "lines": list(self._drawing.lines(block))})

    def live(self, text: str) -> None:
        """Nothing: it comes when it is whole."""

    def status(self, status: Status) -> None:
        self._line(
            {
                "kind": "status",
                "agent": status.agent,
                "profile": status.profile,
                "model": {"provider": status.provider, "name": status.model},
                "gate_is_open": status.gate_is_open,
                "sandbox": status.sandbox.enforcement.value,
                "tokens": status.tokens,
                "tokens_left": status.tokens_left,
                "cost": status.cost,
                "badges": list(status.badges),
            }
        )

    def answered(self, result: TurnResult) -> None:
        self._line({"kind": "turn", **result.as_json()})

    def write(self, text: str) -> None:
        """Nothing: prompts are for people."""

    def _line(self, value: Json) -> None:
        with self._lock:
            self._out.write(json.dumps(value, ensure_ascii=True) + "\n")
            self._out.flush()
