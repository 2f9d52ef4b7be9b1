"""Open the ledgers of a plane, each created on first use with its own key or a signer's."""

import hashlib
import math
import os
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paddock import limits
from paddock.assembly.project import PlaneSite, Project
from paddock.errors import ConfigError, HostError
from paddock.ledger.anchors import Anchor, CommandAnchor, DirectoryAnchor, GitAnchor
from paddock.ledger.append import LedgerFile
from paddock.ledger.checkpoint import USUAL_PACE, AutoCheckpoint, Checkpointer, Pace
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
from paddock.values.calls import Json
from paddock.values.decisions import PlaneKind
from paddock.values.entries import CHECKPOINT, Entry

LEDGER_ABOVE: Final = {
    LedgerName.HO1M: LedgerName.HO2M,
    LedgerName.HO2M: LedgerName.GOVERNANCE,
    LedgerName.PACKAGES: LedgerName.GOVERNANCE,
}


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


class PlaneLedger(Struct, frozen=True):
    """One ledger of a plane: its file, who signs it, and the ledger or anchor above it."""

    layout: PlaneLayout
    environment: Environment
    name: LedgerName

    @property
    def path(self) -> Path:
        return self.layout.ledger_paths()[self.name]

    @property
    def key_file(self) -> Path:
        return ledger_key_path(self.layout, self.environment, self.name)

    @property
    def above(self) -> "PlaneLedger | None":
        name = LEDGER_ABOVE.get(self.name)
        return None if name is None else replace(self, name=name)

    def open(self, pace: Pace = USUAL_PACE) -> LedgerFile:
        path = self.path
        with host_errors("looking for", path):
            is_there = path.exists()
        create = None if is_there else self._genesis()
        ledger = LedgerFile(str(path), create=create, clock=time.time, randomness=os.urandom)
        clocks = (time.monotonic, pace, time.time)
        ledger.keeper = AutoCheckpoint(self.checkpointer(), self, *clocks)
        return ledger

    def take(self, signed: SignedCheckpoint) -> None:
        """Take this ledger's checkpoint to the one above; the highest one's, to the anchor."""
        above, checkpoint = self.above, signed.checkpoint
        if above is None:
            self.anchor(checkpoint.origin).store(signed)
            return
        metadata: dict[str, Json] = {
            "ledger": self.name,
            "origin": checkpoint.origin,
            "size": checkpoint.size,
            "root": checkpoint.root.hex(),
            "note": signed.note,
        }
        # No checkpoint at close: it is made here.
        with closing(above.open(HOOK_PACE)) as opened:
            opened.append([Entry(CHECKPOINT, metadata=metadata)])
            opened.seal()

    def anchor(self, origin: str) -> Anchor:
        """Return the anchor that the user's policy names, else a directory beside the planes.

        Threat: a project that could name it would run a command on the host, or keep the proof
        where it can change it. So only the user's file counts.
        """
        environment, title = self.environment, plane_title(self.layout)
        settings = ledger_settings(environment).anchor
        variables = program_variables(environment)
        if settings.git:
            return GitAnchor(_place(settings.git, environment), f"{title}.{self.name}", variables)
        if settings.command:
            return CommandAnchor(settings.command, origin, variables)
        if settings.directory:
            return DirectoryAnchor(_place(settings.directory, environment) / title / self.name)
        return DirectoryAnchor(anchor_directory(self.layout, environment) / self.name)

    def checkpointer(self) -> Checkpointer:
        return Checkpointer(str(self.path), self.signer)

    def signer(self) -> Signer:
        command = ledger_settings(self.environment).signer
        if not command:
            return KeySigner(self.key_file, missing_key_hint(self.layout, self.environment))
        genesis = find_genesis(str(self.path)) if self.path.exists() else None
        origin = self._origin if genesis is None else genesis.origin
        return ProgramSigner(command, origin, dict(program_variables(self.environment)))

    @property
    def _origin(self) -> str:
        # Threat: a signer program remembers a history by this name: two planes that share it would
        # each look like a rollback of the other. A project's plane has the id in its directory's
        # name.
        root = self.layout.root
        own = f"-{path_id(root)}" if self.layout.kind is PlaneKind.BARE else ""
        return f"paddock/{_key_name(root.name)}{own}/{self.name}"

    def _genesis(self) -> Genesis:
        if not ledger_settings(self.environment).signer:
            _make_key(self.key_file, self._origin)
        verifier, above = self.signer().verifier, self.above
        notes = [] if above is None else read_notes(checkpoints_folder(str(above.path)))
        parent = notes[-1][1] if notes else None
        # Named like the key: a key that is left from an earlier plane keeps its name.
        return Genesis(verifier.name, LEDGER_TIERS[self.name], str(verifier), parent)


def ledger_of(site: Project | PlaneSite, name: LedgerName) -> PlaneLedger:
    return PlaneLedger(site.layout, site.environment, name)


def open_ledger(project: Project, name: LedgerName, pace: Pace = USUAL_PACE) -> LedgerFile:
    return ledger_of(project, name).open(pace)


def record_in_governance(project: Project, *entries: Entry) -> None:
    if not entries:
        return
    with closing(open_ledger(project, LedgerName.GOVERNANCE)) as ledger:
        ledger.append(entries)


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


def _make_key(file: Path, origin: str) -> None:
    make_directories(file.parent)
    if not file.exists():
        try:
            create_key(str(file), origin, os.urandom)
        except HostError:
            # Another process may have created it just now.
            if not file.exists():
                raise
