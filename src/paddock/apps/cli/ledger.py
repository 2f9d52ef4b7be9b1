"""`paddock ledger`: the subcommands; each loads only the module that runs it."""

import argparse
from collections.abc import Sequence
from contextlib import closing
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
"""How many entries `query` shows without `--last`."""
_NUMBER: Final = lazy_pattern(r"-?[0-9]{1,18}")


def _signer(options: command.Options, console: Console) -> int:
    # Started for every checkpoint, perhaps as another user: it loads no project.
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
            f"the origin {quote(options.origin)} is not UTF-8", where="ORIGIN"
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
        raise UsageError("name one content by its digest, or list those of a call: --call ID")
    if options.out is not None and (options.call is not None or options.json):
        raise UsageError("--out is only for the content of one digest", where="--out")
    if options.call is not None:
        return _list(project, options.call)
    digest = require_digest(options.digest)
    with closing(open_blobs(project)) as blobs:
        content = blobs.read(digest)
    if content is None:
        content = read_output(project, digest)
    if content is None:
        seq = find_erasure(project, digest)
        gone = "is not stored here" if seq is None else f"was erased: governance, seq {seq}"
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
        raise UsageError("name what to erase: one or more digests, or --call ID")
    digests = [require_digest(text) for text in options.digest]
    if options.call is not None:
        named = _contents_of(project, options.call)
        digests = [each.digest for each in named if not each.is_output]
    question = f"erase {len(set(digests))} contents permanently? [y/N] "
    if not options.yes and not console.agrees(question):
        said = "nothing was erased"
        return command.Reply({"status": "error", "erased": [], "said": said}, said, EXIT_NO)
    erased = erase_contents(project, digests, options.reason)
    if not erased:
        said = "nothing to erase: none of these contents is stored here"
        return command.Reply({"status": "error", "erased": [], "said": said}, said, EXIT_NO)
    said = f"erased {len(erased)} contents and their salts; all ledger proofs remain valid"
    left = "workspace files and the copies that undo keeps are not touched"
    return command.Reply({"status": "ok", "erased": list(erased), "said": said}, (said, left))


def _contents_of(project: "Project", call_id: str) -> "Sequence[NamedContent]":
    from paddock.assembly.history import contents_of_call

    named = contents_of_call(project, call_id)
    if not named:
        raise UsageError(f"no ledger entry of the call {quote(call_id)} refers to a content")
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
        f"no ledger named {quote(given)}",
        where="--ledger",
        hint=f"one of: {', '.join(_CHOICES)}; to verify a copy: "
        "paddock-verify COPY.jsonl [CHECKPOINT]",
    )


def _number_or_id(text: str) -> int | str:
    if not text.strip():
        # Such as an unset shell variable: it must not mean every call.
        raise argparse.ArgumentTypeError("empty; give an entry's number or a call's id")
    return int(text) if _NUMBER.fullmatch(text) else text


_LINES: Final = "print one JSON value per line, one per entry"
_YES = command.flag("--yes", "do not ask")
_LEDGER = command.opt(
    "--ledger", None, "default: governance", choices=_CHOICES, default=LedgerName.GOVERNANCE.value
)
_TYPE = command.opt("--type", "T", "only entries of this event type, such as TOOL_DENIED")
_OUT = command.opt("--out", "FILE", "write to a new file (default: print)")
_WHOSE = (
    command.opt("--session", "ID", "only entries of this session"),
    command.opt("--call", "ID", "only entries of this call"),
    command.opt("--agent", "NAME", "only entries of this agent"),
)
_DECISION = command.opt(
    "--decision",
    None,
    "only entries with this decision",
    # argparse rejects a misspelt word, which would otherwise find nothing.
    choices=("allow", "confine", "ask", "deny"),
)
_WHEN = (
    command.opt("--since", "T", "only from this time on; RFC 3339: 2026-01-31T00:00:00Z"),
    command.opt("--until", "T", "only up to this time"),
)


COMMAND = command.Command(
    "Query, follow, verify and export the ledgers; create checkpoints and proofs.\n"
    "Ledgers: governance (policy, agents, gates), ho2m (sessions), ho1m (tool calls),\n"
    "packages (of a bare plane). Of these commands only checkpoint, accept-rollback,\n"
    "set-aside and erase add an entry.",
    "  paddock ledger query --ledger ho1m --type TOOL_DENIED --last 5\n"
    "  paddock ledger query --ledger ho1m --call CALL-1f2e3d4c5b6a7988 --json\n"
    "  paddock ledger tail --ledger ho1m\n"
    "  paddock ledger verify\n"
    "  paddock ledger checkpoint --out governance.checkpoint\n"
    "  paddock ledger verify --checkpoint governance.checkpoint\n"
    "  paddock ledger proof 17 --ledger ho1m --json\n"
    "  paddock ledger proof CALL-1f2e3d4c5b6a7988 --json\n"
    "  paddock ledger accept-rollback\n"
    "  paddock ledger export --ledger ho1m --format html --out ho1m.html",
    command.Part(
        "query",
        "show entries, newest last",
        command.loaded("cli.ledger_query:run_query"),
        _LEDGER,
        _TYPE,
        command.opt("--last", "N", f"only the newest N (default: {QUERY_LAST}; 0: all)", type=int),
        *_WHOSE,
        _DECISION,
        command.opt(
            "--path",
            "PATH",
            "only entries about this path or paths below it; relative to the workspace or absolute",
        ),
        *_WHEN,
        as_json=_LINES,
    ),
    command.Part(
        "tail",
        "show the newest entries, then new ones as they are written",
        command.loaded("cli.ledger_query:run_tail"),
        _LEDGER,
        command.opt("--last", "N", "how many to start with (default: 10)", type=int, default=10),
        command.flag("--follow", "accepted as for tail(1); always on", "-f"),
        as_json=_LINES,
    ),
    command.Part(
        "verify",
        "check every entry, the hash chain and the signatures",
        command.loaded("cli.ledger_verify:run_verify"),
        command.opt(
            "--ledger",
            None,
            "default: all existing; to verify a copy, use paddock-verify",
            type=_named,
            choices=_CHOICES,
        ),
        command.flag(
            "--full",
            "read and parse everything, including files that passed before and have not "
            "changed, and lines that are covered by a signature",
        ),
        command.opt(
            "--checkpoint",
            "FILE",
            "a checkpoint that you kept: the ledger must extend it; may be repeated",
            action="append",
            default=[],
        ),
    ),
    command.Part(
        "checkpoint",
        "sign the current state, and print it",
        command.loaded("cli.ledger_verify:run_checkpoint"),
        _LEDGER,
        _OUT,
    ),
    command.Part(
        "proof",
        "prove an entry to someone without the ledger",
        command.loaded("cli.ledger_verify:run_proof"),
        command.opt(
            "entry",
            "SEQ|CALL-ID",
            "number of an entry, or id of a call: proves each of its entries",
            nargs="?",
            type=_number_or_id,
        ),
        command.opt(
            "--ledger", None, "default: ho1m for a call, else governance", choices=_CHOICES
        ),
        command.opt(
            "--from",
            "SIZE",
            "prove instead that the ledger has only grown since it had SIZE entries",
            dest="since",
            type=int,
        ),
        as_json=_LINES,
    ),
    command.Part(
        "accept-rollback",
        "accept older ledgers after a restore from a backup",
        command.loaded("cli.ledger_verify:run_accept_rollback"),
        command.opt("--ledger", None, "default: all that are rolled back", choices=_CHOICES),
        _YES,
    ),
    command.Part(
        "set-aside",
        "keep a damaged ledger as evidence, and start a new one",
        command.loaded("cli.ledger_verify:run_set_aside"),
        command.opt("--ledger", None, "the damaged ledger", choices=_CHOICES, required=True),
        _YES,
    ),
    command.Part(
        "signer",
        "sign checkpoints for another user; started by [ledger] signer",
        _signer,
        command.opt("directory", "DIR", "directory of the keys, private to this user"),
        command.opt(
            "action",
            about="key: print the public key; last: the last checkpoint signed; sign: the one on"
            " standard input; forget: the last one",
            choices=("key", "last", "sign", "forget"),
        ),
        command.opt("origin", "ORIGIN", "origin of the ledger, from its line 0"),
        as_json="",
    ),
    command.Part(
        "export",
        "write entries as stored lines, or as an HTML page",
        command.loaded("cli.ledger_query:run_export"),
        _LEDGER,
        command.opt(
            "--format",
            None,
            "jsonl: the lines as stored; html: one page that verifies itself",
            choices=("jsonl", "html"),
            default="jsonl",
        ),
        _OUT,
        command.opt(
            "--checkpoint",
            "FILE",
            "with html: a checkpoint kept elsewhere that the page verifies too; may be repeated",
            action="append",
            default=[],
        ),
        _TYPE,
        command.opt("--last", "N", "only the newest N (default: 0, all)", type=int, default=0),
        *_WHOSE,
        _DECISION,
        *_WHEN,
    ),
    command.Part(
        "content",
        "print the content behind an entry's salted digest",
        _content,
        command.opt("digest", "DIGEST", "salted_sha256 or output_kept of an entry", nargs="?"),
        command.opt("--call", "ID", "list the contents of a call instead"),
        command.opt("--out", "FILE", "write its bytes to a new file (default: print, escaped)"),
    ),
    command.Part(
        "erase",
        "erase a content and its salt permanently; recorded, and proofs remain valid",
        _erase,
        command.opt("digest", "DIGEST", "salted_sha256 of an entry", nargs="*"),
        command.opt("--call", "ID", "erase all contents of a call"),
        command.opt("--reason", "TEXT", "reason to record", default=""),
        _YES,
    ),
    metavar="COMMAND",
)
