"""
Differential privacy: accuracy at different values of epsilon
=============================================================

Each of 20,000 rows belongs to one of three groups and points in its direction. A smaller ε means
more noise. How accurately are the three directions found by the paper's Algorithm 3, and by the
mechanism that the plan predicts to be best?
"""

# %%
# The data: unit vectors, so that the bound on their norm is 1 by construction.
import matplotlib.pyplot as plt
import numpy as np

import odeco

generator = np.random.default_rng(0)
n_rows, dimension = 20_000, 25
directions = np.linalg.qr(generator.standard_normal((dimension, 3)))[0]
shares = np.array([0.5, 0.3, 0.2])
rows = directions.T[generator.choice(3, size=n_rows, p=shares)]
truth = odeco.Components(shares, directions)

# %% The plan needs only public numbers, no data. The smallest signal is the weight from which on
# components are found.
common = {"epsilon": 0.5, "delta": 1e-6, "unit": "record", "norm_bound": 1.0}
plan = odeco.plan_privacy(dimension=dimension, n_components=3, n_units=n_rows, **common)
print(plan)

# %%
# Three runs each, with fresh noise. The figure shows the worst of the three cosines with the truth.
epsilons = np.geomspace(0.01, 4, 6)
mechanisms = {
    "Algorithm 3, paper's noise": {"mechanism": "wang2016", "calibration": "paper"},
    f"the plan's best, {plan.best!r}": {"mechanism": plan.best},
}
cosines = {name: np.zeros((len(epsilons), 3)) for name in mechanisms}
for name, settings in mechanisms.items():
    for place, epsilon in enumerate(epsilons):
        for run in range(3):
            found = odeco.decompose_privately(
                rows, 3, **(common | {"epsilon": epsilon}), **settings, rng=run
            )
            cosines[name][place, run] = odeco.match(found.components, truth).cosines.min()

figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
for name, values in cosines.items():
    axes.semilogx(epsilons, np.median(values, axis=1), "o-", label=name)
    axes.fill_between(epsilons, values.min(axis=1), values.max(axis=1), alpha=0.2)
axes.axhline(0.9, color="grey", linestyle="dotted")
axes.set(xlabel="ε (δ = 10⁻⁶, one record)", ylabel="worst cosine of three", ylim=(0, 1.02))
axes.legend(loc="center right")

# %% A private result has noise floors, which say which components may be noise alone, and a report
# of the guarantee.
result = odeco.decompose_privately(rows, 5, **common, rng=0)
print("weights     ", result.weights.round(4))
print("noise floors", result.noise_floors.round(4))
print("clear       ", result.clear)
print(result.privacy.mechanism, "spent epsilon", round(result.privacy.epsilon_spent, 4))
