"""What runs in the launcher and inside the sandbox, before the command does.

The launcher starts once for a runtime, so nothing slow is loaded here: no
`typing`, `dataclasses`, `enum`, `socket` or `json`, and of the package only this
folder and `kernel`. A test lists what a launcher has loaded.
"""
