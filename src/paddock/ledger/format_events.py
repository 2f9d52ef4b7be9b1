"""The names that stand in `event_type`. A name, once written, keeps its meaning.

A name is upper case with underscores. Readers accept names they do not know.
"""

from typing import Final

GENESIS: Final = "GENESIS"
"""Line 0, and nowhere else."""
LEDGER_RECOVERED: Final = "LEDGER_RECOVERED"
"""A torn tail was cut off and put aside; metadata says how much and where."""

TOOL_INTENT: Final = "TOOL_INTENT"
"""A call is about to run: bound arguments, actions, decision with its rule."""
TOOL_RESULT: Final = "TOOL_RESULT"
"""What that call came to; same `session_id` and `call_id`."""
TOOL_DENIED: Final = "TOOL_DENIED"
"""A call that did not run, with the code of its refusal."""

POLICY_LOADED: Final = "POLICY_LOADED"
POLICY_TRUSTED: Final = "POLICY_TRUSTED"
CONFIG_CHANGED: Final = "CONFIG_CHANGED"
DUAL_GATE: Final = "DUAL_GATE"
APPROVAL_ASKED: Final = "APPROVAL_ASKED"
APPROVAL_ANSWERED: Final = "APPROVAL_ANSWERED"
GATE_RESULT: Final = "GATE_RESULT"
AGENT_CREATED: Final = "AGENT_CREATED"
AGENT_CHANGED: Final = "AGENT_CHANGED"
AGENT_REMOVED: Final = "AGENT_REMOVED"

SESSION_OPENED: Final = "SESSION_OPENED"
SESSION_CLOSED: Final = "SESSION_CLOSED"
TURN_STARTED: Final = "TURN_STARTED"
TURN_ENDED: Final = "TURN_ENDED"
WORK_ORDER: Final = "WORK_ORDER"
MODEL_CALL: Final = "MODEL_CALL"
MODEL_RESULT: Final = "MODEL_RESULT"
HOOK_DECISION: Final = "HOOK_DECISION"

CHECKPOINT: Final = "CHECKPOINT"
"""The signed head of the tier below."""
PACKAGE_INSTALLED: Final = "PACKAGE_INSTALLED"
PACKAGE_UNINSTALLED: Final = "PACKAGE_UNINSTALLED"
