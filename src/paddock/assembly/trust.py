"""Looking at what a project or bare plane brings, and trusting exactly what was shown."""

from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from paddock.assembly.admin import require_registered
from paddock.assembly.ledgers import open_ledger
from paddock.assembly.opening import open_project
from paddock.assembly.project import policy_of
from paddock.errors import ConfigError
from paddock.plane import records
from paddock.plane.admin_config import AdminConfig, read_admin_config
from paddock.plane.discovery import ProjectRoot, find_root, is_bare_plane
from paddock.plane.environment import Environment
from paddock.plane.grants import summarise, summarise_admin
from paddock.plane.layout import PlaneLayout
from paddock.plane.paths import real_directory
from paddock.plane.policy_files import PolicyFile, read_policy_files
from paddock.plane.registry import is_registered_bare_plane, register_bare_plane
from paddock.plane.trust import TrustRecord, record_trust


@dataclass(frozen=True, slots=True)
class TrustReview:
    """What a person looks at before trusting: these very bytes."""

    root: ProjectRoot
    file: PolicyFile | None
    """The policy; only a bare plane may have none."""
    summary: str
    is_trusted: bool
    """Whether it is trusted already."""
    admin: AdminConfig | None = None
    """Of a bare plane: its configuration."""


def review_trust(start: Path, environment: Environment) -> TrustReview:
    """What the policy of the project at `start` grants, or what the bare plane there wants.

    Raises:
        ConfigError: there is nothing to trust, or it does not load.
    """
    if is_bare_plane(real_directory(start)):
        return _review_plane(real_directory(start), environment)
    root = find_root(start, environment)
    if root.kind == "bare":
        return _review_plane(root.path, environment)
    files = read_policy_files(root, environment)
    own = files.project
    if own is None:
        raise ConfigError(
            "there is no policy file to trust",
            where=str(root.path),
            hint="without one the defaults hold; paddock init writes one",
        )
    policy_of(files)
    return TrustReview(root, own, summarise(own), own.trusted)


def _review_plane(path: Path, environment: Environment) -> TrustReview:
    root = ProjectRoot(path, "bare", accepted=is_registered_bare_plane(path, environment))
    config = read_admin_config(PlaneLayout(path, "bare"))
    require_registered(config)
    files = read_policy_files(root, environment)
    policy_of(files)
    shown = [] if files.project is None else [summarise(files.project)]
    summary = "\n".join([*shown, summarise_admin(config)])
    return TrustReview(root, files.project, summary, root.accepted, config)


def trust_policy(review: TrustReview, environment: Environment, *, by: str) -> TrustRecord:
    """Trust exactly what was reviewed, and record who said so.

    Of a bare plane it is the place that is trusted: from now on it counts whole
    without being named.
    """
    now = datetime.now(UTC)
    if review.admin is not None:
        register_bare_plane(review.root.path, environment)
        record = TrustRecord(review.admin.file, review.admin.digest, now.isoformat())
    else:
        record = _trust_file(review, environment, now)
    project = open_project(review.root.path, environment)
    with closing(open_ledger(project, "governance")) as ledger:
        ledger.append([records.policy_trusted(record, by)])
    return record


def _trust_file(review: TrustReview, environment: Environment, now: datetime) -> TrustRecord:
    file = review.file
    if file is None:
        raise ConfigError("there is no policy file to trust", where=str(review.root.path))
    return record_trust(file.path, file.content, environment, now)
