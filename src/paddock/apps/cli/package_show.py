"""What `paddock package` prints: for people, or as one JSON value."""

from typing import Final

from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options
from paddock.packages.install import InstallReport, word_of
from paddock.packages.listing import Ownership
from paddock.packages.rows import PackageRow
from paddock.packages.vouching import Approved
from paddock.text.show import show_name

_SHOWN_MAX: Final = 20
"""Rows that are said one by one; `--json` has all."""


def say_report(report: InstallReport, options: Options, console: Console) -> None:
    """What an install or an uninstall came to."""
    if options.json:
        console.write_json(report.as_json())
        return
    word = {
        "unchanged": "is installed already, exactly so:",
        "planned": "would be installed:",
    }.get(report.status, f"{report.status}:")
    before = f" (was {report.previous})" if report.previous else ""
    console.say(f"{word} {report.package_id} {report.version}{before}  {report.digest}")
    for change in report.changes[:_SHOWN_MAX]:
        console.say(f"  {word_of(change):<9} {show_name(change.path)}")
    if len(report.changes) > _SHOWN_MAX:
        console.say(f"  and {len(report.changes) - _SHOWN_MAX} more: --json lists them")
    for note in report.notes:
        console.say(f"  note: {show_name(note)}")
    for result in report.acceptance:
        console.say(f"  accepted: {show_name(result.command)}")
    if report.wo_id is not None:
        console.say(f"  approved by {report.wo_id}")


def say_approved(made: Approved, options: Options, console: Console) -> None:
    """An approval that was made: its id alone on the first line."""
    approval = made.approval
    if options.json:
        console.write_json(
            {
                "status": "approved",
                **approval.as_json(),
                "enrolled": made.enrolled,
                "settles_install": made.settles_install,
            }
        )
        return
    console.say(approval.wo_id)
    console.say(f"  digest   {approval.digest}")
    console.say(f"  expires  {approval.expires}")
    for pattern in approval.scope[:_SHOWN_MAX]:
        console.say(f"  scope    {show_name(pattern)}")
    if len(approval.scope) > _SHOWN_MAX:
        console.say(f"  and {len(approval.scope) - _SHOWN_MAX} more")
    if made.enrolled:
        console.say(f"  the plane had no key: yours, {approval.key_id}, is its first")
    if made.settles_install:
        console.say("  the package was installed without one: it has one now")


def say_rows(rows: tuple[PackageRow, ...], options: Options, console: Console) -> None:
    if options.json:
        console.write_json([row.as_json() for row in rows])
        return
    if not rows:
        console.say("no packages are installed")
    width = max((len(row.package_id) for row in rows), default=0)
    for row in rows:
        approved = row.wo_id or ("no approval" if row.dev else "")
        parts = (
            f"{show_name(row.package_id):<{width}}",
            f"{row.version:<10}",
            f"{row.tier:<4}",
            f"{row.framework_id:<12}",
            f"{row.spec_id:<16}",
            f"{row.state:<9}",
            approved,
        )
        console.say("  ".join(parts).rstrip())
        for failure in row.failures[:_SHOWN_MAX]:
            console.say(f"    {show_name(failure.file)}: {failure.reason}")


def say_owner(found: Ownership, options: Options, console: Console) -> None:
    if options.json:
        console.write_json(found.as_json())
        return
    owner = found.owner
    if owner is None:
        console.say(f"{show_name(found.path)}: no package owns it")
        return
    console.say(f"{show_name(found.path)}: {owner.package_id} {owner.version}")
    console.say(f"  classification  {found.classification}")
    console.say(f"  package digest  {owner.digest}")
    console.say(f"  approved by     {owner.wo_id or 'nobody'}")
    console.say(f"  state           {found.problem or 'as it was brought'}")
