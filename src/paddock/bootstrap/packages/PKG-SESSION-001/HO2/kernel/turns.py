"""A reader of the session ledger: one line a turn. Standard library alone; changes nothing.

    python3 -B HO2/kernel/turns.py [HO2/ledger/ho2m.jsonl | -]

`-` reads standard input. Each line of the ledger is one JSON object. This program looks at
`TURN_RECORDED` alone and does not check the chain: that is what `paddock ledger verify` is for.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LEDGER = Path("HO2/ledger/ho2m.jsonl")
SHOWN_CHARS = 60


@dataclass(frozen=True)
class Turn:
    """One user message and what came of it."""

    session_id: str
    number: int
    outcome: str
    message: str

    def __str__(self) -> str:
        """Its line; only what can be printed of the message, which anybody may have written."""
        shown = "".join(sign if sign.isprintable() else " " for sign in self.message)
        cut = shown if len(shown) <= SHOWN_CHARS else shown[: SHOWN_CHARS - 1] + "…"
        return f"{self.session_id:<20}  {self.number:>4}  {self.outcome:<9}  {cut}"


def handle_turn(entry: dict[str, Any]) -> Turn:
    """The turn that one `TURN_RECORDED` entry tells of; what is missing is empty, not guessed."""
    told = entry.get("metadata", {})
    return Turn(
        session_id=str(entry.get("session_id", "")),
        number=int(told.get("turn", 0)),
        outcome=str(told.get("outcome", "")),
        message=str(told.get("user_message", "")),
    )


def read_turns(lines: Iterable[str]) -> Iterator[Turn]:
    """Every turn in the lines of a session ledger, oldest first."""
    for line in lines:
        entry = json.loads(line)
        if entry.get("event_type") == "TURN_RECORDED":
            yield handle_turn(entry)


def main(arguments: list[str]) -> int:
    """Show the turns of the ledger that is named, or of this plane's."""
    if arguments == ["-"]:
        for turn in read_turns(sys.stdin):
            print(turn)
        return 0
    path = Path(arguments[0]) if arguments else LEDGER
    if not path.exists():
        print(f"there is no session ledger {path} yet")
        return 0
    with path.open(encoding="utf-8") as lines:
        for turn in read_turns(lines):
            print(turn)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
