"""Signed notes and checkpoints, against the examples that others published."""

import base64

import pytest

from paddock import limits
from paddock.ledger.format.notes import (
    Checkpoint,
    NoteError,
    format_inclusion,
    format_note,
    open_note,
    parse_checkpoint,
    parse_note,
)
from paddock.ledger.signing import make_key

# The example of golang.org/x/mod/sumdb/note, where the format comes from.
TEXT = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
)
SEED = base64.b64decode("AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz")[1:]
NOTE = TEXT + (
    "\n\u2014 PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXg"
    "KvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)
KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"

ORIGIN = "paddock.test/ledger"
SIGNING = make_key(ORIGIN, bytes(range(32)))
CHECKPOINT = Checkpoint(ORIGIN, 8, bytes(range(32)))


def signed(text=CHECKPOINT.text, key=SIGNING):
    verifier = key.verifier
    return format_note(text, verifier.name, verifier.key_id, key.sign(text.encode()))


def test_a_note_is_the_one_that_the_reference_writes():
    key = make_key("PeterNeumann", SEED)

    assert str(key.verifier) == KEY
    assert signed(TEXT, key) == NOTE
    assert parse_note(NOTE)[0] == TEXT


def test_a_checkpoint_has_three_lines():
    assert CHECKPOINT.text == f"{ORIGIN}\n8\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n"
    assert parse_checkpoint(CHECKPOINT.text) == CHECKPOINT
    assert parse_checkpoint(CHECKPOINT.text + "extension\n") == CHECKPOINT


def test_a_signed_checkpoint_is_opened_with_its_key():
    found = open_note(signed(), SIGNING.verifier)

    assert (found.checkpoint, found.note) == (CHECKPOINT, signed())


def test_a_witness_may_have_signed_too():
    witness = make_key("witness.example", bytes(32))
    line = signed(CHECKPOINT.text, witness).rpartition("\n\n")[2]

    assert open_note(signed() + line, SIGNING.verifier).checkpoint == CHECKPOINT
    assert (
        open_note(
            signed(CHECKPOINT.text, witness) + signed().rpartition("\n\n")[2], SIGNING.verifier
        ).checkpoint
        == CHECKPOINT
    )


@pytest.mark.parametrize(
    ("note", "said"),
    [
        (signed().replace("\n8\n", "\n9\n"), "invalid signature"),
        (signed(key=make_key(ORIGIN, bytes(32))), "did not sign"),
        (signed(key=make_key("another", bytes(32))), "did not sign"),
        (signed(CHECKPOINT.text.replace("test", "toast")), "a checkpoint of"),
        (signed("hello\n"), "not a checkpoint"),
        (CHECKPOINT.text, "not a signed note"),
        ("", "not a signed note"),
        ("\n\n\u2014 x AAAAAAA=\n", "not a signed note"),
        (signed()[:-1], "not a signed note"),
        (signed().replace("\u2014 ", "- "), "not a signed note"),
        (signed().replace("\u2014 ", "\u2014 a+b "), "not a signed note"),
        (signed() + "\u2014 x AAAA\n", "not a signed note"),
        (signed().replace("\n8\n", "\n8\r\n"), "not a signed note"),
        (signed() + "x" * limits.checkpoint_note_bytes_max, "more than"),
    ],
)
def test_what_is_no_checkpoint_of_the_key_is_refused(note, said):
    with pytest.raises(NoteError, match=said):
        open_note(note, SIGNING.verifier)


@pytest.mark.parametrize(
    "text",
    [
        "origin\n8\n",
        "origin\n08\n" + CHECKPOINT.text.split("\n")[2] + "\n",
        "origin\n-1\n" + CHECKPOINT.text.split("\n")[2] + "\n",
        "origin\n+8\n" + CHECKPOINT.text.split("\n")[2] + "\n",
        "origin\n8\nAAAA\n",
        "origin\n8\n" + CHECKPOINT.text.split("\n")[2].replace("8=", "9=") + "\n",
        "\n8\n" + CHECKPOINT.text.split("\n")[2] + "\n",
        CHECKPOINT.text + "\nmore\n",
        CHECKPOINT.text[:-1],
    ],
)
def test_a_text_that_is_no_checkpoint_is_refused(text):
    with pytest.raises(NoteError, match="not a checkpoint"):
        parse_checkpoint(text)


def test_a_proof_is_a_text_with_its_checkpoint():
    assert format_inclusion(5, [bytes(32)], signed()) == (
        "c2sp.org/tlog-proof@v1\nindex 5\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\n"
        + signed()
    )
