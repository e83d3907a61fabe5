"""Results of the reference generator, and where they lie."""

from pathlib import Path

GOLDEN = Path(__file__).parent
