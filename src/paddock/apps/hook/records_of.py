"""What the hook leaves on the plane: entries, and which warnings were given."""

from paddock.apps.hook.lean.records import LeanRecord
from paddock.plane.layout import PlaneLayout
from paddock.values.entries import Entry


def warned_directory(layout: PlaneLayout) -> str:
    return str(layout.ho2 / "scratch" / "hook-warnings")


def entry_of(record: LeanRecord) -> Entry:
    return Entry(
        event_type=record.event_type,
        decision=record.decision,
        reason=record.reason,
        session_id=record.session_id,
        agent=record.agent,
        call_id=record.call_id,
        metadata=record.metadata,
    )
