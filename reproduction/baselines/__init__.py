"""Published algorithms that the paper names, to compare with."""

from reproduction.baselines.matrices import random_slice, simultaneous_diagonalization, tensor_pca
from reproduction.baselines.power_methods import TensorSketch, sketched_power_method, ss_hopm
from reproduction.baselines.sgd import online_sgd, tune_learning_rate

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
