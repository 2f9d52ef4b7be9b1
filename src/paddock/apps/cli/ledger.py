"""`paddock ledger`: which question, and the module that answers it, loaded alone."""

import argparse
from typing import TYPE_CHECKING, Final

from paddock.apps.cli import ledger_options as asked_with
from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options, add_common
from paddock.plane.layout import LedgerName

if TYPE_CHECKING:
    from paddock.assembly.site import PlaneSite

NAMES: Final = (
    LedgerName.GOVERNANCE,
    LedgerName.HO2M,
    LedgerName.HO1M,
    LedgerName.PACKAGES,
)
_CHOICES: Final = tuple(name.value for name in NAMES)
"""As text: argparse shows its choices by `repr`."""


class LedgerCommand:
    """Questions to the ledgers, and what makes their checkpoints."""

    summary = (
        "Query, follow, verify and export the ledgers; make checkpoints and proofs of them.\n"
        "Entries are written by what happens alone, but for those of accept-rollback and erase."
    )
    examples = (
        "  paddock ledger query --ledger ho1m --type TOOL_DENIED --last 5\n"
        "  paddock ledger query --ledger ho1m --call CALL-1f2e --json\n"
        "  paddock ledger tail --ledger ho1m\n"
        "  paddock ledger verify\n"
        "  paddock ledger checkpoint --out governance.checkpoint\n"
        "  paddock ledger verify --checkpoint governance.checkpoint\n"
        "  paddock ledger proof 17 --ledger ho1m --json\n"
        "  paddock ledger proof CALL-1f2e3d4c5b6a7988 --json\n"
        "  paddock ledger accept-rollback\n"
        "  paddock ledger export --ledger ho1m --format html --out ho1m.html"
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="question", required=True, metavar="QUESTION")
        asked = actions.add_parser("query", help="entries, newest last", allow_abbrev=False)
        asked_with.add_query(asked, _CHOICES)
        followed = actions.add_parser("tail", help="follow as it grows", allow_abbrev=False)
        asked_with.add_tail(followed, _CHOICES)
        checked = actions.add_parser("verify", help="read and check whole", allow_abbrev=False)
        asked_with.add_verify(checked, _CHOICES)
        signed = actions.add_parser(
            "checkpoint", help="sign what is there, and print the note", allow_abbrev=False
        )
        asked_with.add_checkpoint(signed, _CHOICES)
        proved = actions.add_parser(
            "proof", help="prove an entry to an outsider", allow_abbrev=False
        )
        asked_with.add_proof(proved, _CHOICES)
        accepted = actions.add_parser(
            "accept-rollback", help="go on after a restore from a backup", allow_abbrev=False
        )
        asked_with.add_rollback(accepted, _CHOICES)
        signing = actions.add_parser(
            "signer", help="hold the keys for another user: [ledger] signer", allow_abbrev=False
        )
        asked_with.add_signer(signing)
        exported = actions.add_parser(
            "export", help="lines as they are stored, or a page", allow_abbrev=False
        )
        asked_with.add_export(exported, _CHOICES)
        shown = actions.add_parser(
            "content", help="print what an entry names by a salted digest", allow_abbrev=False
        )
        asked_with.add_content(shown)
        erased = actions.add_parser(
            "erase",
            help="erase such a content and its salt for good; recorded, and proofs stay",
            allow_abbrev=False,
        )
        asked_with.add_erase(erased)
        for parsed in (asked, followed, proved):
            add_common(parsed, "print one JSON value a line, one an entry")
        for parsed in (checked, exported, signed, accepted, shown, erased):
            add_common(parsed)

    def run(self, options: Options, console: Console) -> int:
        """Answer the question."""
        question = options.question
        if question == "signer":
            # Started for every checkpoint, perhaps as another user: no project, nothing more.
            from paddock.apps.cli.ledger_signer import run_signer

            return run_signer(options, console)
        if question in {"content", "erase"}:
            from paddock.apps.cli.ledger_content import run_content, run_erase
            from paddock.apps.cli.project import find_project

            ask = run_content if question == "content" else run_erase
            return ask(find_project(options, console), options, console)
        from paddock.apps.cli.project import find_site

        return self._ask(question, find_site(options, console), options, console)

    def _ask(self, question: str, site: "PlaneSite", options: Options, console: Console) -> int:
        """What needs the ledgers alone: answered although a policy file does not load."""
        if question in {"query", "tail"}:
            from paddock.apps.cli.ledger_query import run_query, run_tail

            ask = run_query if question == "query" else run_tail
            return ask(site, options, console)
        if question == "export":
            from paddock.apps.cli.ledger_export import run_export

            return run_export(site, options, console)
        if question == "verify":
            from paddock.apps.cli.ledger_verify import run_verify

            return run_verify(site, NAMES, options, console)
        from paddock.apps.cli import ledger_verify as proofs

        if question == "checkpoint":
            return proofs.run_checkpoint(site, options, console)
        if question == "proof":
            return proofs.run_proof(site, options, console)
        return proofs.run_rollback(site, NAMES, options, console)


COMMAND = LedgerCommand()
