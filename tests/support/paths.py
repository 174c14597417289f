"""Where the repository is, and what tests read of it."""

from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[2]
OLD_FORMATS: Final = REPOSITORY / "tests" / "support" / "data" / "old_formats"
"""Files of collections as earlier versions wrote them."""
