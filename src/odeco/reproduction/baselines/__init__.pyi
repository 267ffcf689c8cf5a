from odeco.reproduction.baselines.matrices import random_slice as random_slice
from odeco.reproduction.baselines.matrices import simultaneous_diagonalization as simultaneous_diagonalization
from odeco.reproduction.baselines.matrices import tensor_pca as tensor_pca
from odeco.reproduction.baselines.power_methods import TensorSketch as TensorSketch
from odeco.reproduction.baselines.power_methods import sketched_power_method as sketched_power_method
from odeco.reproduction.baselines.power_methods import ss_hopm as ss_hopm
from odeco.reproduction.baselines.sgd import online_sgd as online_sgd
from odeco.reproduction.baselines.sgd import tune_learning_rate as tune_learning_rate
