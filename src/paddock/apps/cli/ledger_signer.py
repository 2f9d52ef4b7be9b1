"""`paddock ledger signer`: the program that holds the keys where another user is to hold them."""

import hashlib
import os
from pathlib import Path

from paddock import limits
from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options
from paddock.errors import UsageError
from paddock.ledger.format.merkle import HASH_BYTES
from paddock.ledger.format.notes import parse_checkpoint
from paddock.ledger.signing import KeySigner, create_key, read_signed
from paddock.storage.atomic import make_directories
from paddock.storage.locks import locked
from paddock.text.show import quote

_INPUT_CHARS_MAX = limits.checkpoint_note_bytes_max


def run_signer(options: Options, console: Console) -> int:
    """Do one thing with the key of one ledger. Raises: LedgerDamagedError."""
    folder = Path(console.directory / options.directory)
    make_directories(folder)
    name = hashlib.sha256(_origin_of(options.origin)).hexdigest()[:32]
    key = folder / f"{name}.key"
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
            wanted, proof = _asked(console.stdin.read(_INPUT_CHARS_MAX + 1))
            console.write_bytes(signer.sign(parse_checkpoint(wanted), proof).note.encode())
    return 0


def _origin_of(given: str) -> bytes:
    try:
        return given.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the origin {quote(given)} is no UTF-8", where="ORIGIN") from None


def _asked(text: str) -> tuple[str, list[bytes]]:
    lines = text.splitlines(keepends=True)
    try:
        proof = [bytes.fromhex(line) for line in lines[3:]]
    except ValueError:
        proof = [b""]
    if len(text) > _INPUT_CHARS_MAX or any(len(each) != HASH_BYTES for each in proof):
        raise UsageError("not a checkpoint with its proof", where="standard input")
    return "".join(lines[:3]), proof
