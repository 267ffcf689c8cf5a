"""A noise tensor kept away from the signal."""

from __future__ import annotations

from typing import final

from odeco._types import FloatArray
from odeco.oracle import Oracle


@final
class Within(Oracle):
    """The tensor T(P, P, P), where P is the projection on the coordinates from `first` on."""

    def __init__(self, oracle: Oracle, first: int) -> None:
        self.oracle, self.first = oracle, first
        self.dimension, self.order = oracle.dimension, oracle.order
        self.exact, self.rounding = oracle.exact, oracle.rounding

    def _image(self, block: FloatArray) -> FloatArray:
        kept = block.copy()
        kept[: self.first] = 0
        image = self.oracle.image(kept)
        image[: self.first] = 0
        return image
