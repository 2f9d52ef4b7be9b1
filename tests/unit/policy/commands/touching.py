"""What a line of shell writes, removes and copies, each path once."""

from paddock.policy.commands import CommandLine


def written_by(line: CommandLine) -> tuple[str, ...]:
    return tuple(dict.fromkeys(line.touch.written))


def removed_by(line: CommandLine) -> tuple[str, ...]:
    return tuple(dict.fromkeys(line.touch.removed))


def copied_by(line: CommandLine) -> tuple[tuple[str, str], ...]:
    return tuple(dict.fromkeys(line.touch.copied))
