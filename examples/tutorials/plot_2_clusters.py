"""
Clusters of a table
===================

A table of 178 wines with 13 measurements each. Are there groups, how many, and what tells them
apart? The same from a file::

    odeco learn mixture wine.csv --drop id --labels clusters.csv --report page.html
"""

# %% The columns have different units, so they are standardised. With ``"auto"`` the number of
# clusters is chosen by how well rows are predicted that were held out.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.metrics import adjusted_rand_score

import odeco
from odeco.models import TensorMixture

wines = load_wine(as_frame=True)
model = TensorMixture("auto", standardize=True, random_state=0).fit(wines.data)
model.split_half(wines.data)
print(model.summary())

# %% The verdict counts the clusters that are found again in random halves of the rows. The scores
# show how certain the number is.
figure, axes = plt.subplots(figsize=(5.5, 3), layout="constrained")
axes.plot(list(model.selection_scores_), list(model.selection_scores_.values()), "o-")
axes.set(xlabel="number of clusters", ylabel="score of held-out rows")

# %% The figure has the clusters in the plane where their means differ most, and all means in
# standard deviations.
figure = model.plot()

# %% The cluster of every row, with its probability. These wines come from three growers, which the
# model was not told.
labels = model.predict(wines.data)
print("sizes:", np.bincount(labels))
print("least certain row:", model.predict_proba(wines.data).max(axis=1).argmin())
print(
    f"agreement with the growers (adjusted Rand index): "
    f"{adjusted_rand_score(wines.target, labels):.2f}"
)

# %%
# The page adds a table of means in the original units, and rows that are typical of each cluster.
odeco.write_report(model, "wines.html", title="Clusters of 178 wines", rows=wines.data)
