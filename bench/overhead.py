"""The governed overhead round an empty tool, beside one open and close.

    python bench/overhead.py

Bind, resolve, decide and append intent and result to a real ledger (everything but
the ledger's sync), round a tool that does nothing, on a file five directories deep.
Prints microseconds a call (median of interleaved rounds) and the ratio. Must: 10.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from paddock.ledger.append import LedgerFile
from paddock.ledger.format.lines import Genesis
from paddock.ledger.signing import make_key
from paddock.policy.engine import load_policy
from paddock.runtime.approvals import NoApprover
from paddock.runtime.dispatch import Context, Dispatcher
from paddock.runtime.prepared import Caller, PolicyJudge, Tools
from paddock.tools.arguments import ArgumentType, needed_text
from paddock.tools.spec import READS, Ports, Tool, ToolOutput, ToolSpec, path_actions
from paddock.values.calls import ToolCall
from paddock.values.decisions import Action, Agent
from paddock.values.entries import Entry
from paddock.workspace import Workspace

ROUNDS = 15
CALLS = 1_000
MUST = 10.0
NOTHING = ToolOutput("", {})
DEEP = "one/two/three/four/five"


class EmptyArguments(ArgumentType):
    """One path."""

    path: str = needed_text("A path.")


class EmptyPlan(Struct, frozen=True):
    """Resolved, and nothing to do."""

    actions: tuple[Action, ...]


class Empty:
    """Resolves its path and does nothing."""

    def resolve(self, arguments: EmptyArguments, ports: Ports) -> EmptyPlan:
        return EmptyPlan(path_actions("file", "view", ports.workspace.resolve_read(arguments.path)))

    def run(self, plan: EmptyPlan, ports: Ports) -> ToolOutput:
        del plan, ports
        return NOTHING


class Unsynced:
    """A real ledger whose appends do not wait for the disk."""

    def __init__(self, ledger: LedgerFile) -> None:
        self.path = ledger.path
        self.append = ledger.write


def refuse_question(entry: Entry) -> None:
    """Nothing is asked here."""
    raise AssertionError(entry)


def microseconds(act: Callable[[], object], calls: int) -> float:
    started = time.perf_counter_ns()
    for _ in range(calls):
        act()
    return (time.perf_counter_ns() - started) / calls / 1000


def open_and_close(path: str) -> None:
    os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "work"
        file = root / DEEP / "file.txt"
        file.parent.mkdir(parents=True)
        file.write_text("x")
        genesis = Genesis("bench/ho1m", "HO1", str(make_key("bench/ho1m", os.urandom(32)).verifier))
        ledger = LedgerFile(
            f"{directory}/ho1m.jsonl", create=genesis, clock=time.time, randomness=os.urandom
        )
        workspace = Workspace.open(str(root))
        chain = (Agent("main", "standard"),)
        judge = PolicyJudge(load_policy(None), chain)
        spec = ToolSpec("empty", "Empty", "Does nothing.", "workspace", EmptyArguments, READS)
        context = Context(
            tools=Tools([Tool(spec, Empty())]),
            judge=judge,
            ports=Ports(workspace, judge),
            ledger=Unsynced(ledger),
            approver=NoApprover(),
            record_approval=refuse_question,
            caller=Caller(chain, "SES-0"),
            randomness=os.urandom,
        )
        dispatcher = Dispatcher(context)
        call = ToolCall("CALL-0123456789abcdef", "empty", {"path": f"{DEEP}/file.txt"})
        assert dispatcher.dispatch(call).status == "ok"
        ours: list[float] = []
        bare: list[float] = []
        for _ in range(ROUNDS):
            ours.append(microseconds(lambda: dispatcher.dispatch(call), CALLS))
            bare.append(microseconds(lambda: open_and_close(str(file)), CALLS))
        if "--profile" in sys.argv:
            import cProfile

            cProfile.runctx(
                "for _ in range(5000): dispatcher.dispatch(call)", {}, locals(), sort="tottime"
            )
    ratio = statistics.median(a / b for a, b in zip(ours, bare, strict=True))
    print(f"open and close  {statistics.median(bare):8.2f} us")
    print(f"governed call   {statistics.median(ours):8.2f} us")
    print(f"ratio           {ratio:8.2f}  (must {MUST})")
    return 0 if ratio <= MUST else 1


if __name__ == "__main__":
    sys.exit(main())
