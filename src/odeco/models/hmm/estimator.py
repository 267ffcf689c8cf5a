"""The estimator of hidden Markov models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data

from odeco._util.arguments import as_random_state, check_count, check_unmasked
from odeco._util.types import FloatArray, IndexArray
from odeco.io.coerce import in_memory
from odeco.io.rows import as_weights
from odeco.io.source import check_cells
from odeco.models.engine.agreement import Records
from odeco.models.engine.estimator import EMEstimator
from odeco.models.engine.fit import Fit, fitted
from odeco.models.engine.parameters import (
    Constraint,
    choice,
    count,
    n_components,
    number,
    optional,
    param,
)
from odeco.models.engine.private_estimator import PrivateEstimator
from odeco.models.engine.rows import has_missing, warn_of_few_rows
from odeco.models.hmm.baum_welch import HMM
from odeco.models.hmm.emissions import Categorical, Gaussian, Poisson
from odeco.models.hmm.sequences import (
    MAX_SYMBOLS,
    Sequences,
    as_column,
    as_counts,
    as_lengths,
    as_symbols,
    as_vectors,
    begins_of,
    check_codes,
    check_labels,
    check_mask,
    check_names,
    encode_texts,
)
from odeco.models.hmm.spec import MIN_ROWS, HMMContext, HMMSpec
from odeco.privacy.holders.sequences import PrivateSequences


def _of_symbols(fit: Fit, name: str) -> Fit:
    if not isinstance(fit.params.emissions, Categorical):
        raise AttributeError(
            f"Only a model of symbols has `{name}`. This TensorHMM has vectors or counts."
        )
    return fit


def _gaussian(fit: Fit, name: str) -> Gaussian:
    if not isinstance(fit.params.emissions, Gaussian):
        raise AttributeError(
            f"Only a model of vectors has `{name}`. This TensorHMM has symbols or counts."
        )
    return fit.params.emissions


def _poisson(fit: Fit, name: str) -> Poisson:
    if not isinstance(fit.params.emissions, Poisson):
        raise AttributeError(f"Only a model of counts has `{name}`. This TensorHMM has no counts.")
    return fit.params.emissions


#: For the check on halves, sequences are cut into stretches of at most this many rows, and a long
#: one into this many at least; about so many rows are used.
_STRETCH, _FEWEST_STRETCHES, _CHECKED_ROWS = 1_000, 20, 20_000


@dataclass(eq=False, repr=False)
class TensorHMM(PrivateEstimator, EMEstimator):
    """Hidden Markov model, started by decomposing the moment of three consecutive rows and refined
    by Baum-Welch.

    A sequence moves from state to state, and each state emits a row: a symbol, or a Gaussian
    vector. Given the middle state, three consecutive rows are independent, so the tensor of their
    moments has one component per state. Baum-Welch starts there, and not at random.

    Parameters
    ----------
    n_components : int or "auto"
        Number k of states. ``"auto"`` takes the smallest number, at most 30, that none of the next
        three beats: for each further parameter, the log-likelihood must rise by 1.5 on the rows and
        by 0.25 in five-fold cross-validation, which holds out whole sequences, or stretches of few.
        The first 32,768 rows are used for it.
    emissions : {"auto", "categorical", "gaussian", "poisson"}
        What states emit: symbols 0, 1, 2, … in one column, vectors of numbers, or counts.
        ``"auto"`` takes one column of an integer type as symbols if all numbers from 0 to the
        largest occur, and asks otherwise; everything else is taken as vectors.
    covariance_type : {"diag", "full"}
        For vectors: whether features are independent within a state, or may be correlated.
    n_symbols : int, optional
        Number of symbols; by default one more than the largest that `fit` sees. `partial_fit` needs
        it.
    max_iter : int
        The largest number of Baum-Welch iterations; 0 gives the start itself. Every third iteration
        starts where the two before it point to (SQUAREM).
    transition_mask : array of bool, k x k, optional
        Which transitions are allowed; from every state at least one must be. All others stay zero.
        States then have the places of the rows of the mask, and not the order of `state_shares_`;
        `n_components` must be given.
    tol : float
        Baum-Welch ends when an iteration raises the mean log-likelihood of a row by less than this.
    epsilon, delta : float, optional
        With both, the model is private: the result of `fit` is (ε, δ)-differentially private for
        every sequence. δ must be below one over the number of sequences. See *Private models*.
    neighbour_relation : {"replace", "add_remove"}
        For private models: whether the guarantee hides that a sequence is replaced by any other, or
        that it is there or not (blanked; the number of sequences is public). The first needs √2
        times the noise.
    ledger : path, optional
        For private models: the file of the budget of all models of these sequences together, made
        once with `odeco.privacy.LedgerFile.create`.
    random_state : int, RandomState instance or None
        Draws the starts, and what `sample` draws.

    Attributes
    ----------
    startprob_ : array, k
        The distribution of the first state of a sequence.
    transmat_ : array, k x k
        The transition matrix: row i is the distribution of the state after state i.
    emissionprob_ : array, k x symbols
        For symbols: their distribution in each state.
    means_, covars_ : arrays, k x d, and k x d or k x d x d
        For vectors: the mean of each state, and its variances or covariances.
    rates_ : array, k x d
        For counts: the rate of each column in each state.
    symbol_names_ : list of str
        For symbols: their names, or their numbers.
    state_shares_ : array, k
        The share of the rows that each state has: what `summary` prints.
    stationary_ : array, k
        The stationary distribution: the share of each state in a long sequence. Of many short
        sequences it is not the share of the rows.
    n_components_ : int
        Number of states.
    selection_scores_ : dict of int to float
        With ``n_components="auto"``: the mean log-likelihood of held-out rows, for each number that
        was cross-validated.
    n_iter_ : int
        Number of iterations; of a stream, number of blocks.
    converged_ : bool
        Whether the last iteration gained less than `tol`. Of private models: whether all states
        stand clear of noise.
    n_samples_seen_ : int
        Number of rows seen; of a private model, number of sequences.
    privacy_ : PrivacyReport
        The guarantee of a private model, with the release that was made. Other models do not have
        it.
    n_features_in_, feature_names_in_
        As in every estimator of scikit-learn.

    Notes
    -----
    States are in the order of `state_shares_`, most frequent first, unless a mask gives their
    places. Recursions take a forbidden transition for one of probability 10⁻⁶⁰, so that a sequence
    with rows that no allowed path explains has a likelihood, though a very low one.

    Vectors are first quantised to 8 centres per state. The moment of the quantised rows identifies
    states even if there are more of them than features, or if only their variances differ.

    A start has twice as many states, which are merged in pairs to k. There are two starts, from two
    parts of the rows; the likelier model goes on, and once more its states are split and merged. So
    Baum-Welch seldom ends where two states share the role of one. With fewer symbols than states,
    or if no sequence has three rows, a start is random.

    `partial_fit` starts from the first 65,536 rows; each 8,192 that follow take one step of online
    EM, in which older rows are slowly forgotten, and no row is stored longer than that. Fewer rows
    give exactly what `fit` gives. The result depends on the rows and their order, and not on how
    they are cut into batches. After `fit`, `partial_fit` begins a new stream.

    **Missing values**, single columns or whole rows, are NaN, None, nulls of tables and empty cells
    of files; they must be missing at random. The likelihood of a row is that of its observed
    columns, and 1 if there are none. So rows of NaN after the last one forecast its states.

    Changing the unit of a column does not change states: rows are
    brought to one scale where distances count, and every column has its own variance.

    **Private models.** With `epsilon` and `delta`, all that is learnt from sequences is one noisy
    table of triples of symbols, to which each sequence adds an array of norm 1 or zeros, whatever
    it contains and however long it is. Neighbours are two data sets with the same number of
    sequences that differ in one. Models are of symbols, at most 100, and `n_symbols` is public. A
    sequence with a number that is not a symbol counts as blank, without a message, and so does one
    of length 0. As a table of triples does not show where sequences begin, `startprob_` is the
    distribution of states within them. `plan_hmm` says beforehand what can be expected. The
    prediction for a sequence reveals that sequence: only the model is private.

    References
    ----------
    Anandkumar, Ge, Hsu, Kakade, Telgarsky, *Tensor decompositions for learning latent variable
    models*, 2014, arXiv:1210.7559. Rabiner, *A tutorial on hidden Markov models*, 1989. Cappé,
    *Online EM algorithm for hidden Markov models*, 2011, arXiv:0908.2359.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.models import TensorHMM
    >>> rng = np.random.default_rng(0)
    >>> states = np.repeat(rng.integers(2, size=100), 20)
    >>> model = TensorHMM(2, random_state=0).fit(rng.integers(3, size=2000) + 2 * states)
    >>> model.emissionprob_.round(1)
    array([[0. , 0. , 0.3, 0.3, 0.3],
           [0.3, 0.3, 0.3, 0. , 0. ]])
    >>> model.predict([0, 1, 0, 4, 3, 4])
    array([1, 1, 1, 0, 0, 0])
    """

    n_components: int | Literal["auto"] = n_components(3)
    emissions: Literal["auto", "categorical", "gaussian", "poisson"] = param(
        "auto", choice("auto", "categorical", "gaussian", "poisson")
    )
    covariance_type: Literal["diag", "full"] = param(
        "diag",
        choice("diag", "full"),
        "For numbers: whether columns are independent within a state.",
        option="--covariance",
    )
    n_symbols: int | None = param(None, optional(count(1, MAX_SYMBOLS)))
    max_iter: int = param(100, count(0), "The largest number of Baum-Welch iterations.")
    transition_mask: Any = param(None, optional(Constraint(check_mask)))
    tol: float = param(1e-6, number(), "Baum-Welch ends when an iteration gains less.")

    _SPEC: ClassVar = HMMSpec
    _KIND: ClassVar = "hidden Markov model"

    startprob_ = fitted("params.initial", "The distribution of the first state of a sequence.")
    transmat_ = fitted(
        lambda fit: np.where(fit.params.forbidden, 0.0, fit.params.transitions),
        "The distribution of the next state, one row per state.",
    )
    stationary_ = fitted("params.stationary", "The share of each state in a long sequence.")
    state_shares_ = fitted("params.row_shares", "The share of the rows that each state has.")
    n_components_ = fitted("params.n_states", "Number of states.")
    emissionprob_ = fitted(
        lambda fit: _of_symbols(fit, "emissionprob_").params.emissions.probabilities,
        "The distribution of symbols in each state.",
    )
    symbol_names_ = fitted(
        lambda fit: _of_symbols(fit, "symbol_names_").context.symbol_names,
        "The names of the symbols, or their numbers.",
    )
    rates_ = fitted(
        lambda fit: _poisson(fit, "rates_").means, "The rate of each column in each state."
    )
    means_ = fitted(lambda fit: _gaussian(fit, "means_").means, "The mean of each state.")

    @property
    def covars_(self) -> FloatArray:
        """The variances of each state, or its covariances."""
        emissions = _gaussian(self._fit_for("covars_"), "covars_")
        one_feature = self._learnt.spec.settings.covariance_type == "full" and not emissions.full
        return emissions.covariances[:, :, None] if one_feature else emissions.covariances

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        lengths: Any = None,
        symbol_names: Any = None,
        groups: Any = None,
    ) -> Self:
        """Learn from whole sequences.

        Parameters
        ----------
        X : array, n x d; or symbols, n or n x 1
            The rows of all sequences, one sequence after the other. Symbols are whole numbers from
            0, or texts. NaN is a missing value, and so is None among texts.
        y : object
            Ignored.
        sample_weight : array of float, optional
            How often each sequence counts: one number for each sequence, or one for each row, the
            same for all rows of a sequence. By default each counts once. A sequence of weight 0 is
            left out, and symbols that no other has are not learnt. A private model refuses weights.
        lengths : array of int, optional
            The length of each sequence, or texts, the name of the sequence of each row; by default
            all rows are one sequence.
        symbol_names : list of str, optional
            The names of the symbols 0, 1, 2, …; by default the texts that occur, in alphabetical
            order.
        groups : array of labels, optional
            For private models: which user each sequence belongs to; public. The guarantee is then
            for all sequences of one user, and every user counts once, with the mean over own
            sequences.
        """
        return self._fit(
            X, sample_weight, y=y, lengths=lengths, symbol_names=symbol_names, groups=groups
        )

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        lengths: Any = None,
        goes_on: bool = False,
        symbol_names: Any = None,
    ) -> Self:
        """Update the model with another batch, in one pass; memory does not grow.

        The model is computed when it is next needed. If anything ends the call early, an interrupt
        included, the model is as it was before. The settings of the first call hold for the whole
        stream.

        Parameters
        ----------
        X : array, n x d; or symbols, n or n x 1
            The rows of the batch.
        y : object
            Ignored.
        sample_weight : array of float, optional
            How often each sequence of the batch counts, as for `fit`. In a stream with weights no
            sequence goes on in another batch.
        lengths : array of int, optional
            The length of each sequence within the batch; by default the batch is one sequence.
        goes_on : bool
            Whether the batch continues the last sequence of the batch before. By default it begins
            with a new one.
        symbol_names : list of str, optional
            The names of the symbols; for the first batch, and needed there if symbols are texts.
        """
        stream = vars(self)["_learnt"].stream if self.__sklearn_is_fitted__() else None
        if goes_on and (sample_weight is not None or (stream is not None and stream.is_weighted)):
            raise ValueError(
                "`goes_on` must be False in a stream with weights: a weight is that of a whole "
                "sequence. Got goes_on=True. Pass whole sequences, or leave `sample_weight` out."
            )
        side: Any = {
            "lengths": lengths,
            "symbol_names": symbol_names,
            "goes_on": goes_on,
            "in_batches": True,
        }
        return self._partial_fit(X, sample_weight, y=y, **side)

    def fit_predict(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, lengths: Any = None
    ) -> IndexArray:
        """Fit the model to sequences, and return the most probable path of each."""
        return self.fit(X, y, sample_weight, lengths=lengths).predict(X, lengths)

    def predict(self, X: Any, lengths: Any = None) -> IndexArray:
        """Return the states of the most probable path of each sequence (Viterbi)."""
        return self.decode(X, lengths)[1]

    def decode(self, X: Any, lengths: Any = None) -> tuple[float, IndexArray]:
        """Return the log-probability of rows and the most probable path together, and that path."""
        hmm, data = self._model_and_data(X, lengths)
        path, likelihood = hmm.viterbi(data.rows, data.begins)
        return likelihood, path

    def predict_proba(self, X: Any, lengths: Any = None) -> FloatArray:
        """Return the distribution of the state of each row given its whole sequence, n x k."""
        hmm, data = self._model_and_data(X, lengths)
        return hmm.posterior(data.rows, data.begins)

    def score_samples(self, X: Any, lengths: Any = None) -> FloatArray:
        """Return the log-likelihood of each row given those before it in its sequence."""
        hmm, data = self._model_and_data(X, lengths)
        return hmm.log_likelihoods(data.rows, data.begins)

    def score(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, lengths: Any = None
    ) -> float:
        """Return the mean log-likelihood of a row; times the number of rows it is what hmmlearn
        returns.

        A row counts by the weight of its sequence, `sample_weight` as for `fit`.

        A private model refuses, and so do `bic` and `aic`: a search over settings calls them, and
        would choose by the exact sequences that each model was made to hide. For sequences that
        need no protection take the mean of `score_samples`.
        """
        total, n = self._log_likelihood("score", X, sample_weight, lengths=lengths)
        if y is not None:
            check_labels(y, _num_samples(in_memory(X)))
        return total / n

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[Any, IndexArray]:
        """Draw one sequence: return its rows, as `fit` takes them, and its states.

        Each call draws another one, unless `random_state` repeats a draw.
        """
        check_is_fitted(self)
        rng = np.random.default_rng(as_random_state(random_state).randint(2**31 - 1))
        rows, states = self._learnt.fit.params.sample(check_count("n_samples", n_samples), rng)
        return rows[:, None] if rows.ndim == 1 else rows, states

    def _model_and_data(self, X: Any, lengths: Any) -> tuple[HMM, Sequences]:
        check_is_fitted(self)
        fit = self._learnt.fit
        rows, _ = self._encode(X, fit.context, lengths=lengths)
        return fit.params, self._learnt.spec.prepare(rows, fit.context)

    def _weigh(
        self, X: Any, sample_weight: Any, side: dict[str, Any]
    ) -> tuple[Any, FloatArray | None, dict[str, Any]]:
        """Return the rows of sequences that count, the weight of each row, and `side` with their
        lengths.
        """
        if sample_weight is None:
            return X, None, side
        X = in_memory(X, nulls_are_nan=True)
        n_rows, shape = _num_samples(X), np.asarray(sample_weight).shape
        lengths = as_lengths(side.get("lengths"), n_rows, low=1)
        if shape == (n_rows,):
            rows = as_weights(sample_weight, n_rows)
            weights = rows[np.append(0, np.cumsum(lengths)[:-1])]
            if not np.array_equal(rows, np.repeat(weights, lengths)):
                raise ValueError(
                    "`sample_weight` must be the same for all rows of a sequence, which counts "
                    f"as a whole. Got different weights within one of {len(lengths):,} sequences. "
                    "Pass one weight for each sequence, and the `lengths` of sequences."
                )
        else:
            weights = as_weights(sample_weight, len(lengths), "sequence")
        of_rows, kept = np.repeat(weights, lengths), weights > 0
        warn_of_few_rows(of_rows)
        if kept.all():
            return X, of_rows, side
        side = {name: value for name, value in side.items() if name != "y"} | {
            "lengths": lengths[kept]
        }
        return _safe_indexing(X, np.flatnonzero(of_rows)), of_rows[of_rows > 0], side

    def _records(
        self,
        X: Any,
        sample_weight: Any = None,
        lengths: Any = None,
        symbol_names: Any = None,
        **_: Any,
    ) -> Records:
        """Return sequences, cut into stretches where they are long, as halves are made of whole
        ones.
        """
        X = in_memory(X, nulls_are_nan=True)
        own_lengths = as_lengths(lengths, _num_samples(X), low=1)
        longest = max(min(_STRETCH, int(own_lengths.sum()) // _FEWEST_STRETCHES), MIN_ROWS)
        starts = np.append(0, np.cumsum(own_lengths)[:-1])
        pieces = [
            np.arange(start, min(start + longest, first + length))
            for first, length in zip(starts.tolist(), own_lengths.tolist(), strict=True)
            for start in range(first, first + length, longest)
        ]
        names = symbol_names or self._learnt.fit.context.names.tolist() or None

        def take(places: IndexArray) -> tuple[Any, dict[str, Any]]:
            chosen = [pieces[place] for place in places]
            side: dict[str, Any] = {
                "lengths": np.array([len(each) for each in chosen]),
                "symbol_names": names,
            }
            if sample_weight is not None:
                given = np.asarray(sample_weight)
                by_row = (
                    given if given.shape == (_num_samples(X),) else np.repeat(given, own_lengths)
                )
                side["sample_weight"] = by_row[[each[0] for each in chosen]]
            return _safe_indexing(X, np.concatenate(chosen)), side

        mean_length = sum(map(len, pieces)) / len(pieces)
        return Records(
            len(pieces), take, most=max(int(_CHECKED_ROWS / mean_length), _FEWEST_STRETCHES)
        )

    def _parameters_of_halves(self) -> dict[str, Any]:
        context = self._learnt.fit.context
        if not context.n_symbols:
            return super()._parameters_of_halves() | {
                "emissions": "poisson" if context.counts else "gaussian"
            }
        n_symbols = None if context.names.size else context.n_symbols
        return super()._parameters_of_halves() | {
            "emissions": "categorical",
            "n_symbols": n_symbols,
        }

    def _signature(self, X: Any, lengths: Any = None, **_: Any) -> IndexArray:
        return np.asarray(self.predict_proba(X, lengths).argmax(axis=1))

    def _rows_to_show(self, rows: Any, lengths: Any) -> Sequences | None:
        return None if rows is None else self._model_and_data(rows, lengths)[1]

    def _encode(
        self,
        X: Any,
        context: HMMContext | None = None,
        *,
        y: Any = None,
        lengths: Any = None,
        symbol_names: Any = None,
        goes_on: bool = False,
        in_batches: bool = False,
    ) -> tuple[Any, HMMContext]:
        """Return rows with a first column that says which of them begin a sequence, and what rows
        are.
        """
        first = context is None
        if context is None:
            rows, context = self._encode_first(X, symbol_names, in_batches=in_batches)
            if self.transition_mask is not None:
                mask = check_mask("transition_mask", self.transition_mask)
                if self.n_components != len(mask):
                    raise ValueError(
                        "`transition_mask` must have a row and a column for each state. Got "
                        f"{len(mask)} of each and n_components={self.n_components!r}. Pass "
                        f"n_components={len(mask)}."
                    )
                context = replace(context, mask=mask)
        else:
            X = in_memory(X, nulls_are_nan=True)
            check_cells(X)
            names = context.names.tolist()
            if symbol_names is not None and check_names(symbol_names, None) != names:
                raise ValueError(
                    "`symbol_names` must be those of the first batch. Got others. Pass them with "
                    "that batch only."
                )
            column = X
            if names:
                column = encode_texts(X, names)[0]
            if context.n_symbols:
                column = as_column(column)
            checked = self._checked(column, reset=False, dtype="numeric")
            if context.n_symbols:
                rows = as_symbols(checked, context.n_symbols)[0][:, None]
            else:
                rows = as_counts(checked) if context.counts else as_vectors(checked)
        check_labels(y, len(rows))
        begins = begins_of(lengths, len(rows))
        begins[0] = first or not goes_on
        return np.column_stack([begins.astype(np.float64), rows]), context

    def _encode_first(
        self, X: Any, symbol_names: Any, *, in_batches: bool
    ) -> tuple[Any, HMMContext]:
        """Return the first rows of a model, and what they are."""
        X = in_memory(X, nulls_are_nan=True)
        check_cells(X)
        names, kind, given = check_names(symbol_names, self.n_symbols), self.emissions, X
        known = bool(names) or self.n_symbols is not None
        if names or kind != "gaussian":
            X, names = encode_texts(X, names)
        checked = self._checked(as_column(X), reset=True, dtype="numeric")
        if kind == "auto":
            alone = checked[:, 0] if checked.shape[1] == 1 else None
            is_code = alone is not None and (X is not given or alone.dtype.kind in "iu")
            kind = "categorical" if is_code else "gaussian"
            # Whole numbers, some of which are missing, come as floats.
            is_whole = alone is not None and has_missing(alone) and not np.any(np.mod(alone, 1) > 0)
            if (is_code or is_whole) and not known and not names:
                check_codes(alone)
        if kind == "categorical":
            symbols, n_symbols = as_symbols(checked, len(names) or self.n_symbols)
            if in_batches and not known:
                raise ValueError(
                    "`n_symbols` must be given for partial_fit, as later batches may hold symbols "
                    "that the first does not. Got None. Pass the number of symbols, or "
                    "symbol_names."
                )
            return symbols[:, None], HMMContext(
                max(n_symbols, self.n_symbols or 0), np.array(names, np.str_)
            )
        for name, value in (("symbol_names", names or None), ("n_symbols", self.n_symbols)):
            if value is not None:
                raise ValueError(
                    f"`{name}` is for symbols. Got {name}={value} and rows that are taken as "
                    "vectors. Leave it out, or pass emissions='categorical'."
                )
        if kind == "poisson":
            return as_counts(checked), HMMContext(0, counts=True)
        return as_vectors(checked), HMMContext(0)

    def _hold(
        self,
        X: Any,
        spec: HMMSpec,
        *,
        y: Any = None,
        lengths: Any = None,
        symbol_names: Any = None,
        groups: Any = None,
    ) -> tuple[PrivateSequences, HMMContext]:
        """Return a holder of private sequences, without a message that depends on a symbol or a
        length.
        """
        n_symbols = int(spec.settings.n_symbols or 0)
        check_unmasked(X, "array X")
        names = check_names(symbol_names, n_symbols)
        if (
            not isinstance(X, np.ndarray)
            or X.dtype.kind not in "iuf"
            or X.shape not in ((X.size,), (X.size, 1))
        ):
            raise TypeError(
                "Private symbols must be one column of a NumPy array of numbers. Got another. "
                "Convert them."
            )
        column = X.reshape(-1, 1)  # it may be empty: the lengths of sequences are private
        rows = validate_data(
            self, column, reset=True, ensure_all_finite=False, ensure_min_samples=0
        )[:, 0]
        check_labels(y, len(rows))
        held = PrivateSequences(rows, as_lengths(lengths, len(rows), low=0), n_symbols, groups)
        return held, HMMContext(n_symbols, np.array(names, np.str_))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "density_estimator"  # DensityMixin would replace `score`
        tags.input_tags.allow_nan = True
        return tags
