"""The scripted provider under the name that tests look for: there is only one of it."""

from paddock.providers.scripted import Fail, Say, ScriptedCall, ScriptedModel, parse_script

__all__ = ["Fail", "Say", "ScriptedCall", "ScriptedModel", "parse_script"]
