"""Published algorithms to compare with."""

from odeco.reproduction.baselines.sgd import online_sgd, tune_learning_rate
from odeco.reproduction.baselines.sketch import TensorSketch, sketched_power_method
from odeco.reproduction.baselines.slices import random_slice, simultaneous_diagonalization
from odeco.reproduction.baselines.ss_hopm import ss_hopm
from odeco.reproduction.baselines.tensor_pca import tensor_pca

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
