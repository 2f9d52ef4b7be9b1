"""Verifying the ledgers of a plane against everything that is known of them elsewhere.

Compared are: what the ledger's signer signed last (beside its key), the anchor (for
the highest ledger), the checkpoints that stand as entries in the ledger above, those
beside the ledger, and what the caller brings. None of these is in reach of an agent;
all but the last two are outside the ledger's own files.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

from paddock.assembly.anchoring import LEDGER_ABOVE, find_anchor, ledger_settings
from paddock.assembly.ledgers import signer_of
from paddock.errors import ConfigError, HostError
from paddock.ledger.anchors import Anchor
from paddock.ledger.decided import find_decided
from paddock.ledger.presence import gone_error, is_known, stands
from paddock.ledger.query import BadRow, Filter
from paddock.ledger.scan import find_genesis
from paddock.ledger.signing import read_signed
from paddock.ledger.verify.verifying import (
    ChainFault,
    Held,
    Problem,
    Remembered,
    Unanswered,
    Verification,
    verify,
)
from paddock.plane.environment import Environment
from paddock.plane.keys import anchor_directory, ledger_key_path
from paddock.plane.layout import LedgerName, PlaneLayout
from paddock.storage.atomic import make_directories, read_file, replace_file
from paddock.values.calls import Json
from paddock.values.events import CHECKPOINT, ROLLBACK_ACCEPTED

_COMPARED: Final = 64
"""Checkpoints of the ledger above that a fast verification compares; a full one compares all."""
_MEMORY_BYTES_MAX: Final = 16_000_000
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Audit:
    """How a ledger is verified. `given` are checkpoints that the caller brings.

    `full`: every file is read. `parsed`: every line that is read is parsed, too.
    """

    given: Sequence[Held] = ()
    full: bool = False
    parsed: bool = False


def audit_ledger(
    layout: PlaneLayout, environment: Environment, name: LedgerName, asked: Audit = Audit()
) -> Verification:
    """Verify one ledger of a plane; what it finds whole is remembered for the next time.

    Without `full`, files that are sealed and were not touched since are not read again.

    Raises:
        HostError: there is no such ledger, it cannot be read, or the anchor cannot.
        ConfigError: the user's configuration, or a kept checkpoint, does not load.
    """
    path = layout.ledger_paths()[name]
    signed = _signed(layout, environment, name)
    anchor = _anchor_of(layout, environment, name, path)
    anchored = [] if anchor is None else anchor.read()
    held = [
        *signed,
        *(Held(anchor.where, note) for note in anchored if anchor is not None),
        *_from_above(layout, name, None if asked.full else _COMPARED),
        *asked.given,
    ]
    file = anchor_directory(layout, environment) / f"{name}.verified"
    since = None if asked.full or asked.given else read_memory(file)
    found = verify(str(path), held=held, since=since, parse_all=asked.parsed)
    if found.memory is not None:
        _keep_memory(file, found.memory)
    if anchor is not None and signed and not anchored:
        return replace(found, problems=(*found.problems, _nothing_anchored(anchor)))
    return found


def is_held_elsewhere(layout: PlaneLayout, environment: Environment, name: LedgerName) -> bool:
    """Whether there has to be this ledger: the one above, or of the highest its signer, knows it.

    Threat: a ledger that was removed with all that was kept beside it leaves nothing
    there to look at.

    Raises: HostError, ConfigError: what is held cannot be read.
    """
    if name in LEDGER_ABOVE:
        return bool(_from_above(layout, name, 1))
    return bool(_signed(layout, environment, name))


def ledgers_known(
    layout: PlaneLayout, environment: Environment, names: Sequence[LedgerName]
) -> list[LedgerName]:
    """Those of `names` that there are, or that there have to be.

    Raises: HostError, ConfigError: what is held of one cannot be read.
    """
    paths = layout.ledger_paths()
    return [
        name
        for name in names
        if is_known(paths[name]) or is_held_elsewhere(layout, environment, name)
    ]


def verify_not_gone(layout: PlaneLayout, environment: Environment, name: LedgerName) -> None:
    """Refuse a ledger that is not there, although something knows of it.

    Raises:
        LedgerDamagedError: it is gone.
        HostError, ConfigError: what is held of it cannot be read.
    """
    path = layout.ledger_paths()[name]
    if not stands(path) and is_held_elsewhere(layout, environment, name):
        raise gone_error(path, name)


def was_signed(layout: PlaneLayout, environment: Environment, name: LedgerName) -> bool:
    """Whether a ledger of that name was signed here before, whether it is there now or not.

    Raises: HostError, ConfigError: what its signer holds cannot be read.
    """
    return bool(_signed(layout, environment, name))


def is_known_outside(layout: PlaneLayout, environment: Environment) -> bool:
    """Whether a signed head of the highest ledger is kept here: by its signer or in its anchor.

    Raises: HostError, ConfigError: what is kept cannot be read.
    """
    name = LedgerName.GOVERNANCE
    anchor = _anchor_of(layout, environment, name, layout.ledger_paths()[name])
    held = _signed(layout, environment, name)
    return bool(held) or (anchor is not None and bool(anchor.read()))


def _signed(layout: PlaneLayout, environment: Environment, name: LedgerName) -> list[Held]:
    if ledger_settings(environment).signer:
        last = signer_of(layout, environment, name).last()
        note = None if last is None else last.note
    else:
        # The note alone: whoever verifies need not be able to sign.
        note = read_signed(ledger_key_path(layout, environment, name))
    return [] if note is None else [Held("what its key signed last", note)]


def _anchor_of(
    layout: PlaneLayout, environment: Environment, name: LedgerName, path: Path
) -> Anchor | None:
    if name != LedgerName.GOVERNANCE:
        return None
    genesis = find_genesis(str(path))
    return find_anchor(layout, environment, "" if genesis is None else genesis.origin)


def _nothing_anchored(anchor: Anchor) -> Problem:
    """What to say of an anchor that is empty, although the ledger's key signed something.

    Threat: a directory that is not mounted, or another branch, holds nothing that could
    contradict a ledger that was put back with its key.
    """
    return Problem(
        ChainFault.ANCHOR,
        line=0,
        seq=0,
        offset_bytes=0,
        detail=f"{anchor.where} holds no checkpoint, and the ledger's key signed some; "
        "a new anchor gets its first with paddock ledger checkpoint",
    )


def _from_above(layout: PlaneLayout, name: LedgerName, last: int | None) -> list[Held]:
    """The newest checkpoints of a ledger in the one above; `last`: how many, None: all.

    None of before somebody accepted that it went back. From the lines: whoever can write
    beside the ledger above could hide them from a question.
    """
    above = LEDGER_ABOVE.get(name)
    path = None if above is None else layout.ledger_paths()[above]
    if path is None or not path.exists():
        return []
    found: list[Held] = []
    for row in find_decided(str(path), (CHECKPOINT, ROLLBACK_ACCEPTED), Filter()):
        # A line that holds no entry is a problem of that ledger, and told with it.
        if isinstance(row, BadRow) or row.entry.metadata.get("ledger") != name:
            continue
        note = row.entry.metadata.get("note")
        if row.entry.event_type == ROLLBACK_ACCEPTED or len(found) == last:
            break
        if isinstance(note, str):
            # The newest is signed; of the others it is enough that they agree.
            is_authentic = bool(found)
            source = f"entry {row.seq} of {above}"
            found.append(Held(source, note, is_outside=False, is_authentic=is_authentic))
    return found[::-1]


def read_memory(file: Path) -> Remembered | None:
    """What a verification remembered; None where it does not load: then all is read."""
    try:
        content = read_file(file, _MEMORY_BYTES_MAX)
        if content is None:
            return None
        fields = json.loads(content)
        if fields["format"] != _FORMAT:
            return None
        return Remembered(
            files=tuple(tuple(map(int, each)) for each in fields["files"]),
            size=int(fields["size"]),
            offset_bytes=int(fields["offset_bytes"]),
            leaf=str(fields["leaf"]),
            edge=tuple(map(str, fields["edge"])),
            intents=tuple(
                Unanswered(int(each[0]), *map(str, each[1:5])) for each in fields["intents"]
            ),
        )
    except (ConfigError, HostError, ValueError, TypeError, KeyError, IndexError):
        return None


def _keep_memory(file: Path, memory: Remembered) -> None:
    fields: dict[str, Json] = {
        "format": _FORMAT,
        "files": [list(each) for each in memory.files],
        "size": memory.size,
        "offset_bytes": memory.offset_bytes,
        "leaf": memory.leaf,
        "edge": list(memory.edge),
        "intents": [
            [each.seq, each.session_id, each.agent, each.call_id, each.tool]
            for each in memory.intents
        ],
    }
    make_directories(file.parent)
    replace_file(file, json.dumps(cast("Json", fields)).encode())
