"""
From events to states
=====================

A shop logs what visitors do: *search*, *open*, *read*, *basket*, *buy*. Behind the events there are
states of mind that nobody logs. A hidden Markov model finds them. From a log with one event per
line::

    odeco learn hmm log.csv --symbol event --sequence visit -k 3 --labels states.csv --report
    page.html
"""

# %% We simulate 200 visits of 50 events with three states, so that the answer is known: looking
# around, comparing, buying.
import matplotlib.pyplot as plt
import numpy as np

import odeco
from odeco.models import TensorHMM

rng = np.random.default_rng(0)
names = np.array(["search", "open", "read", "basket", "buy"])
moves = np.array([[0.90, 0.08, 0.02], [0.08, 0.84, 0.08], [0.02, 0.10, 0.88]])
emits = np.array(
    [[0.70, 0.25, 0.05, 0, 0], [0.05, 0.25, 0.60, 0.10, 0], [0, 0.05, 0.10, 0.50, 0.35]]
)
states, state = [], 0
for _ in range(10_000):
    states.append(state)
    state = rng.choice(3, p=moves[state])
events = np.array([names[rng.choice(5, p=emits[each])] for each in states])
lengths = [50] * 200

# %%
# Events go in as texts, one visit after the other, with the length of each.
model = TensorHMM(3, random_state=0).fit(events, lengths=lengths)
print(model.summary())

# %% The states of the first two visits: colours are probabilities, the line below is the truth.
# States are numbered by how frequent they are, so the truth is brought into that order first.
chances = model.predict_proba(events[:100], lengths=[50, 50])
found = model.predict(events, lengths=lengths)
order = [np.bincount(np.array(states)[found == each], minlength=3).argmax() for each in range(3)]
figure, (above, below) = plt.subplots(
    2, 1, figsize=(7, 3), height_ratios=[5, 1], sharex=True, layout="constrained"
)
above.stackplot(range(100), chances.T, labels=[f"state {each}" for each in range(3)])
above.set(ylabel="probability", ylim=(0, 1))
above.legend(loc="upper right")
below.imshow(
    [[order.index(each) for each in states[:100]]],
    aspect="auto",
    cmap="viridis",
    extent=(0, 100, 0, 1),
)
below.set(yticks=[], xlabel="event", ylabel="truth")

# %%
agreement = np.mean([order[each] == true for each, true in zip(found, states, strict=True)])
print(f"state of an event identified: {agreement:.0%}")

# %%
odeco.write_report(model, "visitors.html", title="Visitors of a shop", rows=events, lengths=lengths)
