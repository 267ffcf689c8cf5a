"""The recipes from a tensor to its components: symmetric or not, all fitted together or one after another."""

from odeco.decompose._asymmetric import decompose_asymmetric
from odeco.decompose._symmetric import decompose

__all__ = ["decompose", "decompose_asymmetric"]
