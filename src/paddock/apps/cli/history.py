"""`paddock history`, `diff` and `undo`: list, show and undo the changes of calls."""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from paddock.apps import command
from paddock.apps.console import EXIT_INTEGRITY, Console, exit_of_call
from paddock.assembly.undo import Past, open_past
from paddock.errors import UsageError
from paddock.runtime.changes import Diffs, PastCall, describe_changes, undos_in_effect
from paddock.runtime.undo import UndoStatus
from paddock.text.show import quote, show_name
from paddock.values.calls import Json

_LAST: Final = 20
_OFFERED_MAX: Final = 3


def _history(options: command.Options, console: Console) -> command.Reply:
    if options.last < 0:
        raise UsageError(f"--last must not be negative: {options.last}", where="--last")
    with open_past(command.find_project(options, console)) as past:
        calls = list(past.calls) if options.path is None else past.of_path(options.path)
        if options.agent is not None:
            past.require_agent(options.agent)
            calls = [call for call in calls if call.workspace_of == options.agent]
        shown = calls[-options.last :] if options.last else calls
        undone = undos_in_effect(past.calls)
        status = EXIT_INTEGRITY if past.bad else 0
        for bad in past.bad:
            console.warn(
                f"error[ledger.damaged]: byte {bad.offset_bytes}: {bad.fault}: {bad.detail}"
            )
        if options.json:
            rows: list[Json] = [past.call_json(call, undone) for call in shown]
            return command.Reply({"calls": rows}, "", status)
        if len(shown) < len(calls):
            omitted = len(calls) - len(shown)
            console.warn(f"{omitted} older calls are not shown: --last 0 shows all")
        if not calls:
            whose = (
                ""
                if options.agent is None
                else f" in the workspace of agent {quote(options.agent)}"
            )
            console.advise(
                f"no call has changed anything{whose}"
                if options.path is None
                else f"no call of Paddock's tools has changed {quote(options.path)}{whose} "
                "(a path is relative to the workspace, not to this directory); for "
                "a client's own tools: paddock ledger query --ledger ho1m --type HOOK_DECISION"
            )
        return command.Reply(None, list(_rows(past, shown, undone)), status)


def _rows(past: Past, calls: list[PastCall], undone: Mapping[str, str]) -> Iterator[str]:
    counts = Counter(call.call_id for call in past.calls)
    for call in calls:
        name = show_name(call.call_id) or call.entry_id
        if counts[call.call_id] > 1 and call.call_id and call.entry_id:
            name = f"{name} ({call.entry_id})"  # The call id alone is ambiguous.
        parts = [
            call.timestamp[:19] + "Z",
            f"{name:<21}",
            f"{show_name(call.agent):<10}",
            f"{show_name(call.tool):<12}",
            describe_changes(call, past.is_shown),
            _remark(past, call, undone),
        ]
        yield "  ".join(part for part in parts if part).rstrip()


def _remark(past: Past, call: PastCall, undone: Mapping[str, str]) -> str:
    said = {"unknown": "killed, or still running; ", "failed": "ended in an error; "}.get(
        call.outcome, ""
    )
    undo = _undo_remark(past, call, undone)
    return f"[{said}{undo}]".replace("; ]", "]") if said or undo else ""


def _undo_remark(past: Past, call: PastCall, undone: Mapping[str, str]) -> str:
    status = past.undo_status(call)
    if status is UndoStatus.UNDOABLE:
        return ""
    # First: later calls may have changed the files that the undo restored.
    if call.call_id in undone:
        return f"undone by {show_name(undone[call.call_id])}"
    if status is UndoStatus.AS_BEFORE:
        undone_by = [each.call_id for each in past.calls if each.undoes == call.call_id]
        if undone_by:
            return f"undone by {show_name(undone_by[-1])}"
        return "nothing to undo: all files are as before the call"
    return f"no undo: {status}"


def _none_given(verb: str, past: Past, calls: Iterable[PastCall], can: str) -> UsageError:
    """Return the error, with a command to type for each of the newest calls that `can`.

    No default: the newest call may be another agent's by now.
    """
    said = "no call given"
    named = ((call, name) for call in calls if (name := _name_offers(past, call)))
    offers = [
        f"paddock {verb} {name}  ({show_name(call.tool)}: {describe_changes(call, past.is_shown)})"
        for call, name in islice(named, _OFFERED_MAX)
    ]
    if not offers:
        return UsageError(
            f"{said}, and none that {can}",
            where="CALL",
            hint="paddock history lists the calls that changed something",
        )
    rows = "\n".join(f"    {offer}" for offer in offers)
    hint = f"paddock history lists all calls; the newest that {can}:\n{rows}"
    return UsageError(said, where="CALL", hint=hint)


def _name_offers(past: Past, call: PastCall) -> str:
    own = call.call_id
    is_one = [each.call_id for each in past.calls].count(own) == 1
    is_word = shlex.quote(own) == own and not own.startswith("-")
    return own if is_one and is_word else call.entry_id


def _diff(options: command.Options, console: Console) -> command.Reply:
    with open_past(command.find_project(options, console)) as past:
        if options.call is None:
            raise _none_given("diff", past, reversed(past.calls), "changed something")
        call = past.find(options.call)
        diffs = past.diff(call)
    if not call.changes and not options.json:
        console.warn("the changes of this call are not recorded")
    value = {"call": call.call_id, "tool": call.tool, **diffs.as_json()}
    return command.Reply(value, _diff_rows(diffs))


def _diff_rows(diffs: Diffs) -> Iterator[str]:
    for diff in diffs.paths:
        yield f"{diff.kind} {show_name(diff.path)}"
        yield diff.text
    if diffs.hidden:
        yield f"[{diffs.hidden} secret paths are not shown]"


def _undo(options: command.Options, console: Console) -> command.Reply:
    if options.call is None:
        with open_past(command.find_project(options, console)) as past:
            can = (
                call
                for call in reversed(past.calls)
                if past.undo_status(call) is UndoStatus.UNDOABLE
            )
            raise _none_given("undo", past, can, "can be undone")
    with open_past(command.use_project(options, console)) as past:
        answer = past.undo(past.find(options.call))
    result, since = answer.result, answer.since
    value = {"call": result.call_id, **result.as_json()}
    text = [result.content, f"this undo is {result.call_id}"]
    if since is not None:
        value["since"] = since.as_json()
    if result.refusal is not None:
        text = [] if since is None else [*_diff_rows(since)]
        if not options.json:
            console.warn(result.refusal.as_text().replace("\nhint: ", "\n  hint:  "))
    return command.Reply(value, text, exit_of_call(result.refusal))


HISTORY = command.Command(
    "List the calls that changed files, newest last: time, call, agent, tool and paths,\n"
    "and whether the call can still be undone.",
    "  paddock history\n  paddock history src/app.py --last 5\n  paddock history --json",
    command.opt("path", "PATH", "a file or directory, relative to the workspace", nargs="?"),
    command.opt("--agent", "NAME", "only calls in this agent's workspace"),
    command.opt("--last", "N", f"default: {_LAST}; 0: all", type=int, default=_LAST),
    do=_history,
)
_CALL = command.opt(
    "call", "CALL", "id of a call or its entry; without it, recent calls are listed", nargs="?"
)
DIFF = command.Command(
    "Show what a call changed, as a unified diff of each path.",
    "  paddock diff CALL-1f2e3d4c5b6a7988",
    _CALL,
    do=_diff,
)
UNDO = command.Command(
    "Undo the changes of a call: all of its paths, or none. Refused, with a diff, if a\n"
    "file has changed since. The undo is recorded as a call and can itself be undone.",
    "  paddock undo CALL-1f2e3d4c5b6a7988",
    _CALL,
    do=_undo,
)
