"""
A tensor with noise, and how many components it has
===================================================

A tensor is a sum of five orthogonal components and noise. How many are found depends on the noise;
``"auto"`` keeps the components whose weights are clear of the noise.
"""

# %%
# Five components with weights from 2 down to 1, in dimension 40, and Gaussian noise.
import warnings

import matplotlib.pyplot as plt
import numpy as np

import odeco
from odeco.datasets import gaussian_noise, planted_orthogonal

dimension, n_components = 40, 5
truth = planted_orthogonal(dimension, n_components, rng=0)
noise = gaussian_noise(dimension, rng=1)
noise_norm = odeco.operator_norm(noise, rng=0)

# %% With little noise all five are clear. Grey bars are candidates that were rejected; the dashed
# lines are the largest weights that noise of the size of the residual would produce.
tensor = truth.to_dense() + 0.4 / noise_norm * noise.entries
result = odeco.decompose(tensor, "auto", rng=0)
evidence = result.rank_evidence

figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
numbers = np.arange(len(evidence.weights))
axes.bar(
    numbers, evidence.weights, color=np.where(numbers < evidence.rank, "tab:blue", "lightgrey")
)
axes.hlines(
    evidence.noise_levels, numbers - 0.45, numbers + 0.45, colors="tab:orange", linestyles="dashed"
)
axes.set(
    xlabel="component, in order of discovery",
    ylabel="weight",
    title=f"{evidence.rank} components are clear of the noise",
)

# %% More noise: the error of each vector grows with the noise over its weight, until the component
# is lost. The paper's Theorem 2.2 allows noise of operator norm up to a constant times the smallest
# weight.
warnings.simplefilter(
    "ignore", odeco.ConvergenceWarning
)  # components that are lost in the noise do not converge
levels = np.geomspace(0.02, 2, 12)
sines = []
for level in levels:
    found = odeco.decompose(truth + float(level) / noise_norm * noise, n_components, rng=0)
    sines.append(np.sqrt(1 - odeco.match(found.components, truth).cosines ** 2))
sines = np.array(sines)

figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
for column, weight in enumerate(truth.weights):
    axes.loglog(levels / weight, sines[:, column], "o-", label=f"{weight:.2f}")
axes.loglog([0.01, 1], [0.01, 1], color="grey", linestyle="dotted", label="equal")
axes.set(xlabel="operator norm of the noise / weight", ylabel="sine of the angle to the truth")
axes.legend(title="weight", loc="center left", bbox_to_anchor=(1, 0.5))
# sphinx_gallery_thumbnail_number = 2
