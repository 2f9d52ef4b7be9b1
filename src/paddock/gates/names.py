"""Which gates there are."""

from typing import Final

G0A: Final = "G0A"
"""At install, of an archive; not one of those that look at a plane."""
G0B: Final = "G0B"
G1: Final = "G1"
G1_COMPLETE: Final = "G1-COMPLETE"
G2: Final = "G2"
G3: Final = "G3"
G4: Final = "G4"
G5: Final = "G5"
G6: Final = "G6"

PLANE_GATES: Final = (G0B, G1, G1_COMPLETE, G2, G3, G4, G5, G6)
"""Those of `--all`, in their order."""
ALL_GATES: Final = (G0A, *PLANE_GATES)
