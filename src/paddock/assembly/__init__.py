"""The composition root: the one place where ports meet their implementations.

Everything that a door needs is opened here: the project and its plane, the
policy in force, an agent's tools on its workspace, the ledgers. What the system
as a whole does (a policy comes into force, an agent is made) is recorded in the
governance ledger here too.
"""

from paddock.assembly.admin import ADMIN_AGENT
from paddock.assembly.agents import create_agent, note_agents, remove_agent
from paddock.assembly.always import AlwaysReview, review_always, save_always
from paddock.assembly.approvals import open_inbox
from paddock.assembly.lazy_packages import is_made_with_dev, report_of
from paddock.assembly.ledgers import (
    HOOK_EVENT_PACE,
    HOOK_PACE,
    LEDGER_TIERS,
    open_ledger,
    open_plane_ledger,
)
from paddock.assembly.listing import tools_shown
from paddock.assembly.opening import init_project, open_project, policy_notices
from paddock.assembly.policies import (
    Candidate,
    PlanePolicies,
    built_in_candidate,
    find_ledger_paths,
    find_policy_files,
    own_candidate,
    read_candidate,
)
from paddock.assembly.project import Project, find_project
from paddock.assembly.resuming import resume
from paddock.assembly.runtimes import (
    new_call_id,
    new_session_id,
    open_runtime,
    open_workspace,
    tools_allowed,
    tools_of,
)
from paddock.assembly.trust import TrustReview, review_trust, trust_policy

__all__ = [
    "ADMIN_AGENT",
    "HOOK_EVENT_PACE",
    "HOOK_PACE",
    "LEDGER_TIERS",
    "AlwaysReview",
    "Candidate",
    "PlanePolicies",
    "Project",
    "TrustReview",
    "built_in_candidate",
    "create_agent",
    "find_ledger_paths",
    "find_policy_files",
    "find_project",
    "init_project",
    "is_made_with_dev",
    "new_call_id",
    "new_session_id",
    "note_agents",
    "open_inbox",
    "open_ledger",
    "open_plane_ledger",
    "open_project",
    "open_runtime",
    "open_workspace",
    "own_candidate",
    "policy_notices",
    "read_candidate",
    "remove_agent",
    "report_of",
    "resume",
    "review_always",
    "review_trust",
    "save_always",
    "tools_allowed",
    "tools_of",
    "tools_shown",
    "trust_policy",
]
