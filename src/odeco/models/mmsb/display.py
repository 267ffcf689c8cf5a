"""Communities in words and pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from odeco._util.types import FloatArray, IndexArray
from odeco.display.tables import shortened
from odeco.models.engine.description import ComponentRow, Description, HeatMap, PageTable

if TYPE_CHECKING:
    from odeco.models.mmsb.spec import CommunityParams

#: This number of nodes is named for each community.
_MAX_NAMED = 5

#: A node belongs to one community alone if it has more than this share there.
_ALONE = 0.9

#: A community is unclear if its nodes have less than this share in it on average.
_UNCLEAR = 0.6

#: The names of at most this number of nodes fit below a figure.
_MAX_TICKS = 120

#: The page lists at most this number of nodes, those of the most links.
_MAX_LISTED = 1000


def describe(params: CommunityParams, names: list[str]) -> Description:
    """Return the verdict, and for each community its size and the nodes of most links, by their
    share in it.
    """
    memberships = params.memberships
    blocks = params.blocks
    n_nodes, k = memberships.shape
    own = memberships.argmax(axis=1)
    sizes = memberships.mean(axis=0)
    counts = np.bincount(own, minlength=k)
    rates = blocks if params.link_rates is None else params.link_rates
    outside = (rates @ counts - np.diagonal(rates) * counts) / np.maximum(n_nodes - counts, 1)
    components = []
    for community, share in enumerate(sizes):
        links = memberships[:, community] * params.degrees
        most_linked = ", ".join(
            names[node] for node in np.argsort(-links, kind="stable")[:_MAX_NAMED]
        )
        text = (
            f"{counts[community]:,} nodes, {rates[community, community]:.2g} links between two of "
            "them"
        )
        text += f", {outside[community]:.2g} to a node outside" if k > 1 else ""
        members = memberships[own == community, community]
        mean = float(members.mean()) if members.size else 0.0
        if k > 1 and mean < _UNCLEAR:
            doubt = f"on average its nodes have a share of {mean:.0%} in it"
        else:
            doubt = ""
        components.append(ComponentRow(float(share), f"{text}; {most_linked}", doubt))
    mixed = float(np.mean(memberships.max(axis=1) <= _ALONE))
    facts = (
        f"{n_nodes:,} nodes, {mixed:.0%} of which belong to several communities.",
        *_selection(params),
    )
    numbers = [str(community) for community in range(k)]
    blocks_map = HeatMap(
        blocks, numbers, numbers, "expected links between two nodes", diverging=False
    )
    panels = (_Memberships(memberships, names), blocks_map)
    verdict = _verdict(memberships, rates, counts, mixed)
    sizes = (
        ("nodes", f"{n_nodes:,}"),
        ("links per node, by weight", f"{params.degrees.mean():.1f}"),
    )
    return Description(
        verdict, facts, tuple(components), panels, (_nodes_table(params, names),), sizes
    )


def _nodes_table(params: CommunityParams, names: list[str]) -> PageTable:
    """Return the share of every node in every community; the nodes with the most links come
    first.
    """
    shares = params.memberships
    order = np.argsort(-params.degrees, kind="stable")[:_MAX_LISTED]
    cells = [
        [names[node], str(shares[node].argmax()), *(f"{share:.0%}" for share in shares[node])]
        for node in order
    ]
    lead = (
        "The community of each node, and its share in each; the nodes with the most links come "
        "first."
    )
    if len(names) > _MAX_LISTED:
        lead += f" {len(names) - _MAX_LISTED:,} others are left out."
    headings = ["node", "community", *map(str, range(shares.shape[1]))]
    return PageTable(
        "Nodes", lead, headings, cells, np.column_stack([np.zeros(len(order)), shares[order]])
    )


def _selection(params: CommunityParams) -> tuple[str, ...]:
    """Return how the number of communities was selected, and how certain it is, if it was not
    given.
    """
    k = len(params.prior)
    distinguishable = params.distinguishable
    if not distinguishable:
        return ()
    if distinguishable == 1:
        return ("1 was selected: links do not divide the nodes more than chance does.",)
    weakest = f"the weakest by {params.deviations:.0f} standard deviations"
    certain = f"links distinguish {distinguishable} groups from chance, {weakest}"
    if distinguishable == k:
        return (f"{k} were selected: {certain}.",)
    return (
        f"{k} were selected: finer partitions are less likely. They have parts: {certain}. Pass "
        f"n_components={distinguishable} to find these.",
    )


def _verdict(memberships: FloatArray, rates: FloatArray, counts: IndexArray, mixed: float) -> str:
    """Return the number of communities, and how much more often nodes of one are linked than nodes
    of two.
    """
    k = len(rates)
    pairs = np.outer(counts, counts) - np.diag(counts)
    if k == 1:
        return "One community: links do not divide the graph."
    largest = float(counts.max()) / len(memberships)
    if max(mixed, largest) > _ALONE:
        return (
            f"{k} communities that these links do not tell apart: hardly any node belongs to one "
            "of them alone."
        )
    same = np.eye(k, dtype=np.bool_)
    within, between = (
        float((rates * pairs)[part].sum() / max(pairs[part].sum(), 1)) for part in (same, ~same)
    )
    if within < between:
        return f"{k} groups with fewer links within than between."
    times = "over 100" if within > 100 * between else f"{within / between:.1f}"
    return f"{k} communities; links within one are {times} times as frequent as links between two."


@dataclass(frozen=True, eq=False)
class _Memberships:
    """The memberships of all nodes, ordered by community."""

    memberships: FloatArray
    names: list[str]

    @property
    def size(self) -> tuple[float, float]:
        if len(self.names) <= _MAX_TICKS:
            return (max(5.5, 0.16 * len(self.names)), 4.5)
        return (5.5, 4.5)

    def draw(self, axes: Any) -> None:
        shares = self.memberships
        permutation = np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))
        axes.stackplot(np.arange(len(permutation)), shares[permutation].T, step="mid", linewidth=0)
        own = shares[permutation].argmax(axis=1)
        for community in np.unique(own):
            middle = float(np.flatnonzero(own == community).mean())
            axes.annotate(
                str(community),
                (middle, 0.5),
                color="white",
                weight="bold",
                ha="center",
                va="center",
            )
        axes.set(
            xlim=(-0.5, len(permutation) - 0.5),
            ylim=(0, 1),
            ylabel="share",
            title="Communities of nodes",
        )
        if len(self.names) <= _MAX_TICKS:
            names = [self.names[node] for node in permutation]
            axes.set_xticks(
                range(len(names)),
                list(map(shortened, names)),
                rotation=90,
                fontsize=8,
                parse_math=False,
            )
        else:
            axes.set_xlabel("nodes, by community")
