"""What was learnt about sequences, as it goes to a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from odeco._util.schema import Rule, Sizes, array, require, usable_array
from odeco._util.types import BoolArray, FloatArray, IndexArray
from odeco.models.engine.latent_model import State
from odeco.models.engine.selection import ChosenNumber
from odeco.models.hmm.baum_welch import HMM
from odeco.models.hmm.emissions import Categorical, Gaussian, distributions

#: What stands for the number of clear directions of a model that is not private.
NOT_PRIVATE = -1


def spreads(*shape: str) -> Rule:
    """Require variances, or covariances with positive eigenvalues, for every state."""
    numbers = usable_array(*shape, None)

    def check(value: Any, where: str, sizes: Sizes) -> None:
        numbers(value, where, sizes)
        n_features, width = value.shape[1:]
        require(width in (1, n_features), f"`{where}` must hold variances or square matrices")
        if width == 1 or n_features == 1:
            positive = bool(np.all(value > 0))
        else:
            symmetric = np.allclose(value, value.transpose(0, 2, 1), rtol=1e-6, atol=0)
            positive = symmetric and bool(np.all(np.linalg.eigvalsh(value) > 0))
        require(positive, f"`{where}` must be positive")

    return check


def features(*shape: str) -> Rule:
    """Require an array of numbers with as many columns as the data has features, or with none."""
    numbers = usable_array(*shape)

    def check(value: Any, where: str, sizes: Sizes) -> None:
        numbers(value, where, sizes)
        require(value.shape[1] in (0, sizes["n_features"]), f"`{where}` must have a column for every feature")

    return check


def chain_rules(k: str) -> dict[str, Rule]:
    """Return the rules of the arrays of a model; `k` is what its number of states is called."""
    symbols, columns = f"{k}: symbols", f"{k}: features"
    return {
        "start": distributions(k),
        "transitions": distributions(k, k),
        "symbols": distributions(k, symbols),
        "means": features(k, columns),
        "covariances": spreads(k, columns),
        "centre": usable_array(columns),
        "spread": usable_array(columns, low=np.finfo(np.float64).tiny),
    }


@dataclass(eq=False)
class ChainState(State):
    """The arrays of a model. Those of the kind of emissions that it has not are empty."""

    start: FloatArray
    transitions: FloatArray
    symbols: FloatArray
    means: FloatArray
    covariances: FloatArray
    centre: FloatArray
    spread: FloatArray

    @property
    def hmm(self) -> HMM:
        """The model."""
        emissions: Categorical | Gaussian = Categorical(self.symbols)
        if self.means.shape[1]:
            emissions = Gaussian(self.means, self.covariances, self.centre, self.spread)
        return HMM(self.start, self.transitions, emissions)


def arrays_of(hmm: HMM | None) -> dict[str, FloatArray]:
    """Return the fields of a `ChainState`; all of them are empty without a model."""
    k = 0 if hmm is None else hmm.n_states
    arrays = {
        "start": np.zeros(0),
        "transitions": np.zeros((0, 0)),
        "symbols": np.zeros((k, 0)),
        "means": np.zeros((k, 0)),
        "covariances": np.zeros((k, 0, 1)),
        "centre": np.zeros(0),
        "spread": np.zeros(0),
    }
    if hmm is None:
        return arrays
    arrays |= {"start": hmm.initial, "transitions": hmm.transitions}
    emissions = hmm.emissions
    if isinstance(emissions, Categorical):
        return arrays | {"symbols": emissions.probabilities}
    return arrays | {
        "means": emissions.means,
        "covariances": emissions.covariances,
        "centre": emissions.origin,
        "spread": emissions.total_variances,
    }


@dataclass(eq=False)
class FittedChain(ChainState):
    """A model, and how it was learnt.

    Attributes
    ----------
    n_rows : int
        Number of rows that it was learnt from; of a private model, number of sequences.
    log_likelihood : float
        Mean log-likelihood of a row before the last step; of a private model, of one in a released triple.
    n_steps : int
        Number of likelihood steps, or of blocks of a stream.
    converged : bool
        Whether the steps ended because they gained little.
    n_clear : int
        Of a private model, how many directions stand clear of noise, k if all do; of others −1.
    tried_numbers, tried_likelihoods, tried_as_good : arrays
        Numbers of states that were tried, the mean log-likelihood of rows that were not learnt from, and whether the
        best is not clearly better.
    names : array of texts
        What symbols are called; empty if they have no names, or if there are none.
    """

    RULES: ClassVar[Mapping[str, Rule]] = {
        **chain_rules("k"),
        "n_rows": array(kind="i", low=0),
        "log_likelihood": array(),
        "n_steps": array(kind="i", low=0),
        "converged": array(kind="b"),
        "n_clear": array(kind="i", low=-1),
        "tried_numbers": array("tried", kind="i", low=1),
        "tried_likelihoods": array("tried"),
        "tried_as_good": array("tried", kind="b"),
        "names": array(None, kind="U"),
    }

    n_rows: int
    log_likelihood: float
    n_steps: int
    converged: bool
    n_clear: int
    tried_numbers: IndexArray
    tried_likelihoods: FloatArray
    tried_as_good: BoolArray
    names: Any

    @classmethod
    def from_arrays(cls, prefix: str, arrays: Mapping[str, Any]) -> Self:
        """Return what `to_arrays` wrote, if it is a model."""
        fitted = super().from_arrays(prefix, arrays)
        require(fitted.start.size > 0, "it must have a state")
        require((fitted.symbols.size > 0) != (fitted.means.size > 0), "it must have symbols or vectors")
        require(fitted.names.size in (0, fitted.symbols.shape[1]), "it must have a name for every symbol")
        return fitted

    @property
    def symbol_names(self) -> list[str]:
        """What symbols are called: their names, or their numbers."""
        return [str(name) for name in (self.names if self.names.size else range(self.symbols.shape[1]))]

    @classmethod
    def of(
        cls,
        hmm: HMM,
        *,
        n_rows: int,
        log_likelihood: float,
        n_steps: int,
        converged: bool,
        n_clear: int = NOT_PRIVATE,
        chosen: ChosenNumber | None = None,
        names: Sequence[str] = (),
    ) -> Self:
        """Return a model with how it was learnt."""
        tried, as_good = ({}, ()) if chosen is None else (chosen.tried, chosen.as_good)
        return cls(
            **arrays_of(hmm),
            n_rows=n_rows,
            log_likelihood=log_likelihood,
            n_steps=n_steps,
            converged=converged,
            n_clear=n_clear,
            tried_numbers=np.array(list(tried), np.int64),
            tried_likelihoods=np.array(list(tried.values()), np.float64),
            tried_as_good=np.array([number in as_good for number in tried], bool),
            names=np.array(names, np.str_),
        )
