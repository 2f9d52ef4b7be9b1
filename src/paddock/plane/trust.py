"""Read the policy files in force, and whether the user has accepted each.

Trust is stored in the user's state directory, out of every agent's reach. It applies to the file's
path, with the links of its directory resolved, and to the digest of its bytes.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from paddock import limits
from paddock.errors import ConfigError
from paddock.plane.discover import ProjectRoot, bare_planes_below
from paddock.plane.environment import Environment, real_path
from paddock.plane.json_files import read_private, write_private
from paddock.plane.layout import PlaneLayout, path_id
from paddock.policy.settings import PackageRule
from paddock.storage import atomic
from paddock.text.json import Strict
from paddock.text.show import quote, show_name
from paddock.values.decisions import PlaneKind
from paddock.values.entries import digest_of

if TYPE_CHECKING:
    from paddock.plane.admin import AdminConfig


class TrustAnswer(NamedTuple):
    trusted: bool
    reason: str = ""


class TrustRecord(Strict, frozen=True):
    path: str
    digest: str
    trusted_at: str


def find_trust(file: Path, content: bytes, environment: Environment) -> TrustAnswer:
    """Return True if exactly these bytes are trusted; a record that does not load means no.

    Threat: a clone brings a policy file, a pull or an agent changes it: neither has the accepted
    digest. A trust store that others can write means no.
    """
    real = _with_real_directory(file)
    try:
        record = _read_record(real, environment)
    except ConfigError as error:
        return TrustAnswer(False, f"the record of its trust does not load: {error.message}")
    if record is None:
        return TrustAnswer(False, "it was never trusted")
    if record.path != str(real):
        return TrustAnswer(False, "the record of its trust names another file")
    if record.digest != digest_of(content):
        return TrustAnswer(False, "it has changed since it was trusted")
    return TrustAnswer(True)


def is_trusted(file: Path, content: bytes, environment: Environment) -> bool:
    return find_trust(file, content, environment).trusted


def find_trust_record(file: Path, content: bytes, environment: Environment) -> TrustRecord | None:
    is_held = is_trusted(file, content, environment)
    return _read_record(_with_real_directory(file), environment) if is_held else None


def plan_trust(file: Path, content: bytes, now: datetime) -> TrustRecord:
    """Pass the bytes that were shown, not the file's current ones: the yes was for those."""
    real, trusted_at = str(_with_real_directory(file)), now.astimezone(UTC).isoformat()
    return TrustRecord(real, digest_of(content), trusted_at)


def write_trust(record: TrustRecord, environment: Environment) -> None:
    write_private(_record_path(Path(record.path), environment), record)


def _read_record(real: Path, environment: Environment) -> TrustRecord | None:
    path = _record_path(real, environment)
    return read_private(path, limits.plane_record_bytes_max, TrustRecord)


def trust_record_path(file: Path, environment: Environment) -> Path:
    return _record_path(_with_real_directory(file), environment)


def _record_path(real: Path, environment: Environment) -> Path:
    return environment.trust / f"{path_id(real)}.json"


def _with_real_directory(file: Path) -> Path:
    """Resolve links in the directory only: a project's policy file must not be a link."""
    return real_path(file.parent) / file.name


PROJECT_POLICY: Final = "paddock.toml"
PROJECT_POLICY_JSON: Final = "paddock.json"


class PolicyFile(Struct, frozen=True):
    path: Path
    content: bytes
    trusted: bool
    reason: str = ""

    @property
    def digest(self) -> str:
        return digest_of(self.content)


class PolicyFiles(Struct, frozen=True):
    """The files that a policy is made from; None: the file does not exist."""

    kind: PlaneKind
    project: PolicyFile | None
    user: PolicyFile | None
    planes_below: tuple[str, ...] = ()
    packages: tuple[PackageRule, ...] = ()
    """The connections of the user's package clients, whether or not policy allows them."""

    def paths(self) -> tuple[Path, ...]:
        return tuple(file.path for file in (self.project, self.user) if file is not None)


def read_policy_files(root: ProjectRoot, environment: Environment) -> PolicyFiles:
    return PolicyFiles(
        kind=root.kind,
        project=read_own_policy(root, environment),
        user=read_user_policy(environment),
        planes_below=bare_planes_below(root.path, environment),
        packages=_package_rules(root, environment),
    )


class KeptPackages(Strict, frozen=True):
    found_at: str
    network: str
    rules: tuple[PackageRule, ...]
    found: dict[str, Any]


def packages_path(root: ProjectRoot, environment: Environment) -> Path:
    return environment.paddock_home / "packages" / f"{path_id(root.path)}.json"


def read_packages(root: ProjectRoot, environment: Environment) -> KeptPackages | None:
    return read_private(packages_path(root, environment), limits.policy_bytes_max, KeptPackages)


def write_packages(kept: KeptPackages, root: ProjectRoot, environment: Environment) -> None:
    write_private(packages_path(root, environment), kept)


def _package_rules(root: ProjectRoot, environment: Environment) -> tuple[PackageRule, ...]:
    try:
        kept = read_packages(root, environment)
    except ConfigError:
        # These only allow: if unreadable, they allow nothing, and `paddock network show` says why.
        return ()
    if kept is None or kept.network == network_here():
        return () if kept is None else kept.rules
    # Threat: in another network a private address is another machine: drop the addresses.
    return tuple(PackageRule(rule.action) for rule in kept.rules)


def network_here() -> str:
    """Return a digest of gateway and resolvers, which identifies this machine's network."""
    routes, resolvers = (
        (atomic.read_file_through_links(Path(name), limits.policy_bytes_max) or b"")
        .decode(errors="surrogateescape")
        .splitlines()
        for name in ("/proc/net/route", "/etc/resolv.conf")
    )
    gateways = [line.split()[:3] for line in routes if line.split()[1:2] == ["00000000"]]
    names = [line for line in resolvers if line.startswith("nameserver")]
    return digest_of(repr((gateways, names)).encode())


def own_policy_path(root: ProjectRoot) -> Path:
    toml = root.path / PROJECT_POLICY
    if root.kind is PlaneKind.BARE:
        toml = PlaneLayout(root.path, PlaneKind.BARE).config / "policy.toml"
    json = toml.with_suffix(".json")
    if not _stands(json):
        return toml
    if _stands(toml):
        raise ConfigError(
            f"there are two policies: {quote(toml.name)} and {quote(json.name)}",
            where=str(toml.parent),
            hint="keep one of them",
        )
    return json


def read_own_policy(root: ProjectRoot, environment: Environment) -> PolicyFile | None:
    path = own_policy_path(root)
    content = atomic.read_file(path, limits.policy_bytes_max)
    if content is None:
        return None
    if root.accepted:
        return PolicyFile(path, content, trusted=True)
    if root.kind is PlaneKind.BARE:
        return PolicyFile(
            path, content, trusted=False, reason="this plane was neither named nor registered"
        )
    return PolicyFile(path, content, *find_trust(path, content, environment))


def read_user_policy(environment: Environment) -> PolicyFile | None:
    """Read the user's own policy and settings. Raises: ConfigError, HostError.

    Threat: it counts without trust, and its commands run when a ledger is signed or anchored. Who
    can write it, or put a key beside it, acts as the user.
    """
    # People keep their configuration as links into their own repository.
    directory = real_path(environment.config_home)
    if not directory.exists():
        return None
    atomic.require_own_link(environment.config_home)
    for private in (directory, real_path(directory / "keys")):
        atomic.require_private(private, "XDG_CONFIG_HOME")
    path = environment.user_config
    content = atomic.read_file_through_links(
        path, limits.policy_bytes_max, atomic.trusted_owners(directory)
    )
    return None if content is None else PolicyFile(path, content, trusted=True)


def _stands(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        # The entry cannot be inspected: reading it reports why.
        return True
    return True


# Threat: a grant that is not listed is accepted unseen.


def summarise_admin(config: "AdminConfig") -> str:
    from paddock.plane import admin  # noqa: PLC0415 - bare planes only

    found: list[str] = []
    if config.tool_profile == "development":
        found.append("tool_profile is development: one half of the dual gate")
    if config.model != admin.ModelChoice():
        model = config.model
        said = [model.provider, model.name or "", model.base_url or ""]
        found.append(f"the model that answers: {show_name(' '.join(filter(None, said)))}")
    if config.system_prompt != admin.DEFAULT_SYSTEM_PROMPT:
        found.append(f"its own system prompt ({len(config.system_prompt)} characters)")
    if config.attention != admin.Attention():
        found.append("its own context for each turn (attention)")
    found += [
        f"budget: {name} is {value}"
        for name, value in asdict(config.budget).items()
        if value != getattr(admin.BudgetTable(), name)
    ]
    found += [
        f"permissions: {show_name(pattern)} is not forbidden"
        for pattern in admin.DEFAULT_PERMISSIONS.forbidden
        if pattern not in config.permissions.forbidden
    ]
    found += [
        f"code of {show_name(each.package_id)} runs as the tool {show_name(each.tool_id)}"
        for each in config.package_tools
    ]
    name = show_name(str(config.file))
    if not found:
        return f"{name} allows nothing beyond the defaults"
    return "\n".join([f"{name} wants, beyond the defaults:", *(f"  - {each}" for each in found)])
