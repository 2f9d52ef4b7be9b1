"""Where things are on disk, whose word counts, and who may act.

The governed home of a project (its plane) lies in the user's state directory,
outside the project. This folder finds the root that is worked on, makes and
opens its plane, reads policy files and agents, and keeps the user's trust in
policy files. It reads bytes and hands values up; it judges no call.
"""
