"""Who holds a command, as its own documentation sets it up for a coding agent."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from peers.commands import CREDENTIAL, VALUE, Fence, Yard
from peers.installing import (
    Unavailable,
    npm_program,
    npm_version,
    package_version,
    printed_by,
    python_with,
)
from peers.sandboxes import CODEX, RUNTIME, codex_program, runtime_surroundings

import paddock

HERE = Path(__file__).parent
IMAGE = os.environ.get("PADDOCK_BENCH_IMAGE", "python:3.13")
"""What containers are made of: it has Python, git and curl."""
PADDOCK = str(Path(sys.executable).with_name("paddock"))


def gather() -> tuple[list[Fence], list[str]]:
    """Everybody who can be had, installed by name at first; who cannot, and why."""
    wanted: dict[str, Callable[[], Fence]] = {
        "npm sandbox runtime": _runtime,
        "Codex": _codex,
        "bubblewrap": _bubblewrap,
        "Docker": _docker,
        "deepagents": _deepagents,
        "Anthropic SDK toolset": _anthropic,
        "Inspect, local": _inspect,
    }
    here, away = [_paddock()], []
    for name, find in wanted.items():
        try:
            here.append(find())
        except Unavailable as reason:
            away.append(f"{name}: {reason}")
    return here, away


def _paddock() -> Fence:
    """`run_shell` under the policy that holds where nobody wrote one."""

    def command(yard: Yard, line: str) -> list[str]:
        return [PADDOCK, "call", "run_shell", json.dumps({"command": line}), "--json"]

    def govern(yard: Yard, rules: str) -> None:
        policy = f'[profiles.standard]\nextends = "standard"\n{rules}'
        (yard.root / "paddock.toml").write_text(policy)
        printed_by("env", f"HOME={yard.home}", PADDOCK, "trust", "--yes", cwd=yard.root)

    def only(yard: Yard, address: str, port: int) -> None:
        govern(
            yard,
            f'[[profiles.standard.rules]]\naction = "tool:net:connect {address}:{port}"\n'
            f'outcome = "allow"\naddresses = ["{address}/32"]\n',
        )

    def credential(yard: Yard, place: str) -> dict[str, str]:
        folder = yard.home / ".config" / "paddock"
        folder.mkdir(parents=True, mode=0o700)
        (folder / "config.toml").write_text(
            f'[credentials.api]\nhosts = ["{place}"]\nvariable = "{CREDENTIAL}"\n'
            'from = { env = "KEPT" }\n'
        )
        (folder / "config.toml").chmod(0o600)
        govern(
            yard,
            f'[[profiles.standard.rules]]\naction = "tool:net:request GET {place}/**"\n'
            'outcome = "allow"\naddresses = ["127.0.0.0/8"]\n',
        )
        return {"KEPT": VALUE}

    return Fence(
        "Paddock",
        paddock.__version__,
        command,
        printed=_stdout,
        only=only,
        credential=credential,
        undo=lambda told: [PADDOCK, "undo", json.loads(told)["call"]],
        history=(PADDOCK, "ledger", "query", "--ledger", "ho1m", "--json"),
    )


def _stdout(text: str) -> str:
    """What the command printed, out of a tool's result; a refusal printed nothing."""
    try:
        result = json.loads(text)
    except ValueError:
        return text
    return result.get("stdout", "") + result.get("stderr", "")


def _runtime() -> Fence:
    """The settings that its own page begins with; Claude Code's sandbox is built on it."""
    program = npm_program(RUNTIME, "srt")

    def settings(yard: Yard, hosts: list[str], **more: object) -> list[str]:
        file = yard.base / "settings.json"
        if hosts or not file.exists():
            told = {
                "network": {"allowedDomains": hosts, "deniedDomains": []},
                "filesystem": {
                    "denyRead": ["~/.ssh"],
                    "allowWrite": [".", "/tmp"],
                    "denyWrite": [".env"],
                },
            }
            file.write_text(json.dumps(told | more), encoding="utf-8")
        return [program, "--settings", str(file)]

    def command(yard: Yard, line: str) -> list[str]:
        return [*settings(yard, []), "bash", "-c", line]

    def only(yard: Yard, address: str, port: int) -> None:
        settings(yard, [f"{address}:{port}"])

    def credential(yard: Yard, place: str) -> dict[str, str]:
        # With the address, which no name may lead to otherwise: it is a loopback's.
        hosts = [place, f"127.0.0.1:{place.rpartition(':')[2]}"]
        network = {"allowedDomains": hosts, "deniedDomains": [], "tlsTerminate": {}}
        masked = {"envVars": [{"name": CREDENTIAL, "mode": "mask"}]}
        settings(yard, hosts, network=network, credentials=masked)
        return {CREDENTIAL: VALUE}

    return Fence(
        "npm sandbox runtime",
        npm_version(RUNTIME),
        command,
        variables=runtime_surroundings_apart,
        only=only,
        credential=credential,
    )


def runtime_surroundings_apart() -> dict[str, str]:
    return {name: value for name, value in runtime_surroundings().items() if name != "HOME"}


def _codex() -> Fence:
    program, variables = codex_program()

    def command(yard: Yard, line: str) -> list[str]:
        mode = ("-c", 'sandbox_mode="workspace-write"')
        return [program, "sandbox", *mode, "--", "bash", "-c", line]

    return Fence(
        "Codex",
        npm_version(CODEX),
        command,
        variables=lambda: {"TMPDIR": variables["TMPDIR"]},
    )


def _bubblewrap() -> Fence:
    def command(yard: Yard, line: str) -> list[str]:
        root = str(yard.root)
        return [
            *("bwrap", "--unshare-all", "--die-with-parent", "--new-session"),
            *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"),
            *("--ro-bind", str(yard.home), str(yard.home), "--bind", root, root),
            *("--chdir", root, "bash", "-c", line),
        ]

    return Fence("bubblewrap", printed_by("bwrap", "--version").split()[-1], command)


def _docker() -> Fence:
    """A container for each command, with the workspace mounted, as the user of this program."""
    version = printed_by("docker", "version", "--format", "{{.Server.Version}}").strip()
    printed_by("docker", "run", "--rm", IMAGE, "sh", "-c", "command -v python3 git curl")

    def command(yard: Yard, line: str) -> list[str]:
        root = str(yard.root)
        return [
            *("docker", "run", "--rm", "--init", "--user", f"{os.getuid()}:{os.getgid()}"),
            *("--volume", f"{root}:{root}", "--workdir", root, IMAGE, "bash", "-c", line),
        ]

    return Fence("Docker", version, command)


def _python(name: str, package: str) -> Fence:
    python = python_with(package)
    file = str(HERE / "agent_shells.py")
    return Fence(
        name,
        package_version(python, package),
        lambda yard, line: [python, file, package, str(yard.root), line],
    )


def _deepagents() -> Fence:
    return _python("deepagents", "deepagents")


def _anthropic() -> Fence:
    return _python("Anthropic SDK toolset", "anthropic")


def _inspect() -> Fence:
    return _python("Inspect, local", "inspect_ai")
