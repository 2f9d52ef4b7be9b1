"""`paddock diff`."""

import argparse

from paddock.apps.cli.console import Console
from paddock.apps.cli.offers import none_given
from paddock.apps.cli.options import Options
from paddock.apps.cli.project import find_project
from paddock.assembly.past import open_past
from paddock.runtime.past_diff import Diffs
from paddock.text.show import show_name
from paddock.values.calls import Json


class DiffCommand:
    """What one call changed; nothing is written."""

    summary = "Show what a call changed, as a unified diff of each path."
    examples = "  paddock diff CALL-1f2e3d4c5b6a7988"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "call",
            nargs="?",
            metavar="CALL",
            help="a call's id, or its ledger entry's; without it the newest are named",
        )

    def run(self, options: Options, console: Console) -> int:
        """0. Raises: UsageError for a call that changed nothing, and for none."""
        with open_past(find_project(options, console)) as past:
            if options.call is None:
                raise none_given("diff", past, reversed(past.calls), "changed something")
            call = past.find(options.call)
            diffs = past.diff(call)
        if options.json:
            console.write_json({"call": call.call_id, "tool": call.tool, **diffs_json(diffs)})
            return 0
        say_diffs(diffs, console)
        if not call.changes:
            console.warn("what the call changed is not recorded")
        return 0


def say_diffs(diffs: Diffs, console: Console) -> None:
    """Each path with what happened to it, then its difference."""
    for diff in diffs.paths:
        console.say(f"{diff.kind} {show_name(diff.path)}")
        console.say(diff.text)
    if diffs.hidden:
        console.say(f"[{diffs.hidden} paths are secret and not shown]")


def diffs_json(diffs: Diffs) -> dict[str, Json]:
    rows = [{"path": diff.path, "kind": diff.kind, "diff": diff.text} for diff in diffs.paths]
    return {"paths": rows, "secret_paths": diffs.hidden}


COMMAND = DiffCommand()
