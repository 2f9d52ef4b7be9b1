"""`paddock approvals`."""

import argparse
import json
import os
import pwd
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from paddock.apps.cli.console import EXIT_CONFIG, Console
from paddock.apps.cli.options import Options, add_common
from paddock.apps.cli.project import use_project
from paddock.assembly.approvals import Answers, open_inbox, read_answers
from paddock.assembly.granting import (
    KEPT_CHANGED,
    AlwaysReview,
    Outdated,
    expired_by,
    find_outdated,
    grant,
    grant_here,
    resume,
    review_always,
    save_always,
)
from paddock.assembly.project import Project
from paddock.assembly.runtimes import open_runtime
from paddock.runtime.approvals import NoApprover
from paddock.runtime.parked import Parked
from paddock.text.show import show_name, show_unseen
from paddock.values.calls import Json, ToolResult


class Approvals:
    summary = (
        "Look at the calls that wait for an approval, and answer them.\n"
        "A grant holds for the very same call, once, for an hour. `outdated`: what it was asked\n"
        "about has changed, so that no answer counts any more, and the call has to be made again.\n"
        "A request whose file does not load is named on stderr, and holds its call up until\n"
        "`refuse` has moved it away."
    )
    examples = (
        "  paddock approvals list\n"
        "  paddock approvals show APR-0123456789abcdef\n"
        "  paddock approvals grant APR-0123456789abcdef --resume\n"
        "  paddock approvals grant APR-0123456789abcdef --always\n"
        "  paddock approvals refuse APR-0123456789abcdef --note 'use the staging host'"
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        listing = actions.add_parser("list", help="list what waits", allow_abbrev=False)
        show = actions.add_parser("show", help="show one, whole", allow_abbrev=False)
        grant = actions.add_parser("grant", help="answer yes", allow_abbrev=False)
        grant.add_argument("--resume", action="store_true", help="run the kept call now")
        grant.add_argument(
            "--always", action="store_true", help="write a rule that allows it from now on"
        )
        grant.add_argument("--yes", action="store_true", help="save that rule without asking")
        refuse = actions.add_parser("refuse", help="answer no", allow_abbrev=False)
        refuse.add_argument("--note", default="", metavar="TEXT", help="what the agent is told")
        for parsed in (show, grant, refuse):
            parsed.add_argument("id", metavar="ID")
        for parsed in (listing, show, grant, refuse):
            add_common(parsed)

    def run(self, options: Options, console: Console) -> int:
        project = use_project(options, console)
        actions = {
            "list": self._list,
            "show": self._show,
            "grant": self._grant,
            "refuse": self._refuse,
        }
        return actions[options.action](project, options, console)

    def _list(self, project: Project, options: Options, console: Console) -> int:
        inbox = open_inbox(project)
        waiting, broken = inbox.list_all(), inbox.list_broken()
        answers = read_answers(project, [parked.id for parked in waiting]) if waiting else None
        # Whichever form was asked for: the calls of these are refused until somebody acts.
        for each in broken:
            console.report(each.as_error())
        if options.json:
            rows = [_summary(project, parked, answers) for parked in waiting]
            console.write_json([*rows, *(each.summary() for each in broken)])
            # A request does not load: as of any file of ours that does not.
            return EXIT_CONFIG if broken else 0
        if not waiting and not broken:
            console.say("nothing waits for an approval")
        for parked in waiting:
            request = parked.request
            shown = show_unseen(request.actions[0] if request.actions else request.tool)[0]
            more = f" and {len(request.actions) - 1} more" if len(request.actions) > 1 else ""
            state = "outdated" if find_outdated(project, parked, answers) else parked.state
            console.say(f"{parked.id}  {state:<8} {show_name(request.agent)}  {shown}{more}")
        return EXIT_CONFIG if broken else 0

    def _show(self, project: Project, options: Options, console: Console) -> int:
        parked = open_inbox(project).find(options.id)
        if options.json:
            arguments = dict(parked.request.arguments)
            filled = dict(parked.request.filled)
            shown = {**_summary(project, parked), "arguments": arguments, "filled": filled}
            console.write_json({**shown, "diff": parked.request.diff})
        else:
            show_parked(parked, console.say, find_outdated(project, parked))
        return 0

    def _grant(self, project: Project, options: Options, console: Console) -> int:
        if options.always:
            return self._always(project, options, console)
        # What a command left is committed at once: it does not run again.
        if options.resume or open_inbox(project).find(options.id).changes is not None:
            return self._resume(project, options, console)
        granted = grant(project, options.id, operator())
        if options.json:
            console.write_json({"status": "ok", **granted.summary()})
            return 0
        show_parked(granted, console.say)
        console.say(f"granted: the very same call runs once, until {_time(granted.expires_at)}")
        return 0

    def _resume(self, project: Project, options: Options, console: Console) -> int:
        granted = grant_here(project, options.id, operator())
        if not options.json:
            show_parked(granted, console.say)
            console.say(f"granted: {_carried_out(granted)}")
        result = resume(project, granted)
        return self._show_result(result, options, console)

    def _show_result(self, result: ToolResult, options: Options, console: Console) -> int:
        if options.json:
            console.write_json(result.as_json())
        else:
            console.say(result.content)
        return 0 if result.refusal is None else 1

    def _always(self, project: Project, options: Options, console: Console) -> int:
        parked = open_inbox(project).find(options.id)
        # A rule is made from the policy in force: for an outdated request too, if it is asked yet.
        # Not where changes wait, for nobody can bring them in any more.
        outdated = find_outdated(project, parked)
        if outdated is not None and (outdated.bars_rule or parked.changes is not None):
            raise expired_by(parked, outdated)
        review = review_always(project, parked)
        # Whoever is asked sees the whole call and the whole rule, whatever the answer's form.
        say = console.warn if options.json else console.say
        show_parked(parked, say, outdated)
        say(f"appended to {show_name(str(review.file))}:\n{review.always.addition}")
        if not options.yes and not console.agrees("save this rule? [y/N] "):
            return self._end(options, console, "not saved", saved=False)
        if parked.changes is not None:
            return self._commit_and_save(project, review, options, console)
        save_always(project, review, operator())
        if options.resume:
            request = review.parked.request
            renewed = use_project(options, console)
            with open_runtime(renewed, agent=request.agent, approver=NoApprover()) as runtime:
                result = runtime.call(request.tool, request.arguments)
            return self._show_result(result, options, console)
        return self._end(options, console, "saved and trusted", saved=True)

    def _commit_and_save(
        self, project: Project, review: AlwaysReview, options: Options, console: Console
    ) -> int:
        """The changes first: they are bound to the policy that they were asked about under."""
        result = resume(project, grant_here(project, review.parked.id, operator()))
        (console.warn if options.json else console.say)(result.content)
        is_saved = result.refusal is None
        if is_saved:
            save_always(project, review, operator())
        if options.json:
            console.write_json({**result.as_json(), "saved": is_saved})
        else:
            console.say("saved and trusted" if is_saved else "not saved")
        return 0 if is_saved else 1

    def _end(self, options: Options, console: Console, said: str, *, saved: bool) -> int:
        if options.json:
            console.write_json({"status": "ok" if saved else "error", "saved": saved})
        else:
            console.say(said)
        return 0 if saved else 1

    def _refuse(self, project: Project, options: Options, console: Console) -> int:
        inbox = open_inbox(project)
        moved_to = inbox.set_aside(options.id)
        if moved_to is not None:
            return self._moved(moved_to, options, console)
        refused = inbox.refuse(options.id, operator(), options.note)
        if options.json:
            console.write_json({"status": "ok", **refused.summary()})
        else:
            outdated = find_outdated(project, refused)
            # Whatever its file shows: what it is for is in its digest, and that is refused.
            if outdated is None or outdated.why == KEPT_CHANGED:
                said = "the same call is refused until it expires"
            else:
                said = f"it counts for no call: {outdated.why}"
            console.say(f"refused {refused.id}: {said}")
        return 0

    def _moved(self, moved_to: Path, options: Options, console: Console) -> int:
        if options.json:
            console.write_json({"status": "ok", "state": "broken", "moved_to": str(moved_to)})
        else:
            said = f"moved away, since it does not load: {show_name(str(moved_to))}"
            console.say(f"{said}\nnothing was answered: its call is asked about again")
        return 0


def _summary(project: Project, parked: Parked, answers: Answers | None = None) -> dict[str, Json]:
    outdated = find_outdated(project, parked, answers)
    return {**parked.summary(), "outdated": "" if outdated is None else outdated.why}


def show_parked(
    parked: Parked, say: Callable[[str], None], outdated: Outdated | None = None
) -> None:
    """Everything about it, arguments whole, on lines that nothing in it can forge."""
    request = parked.request
    say(f"{parked.id} ({parked.state}, until {_time(parked.expires_at)})")
    rows: list[tuple[str, str]] = [
        ("agent", request.agent),
        ("tool", request.tool),
        *(("action", action) for action in request.actions),
        ("why asked", request.reason),
        *(("warning", warning) for warning in request.warnings),
        ("rule", request.rule),
        *(() if outdated is None else (("outdated", outdated.why),)),
        ("target", request.target_digest),
        ("digest", request.digest),
        *((f"argument {name}", _text(value)) for name, value in request.arguments.items()),
        *((f"filled in {name}", _text(value)) for name, value in request.filled.items()),
    ]
    for name, value in rows:
        say(f"  {show_name(name)}: {show_unseen(value)[0]}")
    if request.diff:
        say("  what it changed:")
        for line in request.diff.splitlines():
            say(f"    {show_unseen(line)[0]}")


def operator() -> str:
    try:
        return f"operator {pwd.getpwuid(os.geteuid()).pw_name}"
    except KeyError:
        return f"operator {os.geteuid()}"


def _carried_out(granted: Parked) -> str:
    if granted.changes is not None:
        return "what the command left is brought in now"
    return "the call is made now"


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


COMMAND = Approvals()
