"""Write what of the bootstrap's packages the code says itself, at its place in their sources.

    scripts/write-bootstrap        (python scripts/bootstrap_sources.py)

The admin's configuration holds every default and every core tool as it is registered, its
schema is made from the reader, and the policy says aloud what holds anyway. They stand in the
packages as text, so that whoever reads a package reads all of it; a test holds them against the
code.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import to_builtins

from paddock.assembly.project import CORE
from paddock.packages.archive import write_hashes
from paddock.packages.bootstrap import SOURCES
from paddock.plane.admin import AdminTable, admin_config_schema_bytes
from paddock.plane.create import POLICY_TEMPLATE
from paddock.plane.environment import ToolProfile
from paddock.plane.json_files import write_object
from paddock.storage.atomic import make_directories, replace_file
from paddock.tools.toolsets import TOOLS

_SOURCE_MODE: Final = 0o644


_POLICY_HEAD: Final = b"""\
# What agents may do on this plane. Operators change it, agents cannot: everything
# in HOT/config, the ledgers and agents/*/agent.json are Paddock's own files.
#
# The comments below are the defaults. To change one, remove the "# " before its
# lines and its [table].
# It applies to the admin agent, whose workspace is the plane itself, and to every
# agent under agents/, relative to that agent's own workspace.
# Ask about one action:  paddock policy explain "tool:file:create HOT/config/x"
"""


def _bare_policy() -> bytes:
    _, _, body = POLICY_TEMPLATE.partition(b"\n\n")
    return _POLICY_HEAD + b"\n" + body.replace(b"the project's root", b"the root")


def generated_files() -> Mapping[str, bytes]:
    """Every such file, by its path below the directory of sources."""
    return {
        "PKG-ADMIN-001/HOT/config/admin_config.json": admin_config_bytes("production"),
        "PKG-ADMIN-001/HOT/schemas/admin_config.schema.json": admin_config_schema_bytes(),
        "PKG-POLICY-001/HOT/config/policy.toml": _bare_policy(),
    }


def admin_config_bytes(tool_profile: ToolProfile) -> bytes:
    core = (listed.load() for listed in TOOLS if listed.toolset == CORE)
    tools = [
        {
            "tool_id": tool.name,
            "description": tool.spec.description,
            "handler": f"paddock.tools.{tool.name}",
            "parameters": tool.binder.schema,
        }
        for tool in core
    ]
    return write_object(to_builtins(AdminTable(tool_profile=tool_profile)) | {"tools": tools})


def write_sources(directory: Path = SOURCES) -> Iterator[str]:
    """Bring files and hashes up to date; what was changed, relative to `directory`.

    Raises: ConfigError (a manifest), HostError.
    """
    for name, content in generated_files().items():
        path = directory / name
        if not path.exists() or path.read_bytes() != content:
            make_directories(path.parent)
            replace_file(path, content, mode=_SOURCE_MODE)
            yield name
    for source in sorted(each for each in directory.iterdir() if each.is_dir()):
        if write_hashes(source, check=False).written:
            yield f"{source.name}/manifest.json"


if __name__ == "__main__":
    for changed in write_sources():
        sys.stdout.write(f"{changed}\n")
