"""What the built-in model says."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from paddock import limits
from paddock.providers.builtin_meanings import Wishes
from paddock.text.show import quote
from paddock.values.models import ToolAnswer

WHO: Final = (
    "I am Paddock's built-in model: a small set of rules, not a language model. "
    "I need no key and no network, and I know only requests for Paddock's own tools."
)
_GREETING: Final = re.compile(
    r"(?:hello|hi|hey|hallo|good\s+(?:morning|afternoon|evening|day))\b.{0,40}",
    re.IGNORECASE | re.DOTALL,
)
_THANKS: Final = re.compile(r"(?:thanks|thank\s+you|bye|goodbye)\b.{0,40}", re.IGNORECASE)
_HELP: Final = re.compile(
    r"(?:help|what\s+can\s+(?:you|i)\s+(?:do|ask|say).{0,20}|who\s+are\s+you|what\s+are\s+you"
    r"|what\s+(?:tools|commands)\s+.{0,30}|how\s+do(?:es)?\s+.{0,20}work)\W*",
    re.IGNORECASE,
)

EXAMPLES: Final = {
    "list_packages": "what frameworks are installed?",
    "query_ledger": "show me turn events from the session ledger",
    "list_files": "what files are in the kernel directory?",
    "read_file": "read HOT/config/policy.toml",
    "gate_check": "run the gate check",
    "write_file_dev": 'write a file at HO2/scratch/note.txt with the content "hello"',
    "edit_file_dev": 'replace "old" with "new" in HO2/scratch/note.txt',
    "grep_dev": 'search for "def handle_turn" in the HO2 directory',
    "run_shell_dev": 'run "ls -l"',
    "view": "show me README.md",
    "create_file": 'write a file at notes.md with the content "hello"',
    "str_replace": 'replace "old" with "new" in notes.md',
    "move_file": "move notes.md to old/notes.md",
    "delete_file": "delete notes.md",
    "grep": 'search for "def main" in src',
    "find": "find *.py in src",
    "ls": "list the files in src",
    "write_output": 'write an output named report with the content "done"',
    "run_shell": 'run "git status"',
}
_LEADS: Final = {
    "list_packages": "Installed:",
    "query_ledger": "From the ledger:",
    "list_files": "Files:",
    "ls": "Files:",
    "gate_check": "The gates say:",
    "grep": "Found:",
    "grep_dev": "Found:",
    "find": "Found:",
}


def small_talk(sentence: str, tools: Iterable[str]) -> str:
    """What to say to a greeting, thanks, or a question about itself; "" for anything else."""
    said = sentence.strip()
    if _GREETING.fullmatch(said):
        return f"Hello. {WHO} Ask me what I can do, or try: {_first_example(tools)}"
    if _THANKS.fullmatch(said):
        return "You are welcome."
    return help_text(tools) if is_help(said) else ""


def is_help(sentence: str) -> bool:
    """Whether it is asked what it can do: a question, however it ends."""
    return _HELP.fullmatch(sentence.strip()) is not None


def _first_example(tools: Iterable[str]) -> str:
    there = set(tools)
    return next((text for name, text in EXAMPLES.items() if name in there), "help")


def help_text(tools: Iterable[str]) -> str:
    """Who it is, and a sentence for each tool that it can call here."""
    there = list(tools)
    if not there:
        return f"{WHO} I have no tools here, so there is nothing that I can look up or do."
    rows = [f"  {name}: {EXAMPLES.get(name, name)}" for name in there]
    form = f"{there[0]} name=value"
    return "\n".join([WHO, "Here I can call:", *rows, f"Or write a call out: {form}"])


def not_understood(sentence: str, tools: Iterable[str]) -> str:
    """For a sentence that no rule knows."""
    return f"I do not understand {quote(sentence)}.\n{help_text(tools)}"


def not_here(wishes: Wishes, tools: Sequence[str]) -> str:
    """For a request that is understood, and whose tools this agent does not have."""
    wanted = " or ".join(dict.fromkeys(wish.tool for wish in wishes))
    have = ", ".join(tools) or "none"
    return f"That needs the tool {wanted}, which I do not have here. My tools are: {have}."


def report(answers: Sequence[ToolAnswer], left: int) -> str:
    """What the tools said, in order; `left` steps were not done because one failed."""
    parts = [_part(answer) for answer in answers]
    if left:
        parts.append(f"I stopped there: {left} more of what you asked for is not done.")
    return "\n\n".join(parts)


def _part(answer: ToolAnswer) -> str:
    shown, missing = _cut(answer.content)
    cut = (
        f"\n[{missing} more characters are in the result, and not repeated here]" if missing else ""
    )
    if answer.is_error:
        return f"{answer.tool} did not do it:\n{shown}{cut}"
    lead = _LEADS.get(answer.tool, f"{answer.tool}:")
    return f"{lead}\n{shown or '(nothing)'}{cut}"


def _cut(content: str) -> tuple[str, int]:
    kept = content[: limits.builtin_answer_chars_max]
    return kept, len(content) - len(kept)
