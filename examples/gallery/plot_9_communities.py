"""
A club that split, and the people between the sides
===================================================

Zachary observed a karate club of 34 people whose instructor and administrator fell out; in the end
it split in two. A partition assigns every person to one side. :class:`odeco.models.Communities`
also shows who belonged to both.
"""

# %%
# The 78 friendships (W. Zachary, 1977): for each person, the friends with higher numbers.
import matplotlib.pyplot as plt
import numpy as np

from odeco.models import Communities

friends = {
    1: [2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 18, 20, 22, 32],
    2: [3, 4, 8, 14, 18, 20, 22, 31],
    3: [4, 8, 9, 10, 14, 28, 29, 33],
    4: [8, 13, 14],
    5: [7, 11],
    6: [7, 11, 17],
    7: [17],
    9: [31, 33, 34],
    10: [34],
    14: [34],
    15: [33, 34],
    16: [33, 34],
    19: [33, 34],
    20: [34],
    21: [33, 34],
    23: [33, 34],
    24: [26, 28, 30, 33, 34],
    25: [26, 28, 32],
    26: [32],
    27: [30, 34],
    28: [34],
    29: [32, 34],
    30: [33, 34],
    31: [33, 34],
    32: [33, 34],
    33: [34],
}
links = np.zeros((34, 34))
for person, others in friends.items():
    links[person - 1, np.array(others) - 1] = 1
links += links.T

# %%
# The number of communities is selected automatically.
model = Communities("auto", random_state=0).fit(links)
print(model.summary())

# %% The membership of each person in the community of the instructor. Person 1 is the instructor
# and person 34 the administrator.
shares = model.memberships_[:, model.labels_[0]]
order = np.argsort(shares)
figure, axes = plt.subplots(figsize=(9, 3.2), layout="constrained")
axes.bar(range(34), shares[order], color=plt.get_cmap("coolwarm")(shares[order]))
axes.set_xticks(range(34), order + 1, fontsize=8)
axes.set(xlabel="person", ylabel="share", title="membership in the community of the instructor")

# %%
# A new person is placed by their friends: two friends of the instructor, and the administrator.
newcomer = np.zeros((1, 34))
newcomer[0, [1, 3, 33]] = 1
print("the newcomer:", np.round(model.transform(newcomer), 2))
model.plot()
