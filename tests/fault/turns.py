"""One session that says where it is, for a test that kills it there.

    python tests/fault/turns.py ROOT HOME WHERE [MESSAGE]

Takes a turn with a scripted model. When it comes to WHERE (the type of an entry that is
about to be appended, or `after:` and a type), it prints a line and waits to be killed.
"""

import sys
import threading
from pathlib import Path

from paddock.assembly.project_open import open_project
from paddock.assembly.sessions import SessionWish, open_session
from paddock.ledger.append import LedgerFile
from paddock.plane.environment import read_environment
from paddock.providers.scripted import Say, ScriptedCall, ScriptedModel

STEPS = (
    Say(calls=(ScriptedCall("create_file", {"path": "made.txt", "content": "x"}),)),
    Say("done"),
)
MESSAGE = "make it"


def main() -> None:
    root, home, where = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    message = sys.argv[4] if len(sys.argv) > 4 else MESSAGE
    stop_at(where)
    project = open_project(root, read_environment({"HOME": str(home)}))
    with open_session(project, SessionWish(provider=ScriptedModel(STEPS))) as session:
        session.handle_turn(message)
    print("ended", flush=True)


def stop_at(where: str) -> None:
    append = LedgerFile.append

    def stopping(self, entries, *, reservation=None):
        kinds = {entry.event_type for entry in entries}
        if where in kinds:
            wait()
        receipt = append(self, entries, reservation=reservation)
        if where.startswith("after:") and where.removeprefix("after:") in kinds:
            wait()
        return receipt

    LedgerFile.append = stopping


def wait() -> None:
    print("here", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
