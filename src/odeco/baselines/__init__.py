"""The methods of others, to compare with. Each returns `Components`."""

from odeco.baselines._random_slice import random_slice
from odeco.baselines._sgd import online_sgd, tune_learning_rate
from odeco.baselines._simultaneous import simultaneous_diagonalization
from odeco.baselines._ss_hopm import ss_hopm

__all__ = ["online_sgd", "random_slice", "simultaneous_diagonalization", "ss_hopm", "tune_learning_rate"]
