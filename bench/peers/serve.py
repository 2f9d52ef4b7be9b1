"""One line of JSON in, one out: how the comparison speaks with every set of tools.

A peer's program hands `serve` an object with some of `read`, `write`, `edit`, `grep`,
`find` and `ls`; a call that raises is a refusal. `edit_many` runs its edits at once, each in
a thread of its own, as a model's parallel tool calls would.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class Refused(Exception):
    """The tools said no, or that it did not work."""


def serve(tools: Any) -> None:
    """Say that one is ready, then answer until the input ends."""
    print(flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(_answer(tools, asked.pop("op"), asked)), flush=True)


def _answer(tools: Any, name: str, given: dict[str, Any]) -> dict[str, Any]:
    if name == "edit_many":
        with ThreadPoolExecutor(len(given["edits"])) as pool:
            done = list(pool.map(lambda edit: _answer(tools, "edit", dict(edit)), given["edits"]))
        return {"ok": all(each["ok"] for each in done), "text": json.dumps(done)}
    try:
        return {"ok": True, "text": getattr(tools, name)(**given)}
    except Exception as error:  # noqa: BLE001 - whatever a peer raises is its way to say no
        return {"ok": False, "text": f"{type(error).__name__}: {error}"[:2000]}
