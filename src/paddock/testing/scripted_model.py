"""The scripted provider under the name that tests look for: there is only one of it."""

from paddock.providers.scripted import (
    Say,
    ScriptedCall,
    ScriptedFailure,
    ScriptedModel,
    parse_script,
)

__all__ = ["Say", "ScriptedCall", "ScriptedFailure", "ScriptedModel", "parse_script"]
