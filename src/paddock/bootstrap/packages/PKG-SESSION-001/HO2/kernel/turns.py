"""A reader of the session ledger: one line a turn. Standard library alone; changes nothing.

    python3 -B HO2/kernel/turns.py [HO2/ledger/ho2m.jsonl | -]

`-` reads standard input. Each line of the ledger is one JSON object. This program looks at
`TURN_RECORDED` alone and does not check the chain: that is what `paddock ledger verify` is for.
"""

import json
import sys
from pathlib import Path
from typing import Any

LEDGER = Path("HO2/ledger/ho2m.jsonl")
SHOWN_CHARS = 60


def handle_turn(entry: dict[str, Any]) -> str:
    """The line of one `TURN_RECORDED` entry; what is missing is empty, not guessed."""
    told = entry.get("metadata", {})
    # Anybody may have written the message: only what can be printed of it.
    message = str(told.get("user_message", ""))
    shown = "".join(sign if sign.isprintable() else " " for sign in message)
    cut = shown if len(shown) <= SHOWN_CHARS else shown[: SHOWN_CHARS - 1] + "…"
    session_id, outcome = str(entry.get("session_id", "")), str(told.get("outcome", ""))
    return f"{session_id:<20}  {int(told.get('turn', 0)):>4}  {outcome:<9}  {cut}"


def main(arguments: list[str]) -> int:
    """Show the turns of the ledger that is named, or of this plane's."""
    path = Path(arguments[0]) if arguments else LEDGER
    if arguments != ["-"] and not path.exists():
        print(f"there is no session ledger {path} yet")
        return 0
    with sys.stdin if arguments == ["-"] else path.open(encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            if entry.get("event_type") == "TURN_RECORDED":
                print(handle_turn(entry))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
