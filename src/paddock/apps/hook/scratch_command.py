"""`paddock scratch`: create scratch folders for agents, and remove old ones."""

import time
from datetime import date

from paddock.apps.command import Command, Options, Part, Reply, find_project, flag, opt
from paddock.apps.console import EXIT_NO, Console
from paddock.plane import scratch


def _today() -> date:
    now = time.localtime()
    return date(now.tm_year, now.tm_mon, now.tm_mday)


def _new(options: Options, console: Console) -> Reply:
    project = find_project(options, console)
    ignored = project.policy.settings.hook.sandbox_ignored
    made = scratch.new_folder(project.root.path, options.topic, _today(), ignored=ignored)
    return Reply({"status": "ok", "path": str(made)}, str(made))


def _clean(options: Options, console: Console) -> Reply:
    root = find_project(options, console).root.path
    days = scratch.parse_age(options.older_than)
    cleaned = scratch.clean(root, days, _today(), dry_run=options.dry_run)
    word = "would remove" if options.dry_run else "removed"
    text = [f"{word} {scratch.FOLDER}/{name}" for name in cleaned.removed]
    if not options.json:
        for name in cleaned.kept:
            console.warn(f"could not remove {scratch.FOLDER}/{name}")
    if not cleaned.removed and not cleaned.kept:
        text.append("no folder is that old")
    value = {
        "status": "error" if cleaned.kept else "ok",
        "removed": list(cleaned.removed),
        "kept": list(cleaned.kept),
        "dry_run": options.dry_run,
    }
    return Reply(value, text, EXIT_NO if cleaned.kept else 0)


COMMAND = Command(
    "Agents keep scratch work in agent_sandbox/<date>/<topic>/, which is safe to write.\n"
    "git ignores it if `new`, the hook or a call's first write there created it.\n"
    "`clean` removes only folders whose name is an old date.",
    "  paddock scratch new parser\n  paddock scratch clean --older-than 7d --dry-run",
    Part("new", "create a topic's folder", _new, opt("topic", "TOPIC")),
    Part(
        "clean",
        "remove old folders",
        _clean,
        opt("--older-than", "DAYSd", "as in 7d", required=True),
        flag("--dry-run", "only list the folders to remove"),
    ),
    metavar="new|clean",
)
