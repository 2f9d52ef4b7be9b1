"""Lines of shell, taken apart for policy: text in, values out.

    parse                a line → what it is, as policy sees it
    grammar, walk, words    the syntax tree, and what its parts mean
    rough                what can be seen of a line that does not parse
    seeing, wrappers     what a command would start under another name
    pattern, exact, dangers   the target of a rule, and what its wildcards never cover
    persons              what of Paddock's own command line is a person's act
    writes               which files known programs write, remove and read

`parse_line` tells the simple commands of a line and what is doubtful about it;
`compile_command_pattern` makes the target of a rule such as `git diff *`. Deny
and ask match every reading of a command, allow only the exact one.

Rules kept here:
  * what is not understood is said to be a problem, never guessed;
  * a reading is added where in doubt, an exact match given up where in doubt;
  * the kernel has the last word: this is about asking and refusing early, in
    words that a person understands.
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
