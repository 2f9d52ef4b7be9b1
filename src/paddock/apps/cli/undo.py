"""`paddock undo`."""

import argparse

from paddock.apps.cli.console import Console
from paddock.apps.cli.diff import diffs_json, say_diffs
from paddock.apps.cli.exits import exit_of_call
from paddock.apps.cli.offers import none_given
from paddock.apps.cli.options import Options
from paddock.apps.cli.project import find_project, use_project
from paddock.assembly.past import UndoStanding, open_past
from paddock.errors import UsageError


class UndoCommand:
    """Takes a call back, as a call of its own: an undo can be undone."""

    summary = (
        "Bring back what a call replaced: all of its paths, or none. Refused, with a diff,\n"
        "where a file changed since. The undo is recorded like a call and can be undone."
    )
    examples = "  paddock undo CALL-1f2e3d4c5b6a7988"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "call",
            nargs="?",
            metavar="CALL",
            help="a call's id, or its ledger entry's; without it nothing is undone,"
            " and the newest calls that can be are named",
        )

    def run(self, options: Options, console: Console) -> int:
        """0 done, 1 refused, 5 the host could not."""
        if options.call is None:
            raise _none_given(options, console)
        with open_past(use_project(options, console)) as past:
            call = past.find(options.call)
            answer = past.undo(call)
        result, since = answer.result, answer.since
        if options.json:
            shown = result.as_json()
            if since is not None:
                shown["since"] = diffs_json(since)
            console.write_json({"call": result.call_id, **shown})
        elif result.refusal is None:
            console.say(result.content)
            console.say(f"this undo is {result.call_id}")
        else:
            if since is not None:
                say_diffs(since, console)
            console.warn(result.refusal.as_text().replace("\nhint: ", "\n  hint:  "))
        return exit_of_call(result.refusal)


def _none_given(options: Options, console: Console) -> UsageError:
    with open_past(find_project(options, console)) as past:
        undoable = (
            call for call in reversed(past.calls) if past.standing(call) is UndoStanding.UNDOABLE
        )
        return none_given("undo", past, undoable, "can be undone")


COMMAND = UndoCommand()
