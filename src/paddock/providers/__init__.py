"""Models: one request in, one turn out, whoever answers.

Each provider speaks its own wire and hands back the same `ModelTurn`. The
official SDKs are imported when a model of theirs is asked, and not before. A
provider sends a request once; the gateway around it retries what failed on the
way, checks structured output against its schema, and never touches a tool.
"""
