"""Turn what a user holds into an oracle."""

from __future__ import annotations

from typing import Any

from odeco.oracle import Oracle
from odeco.tensors._dense import DenseTensor


def as_oracle(tensor: Any) -> Oracle:
    """Return an oracle as it is, and a symmetric array as a `DenseTensor`."""
    return tensor if isinstance(tensor, Oracle) else DenseTensor(tensor)
