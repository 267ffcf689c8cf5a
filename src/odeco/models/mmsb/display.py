"""Communities in words and pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from odeco._util.types import FloatArray
from odeco.models.engine.description import ComponentRow, Description, HeatMap

if TYPE_CHECKING:
    from odeco.models.mmsb.spec import CommunityParams

#: This number of nodes is named for each community.
_MAX_NAMED = 5

#: A node belongs to one community alone if it has more than this share there.
_ALONE = 0.9

#: The names of at most this number of nodes fit below a figure.
_MAX_TICKS = 40


def describe(params: CommunityParams, names: list[str]) -> Description:
    """Return the verdict, and for each community its size and the nodes to which most of its links go."""
    memberships, blocks = params.memberships, params.blocks
    n_nodes, k = memberships.shape
    within = np.diagonal(blocks)
    between = (blocks.sum(axis=1) - within) / max(k - 1, 1)
    components = []
    for profile, share, inside, outside in zip(params.profiles, memberships.mean(axis=0), within, between, strict=True):
        most_linked = ", ".join(names[node] for node in np.argsort(-profile, kind="stable")[:_MAX_NAMED])
        rates = f"{inside:.2g} links within for {outside:.2g} between"
        components.append(ComponentRow(float(share), f"{share * n_nodes:.0f} nodes, {rates}; {most_linked}"))
    mixed = float(np.mean(memberships.max(axis=1) <= _ALONE))
    facts = (f"{n_nodes:,} nodes, {mixed:.0%} of which belong to several communities.", *_selection(params))
    numbers = [str(community) for community in range(k)]
    blocks_map = HeatMap(blocks, numbers, numbers, "expected links between two nodes", diverging=False)
    panels = (_Memberships(memberships, names), blocks_map)
    return Description(_verdict(memberships, within, between, mixed), facts, tuple(components), panels)


def _selection(params: CommunityParams) -> tuple[str, ...]:
    """Return how the number of communities was selected, and how certain it is, if it was not given."""
    k, distinguishable = len(params.prior), params.distinguishable
    if not distinguishable:
        return ()
    if distinguishable == 1:
        return ("1 was selected: links do not divide the nodes more than chance does.",)
    weakest = f"the weakest by {params.deviations:.0f} standard deviations"
    certain = f"links distinguish {distinguishable} groups from chance, {weakest}"
    if distinguishable == k:
        return (f"{k} were selected: {certain}.",)
    return (
        f"{k} were selected: finer partitions are less likely. They have parts: {certain}. "
        f"Pass n_components={distinguishable} to find these.",
    )


def _verdict(memberships: FloatArray, within: FloatArray, between: FloatArray, mixed: float) -> str:
    """Return the number of communities, and how much more often nodes of one are linked than nodes of two."""
    k, ratio = len(within), float(within.mean() / max(between.mean(), 1e-12))
    if k == 1:
        return "One community: links do not divide the graph."
    largest = float(np.bincount(memberships.argmax(axis=1)).max()) / len(memberships)
    if max(mixed, largest) > _ALONE:
        return f"{k} communities that these links do not tell apart: hardly any node belongs to one of them alone."
    if ratio < 1:
        return f"{k} groups with fewer links within than between."
    return f"{k} communities, with {'over 100' if ratio > 100 else f'{ratio:.1f}'} times the links within."


@dataclass(frozen=True, eq=False)
class _Memberships:
    """The memberships of all nodes, ordered by community."""

    memberships: FloatArray
    names: list[str]

    def draw(self, axes: Any) -> None:
        shares = self.memberships
        permutation = np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))
        labels = [f"community {community}" for community in range(shares.shape[1])]
        axes.stackplot(np.arange(len(permutation)), shares[permutation].T, labels=labels)
        axes.set(xlim=(0, max(len(permutation) - 1, 1)), ylim=(0, 1), ylabel="share", title="memberships of nodes")
        if len(self.names) <= _MAX_TICKS:
            names = [self.names[node] for node in permutation]
            axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
        else:
            axes.set_xlabel("nodes, by community")
        if len(labels) <= 10:
            axes.legend(loc="lower right", fontsize=7)
