from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# Shared machines pause: a slow example is no failure. The examples are the same from run to run.
settings.register_profile("odeco", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("odeco")
