"""`paddock ledger`: the questions, and the modules that answer them, each loaded alone."""

import argparse
from collections.abc import Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from paddock.apps import command
from paddock.apps.console import EXIT_NO, Console
from paddock.errors import UsageError
from paddock.pattern import lazy_pattern
from paddock.plane.layout import LedgerName
from paddock.text.show import quote, show_name
from paddock.values.calls import Json

if TYPE_CHECKING:
    from paddock.assembly.history import NamedContent
    from paddock.assembly.project import Project

NAMES: Final = (LedgerName.GOVERNANCE, LedgerName.HO2M, LedgerName.HO1M, LedgerName.PACKAGES)
_CHOICES: Final = tuple(name.value for name in NAMES)
"""As text: argparse shows its choices by `repr`."""
QUERY_LAST: Final = 20
"""How many entries `query` shows that was not told how many."""
_NUMBER: Final = lazy_pattern(r"-?[0-9]{1,18}")


def _signer(options: command.Options, console: Console) -> int:
    # Started for every checkpoint, perhaps as another user: no project, nothing more.
    import hashlib
    import os

    from paddock.ledger.format.notes import parse_checkpoint
    from paddock.ledger.signing import KeySigner, create_key, read_signed
    from paddock.storage.atomic import make_directories
    from paddock.storage.locks import locked

    command.require_named("DIR", options.directory)
    folder = Path(console.directory / options.directory)
    make_directories(folder)
    try:
        origin = options.origin.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"the origin {quote(options.origin)} is no UTF-8", where="ORIGIN"
        ) from None
    key = folder / f"{hashlib.sha256(origin).hexdigest()[:32]}.key"
    signer = KeySigner(key)
    with locked(folder):
        if options.action == "key":
            if not key.exists():
                create_key(str(key), options.origin, os.urandom)
            console.say(str(signer.verifier))
        elif options.action == "last":
            console.write_bytes((read_signed(key) or "").encode())
        elif options.action == "forget":
            signer.forget()
        else:
            wanted, proof = _read_wanted(console)
            console.write_bytes(signer.sign(parse_checkpoint(wanted), proof).note.encode())
    return 0


def _read_wanted(console: Console) -> tuple[str, list[bytes]]:
    from paddock.ledger.format.notes import HASH_BYTES
    from paddock.limits import checkpoint_note_bytes_max

    text = console.stdin.read(checkpoint_note_bytes_max + 1)
    lines = text.splitlines(keepends=True)
    try:
        proof = [bytes.fromhex(line) for line in lines[3:]]
    except ValueError:
        proof = [b""]
    if len(text) > checkpoint_note_bytes_max or any(len(each) != HASH_BYTES for each in proof):
        raise UsageError("not a checkpoint with its proof", where="standard input")
    return "".join(lines[:3]), proof


def _content(options: command.Options, console: Console) -> command.Reply | int:
    from paddock.assembly.history import find_erasure, open_blobs, read_output, require_digest

    project = command.find_project(options, console)
    if (options.digest is None) == (options.call is None):
        raise UsageError("name one content: a digest, or --call ID to list them")
    if options.out is not None and (options.call is not None or options.json):
        raise UsageError("--out is for the bytes of one digest alone", where="--out")
    if options.call is not None:
        return _list(project, options.call)
    digest = require_digest(options.digest)
    with closing(open_blobs(project)) as blobs:
        content = blobs.read(digest)
    if content is None:
        content = read_output(project, digest)
    if content is None:
        seq = find_erasure(project, digest)
        gone = "is not kept here" if seq is None else f"was erased: governance, seq {seq}"
        said = f"the content {digest} {gone}"
        if not options.json:
            console.warn(said)
        return command.Reply({"status": "error", "digest": digest, "error": said}, (), EXIT_NO)
    if options.out is not None:
        file = console.directory / options.out
        command.write_new_file(file, [content])
        return command.Reply(None, f"wrote {len(content)} bytes to {file}")
    text = content.decode("utf-8", "backslashreplace")
    size = len(content)
    return command.Reply({"status": "ok", "digest": digest, "bytes": size, "content": text}, text)


def _erase(options: command.Options, console: Console) -> command.Reply:
    from paddock.assembly.history import erase_contents, require_digest

    project = command.find_project(options, console)
    if bool(options.digest) == (options.call is not None):
        raise UsageError("name what to erase: digests, or --call ID")
    digests = [require_digest(text) for text in options.digest]
    if options.call is not None:
        named = _contents_of(project, options.call)
        digests = [each.digest for each in named if not each.is_output]
    question = f"erase {len(set(digests))} contents for good? [y/N] "
    if not options.yes and not console.agrees(question):
        said = "nothing was erased"
        return command.Reply({"status": "error", "erased": [], "said": said}, said, EXIT_NO)
    erased = erase_contents(project, digests, options.reason)
    if not erased:
        said = "there is nothing to erase: none of them is kept here"
        return command.Reply({"status": "error", "erased": [], "said": said}, said, EXIT_NO)
    said = f"erased {len(erased)} contents with their salts; every proof of the ledgers still holds"
    left = "files of the workspace and what undo keeps of them are not touched"
    return command.Reply({"status": "ok", "erased": list(erased), "said": said}, (said, left))


def _contents_of(project: "Project", call_id: str) -> "Sequence[NamedContent]":
    from paddock.assembly.history import contents_of_call

    named = contents_of_call(project, call_id)
    if not named:
        raise UsageError(f"no entry of the call {quote(call_id)} names a content")
    return named


def _list(project: "Project", call_id: str) -> command.Reply:
    from paddock.assembly.history import has_output, open_blobs

    rows: list[Json] = []
    text: list[str] = []
    with closing(open_blobs(project)) as blobs:
        for each in _contents_of(project, call_id):
            digest = each.digest
            is_kept = has_output(project, digest) if each.is_output else blobs.has(digest)
            named = command.fields(each, "digest", "call_id", "seq", "argument")
            rows.append({**named, "bytes": each.size_bytes, "kept": is_kept})
            state, size = "kept" if is_kept else "gone", f"{each.size_bytes:>9} bytes"
            text.append(f"{digest}  {state}  {size}  seq {each.seq}  {show_name(each.argument)}")
    return command.Reply(rows, text)


def _named(given: str) -> LedgerName:
    if given in _CHOICES:
        return LedgerName(given)
    raise UsageError(
        f"no ledger of a plane is called {quote(given)}",
        where="--ledger",
        hint=f"one of: {', '.join(_CHOICES)}; a copy is verified with "
        "paddock-verify COPY.jsonl [CHECKPOINT]",
    )


def _number_or_id(text: str) -> int | str:
    if not text.strip():
        # What a shell makes of a variable that is not set: no call, and not all of them.
        raise argparse.ArgumentTypeError("it is empty; give an entry's number or a call's id")
    return int(text) if _NUMBER.fullmatch(text) else text


_LINES: Final = "print one JSON value a line, one an entry"
_YES = command.flag("--yes", "do not ask")
_LEDGER = command.opt("--ledger", choices=_CHOICES, default=LedgerName.GOVERNANCE.value)
_TYPE = command.opt("--type", "T", "event type, such as TOOL_DENIED")
_OUT = command.opt("--out", "FILE", "a new file (default: print it)")
_WHOSE = (
    command.opt("--session", "ID"),
    command.opt("--call", "ID"),
    command.opt("--agent", "NAME"),
)
_DECISION = command.opt(
    "--decision",
    None,
    "what was decided; an answer or a gate has no ask or confine",
    # A word that no entry has would only find nothing.
    choices=("allow", "confine", "ask", "deny"),
)
_WHEN = (
    command.opt("--since", "T", "RFC 3339, such as 2026-01-31T00:00:00Z"),
    command.opt("--until", "T", "likewise"),
)


def _part(
    name: str, about: str, module: str, *options: command.Argument, as_json: str = command.AS_VALUE
) -> command.Part:
    def do(options: command.Options, console: Console) -> command.Reply | int:
        answer: command.Work = getattr(
            import_module(f"paddock.apps.cli.{module}"), f"run_{name.replace('-', '_')}"
        )
        return answer(options, console)

    return command.Part(name, about, do, *options, as_json=as_json)


COMMAND = command.Command(
    "Query, follow, verify and export the ledgers; make checkpoints and proofs of them.\n"
    "Entries are written by what happens alone, but for those of accept-rollback,\n"
    "set-aside and erase.",
    "  paddock ledger query --ledger ho1m --type TOOL_DENIED --last 5\n"
    "  paddock ledger query --ledger ho1m --call CALL-1f2e --json\n"
    "  paddock ledger tail --ledger ho1m\n"
    "  paddock ledger verify\n"
    "  paddock ledger checkpoint --out governance.checkpoint\n"
    "  paddock ledger verify --checkpoint governance.checkpoint\n"
    "  paddock ledger proof 17 --ledger ho1m --json\n"
    "  paddock ledger proof CALL-1f2e3d4c5b6a7988 --json\n"
    "  paddock ledger accept-rollback\n"
    "  paddock ledger export --ledger ho1m --format html --out ho1m.html",
    _part(
        "query",
        "entries, newest last",
        "ledger_query",
        _LEDGER,
        _TYPE,
        command.opt("--last", "N", f"the newest so many; 0: all (default: {QUERY_LAST})", type=int),
        *_WHOSE,
        _DECISION,
        command.opt(
            "--path",
            "PATH",
            "of a workspace, relative to it or absolute: entries that name it, or what is below",
        ),
        *_WHEN,
        as_json=_LINES,
    ),
    _part(
        "tail",
        "follow as it grows",
        "ledger_query",
        _LEDGER,
        command.opt("--last", "N", type=int, default=10),
        command.flag("--follow", "as tail(1) is told; it follows anyway", "-f"),
        as_json=_LINES,
    ),
    _part(
        "verify",
        "read and check whole",
        "ledger_verify",
        command.opt(
            "--ledger",
            None,
            "default: all that there are; paddock-verify verifies a copy",
            type=_named,
            choices=_CHOICES,
        ),
        command.flag(
            "--full",
            "read every file, also those that were found whole before and not touched since, "
            "and parse every line, also those that are signed",
        ),
        command.opt(
            "--checkpoint",
            "FILE",
            "a checkpoint that you kept: the ledger must go on from it",
            action="append",
            default=[],
        ),
    ),
    _part("checkpoint", "sign what is there, and print the note", "ledger_verify", _LEDGER, _OUT),
    _part(
        "proof",
        "prove an entry to an outsider",
        "ledger_verify",
        command.opt(
            "entry",
            "SEQ|CALL-ID",
            "an entry's number; or a call's id, and each of its entries is proved",
            nargs="?",
            type=_number_or_id,
        ),
        command.opt(
            "--ledger", None, "default: governance, or ho1m where a call is named", choices=_CHOICES
        ),
        command.opt(
            "--from",
            "SIZE",
            "instead: that the ledger only grew since it had SIZE entries",
            dest="since",
            type=int,
        ),
        as_json=_LINES,
    ),
    _part(
        "accept-rollback",
        "go on after a restore from a backup",
        "ledger_verify",
        command.opt("--ledger", None, "default: all that went back", choices=_CHOICES),
        _YES,
    ),
    _part(
        "set-aside",
        "keep a damaged ledger as evidence, and go on with a new one",
        "ledger_verify",
        command.opt("--ledger", None, "which", choices=_CHOICES, required=True),
        _YES,
    ),
    command.Part(
        "signer",
        "hold the keys for another user: [ledger] signer",
        _signer,
        command.opt("directory", "DIR", "where the keys are; this user's alone"),
        command.opt("action", choices=("key", "last", "sign", "forget")),
        command.opt("origin", "ORIGIN", "the ledger, as its line 0 names it"),
        as_json="",
    ),
    _part(
        "export",
        "lines as they are stored, or a page",
        "ledger_query",
        _LEDGER,
        command.opt(
            "--format",
            None,
            "jsonl: the lines as they are stored; html: one page that verifies itself",
            choices=("jsonl", "html"),
            default="jsonl",
        ),
        _OUT,
        command.opt(
            "--checkpoint",
            "FILE",
            "with html: a checkpoint that is held elsewhere, to be verified on the page too",
            action="append",
            default=[],
        ),
        _TYPE,
        command.opt("--last", "N", "0: all (default)", type=int, default=0),
        *_WHOSE,
        _DECISION,
        *_WHEN,
    ),
    command.Part(
        "content",
        "print what an entry names by a salted digest",
        _content,
        command.opt("digest", "DIGEST", "salted_sha256 or output_kept of an entry", nargs="?"),
        command.opt("--call", "ID", "list the contents that a call's entries name"),
        command.opt("--out", "FILE", "a new file for its bytes (default: shown, escaped)"),
    ),
    command.Part(
        "erase",
        "erase such a content and its salt for good; recorded, and proofs stay",
        _erase,
        command.opt("digest", "DIGEST", "salted_sha256 of an entry", nargs="*"),
        command.opt("--call", "ID", "all contents that a call's entries name"),
        command.opt("--reason", "TEXT", "stands in the record", default=""),
        _YES,
    ),
    metavar="QUESTION",
)
