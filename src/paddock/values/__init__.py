"""The nouns: what passes between the layers. Values in, values out.

Nothing here does I/O, reads a clock or the environment, or draws random
numbers; every type is immutable. A folder above may turn these values into
effects; this one only says what they are.
"""
