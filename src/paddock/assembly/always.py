"""Saving the rule for an approval that is meant for good: shown, proved, then trusted."""

import stat
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from paddock import limits
from paddock.assembly.approvals import GovernanceBook, open_inbox
from paddock.assembly.ledgers import record_in_governance
from paddock.assembly.opening import open_root
from paddock.assembly.project import Project
from paddock.errors import ConfigError
from paddock.plane import records
from paddock.plane.trust import own_policy_path, plan_trust, write_trust
from paddock.policy.engine import PolicySource
from paddock.policy.questions.always import Always, Sources, plan_always
from paddock.runtime.parked import Parked
from paddock.runtime.records import ALWAYS
from paddock.storage.atomic import create_file, read_file, replace_file
from paddock.storage.locks import locked

_NEW_FILE_MODE = 0o644


class AlwaysReview(Struct, frozen=True):
    """What a person looks at before it is saved: these very bytes."""

    parked: Parked
    file: Path
    before: bytes | None
    always: Always


def review_always(project: Project, parked: Parked) -> AlwaysReview:
    """The rules that would let this kept call through from now on.

    Raises: ConfigError: there are none; the message says why. UsageError: no such agent.
    """
    lineage = project.agents.lineage(parked.request.agent)
    chain = tuple(record.agent for record in lineage)
    files = project.files
    file = own_policy_path(project.root)
    own, user = files.project, files.user
    sources = Sources(
        PolicySource(file.name, b"" if own is None else own.content, own is None or own.trusted),
        None if user is None else PolicySource(user.path.name, user.content),
    )
    policy = project.policy_for(lineage[0])
    reason = f"always, since {parked.id} was approved"
    always = plan_always(policy, chain, parked.request.actions, sources, reason)
    return AlwaysReview(parked, file, None if own is None else own.content, always)


def save_always(project: Project, review: AlwaysReview, by: str) -> None:
    """Write and trust exactly what was reviewed; the kept request is answered by that.

    Sequence: on record → written → trusted. Where the entries cannot be written, the policy
    stays as it was.

    Raises: ConfigError: the file has changed since it was reviewed.
    """
    file, content = review.file, review.always.content
    with locked(file.parent):
        if read_file(file, limits.policy_bytes_max) != review.before:
            raise ConfigError(
                "the policy has changed since the rule was shown", where=str(file), hint="try again"
            )
        # A file of a bare plane counts by its place; trusting it too does no harm.
        record = plan_trust(file, content, datetime.now(UTC))
        GovernanceBook(project).answered(replace(review.parked, answered_by=by), ALWAYS)
        record_in_governance(project, records.policy_trusted(record, by))
        if review.before is None:
            create_file(file, content, _NEW_FILE_MODE)
        else:
            replace_file(file, content, mode=stat.S_IMODE(file.lstat().st_mode))
        write_trust(record, project.environment)
    open_root(project.root, project.environment)
    open_inbox(project).withdraw(review.parked)
