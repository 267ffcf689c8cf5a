"""What others do, for honest comparison: each takes an oracle and returns `Components`."""

from odeco.baselines._random_slice import random_slice
from odeco.baselines._simultaneous import simultaneous_diagonalization
from odeco.baselines._ss_hopm import ss_hopm

__all__ = ["random_slice", "simultaneous_diagonalization", "ss_hopm"]
