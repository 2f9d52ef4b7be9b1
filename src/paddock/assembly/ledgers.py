"""Open the ledgers of a plane, each created on first use with its own key or a signer's."""

import hashlib
import math
import os
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.assembly.project import Project
from paddock.errors import ConfigError, HostError
from paddock.ledger.anchors import Anchor, CommandAnchor, DirectoryAnchor, GitAnchor
from paddock.ledger.append import LedgerFile
from paddock.ledger.checkpoint import USUAL_PACE, Above, AutoCheckpoint, Checkpointer, Pace
from paddock.ledger.format.lines import Genesis, is_key_name
from paddock.ledger.format.notes import SignedCheckpoint
from paddock.ledger.read import find_genesis
from paddock.ledger.signing import KeySigner, ProgramSigner, Signer, create_key
from paddock.ledger.tree import checkpoints_folder, read_notes
from paddock.plane.environment import (
    Environment,
    anchor_directory,
    ledger_key_path,
    missing_key_hint,
    plane_title,
)
from paddock.plane.layout import LedgerName, PlaneLayout, path_id
from paddock.plane.trust import read_user_policy
from paddock.policy.engine import PolicySource, load_policy
from paddock.policy.settings import LedgerSettings
from paddock.storage.atomic import host_errors, make_directories
from paddock.text.show import quote
from paddock.values.decisions import PlaneKind
from paddock.values.entries import CHECKPOINT, Entry

LEDGER_ABOVE: Final = {
    LedgerName.HO1M: LedgerName.HO2M,
    LedgerName.HO2M: LedgerName.GOVERNANCE,
    LedgerName.PACKAGES: LedgerName.GOVERNANCE,
}


class TierAbove(Struct, frozen=True):
    ledger: LedgerName
    open: Callable[[], LedgerFile]

    def take(self, signed: SignedCheckpoint) -> None:
        with closing(self.open()) as above:
            above.append([checkpoint_entry(self.ledger, signed)])
            above.seal()


class Outside(Struct, frozen=True):
    layout: PlaneLayout
    environment: Environment

    def take(self, signed: SignedCheckpoint) -> None:
        find_anchor(self.layout, self.environment, signed.checkpoint.origin).store(signed)


def checkpoint_entry(ledger: LedgerName, signed: SignedCheckpoint) -> Entry:
    checkpoint = signed.checkpoint
    return Entry(
        CHECKPOINT,
        metadata={
            "ledger": ledger,
            "origin": checkpoint.origin,
            "size": checkpoint.size,
            "root": checkpoint.root.hex(),
            "note": signed.note,
        },
    )


def find_anchor(layout: PlaneLayout, environment: Environment, origin: str) -> Anchor:
    """Return the anchor that the user's policy names; without one, a directory beside the planes.

    Threat: a project that could name it would run a command on the host, or keep the proof where
    it can change it. So only the user's file counts.
    """
    settings = ledger_settings(environment).anchor
    title = plane_title(layout)
    variables = program_variables(environment)
    if settings.git:
        return GitAnchor(
            _place(settings.git, environment), f"{title}.{LedgerName.GOVERNANCE}", variables
        )
    if settings.command:
        return CommandAnchor(settings.command, origin, variables)
    if settings.directory:
        return DirectoryAnchor(
            _place(settings.directory, environment) / title / LedgerName.GOVERNANCE
        )
    return DirectoryAnchor(anchor_directory(layout, environment) / LedgerName.GOVERNANCE)


def ledger_settings(environment: Environment) -> LedgerSettings:
    file = read_user_policy(environment)
    if file is None:
        return LedgerSettings()
    return load_policy(None, PolicySource(file.path.name, file.content)).settings.ledger


def program_variables(environment: Environment) -> list[tuple[str, str]]:
    return [each for each in environment.variables if not each[0].startswith("GIT_")]


def _place(text: str, environment: Environment) -> Path:
    path = environment.home / text[2:] if text.startswith("~/") else Path(text)
    if not path.is_absolute():
        raise ConfigError(
            f"the anchor {quote(text)} is a relative path",
            where=str(environment.user_config),
            hint="give an absolute one, or one that begins with ~/",
        )
    if "\0" in text:
        raise ConfigError(
            f"the anchor {quote(text)} contains a NUL, which no path can",
            where=str(environment.user_config),
        )
    return path


_KEY_NAME_CHARS_MAX: Final = 219
"""The longest directory name in a key's name: `paddock/NAME-ID/governance` has 255 then."""
LEDGER_TIERS: Final = {
    LedgerName.GOVERNANCE: "HOT",
    LedgerName.PACKAGES: "HOT",
    LedgerName.HO2M: "HO2",
    LedgerName.HO1M: "HO1",
}

HOOK_PACE: Final = Pace(limits.checkpoint_entries_max // 2, math.inf, at_close=False)
"""The pace of a process that answers one event: by count, at once for important entries.

Half the usual count, since not every entry of the hook is written by such a process."""
HOOK_EVENT_PACE: Final = Pace(limits.checkpoint_entries_max // 2, at_close=False)
"""The pace of a process that records a past event, for which no caller waits: also by time."""


def open_ledger(project: Project, name: LedgerName, pace: Pace = USUAL_PACE) -> LedgerFile:
    return open_plane_ledger(project.layout, project.environment, name, pace)


def record_in_governance(project: Project, *entries: Entry) -> None:
    if not entries:
        return
    with closing(open_ledger(project, LedgerName.GOVERNANCE)) as ledger:
        ledger.append(entries)


def open_plane_ledger(
    layout: PlaneLayout, environment: Environment, name: LedgerName, pace: Pace = USUAL_PACE
) -> LedgerFile:
    path = layout.ledger_paths()[name]
    with host_errors("looking for", path):
        is_there = path.exists()
    create = None if is_there else _genesis(layout, environment, name)
    ledger = LedgerFile(str(path), create=create, clock=time.time, randomness=os.urandom)
    at = (layout, environment, name)
    ledger.keeper = AutoCheckpoint(
        checkpointer_of(*at), above_of(*at), time.monotonic, pace, time.time
    )
    return ledger


def checkpointer_of(
    layout: PlaneLayout, environment: Environment, name: LedgerName
) -> Checkpointer:
    path = str(layout.ledger_paths()[name])
    return Checkpointer(path, partial(signer_of, layout, environment, name))


def signer_of(layout: PlaneLayout, environment: Environment, name: LedgerName) -> Signer:
    command = ledger_settings(environment).signer
    path = layout.ledger_paths()[name]
    genesis = find_genesis(str(path)) if command and path.exists() else None
    if command:
        origin = _origin(layout, name) if genesis is None else genesis.origin
        return ProgramSigner(command, origin, dict(program_variables(environment)))
    return KeySigner(
        ledger_key_path(layout, environment, name), missing_key_hint(layout, environment)
    )


def _origin(layout: PlaneLayout, name: LedgerName) -> str:
    # Threat: a signer program remembers a history by this name: two planes that share it would
    # each look like a rollback of the other. A project's plane has the id in its directory's name.
    own = f"-{path_id(layout.root)}" if layout.kind is PlaneKind.BARE else ""
    return f"paddock/{_key_name(layout.root.name)}{own}/{name}"


def _key_name(directory: str) -> str:
    """Make any directory's name fit a key's name, in at most `_KEY_NAME_CHARS_MAX` characters.

    A valid name is unchanged; in others, invalid bytes are percent-encoded. A name that is
    then too long is cut, and ends with a digest of the whole name.
    """
    raw = os.fsencode(directory)
    if is_key_name(directory):
        shown = directory
    else:
        shown = "".join(
            chr(byte) if byte != ord("%") and is_key_name(chr(byte)) else f"%{byte:02X}"
            for byte in raw
        )
    if len(shown) <= _KEY_NAME_CHARS_MAX:
        return shown
    digest = hashlib.sha256(raw).hexdigest()
    return f"{shown[: _KEY_NAME_CHARS_MAX - len(digest) - 1]}-{digest}"


def above_of(layout: PlaneLayout, environment: Environment, name: LedgerName) -> Above:
    above = LEDGER_ABOVE.get(name)
    if above is None:
        return Outside(layout, environment)
    # No checkpoint at close: `take` makes it.
    return TierAbove(name, partial(open_plane_ledger, layout, environment, above, HOOK_PACE))


def _genesis(layout: PlaneLayout, environment: Environment, name: LedgerName) -> Genesis:
    origin = _origin(layout, name)
    if not ledger_settings(environment).signer:
        _make_key(ledger_key_path(layout, environment, name), origin)
    verifier = signer_of(layout, environment, name).verifier
    # Named like the key: a key that is left from an earlier plane keeps its name.
    return Genesis(verifier.name, LEDGER_TIERS[name], str(verifier), _parent_note(layout, name))


def _make_key(file: Path, origin: str) -> None:
    make_directories(file.parent)
    if not file.exists():
        try:
            create_key(str(file), origin, os.urandom)
        except HostError:
            # Another process may have created it just now.
            if not file.exists():
                raise


def _parent_note(layout: PlaneLayout, name: LedgerName) -> str | None:
    above = LEDGER_ABOVE.get(name)
    if above is None:
        return None
    notes = read_notes(checkpoints_folder(str(layout.ledger_paths()[above])))
    return notes[-1][1] if notes else None
