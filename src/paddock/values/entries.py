"""What is written to a ledger, before it has a place in the chain."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from paddock.values.calls import Json


@dataclass(frozen=True, slots=True)
class Entry:
    """One record without its id, time and place: the ledger adds those.

    Strings are empty where a field does not apply. `metadata` is a JSON object.
    """

    event_type: str
    submission_id: str = ""
    decision: str = ""
    reason: str = ""
    session_id: str = ""
    agent: str = ""
    call_id: str = ""
    metadata: Mapping[str, Json] = field(default_factory=dict[str, Json])
