"""What the dual gate found, put on record before anything comes through it."""

from paddock.assembly.ledgers import record_in_governance
from paddock.assembly.project import Project
from paddock.plane import records


def record_gate(project: Project, session_id: str, agent: str) -> None:
    """Put on record what the gate found for this session of this agent, durably.

    Raises: HostError, LedgerBusyError, LedgerFullError, LedgerDamagedError; then nothing
        comes through it.
    """
    record_in_governance(project, records.dual_gate(project.gate, session_id, agent))
