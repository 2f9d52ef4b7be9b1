"""`paddock gate`."""

import argparse
from typing import TYPE_CHECKING, Final

from paddock.apps.cli.console import Console
from paddock.apps.cli.exits import EXIT_NO
from paddock.apps.cli.options import Options
from paddock.apps.cli.project import find_project, use_project
from paddock.errors import LedgerDamagedError, UsageError
from paddock.text.show import quote, show_name

if TYPE_CHECKING:
    from paddock.gates.results import GateResult

_SHOWN_MAX: Final = 50
"""Failures of one gate that are said one by one; `--json` has all."""


class GateCommand:
    """What the gates say of a bare plane."""

    summary = (
        "Look whether a bare plane is what its packages, approvals and ledgers say.\n"
        "Without --gate all eight look: G0B files and ownership, G1 and G1-COMPLETE specs\n"
        "and frameworks, G2 approvals, G3 dependencies, G4 acceptance tests (they run, in the\n"
        "sandbox), G5 signatures, G6 ledgers. What has nothing to look at is not applicable,\n"
        "which is no pass. With --enforce the status is 1 when a gate fails. What the gates\n"
        "said is recorded in the governance ledger."
    )
    examples = (
        "  paddock gate --all --enforce\n"
        "  paddock gate --gate G0B\n"
        "  paddock --plane DIR gate --all --json"
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Which gates, and what a failure means."""
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--gate", metavar="NAME", help="one gate, such as G0B")
        which.add_argument("--all", action="store_true", help="all eight (the default)")
        parser.add_argument(
            "--enforce", action="store_true", help="end with status 1 when a gate fails"
        )

    def run(self, options: Options, console: Console) -> int:
        """Look, say, and end as the answer is."""
        from paddock.assembly.gates import check_gates, is_governance_gone
        from paddock.gates.results import results_json

        names = _names(options.gate)
        project = find_project(options, console)
        # That is what G6 is there to say; nothing can be recorded. Opened, the plane would
        # have another ledger in the place of one that is gone.
        is_damaged = is_governance_gone(project)
        if not is_damaged:
            try:
                project = use_project(options, console)
            except LedgerDamagedError:
                is_damaged = True
        run = check_gates(project, names, _Progress(console))
        if options.json:
            console.write_json(results_json(run.results))
        else:
            _say(run.results, console)
        if run.unrecorded is not None:
            console.warn(f"note: this was not recorded: {run.unrecorded.message}")
        return EXIT_NO if run.has_failed and (options.enforce or is_damaged) else 0


def _names(given: str | None) -> tuple[str, ...]:
    from paddock.gates.results import ALL_GATES, PLANE_GATES

    if given is None:
        return PLANE_GATES
    name = given.upper()
    if name not in ALL_GATES:
        raise UsageError(
            f"there is no gate {quote(given)}",
            where="--gate",
            hint=f"the gates are: {', '.join(ALL_GATES)}",
        )
    return (name,)


class _Progress:
    """See `Watcher`: lines on standard error, where that is a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def begins(self, gate: str, what: str) -> None:
        if self._console.stderr.isatty():
            self._console.warn(f"{gate}: {show_name(what)} …" if what else f"{gate} …")


def _say(results: "tuple[GateResult, ...]", console: Console) -> None:
    from paddock.gates.results import Status, count_of

    words = {
        Status.PASS: console.paint(f"{'pass':<14}", "32"),
        Status.FAIL: console.paint(f"{'FAIL':<14}", "31"),
        Status.NOT_APPLICABLE: f"{'not applicable':<14}",
    }
    for result in results:
        note = f"  {show_name(result.note)}" if result.note else ""
        row = f"{result.gate:<11}  {words[result.status]}  {result.checks} checks{note}"
        console.print(f"{row}\n")
        for failure in result.failures[:_SHOWN_MAX]:
            console.say(f"  {show_name(str(failure))}")
        if len(result.failures) > _SHOWN_MAX:
            console.say(f"  and {len(result.failures) - _SHOWN_MAX} more: --json lists them")
    passed, failed = count_of(results, Status.PASS), count_of(results, Status.FAIL)
    console.say(
        f"{passed} passed, {failed} failed, {len(results) - passed - failed} not applicable"
    )


COMMAND = GateCommand()
