"""Old ledgers verify for ever, and the page that describes the format describes these bytes."""

import hashlib
import json
import re

import pytest

from paddock.ledger.format.lines import StoredEntry, inspect_line
from paddock.ledger.verify import verify
from tests.support.repository import ROOT

VECTORS = ROOT / "tests" / "vectors" / "ledger"
PAGE = ROOT / "docs" / "formats" / "ledger.md"


@pytest.mark.parametrize("name", sorted(path.stem for path in VECTORS.glob("*.jsonl")))
def test_a_ledger_that_was_written_once_verifies_for_ever(name):
    wanted = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))

    found = verify(str(VECTORS / f"{name}.jsonl"))

    assert found.problems == ()
    assert found.entries == wanted["entries"]
    assert found.genesis.origin == wanted["origin"]
    assert found.head.hash == wanted["leaves"][-1]


def chain(lines: list[bytes]) -> list[str]:
    """The hashes, from the page's words alone."""
    leaves = []
    for number, line in enumerate(lines):
        prev = leaves[-1] if leaves else "0" * 64
        assert line.endswith(f',"seq":{number},"prev":"{prev}"}}'.encode())
        leaves.append(hashlib.sha256(b"\0" + line).hexdigest())
    return leaves


def test_the_vectors_chain_by_the_words_of_the_page():
    lines = (VECTORS / "format-1.jsonl").read_bytes().split(b"\n")[:-1]

    assert chain(lines) == json.loads((VECTORS / "format-1.json").read_bytes())["leaves"]


def test_the_worked_example_is_true():
    page = PAGE.read_text(encoding="utf-8")
    (example,) = re.findall(r"^```jsonl\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (hashes,) = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)

    lines = example.encode().splitlines()

    assert chain(lines) == hashes.split()
    assert all(isinstance(inspect_line(line), StoredEntry) for line in lines)
