"""Parse shell lines for policy: text in, values out.

    parse              a line → its simple commands, and everything doubtful about it
    walk, words        the syntax tree, and the meaning of its words
    numbers            arithmetic in which only numbers take part
    unwrap             the programs that a command, or a line that does not parse, would start
    pattern            the target of a rule, and what its wildcards never cover
    programs           tables of what programs start, write and run
    operator_commands  the commands of Paddock that are a person's act
    writes             the files that known programs write, remove and read

Deny and ask match every reading of a command, allow only the exact one: in doubt a reading is
added and an exact match is excluded. Syntax that is not understood is a problem, never guessed.
"""

from paddock.policy.commands.parse import parse_line
from paddock.policy.commands.pattern import CommandPattern, compile_command_pattern
from paddock.policy.commands.words import CommandLine, Reading, SimpleCommand, Word

__all__ = [
    "CommandLine",
    "CommandPattern",
    "Reading",
    "SimpleCommand",
    "Word",
    "compile_command_pattern",
    "parse_line",
]
