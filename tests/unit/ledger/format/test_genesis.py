import pytest

from paddock.errors import HostError, LedgerDamagedError
from paddock.ledger.format.line import chain_line
from paddock.ledger.format.lines import Genesis, VerifierKey, encode_body, parse_genesis, parse_line
from paddock.values.entries import Entry

KEY = VerifierKey("paddock.test/x", bytes(range(32)))
GENESIS = Genesis("paddock.test/x", "HOT", str(KEY), "note\n")


def stored(entry, seq=0, prev="0" * 64):
    body = encode_body(entry, "LED-" + "0" * 32, "1970-01-01T00:00:00.000000Z")
    return parse_line(chain_line(body, seq, prev))


@pytest.mark.parametrize("genesis", [GENESIS, Genesis("a", "HO1", str(KEY))])
def test_genesis_says_what_it_was_made_from(genesis):
    assert parse_genesis(stored(genesis.entry())) == genesis


def test_a_verifier_key_is_text_as_in_c2sp_signed_note():
    # The example key of golang.org/x/mod/sumdb/note's documentation.
    text = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"

    assert str(VerifierKey.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name",
        "name+00000000+",
        str(KEY)[:-1],
        str(KEY).replace("paddock.test/x", "other"),
        str(KEY) + "\n",
        "two words" + str(KEY)[14:],
        str(VerifierKey("", bytes(32))),
        "x+" + str(KEY).split("+", 1)[1],
    ],
)
def test_a_key_that_is_none_is_refused(text):
    with pytest.raises(LedgerDamagedError, match="not an Ed25519 verifier key"):
        VerifierKey.parse(text)


@pytest.mark.parametrize("version", [0, 2, "1", True, None, 1.0])
def test_another_format_version_is_refused(version):
    metadata = dict(GENESIS.entry().metadata) | {"format": version}

    with pytest.raises(HostError, match="unknown ledger format"):
        parse_genesis(stored(Entry("GENESIS", metadata=metadata)))


@pytest.mark.parametrize(
    "line",
    [
        stored(Entry("NOTE")),
        stored(GENESIS.entry(), seq=1),
        stored(GENESIS.entry(), prev="1" * 64),
        stored(Entry("GENESIS", metadata={"format": 1})),
        stored(Entry("GENESIS", metadata=dict(GENESIS.entry().metadata) | {"origin": 1})),
        stored(Entry("GENESIS", metadata=dict(GENESIS.entry().metadata) | {"more": 1})),
        stored(Entry("GENESIS", metadata=dict(GENESIS.entry().metadata) | {"public_key": "x"})),
        stored(
            Entry("GENESIS", metadata=dict(GENESIS.entry().metadata) | {"parent_checkpoint": 1})
        ),
    ],
)
def test_a_first_line_that_is_no_genesis_is_damage(line):
    with pytest.raises(LedgerDamagedError):
        parse_genesis(line)
