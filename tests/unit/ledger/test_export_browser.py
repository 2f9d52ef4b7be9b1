"""An exported page in a real browser: honest ones verify, every change of one is found."""

import base64
import html
import re
from collections.abc import Callable
from hashlib import sha256, sha512
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from paddock.ledger.export import PageText, export_page, make_page
from paddock.ledger.format.line import chain_tail, leaf_hash
from paddock.ledger.format.lines import Genesis
from paddock.ledger.format.notes import Checkpoint, format_note, leaf_nodes, root_of
from paddock.ledger.query import Filter
from paddock.ledger.signing import make_key
from paddock.values.entries import Entry
from tests.support.browsers import open_page
from tests.support.ledgers import note, open_ledger

pytestmark = pytest.mark.needs("chromium")

ORIGIN = "paddock.test/page"
KEY = make_key(ORIGIN, bytes(range(32)))
OTHER = make_key(ORIGIN, bytes(32))
GENESIS = Genesis(ORIGIN, "HOT", str(KEY.verifier))
PAGE = Path(make_page.__code__.co_filename).with_name("page")
# RFC 8032, 7.1, test 1: the signature of the empty message.
KNOWN_KEY = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
KNOWN = (
    "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
    "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
)
HOSTILE = (
    "</pre><script>document.body.dataset.verdict='owned'</script>"
    "<img src=x onerror=\"document.body.dataset.verdict='owned'\">"
)


def signed(lines: list[bytes], size: int, key=KEY) -> str:
    leaves = [sha256(b"\0" + line).digest() for line in lines[:size]]
    checkpoint = Checkpoint(ORIGIN, size, root_of(leaf_nodes(leaves), size))
    verifier = key.verifier
    signature = key.sign(checkpoint.text.encode())
    return format_note(checkpoint.text, verifier.name, verifier.key_id, signature)


def made(path: Path, count: int = 12) -> list[bytes]:
    ledger = open_ledger(path, create=GENESIS)
    entries = [
        Entry("CHOSEN", reason=HOSTILE, metadata={"é\u202e": [HOSTILE, n]})
        if n % 4 == 2
        else note(f"number {n} – “ä”")
        for n in range(1, count)
    ]
    ledger.append(entries)
    ledger.close()
    return path.read_bytes().splitlines()


def page_of(path: Path, notes: list[str], wanted: Filter | None = None, cuts=()) -> bytes:
    found = export_page(str(path), wanted, None, cuts)
    return make_page(PageText(HOSTILE, HOSTILE, str(KEY.verifier), notes), found.rows)


def changed(page: bytes, change: Callable[[list[str]], list[str]]) -> bytes:
    """The page with its lines changed as somebody with an editor would."""
    text = page.decode()
    found = re.search(r'<pre id="lines" hidden>\n(.*?)\n</pre>', text, re.DOTALL)
    assert found is not None
    lines = [html.unescape(line) for line in found[1].split("\n")]
    shown = [html.escape(line, quote=False) for line in change(lines)]
    return (text[: found.start(1)] + "\n".join(shown) + text[found.end(1) :]).encode()


def rechained(lines: list[str], start: int) -> list[str]:
    """The lines with one of them changed, and every later link made anew."""
    out = lines[:start]
    for number in range(start, len(lines)):
        body = re.sub(r',"seq":\d+,"prev":"[0-9a-f]{64}"\}$', "", lines[number])
        if number == start:
            body = body.replace("number", "NUMBER")
        out.append((body.encode() + chain_tail(number, leaf_hash(out[-1].encode()))).decode())
    return out


def test_an_honest_page_is_whole_and_its_content_stays_text(tmp_path: Path) -> None:
    lines = made(tmp_path / "a.jsonl")
    seen = open_page(page_of(tmp_path / "a.jsonl", [signed(lines, 5), signed(lines, 12)]), tmp_path)
    assert seen.found == [
        "✓ the chain: 12 lines, each with its number and with the hash of the one before",
        "✓ checkpoint of 5 entries: signed, and exactly these first 5 entries",
        "✓ checkpoint of 12 entries: signed, and exactly these first 12 entries",
    ]
    assert (seen.verdict, seen.problems) == ("whole", [])
    assert "<img" not in seen.dom
    assert seen.dom.count("<script>") == 1
    assert "number 1 – “ä”" in seen.dom
    assert str(KEY.verifier) in seen.dom


def test_a_row_says_what_its_call_was_about_and_content_stays_text_there(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path / "a.jsonl", create=GENESIS)
    about: list[list[object]] = [
        ["tool:shell:run npm test"],
        ["tool:file:view docs/a b", "tool:file:view c"],
        [f"tool:file:create {HOSTILE}"],
        [],
    ]
    ledger.append([Entry("TOOL_INTENT", metadata={"tool": "t", "actions": each}) for each in about])
    ledger.close()
    seen = open_page(page_of(tmp_path / "a.jsonl", []), tmp_path)
    shown = seen.texts("span", "entries")
    # Behind the name of the tool stands what it is about.
    found = [shown[at + 1] for at, text in enumerate(shown) if text == "t"]
    assert found == ["npm test", "docs/a b", HOSTILE, ""]
    assert "<img" not in seen.dom


def test_what_no_checkpoint_covers_is_said(tmp_path: Path) -> None:
    lines = made(tmp_path / "a.jsonl")
    seen = open_page(page_of(tmp_path / "a.jsonl", [signed(lines, 9)]), tmp_path)
    assert seen.verdict == "partly"
    assert seen.found[-1].startswith("– entries 9 to 11 are covered by no checkpoint")


def test_a_page_that_leaves_entries_out_verifies_all_the_same(tmp_path: Path) -> None:
    lines = made(tmp_path / "a.jsonl", 40)
    wanted = Filter(event_type="CHOSEN")
    notes = [signed(lines, 30), signed(lines, 40)]
    page = page_of(tmp_path / "a.jsonl", notes, wanted, (30, 40))
    assert b"number" not in page.split(b'id="lines"')[1].split(b"</pre>")[0]
    seen = open_page(page, tmp_path)
    assert [line[0] for line in seen.found] == ["✓", "✓", "✓", "–"]
    assert seen.found[-1].startswith("– 29 of 40 entries are left out here; a checkpoint signs")
    # One bit of what stands for them, and the root is another.
    forged = changed(
        page, lambda rows: [row.replace("a", "b") if row[0] == "#" else row for row in rows]
    )
    assert open_page(forged, tmp_path).verdict == "broken"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda rows: [*rows[:5], rows[5].replace("number", "NUMBER"), *rows[6:]],
            "line 7 (seq 6): its prev is not the hash of the line before it",
        ),
        (
            lambda rows: [*rows[:5], *rows[6:]],
            "line 6 (seq 6): it has seq 6 where 5 belongs",
        ),
        (
            lambda rows: [*rows[:4], rows[5], rows[4], *rows[6:]],
            "line 5 (seq 5): it has seq 5 where 4 belongs",
        ),
        (
            lambda rows: [
                *rows[:5],
                rows[5].replace('"agent":""', '"agent":"","agent":""'),
                *rows[6:],
            ],
            "line 7 (seq 6): its prev is not the hash of the line before it",
        ),
        (lambda rows: [*rows[:5], "{garbage}", *rows[5:]], "line 6: this line holds no entry"),
        (lambda rows: [*rows[1:]], "line 1 (seq 1): it has seq 1 where 0 belongs"),
    ],
)
def test_a_changed_line_is_shown_as_broken_with_its_place(
    tmp_path: Path, change: Callable[[list[str]], list[str]], said: str
) -> None:
    lines = made(tmp_path / "a.jsonl")
    page = page_of(tmp_path / "a.jsonl", [signed(lines, 12)])
    seen = open_page(changed(page, change), tmp_path)
    assert seen.verdict == "broken"
    assert any(problem.startswith(said) for problem in seen.problems), seen.problems


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rechained(rows, 5), "these 12 are not those that were signed"),
        (lambda rows: rows[:9], "it was signed for 12 entries, but 9 are here: the end is gone"),
        (
            lambda rows: [*rows[:-1], rows[-1].replace("number", "NUMBER")],
            "these 12 are not those that were signed",
        ),
    ],
)
def test_what_the_chain_cannot_show_the_checkpoint_does(
    tmp_path: Path, change: Callable[[list[str]], list[str]], said: str
) -> None:
    lines = made(tmp_path / "a.jsonl")
    page = page_of(tmp_path / "a.jsonl", [signed(lines, 12)])
    seen = open_page(changed(page, change), tmp_path)
    assert (seen.verdict, seen.problems) == ("broken", [])
    assert any(said in found for found in seen.found), seen.found


def test_without_a_checkpoint_a_ledger_made_anew_looks_whole_and_the_page_says_so(
    tmp_path: Path,
) -> None:
    made(tmp_path / "a.jsonl")
    page = changed(page_of(tmp_path / "a.jsonl", []), lambda rows: rechained(rows, 5))
    seen = open_page(page, tmp_path)
    assert (seen.verdict, seen.problems) == ("partly", [])
    assert seen.found[1].startswith("– no checkpoint here")


def test_a_checkpoint_of_another_key_and_one_that_is_none_are_broken(tmp_path: Path) -> None:
    lines = made(tmp_path / "a.jsonl")
    whole = signed(lines, 12)
    forged = f"{whole[:-20]}{'A' if whole[-20] != 'A' else 'B'}{whole[-19:]}"
    notes = [signed(lines, 12, OTHER), "nonsense\n", forged]
    seen = open_page(page_of(tmp_path / "a.jsonl", notes), tmp_path)
    assert seen.verdict == "broken"
    assert [found[0] for found in seen.found[1:4]] == ["✗", "✗", "✗"]


def test_a_script_that_is_added_to_the_page_does_not_run(tmp_path: Path) -> None:
    lines = made(tmp_path / "a.jsonl")
    page = page_of(tmp_path / "a.jsonl", [signed(lines, 12)])
    added = page.replace(
        b"</body>", b"<script>document.body.dataset.verdict='owned'</script></body>"
    )
    assert open_page(added, tmp_path).verdict == "whole"
    # It is the policy that holds it back: without it the script runs.
    free = re.sub(rb"<meta http-equiv[^>]*>", b"", added)
    assert open_page(free, tmp_path).verdict == "owned"


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ("key", "✓ this is the key that the page was verified with"),
        ("other key", "✗ another key: it did not sign this ledger"),
        ("note", "✓ your checkpoint of 7 entries: signed, and exactly these first 7 entries"),
        ("old", "✗ your checkpoint of 7 entries: signed for 7 entries, but these 7 are not those"),
    ],
)
def test_a_reader_compares_what_it_holds(tmp_path: Path, held: str, said: str) -> None:
    lines = made(tmp_path / "a.jsonl")
    page = page_of(tmp_path / "a.jsonl", [signed(lines, 12)])
    given = {
        "key": str(KEY.verifier),
        "other key": str(OTHER.verifier),
        "note": signed(lines, 7),
        "old": signed([*lines[:3], b"{}", *lines[4:]], 7),
    }[held]
    text = base64.b64encode(given.encode()).decode()
    # What a reader does by hand; the policy is taken away, for it would hold this back.
    by_hand = (
        f"<script>document.getElementById('held').value = "
        f"new TextDecoder().decode(Uint8Array.from(atob('{text}'), (c) => c.charCodeAt(0)));"
        f"document.getElementById('compare').click();</script></body>"
    )
    page = re.sub(rb"<meta http-equiv[^>]*>", b"", page).replace(b"</body>", by_hand.encode())
    seen = open_page(page, tmp_path)
    found = re.search(r'<span id="answer"[^>]*>(.*?)</span>', seen.dom, re.DOTALL)
    assert found is not None
    assert html.unescape(found[1]).startswith(said)


def test_the_pages_own_hashes_and_signatures_are_those_of_the_standards(tmp_path: Path) -> None:
    messages = [
        bytes(n % 251 for n in range(size))
        for size in (0, 1, 55, 56, 63, 64, 111, 112, 127, 128, 1000)
    ]
    private = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    public = private.public_key().public_bytes_raw()
    order = 2**252 + 27742317777372353535851937790883648493
    checks: list[tuple[str, str]] = []
    for message in messages:
        checks.append((f"hex(sha256({js(message)}))", f"'{sha256(message).hexdigest()}'"))
        checks.append((f"hex(sha512({js(message)}))", f"'{sha512(message).hexdigest()}'"))
        signature = private.sign(message)
        high = (int.from_bytes(signature[32:], "little") + order).to_bytes(32, "little")
        checks += [
            (f"isSignedBy({js(public)}, {js(signature)}, {js(message)})", "true"),
            (f"isSignedBy({js(public)}, {js(signature)}, {js(message + b'x')})", "false"),
            # The same signature with its scalar written another way.
            (f"isSignedBy({js(public)}, {js(signature[:32] + high)}, {js(message)})", "false"),
            (f"isSignedBy({js(public)}, {js(signature[:-1])}, {js(message)})", "false"),
        ]
    checks.append(
        (
            f"isSignedBy({js(bytes.fromhex(KNOWN_KEY))}, {js(bytes.fromhex(KNOWN))}, {js(b'')})",
            "true",
        )
    )
    wrong = "".join(
        f"if (({asked}) !== {wanted}) wrong.push({number});\n"
        for number, (asked, wanted) in enumerate(checks)
    )
    scripts = "".join((PAGE / name).read_text() for name in ("sha2.js", "ed25519.js", "verify.js"))
    page = (
        f"<body><script>(() => {{{scripts}\nconst wrong = [];\n{wrong}"
        f"document.body.dataset.verdict = wrong.length ? 'wrong' + wrong[0] : 'right';"
        f"}})();</script></body>"
    )
    assert open_page(page.encode(), tmp_path).verdict == "right"


def js(content: bytes) -> str:
    return f"unhex('{content.hex()}')"
