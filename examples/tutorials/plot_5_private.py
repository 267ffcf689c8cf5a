"""
Publish a private model
=======================

Records of people: what can be published so that nobody learns whether one record was replaced? This
tutorial plans a private mixture, keeps one budget for everything that is released, and ends with a
page that may be shown to anyone.
"""

# %% **Plan first**, without any data: what can be found with this budget? All numbers here are
# public: the number of records, of columns, and a bound on the norm of a row that holds by
# construction.
from pathlib import Path

import numpy as np

import odeco
from odeco.models import TensorMixture, plan_mixture
from odeco.privacy import LedgerFile

plan = plan_mixture(3, epsilon=1.0, delta=1e-6, n_rows=20_000, n_features=4)
print(plan)

# %% **One budget for all runs.** The ledger is a file. Every release is charged to it before it is
# computed; what exceeds the limit is refused.
Path("people.ledger").unlink(missing_ok=True)
LedgerFile.create("people.ledger", data="people", unit="record", epsilon=1.5, delta=1e-6)

rng = np.random.default_rng(0)
centres = np.array([[5.0, 0, 0, 0], [0, 5, 0, 0], [0, 0, 5, 5]])
people = centres[rng.integers(3, size=20_000)] + rng.standard_normal((20_000, 4))
model = TensorMixture(3, epsilon=1.0, delta=1e-6, norm_bound=12.0, ledger="people.ledger")
model.fit(people)
print(model.summary())

# %%
# **What was promised.** The report names whom it protects, and lists every release.
print(model.privacy_.statement)

# %%
# A second run with the same budget does not fit into what is left:
try:
    TensorMixture(3, epsilon=1.0, delta=1e-6, norm_bound=12.0, ledger="people.ledger").fit(people)
except odeco.privacy.BudgetExhausted as refused:
    print(refused)

# %% **Publish** the model and its page. They are computed from noisy releases alone, and the page
# shows no rows even if it is given some.
model.save("published.npz")
odeco.write_report(model, "published.html", title="Groups of 20,000 people", rows=people)
figure = model.plot()
