"""Checks HO2/kernel/turns.py. Run from the root of the plane: python3 -B HO2/tests/turns_check.py.

Nothing is written, and no bytecode either: a file more would be an orphan in the plane.
"""

import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kernel"))

import turns  # noqa: E402 - found beside this file

LINES = [
    json.dumps({"event_type": "SESSION_START", "session_id": "SES-1"}),
    json.dumps(
        {
            "event_type": "TURN_RECORDED",
            "session_id": "SES-1",
            "metadata": {"turn": 1, "outcome": "success", "user_message": "hello\x1b[2J"},
        }
    ),
]


def main() -> int:
    """Exit status 0 where a recorded turn is read as it was written."""
    found = list(turns.read_turns(LINES))
    wanted = [turns.Turn("SES-1", 1, "success", "hello\x1b[2J")]
    if found != wanted:
        print(f"turns: {found} is not {wanted}")
        return 1
    if "\x1b" in str(found[0]):
        print("turns: a control character is shown")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
