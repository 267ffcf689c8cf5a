"""The stages of long work, as messages of the logger "odeco".

``logging.getLogger("odeco").setLevel("DEBUG")`` shows them in Python; commands show them beside
their bar.
"""

from __future__ import annotations

import logging

#: Stages that take long are of level INFO, their steps of level DEBUG.
LOG = logging.getLogger("odeco")
