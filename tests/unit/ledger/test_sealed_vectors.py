"""Checkpoints and proofs that were made once verify for ever, by two verifiers."""

import base64
import hashlib
import json
import re

import pytest

from paddock.ledger.format.lines import VerifierKey
from paddock.ledger.format.notes import (
    Checkpoint,
    format_note,
    open_note,
    read_checkpoint,
    verify_consistency,
    verify_inclusion,
)
from paddock.ledger.signing import make_key
from paddock.ledger.tree import prove_consistency, prove_inclusion
from paddock.ledger.verify import Held, verify
from tests.support.repository import ROOT
from tests.support.sealed import load_verifier

FOLDER = ROOT / "tests" / "vectors" / "ledger"
LEDGER = FOLDER / "format-1-sealed.jsonl"
VECTORS = json.loads((FOLDER / "format-1-sealed.json").read_bytes())
KEY = VerifierKey.parse(VECTORS["key"])
other = load_verifier()


@pytest.mark.parametrize("note", VECTORS["checkpoints"], ids=lambda note: note.split("\n")[1])
def test_a_checkpoint_that_was_signed_once_is_still_one(note, tmp_path):
    key = make_key(VECTORS["origin"], bytes.fromhex(VECTORS["seed"]))
    checkpoint = open_note(note, KEY).checkpoint
    kept = tmp_path / "note"
    kept.write_text(note, encoding="utf-8")

    # Ed25519 is deterministic: the very bytes come out again.
    text = Checkpoint(checkpoint.origin, checkpoint.size, checkpoint.root).text
    assert format_note(text, KEY.name, KEY.key_id, key.sign(text.encode())) == note
    assert read_checkpoint(note) == checkpoint
    assert other.open_note(note, VECTORS["key"]) == (checkpoint.size, checkpoint.root)
    found = verify(str(LEDGER), held=[Held("vector", note)])
    assert (found.problems, found.covered_entries) == ((), checkpoint.size)
    assert other.verify_ledger(str(LEDGER), [str(kept)])[0] == []


@pytest.mark.parametrize("proof", VECTORS["inclusion"], ids=lambda p: f"{p['seq']} of {p['size']}")
def test_an_inclusion_proof_that_was_made_once_still_proves(proof):
    signed = open_note(proof["note"], KEY)
    leaf, path = bytes.fromhex(proof["leaf"]), [bytes.fromhex(each) for each in proof["hashes"]]
    line = LEDGER.read_bytes().split(b"\n")[proof["seq"]]

    assert verify_inclusion(leaf, proof["seq"], proof["size"], path, signed.checkpoint.root)
    assert other.verify_proof(proof, VECTORS["key"], line) == []
    made = prove_inclusion(str(LEDGER), proof["seq"], signed)
    assert (made.leaf, list(made.hashes)) == (leaf, path)
    for harmed in (
        {**proof, "seq": proof["seq"] + 1},
        {**proof, "leaf": "00" * 32},
        {**proof, "hashes": proof["hashes"][1:]},
        {**proof, "hashes": [*proof["hashes"], "00" * 32]},
        {**proof, "size": proof["size"] + 1},
        {**proof, "seq": proof["seq"] - 0.5},
        {**proof, "seq": -1},
    ):
        assert other.verify_proof(harmed, VECTORS["key"])
    assert other.verify_proof(proof, VECTORS["key"], line + b"x")


PROOFS = VECTORS["inclusion"][:2]
ENTRIES = LEDGER.read_bytes().split(b"\n")


@pytest.fixture
def program(tmp_path, capsys):
    """What the other verifier says of these proofs, and of these lines if there are any."""

    def run(proofs: list, *lines: bytes):
        files = [tmp_path / "proofs"]
        files[0].write_text("".join(f"{json.dumps(proof)}\n" for proof in proofs))
        if lines:
            files.append(tmp_path / "lines")
            files[1].write_bytes(b"".join(line + b"\n" for line in lines))
        proof, *given = map(str, files)
        status = other.main(["--proof", proof, VECTORS["key"], *given])
        return status, capsys.readouterr().out

    return run


def lines_of(proofs):
    return [ENTRIES[proof["seq"]] for proof in proofs]


@pytest.mark.parametrize("proofs", [PROOFS[:1], PROOFS, [*PROOFS, VECTORS["consistency"][0]]])
def test_every_proof_of_a_file_is_checked(proofs, program):
    assert program(proofs) == (0, "whole\n")


def test_several_proofs_are_checked_with_a_line_each(program):
    assert program(PROOFS, *lines_of(PROOFS)) == (0, "whole\n")
    assert program(PROOFS[:1], *lines_of(PROOFS[:1])) == (0, "whole\n")


@pytest.mark.parametrize("at", [0, 1])
def test_of_several_proofs_the_wrong_one_is_named_by_its_line(at, program):
    first, second = lines_of(PROOFS)
    harmed = [{**proof, "hashes": []} if n == at else proof for n, proof in enumerate(PROOFS)]
    wrong = [ENTRIES[0] + b"x" if n == at else line for n, line in enumerate((first, second))]
    place = f"line {at + 1}: the proof"

    assert program(harmed) == (4, f"{place} does not lead to the root\nDAMAGED\n")
    assert program(PROOFS, *wrong) == (4, f"{place} is of another line\nDAMAGED\n")
    assert program(PROOFS, second, first)[1].count("is of another line") == 2


@pytest.mark.parametrize(
    ("proofs", "lines", "said"),
    [
        (PROOFS, lines_of(PROOFS[:1]), "proofs: 2, lines for them: 1"),
        (PROOFS[:1], lines_of(PROOFS), "proofs: 1, lines for them: 2"),
        ([], [], "it is not JSON"),
        ([PROOFS[0], {**PROOFS[1], "note": ""}], [], "it is not a checkpoint"),
    ],
    ids=["too few lines", "too many", "no proof", "not signed"],
)
def test_a_file_that_is_not_all_proofs_proves_nothing(proofs, lines, said, program):
    assert program(proofs, *lines) == (4, f"cannot be verified: {said}\n")


def test_two_hashes_in_one_are_no_leaf():
    # What a node is made of, as one "leaf" of twice the length: the root would come out.
    ledger = [b"first", b"second"]
    left, right = (hashlib.sha256(b"\0" + line).digest() for line in ledger)
    root = hashlib.sha256(b"\1" + left + right).digest()
    key = make_key(VECTORS["origin"], bytes.fromhex(VECTORS["seed"]))
    text = Checkpoint(VECTORS["origin"], 2, root).text
    note = format_note(text, KEY.name, KEY.key_id, key.sign(text.encode()))
    proof = {"seq": 0, "size": 2, "leaf": left.hex(), "hashes": [right.hex()], "note": note}

    assert other.verify_proof(proof, VECTORS["key"], ledger[0]) == []
    assert other.verify_proof({**proof, "leaf": (left + right[:1]).hex()}, VECTORS["key"])
    for leaf, hashes in (
        ((left + right).hex(), []),
        ((left + right).hex(), [""]),
        (left[:31].hex(), [(left[31:] + right).hex()]),
    ):
        assert other.verify_proof({**proof, "leaf": leaf, "hashes": hashes}, VECTORS["key"])


@pytest.mark.parametrize("proof", VECTORS["consistency"], ids=lambda p: f"from {p['from']}")
def test_a_consistency_proof_that_was_made_once_still_proves(proof):
    signed = open_note(proof["note"], KEY)
    old, path = proof["from"], [bytes.fromhex(each) for each in proof["hashes"]]
    root = bytes.fromhex(proof["root"])

    assert verify_consistency(old, proof["size"], root, signed.checkpoint.root, path)
    assert other.verify_proof(proof, VECTORS["key"]) == []
    made = prove_consistency(str(LEDGER), old, signed)
    assert (made.old_root, list(made.hashes)) == (root, path)
    for harmed in (
        {**proof, "from": old + 1},
        {**proof, "root": "00" * 32},
        {**proof, "hashes": proof["hashes"][1:] or ["00" * 32]},
        {**proof, "hashes": [*proof["hashes"], "00" * 32]},
        {**proof, "from": -1},
        {**proof, "from": -1, "root": hashlib.sha256().hexdigest(), "hashes": []},
        {**proof, "from": proof["size"] + 1},
    ):
        assert other.verify_proof(harmed, VECTORS["key"])


@pytest.mark.parametrize("old", [0, 1, 8, 12, 18, 19])
def test_two_verifiers_agree_on_how_a_ledger_grew(old):
    signed = open_note(VECTORS["checkpoints"][-1], KEY)
    made = prove_consistency(str(LEDGER), old, signed)
    hashes = [each.hex() for each in made.hashes]
    proof = {"from": old, "size": made.size, "note": made.note, "hashes": hashes}

    assert other.verify_proof({**proof, "root": made.old_root.hex()}, VECTORS["key"]) == []
    assert other.verify_proof({**proof, "root": "00" * 32}, VECTORS["key"])


def test_a_proof_is_a_text_that_others_read():
    signed = open_note(VECTORS["checkpoints"][-1], KEY)

    assert prove_inclusion(str(LEDGER), 7, signed).text == VECTORS["tlog_proof"]


def test_the_page_shows_a_checkpoint_of_these():
    page = (ROOT / "docs" / "formats" / "ledger.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```note\n(.*?)^```", page, re.MULTILINE | re.DOTALL)

    assert shown == VECTORS["checkpoints"][-1]


def test_a_note_of_another_key_proves_nothing():
    stranger = make_key(VECTORS["origin"], bytes(32))
    proof = VECTORS["inclusion"][0]

    with pytest.raises(ValueError, match="did not sign"):
        other.verify_proof(proof, str(stranger.verifier))


# RFC 8032, 7.1: TEST 1 to 3.
ED25519 = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]


@pytest.mark.parametrize(("public", "message", "signature"), ED25519)
def test_the_other_verifier_knows_ed25519(public, message, signature):
    key, text, code = map(bytes.fromhex, (public, message, signature))

    assert other.is_signed(key, text, code)
    assert not other.is_signed(key, text + b"x", code)
    for at in (0, 31, 32, 63):
        harmed = bytearray(code)
        harmed[at] ^= 1
        assert not other.is_signed(key, text, bytes(harmed))
    # A number beyond the group's order would be a second signature of the same text.
    beyond = (int.from_bytes(code[32:], "little") + other.Q).to_bytes(32, "little")
    assert not other.is_signed(key, text, code[:32] + beyond)
    # Nor is anything short or long one, whatever number it would be.
    assert not other.is_signed(key, text, code + b"\0")
    assert not other.is_signed(key, text, code[:63])
    assert not other.is_signed(key[:31], text, code)


def test_two_verifiers_agree_on_signatures():
    for number in range(8):
        key = make_key("test", bytes([number]) * 32)
        text = bytes(range(number * 31))
        assert other.is_signed(key.verifier.public, text, key.sign(text))
        assert not other.is_signed(key.verifier.public, text + b"x", key.sign(text))


def encoded(y, sign=0):
    return (y | sign << 255).to_bytes(32, "little")


# Of order 1, 2, 4 and 8: all that there are, in their only encodings.
Y_OF_ORDER_8 = (
    0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD83D3D706A17C7,
    0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826,
)
SMALL = [
    encoded(1),
    encoded(other.P - 1),
    *(encoded(y, sign) for y in (0, *Y_OF_ORDER_8) for sign in (0, 1)),
]


@pytest.mark.parametrize("public", SMALL, ids=bytes.hex)
def test_a_key_of_small_order_signs_nothing(public):
    # With such a key one signature is that of any text whose hash is a multiple of 8.
    x, y = other.times(5, other.BASE)
    signature = encoded(y, x % 2) + (5).to_bytes(32, "little")

    assert not any(other.is_signed(public, bytes([each]), signature) for each in range(16))
    # A signature that is short of its own point is none either.
    assert not other.is_signed(other_key(), b"", public + bytes(32))


def other_key():
    return make_key("test", bytes(32)).verifier.public


@pytest.mark.parametrize(
    "public",
    [
        encoded(2),
        encoded(1, 1),
        encoded(other.P - 1, 1),
        *(encoded(other.P + y) for y in range(19)),
    ],
    ids=bytes.hex,
)
def test_what_is_no_point_or_another_encoding_of_one_is_refused(public):
    assert other.point(public) is None
    assert other.point(encoded(4)) is not None
    assert other.point(encoded(other.P + 4)) is None
    assert other.point(encoded(4)[:31]) is None


def signed_note(text, key_id=KEY.key_id):
    key = make_key(VECTORS["origin"], bytes.fromhex(VECTORS["seed"]))
    return format_note(text, KEY.name, key_id, key.sign(text.encode()))


def key_id_of(public):
    return hashlib.sha256(KEY.name.encode() + b"\n" + public).digest()[:4]


def key_text(public, key_id=None):
    encoded_key = base64.b64encode(public).decode()
    return f"{KEY.name}+{(key_id or key_id_of(public)).hex()}+{encoded_key}"


ROOT_TEXT = base64.b64encode(bytes(32)).decode()
SIGNED = f"{VECTORS['origin']}\n19\n{ROOT_TEXT}\n"


def test_a_note_and_a_key_that_say_what_they_are():
    assert other.open_note(signed_note(SIGNED), key_text(b"\1" + KEY.public)) == (19, bytes(32))


@pytest.mark.parametrize(
    ("note", "key"),
    [
        (signed_note(SIGNED, b"\0\0\0\0"), str(KEY)),
        (signed_note(SIGNED, b"\0\0\0\0"), key_text(b"\1" + KEY.public, b"\0\0\0\0")),
        (signed_note(SIGNED, key_id_of(b"\2" + KEY.public)), key_text(b"\2" + KEY.public)),
        (signed_note(SIGNED.replace("19", "019")), str(KEY)),
        (signed_note(SIGNED.replace("19", "-1")), str(KEY)),
        (signed_note(SIGNED.replace("sealed", "other")), str(KEY)),
        (signed_note(SIGNED).replace("\u2014", "-"), str(KEY)),
        (signed_note(SIGNED).replace("\n\n", "\n"), str(KEY)),
        (signed_note(SIGNED), KEY.name),
        (signed_note(SIGNED), ""),
    ],
)
def test_a_note_or_a_key_that_is_not_what_it_says_is_refused(note, key):
    with pytest.raises(ValueError):  # noqa: PT011 - that it is refused is all
        other.open_note(note, key)


def test_the_other_verifier_shares_no_code_with_the_package():
    text = (ROOT / "src" / "paddock_verify.py").read_text(encoding="utf-8")

    imported = {
        line.split()[1] for line in text.splitlines() if re.match(r" *(import|from) ", line)
    }
    assert imported == {"base64", "glob", "hashlib", "json", "pathlib", "signal", "sys"}
    assert not re.search(r"__import__|importlib|exec|eval|paddock\.", text.split('"""', 2)[2])


@pytest.fixture
def verdict(tmp_path, capsys):
    """What the other verifier says last of a copy of the first lines, and its status."""

    def run(lines: list[bytes], *notes: str):
        files = [tmp_path / "copy.jsonl", *(tmp_path / f"kept-{n}" for n in range(len(notes)))]
        files[0].write_bytes(b"".join(line + b"\n" for line in lines))
        for file, note in zip(files[1:], notes, strict=True):
            file.write_text(note, encoding="utf-8")
        status = other.main([str(file) for file in files])
        return status, capsys.readouterr().out.splitlines()

    return run


def test_a_copy_that_was_cut_is_whole_only_as_far_as_a_checkpoint_goes(verdict):
    newest = VECTORS["checkpoints"][-1]
    lines = ENTRIES[: int(newest.split("\n")[1])]

    assert verdict(lines, newest)[1][-1] == "whole"
    status, said = verdict(lines[:-3])
    assert (status, said[-1]) == (0, "the chain is intact; no checkpoint proves the end")
    status, said = verdict(lines[:-3], newest)
    assert (status, said[-1]) == (4, "DAMAGED")


def test_a_checkpoint_of_another_ledger_is_named_and_verifies_nothing(verdict):
    stranger = make_key("paddock.test/another", bytes(32))
    text = Checkpoint(stranger.verifier.name, 1, bytes(32)).text
    key = stranger.verifier
    note = format_note(text, key.name, key.key_id, stranger.sign(text.encode()))

    status, said = verdict(ENTRIES[:-1], note)
    assert (status, said[-1].partition(":")[0]) == (4, "NOT VERIFIED")
    assert "kept-0: this checkpoint is not of this ledger: " in said[-2]


def test_a_wrong_file_or_key_is_told_in_plain_words(verdict, tmp_path, capsys):
    assert "it has no complete line (the order is LEDGER.jsonl" in verdict([])[1][-2]
    note, ledger = tmp_path / "note", tmp_path / "ledger"
    note.write_text(VECTORS["checkpoints"][0], encoding="utf-8")
    assert other.main([str(note), str(LEDGER)]) == 4
    assert "it is not JSON (the order is LEDGER.jsonl" in capsys.readouterr().out
    note.write_text(json.dumps(PROOFS[0]))
    ledger.write_bytes(ENTRIES[0])
    for arguments, said in {
        (str(note), VECTORS["key"][1:]): "is not the public key of a ledger",
        (str(note), "key"): "'key' is not the public key of a ledger",
        (str(note), VECTORS["key"][:-1]): "is not the public key of a ledger",
        (str(ledger), VECTORS["key"]): "it is not a proof; the order is PROOF.json KEY [LINE]",
    }.items():
        assert other.main(["--proof", *arguments]) == 4
        assert said in capsys.readouterr().out
