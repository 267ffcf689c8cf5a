"""
Topics of many short texts
==========================

You have a few thousand texts, such as reviews or tickets, and want to know what they are about.
Here the texts are the documentation strings of your Python installation; with a table of your own
the whole tutorial is one command::

    odeco learn topics reviews.csv --column text -k auto --report topics.html
"""

# %% Texts go in as they are. Words that occur in fewer than five texts, and words such as *the*,
# are left out.
import matplotlib.pyplot as plt

import odeco
from odeco.datasets import python_documentation
from odeco.models import TensorLDA

texts = [document.text for document in python_documentation()][:2500]
model = TensorLDA(8, max_iter=30, random_state=0).fit_text(texts)
print(model.summary())

# %% The first line is the verdict: how many of the topics rest on something that stands clear of
# noise. A topic is a distribution over words. The words that are typical of it, rather than
# frequent everywhere, say what it is about.
for number, words in enumerate(model.top_words(6, relevance=0.6)):
    print(number, *words)

# %%
figure = model.plot_topics(8, n_columns=4)

# %%
# How much of each topic is in a text that the model has not seen?
shares = model.transform_text(["Return the list of files in a directory, sorted by name."])[0]
figure, axes = plt.subplots(figsize=(6, 2.6), layout="constrained")
axes.bar(range(8), shares)
axes.set(xlabel="topic", ylabel="share", title="Topics of one sentence")

# %% The page shows it all to somebody else: a map of the topics, their words and the texts that are
# typical of them. It is one file, and needs no network.
odeco.write_report(model, "topics.html", title="What Python's documentation is about", rows=texts)
model.save("topics.npz")  # plain arrays, no pickle
