"""The methods of others, to compare with. Each returns `Components`; a `TensorSketch` is an oracle."""

from odeco.baselines._random_slice import random_slice
from odeco.baselines._sgd import online_sgd, tune_learning_rate
from odeco.baselines._simultaneous import simultaneous_diagonalization
from odeco.baselines._sketch import TensorSketch
from odeco.baselines._sketched_power import sketched_power_method
from odeco.baselines._ss_hopm import ss_hopm
from odeco.baselines._tensor_pca import tensor_pca

__all__ = [
    "TensorSketch",
    "online_sgd",
    "random_slice",
    "simultaneous_diagonalization",
    "sketched_power_method",
    "ss_hopm",
    "tensor_pca",
    "tune_learning_rate",
]
