"""`paddock scratch`."""

import argparse
import time
from datetime import date

from paddock.apps.hook.console import HookConsole, project_of
from paddock.plane import scratch
from paddock.values.calls import Json


class Scratch:
    """Make scratch folders for agents, and clean old ones away."""

    summary = (
        "Scratch work of agents lies in agent_sandbox/<date>/<topic>/, which is safe to write\n"
        "and ignored by git where `new`, the hook or a call's first write there made it.\n"
        "`clean` removes folders whose name is an old date, nothing else."
    )
    examples = "  paddock scratch new parser\n  paddock scratch clean --older-than 7d --dry-run"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="new|clean")
        new = actions.add_parser("new", help="make a topic's folder", allow_abbrev=False)
        new.add_argument("topic", metavar="TOPIC")
        clean = actions.add_parser("clean", help="remove old folders", allow_abbrev=False)
        clean.add_argument("--older-than", required=True, metavar="DAYSd", help="as in 7d")
        clean.add_argument("--dry-run", action="store_true", help="only say what would go")
        for parsed in (new, clean):
            parsed.add_argument("--json", action="store_true", default=argparse.SUPPRESS)
            parsed.add_argument("--plane", metavar="DIR", default=argparse.SUPPRESS)

    def run(self, options: argparse.Namespace, console: HookConsole) -> int:
        project = project_of(console, options.plane)
        root, now = project.root.path, time.localtime()
        today = date(now.tm_year, now.tm_mon, now.tm_mday)
        if options.action == "new":
            ignored = project.policy.settings.hook.sandbox_ignored
            made = scratch.new_folder(root, options.topic, today, ignored=ignored)
            if options.json:
                console.write_json({"status": "ok", "path": str(made)})
            else:
                console.say(str(made))
            return 0
        days = scratch.parse_age(options.older_than)
        cleaned = scratch.clean(root, days, today, dry_run=options.dry_run)
        if options.json:
            shown: dict[str, Json] = {
                "status": "error" if cleaned.kept else "ok",
                "removed": list(cleaned.removed),
                "kept": list(cleaned.kept),
                "dry_run": options.dry_run,
            }
            console.write_json(shown)
            return 1 if cleaned.kept else 0
        word = "would remove" if options.dry_run else "removed"
        for name in cleaned.removed:
            console.say(f"{word} {scratch.FOLDER}/{name}")
        for name in cleaned.kept:
            console.warn(f"could not remove {scratch.FOLDER}/{name}")
        if not cleaned.removed and not cleaned.kept:
            console.say("nothing is that old")
        return 1 if cleaned.kept else 0


COMMAND = Scratch()
