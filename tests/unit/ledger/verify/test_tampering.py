"""Every way to change a ledger is found, with its place, by two verifiers that share no code.

The rows: what is done; what the chain alone finds; what needs a checkpoint that is
kept elsewhere. `FIRST` is one of 30 entries, `LAST` one of all 40.
"""

import json
import os
import shutil

import pytest

from paddock.errors import ConfigError, HostError
from paddock.ledger.format.line import chain_line, chain_tail, leaf_hash
from paddock.ledger.format.lines import LineFault, encode_body
from paddock.ledger.format.notes import Checkpoint, Growing
from paddock.ledger.verify import ChainFault, Held, verify
from paddock.values.entries import Entry
from tests.support.sealed import ORIGIN, load_verifier, seal_ledger

COUNT = 40
FIRST, LAST = 30, 40
MIDDLE = 19
"""The entry that is tampered with; its line is the next number."""
other = load_verifier()


@pytest.fixture
def ledger(tmp_path):
    """40 entries; checkpoints of 30 and of 40 of them are kept elsewhere."""
    sealed = seal_ledger(tmp_path, FIRST)
    sealed.kept("first", sealed.checkpointer.make().note)
    shutil.copytree(sealed.folder, sealed.folder.parent / "old")
    sealed.append(COUNT - FIRST)
    sealed.kept("last", sealed.checkpointer.make().note)
    return sealed


def found_by_us(ledger, *names):
    held = [
        Held(name, (ledger.folder.parent / f"kept-{name}").read_text("utf-8")) for name in names
    ]
    return [(each.kind, each.line) for each in verify(ledger.path, held=held).problems]


def found_by_other(ledger, *names):
    files = [str(ledger.folder.parent / f"kept-{name}") for name in names]
    return [line for line, _ in other.verify_ledger(ledger.path, files)[0]]


def changed(at, change):
    return lambda lines: [change(line) if n == at else line for n, line in enumerate(lines)]


def rechained(lines, start, change):
    """As someone would who knows the format: everything from `start` on made anew."""
    found = lines[:start]
    for line in lines[start:]:
        values = json.loads(line)
        entry = Entry("NOTE", reason=change(values["reason"]))
        body = encode_body(entry, values["id"], values["timestamp"])
        found.append(chain_line(body, len(found), leaf_hash(found[-1])))
    return found


def without_hashes(line):
    return line[: line.index(b',"seq"')] + b"}"


def twice(line):
    return line.replace(b'"reason":', b'"reason":"x","reason":')


# What is done, what we say first, and at which line; the other verifier's line.
IN_THE_MIDDLE = {
    "edit": (
        changed(MIDDLE, lambda line: line.replace(b'"note ', b'"nota ')),
        (ChainFault.CHANGED, 20),
        20,
    ),
    "delete": (lambda lines: lines[:19] + lines[20:], (ChainFault.MISSING, 20), 20),
    "swap": (
        lambda lines: [*lines[:19], lines[20], lines[19], *lines[21:]],
        (ChainFault.MISSING, 20),
        20,
    ),
    "insert garbage": (
        lambda lines: [*lines[:19], b"garbage", *lines[19:]],
        (LineFault.GARBAGE, 20),
        20,
    ),
    "re-encode": (
        changed(MIDDLE, lambda line: line.replace(b'"reason":"', b'"reason": "')),
        (LineFault.RE_ENCODED, 20),
        20,
    ),
    "duplicate key": (changed(MIDDLE, twice), (LineFault.DUPLICATE_KEY, 20), 20),
    "strip all hashes": (
        lambda lines: [without_hashes(line) for line in lines],
        (LineFault.FIELDS, 1),
        1,
    ),
}
NO_ENTRIES = {
    "nothing": b"",
    "an empty object": b"{}",
    "a list": b"[1]",
    "nesting without end": b"[" * 200_000,
    "a number without end": b"9" * 100_000,
    "NUL": b"\0" * 64,
    "no UTF-8": b'{"a":"\xff"}',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "a place that is no number": b'{"a":1,"seq":19.0,"prev":"%064d"}' % 0,
    "a place that is true": b'{"a":1,"seq":true,"prev":"%064d"}' % 0,
    "half of a pair": b'{"a":1,"seq":19,"prev":"\\ud800"}',
}
# Nothing of these shows in the chain: what is said once the checkpoint is known.
ONLY_A_CHECKPOINT = {
    "rewrite from the middle": (
        lambda lines: rechained(lines, MIDDLE, str.upper),
        (ChainFault.REWRITTEN, 20),
    ),
    "cut off below it": (lambda lines: lines[:25], (ChainFault.ROLLED_BACK, 26)),
    "all but GENESIS": (lambda lines: lines[:1], (ChainFault.ROLLED_BACK, 2)),
}
ONLY_THE_LAST = {
    "cut off after it": (lambda lines: lines[:35], (ChainFault.ROLLED_BACK, 36)),
    "rewrite after it": (
        lambda lines: rechained(lines, 35, str.upper),
        (ChainFault.REWRITTEN, 36),
    ),
    "edit of the last": (
        lambda lines: [*lines[:-1], lines[-1].replace(b'"note ', b'"nota ')],
        (ChainFault.REWRITTEN, 40),
    ),
}


def test_an_untouched_ledger_is_whole_for_both(ledger, capsys):
    assert found_by_us(ledger, "first", "last") == []
    assert found_by_other(ledger, "first", "last") == []
    assert "40 entries; 40 of them are covered by a checkpoint" in capsys.readouterr().out


@pytest.mark.parametrize("beside", [True, False], ids=["with sidecars", "without"])
@pytest.mark.parametrize("name", IN_THE_MIDDLE)
def test_what_is_done_in_the_middle_shows_without_a_checkpoint(ledger, name, beside):
    change, ours, line = IN_THE_MIDDLE[name]
    ledger.write(change(ledger.lines()))
    if not beside:
        ledger.forget_sidecars()

    assert found_by_us(ledger)[0] == ours
    assert found_by_other(ledger)[0] == line


@pytest.mark.parametrize("at", [MIDDLE, COUNT - 1], ids=["in the middle", "at the end"])
@pytest.mark.parametrize("name", NO_ENTRIES)
def test_whatever_stands_in_a_line_is_said_with_its_place(ledger, name, at):
    ledger.write(changed(at, lambda _: NO_ENTRIES[name])(ledger.lines()))
    ledger.forget_sidecars()

    assert found_by_us(ledger)[0][1] == at + 1
    assert found_by_other(ledger)[0] == at + 1


def test_a_key_given_twice_in_the_last_line_shows_to_both(ledger):
    ledger.write([*ledger.lines()[:-1], twice(ledger.lines()[-1])])
    ledger.forget_sidecars()

    assert found_by_us(ledger) == [(LineFault.DUPLICATE_KEY, COUNT)]
    assert found_by_other(ledger) == [COUNT]


def chained(lines, start):
    """The lines from `start` on with links that fit, whatever they hold."""
    found = lines[:start]
    for line in lines[start:]:
        body = line[: line.index(b',"seq":')]
        found.append(body + chain_tail(len(found), leaf_hash(found[-1])))
    return found


@pytest.mark.parametrize("change", [twice, lambda line: line.replace(b"{}", b'{"n":NaN}')])
def test_what_was_signed_and_holds_no_entry_shows_where_every_line_is_parsed(ledger, change):
    """As a program signed it that trusted the head file, and parsed nothing."""
    ledger.write(chained(changed(MIDDLE, change)(ledger.lines()), MIDDLE))
    ledger.forget_sidecars()
    growing = Growing()
    growing.extend([bytes.fromhex(leaf_hash(line)) for line in ledger.lines()])
    ledger.signer.forget()
    signed = ledger.signer.sign(Checkpoint(ORIGIN, COUNT, growing.root()), [])
    ledger.kept("new", signed.note)
    held = [Held("new", signed.note)]

    (problem,) = verify(ledger.path, held=held, parse_all=True).problems

    assert (problem.line, found_by_other(ledger, "new")) == (MIDDLE + 1, [MIDDLE + 1])


def test_a_whole_ledger_is_whole_where_every_line_is_parsed(ledger):
    note = (ledger.folder.parent / "kept-last").read_text("utf-8")
    held = [Held("last", note)]

    assert verify(ledger.path, held=held, parse_all=True) == verify(ledger.path, held=held)


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.replace(b'"GENESIS"', b'"GENESES"'),
        lambda line: line.replace(b'"public_key":', b'"public_kex":'),
        lambda line: line.replace(b'"metadata":{', b'"metadata":{"a":1},"x":{'),
    ],
    ids=["another type", "no key", "nothing"],
)
def test_a_first_line_that_does_not_say_what_ledger_this_is_is_found_by_both(ledger, change):
    ledger.write([change(ledger.lines()[0])])
    ledger.forget_sidecars()

    assert found_by_us(ledger)[0][1] == 1
    assert found_by_other(ledger) == [1]


def test_a_format_that_neither_knows_is_refused_by_both(ledger):
    ledger.write([ledger.lines()[0].replace(b'"format":1', b'"format":2')])
    ledger.forget_sidecars()

    with pytest.raises(HostError, match="unknown ledger format 2"):
        verify(ledger.path)
    assert found_by_other(ledger) == [1]


def test_what_follows_the_last_line_is_said_and_is_no_damage(ledger, capsys):
    with open(ledger.path, "ab") as file:
        file.write(b'{"id":"LED-')

    found = verify(ledger.path)
    assert (found.problems, found.torn_bytes) == ((), 11)
    assert found_by_other(ledger, "last") == []
    assert "11 bytes follow" in capsys.readouterr().out


@pytest.mark.parametrize("name", {**ONLY_A_CHECKPOINT, **ONLY_THE_LAST})
def test_the_rest_does_not_show_without_one(ledger, name):
    """The limit of a chain, stated: whoever changed it took away what stands beside it, too."""
    change, _ = {**ONLY_A_CHECKPOINT, **ONLY_THE_LAST}[name]
    ledger.write(change(ledger.lines()))
    ledger.forget_sidecars()

    found = verify(ledger.path)

    assert found.is_whole
    assert "are covered by no exported checkpoint" in found.uncovered
    assert found_by_other(ledger) == []


@pytest.mark.parametrize("name", ONLY_A_CHECKPOINT)
def test_a_checkpoint_that_was_kept_elsewhere_shows_it(ledger, name):
    change, (kind, line) = ONLY_A_CHECKPOINT[name]
    ledger.write(change(ledger.lines()))
    ledger.forget_sidecars()

    (ours,), (theirs,) = found_by_us(ledger, "first"), found_by_other(ledger, "first")

    assert ours[0] == kind
    # Without the tree's own files it is only known that it is one of the first 30.
    assert ours[1] == theirs == (line if kind is ChainFault.ROLLED_BACK else 1)

    kept = (ledger.folder.parent / "kept-first").read_text("utf-8")
    found = verify(ledger.path, held=[Held("first", kept)])
    # One of another history covers nothing here.
    assert (found.agreements, found.covered_entries) == ((), 0)


@pytest.mark.parametrize("name", ONLY_THE_LAST)
def test_what_came_after_a_checkpoint_shows_with_a_newer_one_alone(ledger, name):
    change, (kind, line) = ONLY_THE_LAST[name]
    ledger.write(change(ledger.lines()))
    ledger.forget_sidecars()

    kept = (ledger.folder.parent / "kept-first").read_text("utf-8")
    found = verify(ledger.path, held=[Held("first", kept)])
    assert found.is_whole
    assert found.covered_entries == FIRST
    assert found_by_other(ledger, "first") == []

    (ours,) = found_by_us(ledger, "first", "last")
    (theirs,) = found_by_other(ledger, "first", "last")
    assert ours[0] == kind
    if kind is ChainFault.ROLLED_BACK:
        assert ours[1] == theirs == line
    else:
        # Between the checkpoint that fits and the one that does not.
        assert ours[1] == FIRST + 1


@pytest.mark.parametrize("name", {**ONLY_A_CHECKPOINT, **ONLY_THE_LAST})
def test_what_is_left_beside_the_ledger_gives_the_very_line(ledger, name):
    change, wanted = {**ONLY_A_CHECKPOINT, **ONLY_THE_LAST}[name]
    ledger.write(change(ledger.lines()))
    (ledger.folder / "x.d" / "head").unlink()

    assert wanted in found_by_us(ledger)
    assert wanted[1] in found_by_other(ledger)


@pytest.mark.parametrize(
    "put",
    [lambda place: place.mkdir(), os.mkfifo, lambda place: place.symlink_to("/dev/zero")],
    ids=["a directory", "a pipe", "a link"],
)
def test_what_is_put_in_the_place_of_the_tree_hides_nothing(ledger, put):
    ledger.write(rechained(ledger.lines(), MIDDLE, str.upper))
    (ledger.folder / "x.d" / "head").unlink()
    (ledger.folder / "x.d" / "tree.0").unlink()
    put(ledger.folder / "x.d" / "tree.0")

    assert found_by_us(ledger, "first", "last") == [(ChainFault.REWRITTEN, 1)]
    assert {*found_by_other(ledger, "first", "last")} == {1}


@pytest.mark.parametrize("place", ["checkpoints/41", "tree.1", "offsets", "torn"])
def test_a_pipe_beside_the_ledger_holds_nobody_up(ledger, place):
    target = ledger.folder / "x.d" / place
    target.unlink(missing_ok=True)
    os.mkfifo(target)

    try:
        found = found_by_us(ledger, "last")
    except (HostError, ConfigError):
        found = []
    assert found == found_by_other(ledger, "last") == []


def test_an_old_copy_of_everything_shows_against_what_was_kept_elsewhere(ledger):
    shutil.rmtree(ledger.folder)
    shutil.copytree(ledger.folder.parent / "old", ledger.folder)

    assert found_by_us(ledger) == []
    assert found_by_us(ledger, "last") == [(ChainFault.ROLLED_BACK, FIRST + 1)]
    assert found_by_other(ledger, "last") == [FIRST + 1]


def test_an_emptied_file_shows_by_itself(ledger):
    ledger.write([])

    assert found_by_us(ledger)[0][0] == ChainFault.GENESIS
    assert found_by_other(ledger)[0] == 1


FORGED = {
    "another size": lambda text: text.replace("\n40\n", "\n39\n"),
    "another root": lambda text: "\n".join(
        [*text.split("\n")[:2], "A" * 43 + "=", *text.split("\n")[3:]]
    ),
    "another signature": lambda text: text[:-8] + "AAAAA==\n",
    "no checkpoint": lambda text: "hello\n",
    "nothing": lambda text: "",
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_checkpoint_is_found(ledger, name):
    text = (ledger.folder.parent / "kept-last").read_text("utf-8")
    ledger.kept("forged", FORGED[name](text))

    assert found_by_us(ledger, "forged") == [(ChainFault.CHECKPOINT, 0)]
    assert found_by_other(ledger, "forged") == [0]


def test_what_cannot_be_read_is_said_without_a_traceback(ledger, tmp_path, capsys):
    missing = str(tmp_path / "missing")
    no_proof = tmp_path / "proof.json"
    no_proof.write_text("{}")
    for arguments in (
        [missing],
        ["--proof", missing, "key"],
        ["--proof", str(no_proof), "key"],
        ["--proof", str(no_proof), str(ledger.path), "key"],
    ):
        assert other.main(arguments) == 4
        assert capsys.readouterr().out.startswith("cannot be verified: ")
