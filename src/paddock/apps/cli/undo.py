"""`paddock undo`."""

import argparse
import shlex
from itertools import islice
from typing import Final

from paddock.apps.cli.console import Console
from paddock.apps.cli.diff import diffs_json, say_diffs
from paddock.apps.cli.history import what_changed
from paddock.apps.cli.options import Options
from paddock.apps.cli.project import find_project, use_project
from paddock.assembly.past import Past, open_past
from paddock.errors import UsageError
from paddock.runtime.past import PastCall
from paddock.text.show import show_name

_OFFERED_MAX: Final = 3
_HOST_CODES = frozenset({"storage.full", "ledger.busy", "ledger.full"})


class UndoCommand:
    """Takes a call back, as a call of its own: an undo can be undone."""

    summary = (
        "Bring back what a call replaced: all of its paths, or none. Refused, with a diff,\n"
        "where a file changed since. The undo is recorded like a call and can be undone."
    )
    examples = "  paddock undo CALL-1f2e3d4c5b6a7988"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """CALL."""
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
        if result.refusal is None:
            return 0
        return 5 if result.refusal.code in _HOST_CODES else 1


def _none_given(options: Options, console: Console) -> UsageError:
    """What could be undone. None is chosen: the newest call may be another agent's by now."""
    said = "no call is given, and none is chosen"
    with open_past(find_project(options, console)) as past:
        undoable = (
            (call, name)
            for call in reversed(past.calls)
            if (name := _name(past, call)) and past.standing(call) == "yes"
        )
        offers = [_offer(past, call, name) for call, name in islice(undoable, _OFFERED_MAX)]
    if not offers:
        return UsageError(
            f"{said}; there is no call that can be undone",
            where="CALL",
            hint="paddock history lists the calls that changed something",
        )
    rows = "\n".join(f"    {offer}" for offer in offers)
    hint = f"paddock history lists them all; the newest that can be undone:\n{rows}"
    return UsageError(said, where="CALL", hint=hint)


def _offer(past: Past, call: PastCall, name: str) -> str:
    return f"paddock undo {name}  ({show_name(call.tool)}: {what_changed(past, call)})"


def _name(past: Past, call: PastCall) -> str:
    """What `undo` knows this call by: its entry where its id is another's too, or no word."""
    own = call.call_id
    is_one = [each.call_id for each in past.calls].count(own) == 1
    is_word = shlex.quote(own) == own and not own.startswith("-")
    return own if is_one and is_word else call.entry_id


COMMAND = UndoCommand()
