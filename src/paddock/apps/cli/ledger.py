"""`paddock ledger`: which question, and the module that answers it, loaded alone."""

import argparse
from typing import Final

from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options, add_common
from paddock.errors import UsageError
from paddock.pattern import lazy_pattern
from paddock.plane.layout import LedgerName
from paddock.text.show import quote

NAMES: Final = (LedgerName.GOVERNANCE, LedgerName.HO2M, LedgerName.HO1M, LedgerName.PACKAGES)
_CHOICES: Final = tuple(name.value for name in NAMES)
"""As text: argparse shows its choices by `repr`."""
QUERY_LAST: Final = 20
"""How many entries `query` shows that was not told how many."""
_FORMATS: Final = ("jsonl", "html")
_DECISIONS: Final = ("allow", "confine", "ask", "deny")
_NUMBER: Final = lazy_pattern(r"-?[0-9]{1,18}")


def add_query(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ledger", choices=_CHOICES, default=LedgerName.GOVERNANCE.value)
    parser.add_argument("--type", metavar="T", help="event type, such as TOOL_DENIED")
    parser.add_argument(
        "--last", type=int, metavar="N", help=f"the newest so many; 0: all (default: {QUERY_LAST})"
    )
    parser.add_argument("--session", metavar="ID")
    parser.add_argument("--call", metavar="ID")
    parser.add_argument("--agent", metavar="NAME")
    _add_decision(parser)
    parser.add_argument(
        "--path",
        metavar="PATH",
        help="of a workspace, relative to it or absolute: entries that name it, or what is below",
    )
    parser.add_argument("--since", metavar="T", help="RFC 3339, such as 2026-01-31T00:00:00Z")
    parser.add_argument("--until", metavar="T", help="likewise")


def add_tail(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ledger", choices=_CHOICES, default=LedgerName.GOVERNANCE.value)
    parser.add_argument("--last", type=int, default=10, metavar="N")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="as tail(1) is told; it follows anyway"
    )


def add_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ledger",
        type=_named,
        choices=_CHOICES,
        help="default: all that there are; docs/verify_ledger.py verifies a copy",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="read every file, also those that were found whole before and not touched since, "
        "and parse every line, also those that are signed",
    )
    parser.add_argument(
        "--checkpoint",
        metavar="FILE",
        action="append",
        default=[],
        help="a checkpoint that you kept: the ledger must go on from it",
    )


def _named(given: str) -> LedgerName:
    """A ledger of the plane. Raises: UsageError: there is none of that name, such as a file."""
    if given in _CHOICES:
        return LedgerName(given)
    raise UsageError(
        f"no ledger of a plane is called {quote(given)}",
        where="--ledger",
        hint=f"one of: {', '.join(_CHOICES)}; a copy is verified with "
        "python docs/verify_ledger.py COPY.jsonl [CHECKPOINT]",
    )


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ledger", choices=_CHOICES, default=LedgerName.GOVERNANCE.value)
    parser.add_argument("--out", metavar="FILE", help="a new file (default: print it)")


def add_proof(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "entry",
        metavar="SEQ|CALL-ID",
        nargs="?",
        type=_number_or_id,
        help="an entry's number; or a call's id, and each of its entries is proved",
    )
    parser.add_argument(
        "--ledger", choices=_CHOICES, help="default: governance, or ho1m where a call is named"
    )
    parser.add_argument(
        "--from",
        dest="since",
        metavar="SIZE",
        type=int,
        help="instead: that the ledger only grew since it had SIZE entries",
    )


def add_rollback(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ledger", choices=_CHOICES, help="default: all that went back")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def add_signer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="where the keys are; this user's alone")
    parser.add_argument("action", choices=("key", "last", "sign", "forget"))
    parser.add_argument("origin", metavar="ORIGIN", help="the ledger, as its line 0 names it")


def add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ledger", choices=_CHOICES, default=LedgerName.GOVERNANCE.value)
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        default="jsonl",
        help="jsonl: the lines as they are stored; html: one page that verifies itself",
    )
    parser.add_argument("--out", metavar="FILE", help="a new file (default: print it)")
    parser.add_argument(
        "--checkpoint",
        metavar="FILE",
        action="append",
        default=[],
        help="with html: a checkpoint that is held elsewhere, to be verified on the page too",
    )
    parser.add_argument("--type", metavar="T", help="event type, such as TOOL_DENIED")
    parser.add_argument("--last", type=int, default=0, metavar="N", help="0: all (default)")
    parser.add_argument("--session", metavar="ID")
    parser.add_argument("--call", metavar="ID")
    parser.add_argument("--agent", metavar="NAME")
    _add_decision(parser)
    parser.add_argument("--since", metavar="T", help="RFC 3339, such as 2026-01-31T00:00:00Z")
    parser.add_argument("--until", metavar="T", help="likewise")


def add_content(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "digest", nargs="?", metavar="DIGEST", help="salted_sha256 or output_kept of an entry"
    )
    parser.add_argument("--call", metavar="ID", help="list the contents that a call's entries name")
    parser.add_argument(
        "--out", metavar="FILE", help="a new file for its bytes (default: shown, escaped)"
    )


def add_erase(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("digest", nargs="*", metavar="DIGEST", help="salted_sha256 of an entry")
    parser.add_argument("--call", metavar="ID", help="all contents that a call's entries name")
    parser.add_argument("--reason", default="", metavar="TEXT", help="stands in the record")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _add_decision(parser: argparse.ArgumentParser) -> None:
    """`--decision`: a word that no entry has would only find nothing."""
    parser.add_argument(
        "--decision",
        choices=_DECISIONS,
        help="what was decided; an answer or a gate has no ask or confine",
    )


def _number_or_id(text: str) -> int | str:
    if not text.strip():
        # What a shell makes of a variable that is not set: no call, and not all of them.
        raise argparse.ArgumentTypeError("it is empty; give an entry's number or a call's id")
    return int(text) if _NUMBER.fullmatch(text) else text


_VALUE: Final = "print one JSON value"
_LINES: Final = "print one JSON value a line, one an entry"
_QUESTIONS: Final = (
    ("query", "entries, newest last", add_query, _LINES),
    ("tail", "follow as it grows", add_tail, _LINES),
    ("verify", "read and check whole", add_verify, _VALUE),
    ("checkpoint", "sign what is there, and print the note", add_checkpoint, _VALUE),
    ("proof", "prove an entry to an outsider", add_proof, _LINES),
    ("accept-rollback", "go on after a restore from a backup", add_rollback, _VALUE),
    ("signer", "hold the keys for another user: [ledger] signer", add_signer, ""),
    ("export", "lines as they are stored, or a page", add_export, _VALUE),
    ("content", "print what an entry names by a salted digest", add_content, _VALUE),
    (
        "erase",
        "erase such a content and its salt for good; recorded, and proofs stay",
        add_erase,
        _VALUE,
    ),
)
"""Each question with its help, its options, and what its `--json` prints."""


class LedgerCommand:
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
        for question, said, add_options, as_json in _QUESTIONS:
            asked = actions.add_parser(question, help=said, allow_abbrev=False)
            add_options(asked)
            if as_json:
                add_common(asked, as_json)

    def run(self, options: Options, console: Console) -> int:
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
        # The rest needs the ledgers alone: answered although a policy file does not load.
        from paddock.apps.cli.project import find_site

        site = find_site(options, console)
        if question in {"query", "tail", "export"}:
            from paddock.apps.cli.ledger_query import run_export, run_query, run_tail

            return {"query": run_query, "tail": run_tail, "export": run_export}[question](
                site, options, console
            )
        from paddock.apps.cli import ledger_verify as proofs

        answers = {
            "verify": proofs.run_verify,
            "checkpoint": proofs.run_checkpoint,
            "proof": proofs.run_proof,
            "accept-rollback": proofs.run_rollback,
        }
        return answers[question](site, options, console)


COMMAND = LedgerCommand()
