"""
Three growers of wine, from a chemical analysis
===============================================

178 wines of three growers of one region, with 13 measurements each. The model does not know the
growers.
"""

# %% The number of components is selected automatically. The measurements have very different units,
# so columns are standardised automatically too if that gives a better mixture; means and variances
# stay in the units of the table.
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse
from sklearn.datasets import load_wine
from sklearn.metrics import adjusted_rand_score

from odeco.models import TensorMixture

wine = load_wine(as_frame=True)
rows = wine.data
model = TensorMixture("auto", covariance_type="diag", random_state=0).fit(rows)
print(model.summary())

# %%
# Agreement between components and growers: 1 is perfect, 0 is chance.
print(f"adjusted Rand index {adjusted_rand_score(wine.target, model.predict(rows)):.2f}")

# %%
# Two measurements that separate the components well; `model.plot(rows)` shows all of them.
first, second = rows.columns.get_indexer(["flavanoids", "proline"])
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
axes.scatter(
    rows.iloc[:, first], rows.iloc[:, second], c=model.predict(rows), cmap="tab10", vmax=9, s=12
)
for number, (mean, variance) in enumerate(zip(model.means_, model.covariances_, strict=True)):
    width, height = 4 * np.sqrt(variance[[first, second]])
    axes.add_patch(Ellipse(mean[[first, second]], width, height, fill=False))
    axes.annotate(str(number), mean[[first, second]])
axes.set(xlabel="flavanoids", ylabel="proline", title="Components, with two standard deviations")

# %%
# New rows can be drawn from the mixture.
drawn, component = model.sample(3, random_state=0)
print(drawn.round(1)[:, :5], component)
