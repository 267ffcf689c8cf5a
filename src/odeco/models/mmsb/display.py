"""What was found of communities, in words and as a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from odeco.models.mmsb.estimator import Communities


#: A summary shows at most so many communities, and names so many nodes of each.
_MOST_SHOWN, _MOST_NAMED = 12, 5

#: A node belongs to one community if it has more than this share there.
_ONE = 0.9


def describe(model: Communities) -> str:
    """Return the verdict, and for each community its size and the nodes that most of its links go to."""
    memberships, blocks, names = model.memberships_, model.block_matrix_, _node_names(model)
    k = model.n_components_
    mixed = float(np.mean(memberships.max(axis=1) <= _ONE))
    within = np.diagonal(blocks)
    between = (blocks.sum(axis=1) - within) / max(k - 1, 1)
    if k > 1 and max(mixed, np.bincount(model.labels_).max() / len(memberships)) > _ONE:
        verdict = f"{k} communities that these links do not tell apart: hardly any node belongs to one of them alone."
    else:
        verdict = _verdict(within, between)
    lines = [f"{verdict} {len(memberships):,} nodes, {mixed:.0%} of which belong to several."]
    for index in range(min(k, _MOST_SHOWN)):
        largest = np.argsort(-model.profiles_[index], kind="stable")[:_MOST_NAMED]
        size = memberships[:, index].sum()
        rates = f"{within[index]:.2g} links within for {between[index]:.2g} between"
        lines.append(f"community {index + 1}: {size:.0f} nodes, {rates}; {', '.join(names[node] for node in largest)}")
    if k > _MOST_SHOWN:
        lines.append(f"and {k - _MOST_SHOWN} more")
    return "\n".join(lines)


def _verdict(within: Any, between: Any) -> str:
    """Return how many communities there are, and how much more nodes of one are linked than nodes of two."""
    k, ratio = len(within), float(within.mean() / max(between.mean(), 1e-12))
    if k == 1:
        return "One community: links tell no parts of the graph from each other."
    if ratio < 1:
        return f"{k} groups that are linked less within than between."
    return f"{k} communities, with {'over 100' if ratio > 100 else f'{ratio:.1f}'} times the links within."


def draw(model: Communities) -> Any:
    """Return a figure: the memberships of nodes in the order of their communities, and the block matrix."""
    from matplotlib.figure import Figure

    memberships, blocks = model.memberships_, model.block_matrix_
    k = model.n_components_
    order = np.lexsort((-memberships.max(axis=1), model.labels_))
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.8, 1))
    left.stackplot(np.arange(len(order)), memberships[order].T, labels=[f"community {i + 1}" for i in range(k)])
    left.set(xlim=(0, max(len(order) - 1, 1)), ylim=(0, 1), ylabel="share", title="memberships of nodes")
    names = _node_names(model)
    if len(names) <= 40:
        left.set_xticks(range(len(names)), [names[node] for node in order], rotation=90, fontsize=7)
    else:
        left.set_xlabel("nodes, by community")
    if k <= 10:
        left.legend(loc="lower right", fontsize=7)
    image = right.imshow(blocks, cmap="Blues", vmin=0)
    right.set(title="links between two nodes", xlabel="community", ylabel="community")
    if k <= 20:
        right.set_xticks(range(k), range(1, k + 1))
        right.set_yticks(range(k), range(1, k + 1))
    figure.colorbar(image, ax=right)
    return figure


def _node_names(model: Communities) -> list[str]:
    names = getattr(model, "feature_names_in_", None)
    return [str(index) for index in range(model.n_features_in_)] if names is None else list(map(str, names))
