"""
A table that you may share
==========================

You have a table about people that may not leave the house, and colleagues who need one with the
same columns: to write their code, and to see what goes with what. A synthetic table does that, and
does not reveal any single row. With a file of your own it is one command::

    odeco synthesize people.csv --header --schema code.json --epsilon 1 --delta 1e-6 --out open.csv
"""

# %% A survey of 8,000 people, made up for this page: who smokes depends on age, and who coughs on
# smoking. Some did not say how old they are.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import odeco
from odeco.models import plan_synthesis

rng = np.random.default_rng(0)
age = rng.integers(18, 90, 8000)
smokes = rng.random(8000) < np.where(age < 50, 0.35, 0.15)
coughs = rng.random(8000) < np.where(smokes, 0.5, 0.1)
people = {
    "age": np.where(rng.random(8000) < 0.05, np.nan, age),
    "smokes": np.where(smokes, "yes", "no"),
    "coughs": np.where(coughs, "yes", "no"),
    "region": rng.choice(["north", "south", "east"], 8000),
}

# %% The schema says what each column may hold. It is public, so it comes from the code book and
# never from the table.
schema = {
    "age": {"low": 18, "high": 89, "bins": 8, "whole": True, "missing": True},
    "smokes": ["no", "yes"],
    "coughs": ["no", "yes"],
    "region": ["north", "south", "east"],
}
budget = {"epsilon": 1.0, "delta": 1e-6}
print(plan_synthesis(schema, n_rows=8000, **budget))

# %% The plan has cost nothing. The run spends the budget, once and for all.
synthetic = odeco.synthesize(people, schema=schema, rng=0, **budget)
print(synthetic.summary())

# %%
# How far may a table of two columns be off? The noise is known, so the answer needs no look at the
# private table. Here we have it, and can compare.
bins = np.linspace(18, 90, 9)


def share_of_smokers(table):
    """Return the share of smokers in each bin of age."""
    known = np.isfinite(table["age"])
    places = np.digitize(table["age"][known], bins) - 1
    smoking = np.asarray(table["smokes"])[known] == "yes"
    return [smoking[places == place].mean() for place in range(8)]


figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for name, table in (("private", people), ("synthetic", synthetic.table)):
    axes.plot(bins[:-1] + 4.5, share_of_smokers(table), "o-", label=name)
axes.set(xlabel="age", ylabel="share of smokers", ylim=(0, 0.5))
legend = axes.legend()


# %%
# A classifier that has seen synthetic rows only, on the real ones: who coughs?
def features(table):
    """Return columns of numbers."""
    smoking = np.asarray(table["smokes"]) == "yes"
    return np.column_stack([smoking, np.nan_to_num(table["age"], nan=50.0)])


model = LogisticRegression().fit(features(synthetic.table), synthetic.table["coughs"] == "yes")
chances = model.predict_proba(features(people))[:, 1]
print(f"area under the curve {roc_auc_score(coughs, chances):.2f}")

# %% What it is not good for: combinations of three and more columns, groups of a few people, exact
# rules, and any finding that is published without being repeated on the real table.
