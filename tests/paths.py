"""Where the repository is, and what tests read of it."""

from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[1]
OLD_FORMATS: Final = REPOSITORY / "tests" / "data"
"""Files of collections as earlier versions wrote them."""
