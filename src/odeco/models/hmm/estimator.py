"""The estimator of hidden Markov models."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from odeco._util.arguments import check_count
from odeco._util.types import BoolArray, FloatArray, IndexArray
from odeco.models.engine.latent_model import LatentModel, RowStream, State
from odeco.models.hmm.baum_welch import HMM
from odeco.models.hmm.display import check_names, numbered, summary_of
from odeco.models.hmm.learn import learn
from odeco.models.hmm.private import PrivateSequences, learn_privately
from odeco.models.hmm.settings import (
    Settings,
    as_lengths,
    as_symbols,
    check_labels,
    check_lengths,
    check_private,
    check_settings,
)
from odeco.models.hmm.spec import FittedChain
from odeco.models.hmm.stream import SequenceStream
from odeco.privacy.holders.protocol import NeighbourRelation
from odeco.privacy.ledger_file import Guarantee

#: A moment needs three consecutive rows.
_LEAST_ROWS = 3


class TensorHMM(DensityMixin, LatentModel):  # type: ignore[misc]
    """Hidden Markov model by decomposing the moment of three consecutive rows, then by Baum-Welch steps.

    A sequence walks from state to state, and each state emits a row: a symbol, or a vector of normal distribution.
    Given the middle state, three consecutive rows are independent, so the tensor of their moment has a component for
    each state. Baum-Welch steps begin there, and not at a guess.

    Parameters
    ----------
    n_components : int or "auto"
        Number k of states. ``"auto"`` takes the smallest number, at most 30, that predicts rows which were not learnt
        from as well as any. `partial_fit` needs a number.
    emissions : {"auto", "categorical", "gaussian"}
        What states emit: symbols 0, 1, 2, … in one column, or vectors of numbers. ``"auto"`` takes one column of an
        integer type as symbols, and everything else as vectors.
    covariance_type : {"diag", "full"}
        For vectors: whether features are independent within a state, or may depend on each other.
    n_symbols : int, optional
        How many symbols there are; by default those up to the largest that `fit` sees. `partial_fit` needs it.
    n_steps : int
        The most Baum-Welch steps; 0 gives the start itself. Every third step begins where the two before it point to.
    tol : float
        Steps end when one raises the mean log-likelihood of a row by less than this.
    epsilon, delta : float, optional
        With both, the model is private: what `fit` learns is (ε, δ)-differentially private for every sequence. δ must
        be below one over the number of sequences. See *Private models*.
    neighbour_relation : {"replace", "add_remove"}
        For private models: whether the guarantee hides that a sequence is replaced by any other, or that it is there or
        not (blanked; the number of sequences is public). The first needs √2 times the noise.
    ledger : path, optional
        For private models: the file of the budget of all models of these sequences together, made once with
        `odeco.privacy.LedgerFile.create`.
    random_state : int, RandomState instance or None
        Draws the starts of the decomposition and, for vectors, of the cells.

    Attributes
    ----------
    startprob_ : array, k
        The distribution of the first state of a sequence.
    transmat_ : array, k x k
        The distribution of the next state, one row a state.
    emissionprob_ : array, k x symbols
        For symbols: their distribution in each state.
    means_, covars_ : arrays, k x d, and k x d or k x d x d
        For vectors: the mean of each state, and its variances or covariances.
    symbol_names_ : list of str
        For symbols: what they are called, or their numbers.
    stationary_ : array, k
        How much of a long sequence each state has.
    n_components_ : int
        Number of states.
    tried_ : dict of int to float
        With ``n_components="auto"``: the mean log-likelihood of rows that were not learnt from, for the numbers tried.
    n_iter_ : int
        Number of steps that were taken, or of blocks of a stream.
    converged_ : bool
        Whether the steps ended before they were used up. A stream always says so.
    n_rows_ : int
        Number of rows seen; of a private model the number of sequences.
    privacy_ : PrivacyReport
        What a private model guarantees to whom, and the release that was made. Other models do not have it.
    n_features_in_, feature_names_in_
        As in every estimator of scikit-learn.

    Notes
    -----
    States are in the order of `stationary_`, most frequent first; a stream keeps the order of its first block.

    Vectors are first called by the cell that they lie in, of which there are 8 for each state. The moment of cells
    tells states apart even if there are more of them than features, or if only their variances differ.

    Steps begin with twice as many states, from two parts of the rows, which are merged in pairs to k; the better model
    goes on, and once more its states are doubled and merged. So steps seldom end where two states share the work of
    one.

    With fewer symbols than states, or if no sequence has three rows, steps begin at a random model.

    `partial_fit` keeps at most 65,536 rows: it learns a model from the first that many, and then takes a step on every
    8,192 further rows, with sums in which older rows fade slowly. The model depends on the rows and not on where
    batches end. After `fit`, `partial_fit` begins a new stream.

    **Private models.** With `epsilon` and `delta`, all that is learnt from sequences is one noisy table of triples of
    symbols, to which each sequence adds an array of norm 1, whatever it says and however long it is. Neighbours are two
    data sets with the same number of sequences that differ in one. Models are of symbols, at most 100, and `n_symbols`
    is public. A sequence with a symbol that is none counts as blank, without a message. As a table of triples does not
    say where sequences begin, `startprob_` is the distribution of states in the middle of them. `predict` of a sequence
    shows that sequence: only the model is private.

    References
    ----------
    Anandkumar, Ge, Hsu, Kakade, Telgarsky, *Tensor decompositions for learning latent variable models*, 2014,
    arXiv:1210.7559. Cappé, *Online EM algorithm for hidden Markov models*, 2011, arXiv:0908.2359.

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

    _KIND: ClassVar[str] = "hidden Markov model"
    _FITTED: ClassVar[type[State]] = FittedChain
    _STREAM: ClassVar[type[RowStream]] = SequenceStream

    _fitted: FittedChain | None
    _stream: SequenceStream | None

    def __init__(
        self,
        n_components: int | Literal["auto"] = 3,
        *,
        emissions: Literal["auto", "categorical", "gaussian"] = "auto",
        covariance_type: Literal["diag", "full"] = "diag",
        n_symbols: int | None = None,
        n_steps: int = 100,
        tol: float = 1e-6,
        epsilon: float | None = None,
        delta: float | None = None,
        neighbour_relation: NeighbourRelation = "replace",
        ledger: str | os.PathLike[str] | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.emissions = emissions
        self.covariance_type = covariance_type
        self.n_symbols = n_symbols
        self.n_steps = n_steps
        self.tol = tol
        self.epsilon = epsilon
        self.delta = delta
        self.neighbour_relation = neighbour_relation
        self.ledger = ledger
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, lengths: Any = None, symbol_names: Any = None) -> Self:
        """Learn from whole sequences.

        Parameters
        ----------
        X : array, n x d; or symbols, n or n x 1
            The rows of all sequences, one sequence after the other. Symbols are whole numbers from 0, or texts.
        y : object
            Ignored.
        lengths : array of int, optional
            The length of each sequence; by default all rows are one sequence.
        symbol_names : list of str, optional
            What the symbols 0, 1, 2, … are called; by default the texts that occur, in the order of the alphabet.
        """
        settings = self._check_settings()
        guarantee, seed = check_private(self, settings), self._draw_seed()
        names = check_names(symbol_names, settings.n_symbols)
        with self._names_kept_on_failure():
            if guarantee is not None:
                return self._fit_privately(X, y, lengths, names, settings, guarantee, seed)
            rows, n_symbols, names = self._validated_anew(X, names, settings)
            check_labels(y, len(rows))
            fitted = learn(rows, check_lengths(lengths, len(rows)), n_symbols, settings, seed=seed)
            self._take(replace(fitted, names=np.array(names, np.str_)), None, seed)
        return self

    def _fit_privately(
        self, X: Any, y: Any, lengths: Any, names: list[str], settings: Settings, guarantee: Guarantee, seed: int
    ) -> Self:
        """Learn from noisy triples. Nothing that is said here depends on a symbol."""
        if not isinstance(X, np.ndarray) or X.dtype.kind not in "iuf" or X.shape not in ((X.size,), (X.size, 1)):
            raise TypeError(
                "Private symbols must be one column of a NumPy array of numbers. Got another. Convert them."
            )
        column = X.reshape(-1, 1)  # it may be empty: the lengths of sequences are private
        rows = validate_data(self, column, reset=True, ensure_all_finite=False, ensure_min_samples=0)[:, 0]
        check_labels(y, len(rows))
        held = PrivateSequences(rows, as_lengths(lengths, len(rows), least=0), cast("int", settings.n_symbols))
        fitted, privacy = learn_privately(
            held,
            cast("int", settings.n_components),
            guarantee=guarantee,
            neighbour_relation=self.neighbour_relation,
            n_steps=settings.n_steps,
            tolerance=settings.tolerance,
            seed=seed,
        )
        self._take(replace(fitted, names=np.array(names, np.str_)), None, seed, privacy)
        return self

    def partial_fit(
        self, X: Any, y: Any = None, *, lengths: Any = None, goes_on: bool = False, symbol_names: Any = None
    ) -> Self:
        """Learn from one more batch of rows; memory does not grow.

        The model is worked out when it is next asked for. If anything ends the call early, an interrupt included, the
        model is as it was before.

        Parameters
        ----------
        X : array, n x d; or symbols, n or n x 1
            The rows of the batch.
        y : object
            Ignored.
        lengths : array of int, optional
            The length of each sequence within the batch; by default the batch is one sequence.
        goes_on : bool
            Whether the batch goes on with the last sequence of the batch before. By default it begins with a new one.
        symbol_names : list of str, optional
            What the symbols are called; for the first batch, and needed there if symbols are texts.
        """
        settings = check_settings(self, in_batches=True)
        check_private(self, settings, in_batches=True)
        stream = getattr(self, "_stream", None)
        with self._names_kept_on_failure():
            if stream is None:
                names = check_names(symbol_names, settings.n_symbols)
                known = bool(names) or settings.n_symbols is not None
                rows, n_symbols, names = self._validated_anew(X, names, settings)
                if n_symbols and not known:
                    raise ValueError(
                        "`n_symbols` must be given for partial_fit, as later batches may hold symbols that the first "
                        "does not. Got None. Pass how many symbols there are, or symbol_names."
                    )
                seed, k = self._draw_seed(), cast("int", settings.n_components)
                stream = SequenceStream.begin(settings, k, n_symbols, self.n_features_in_, seed, names)
            else:
                if symbol_names is not None and check_names(symbol_names, None) != stream.names.tolist():
                    raise ValueError(
                        "`symbol_names` must be those of the first batch. Got others. Pass them with that batch only."
                    )
                rows = self._validated(X, stream.n_symbols, stream.names.tolist())
            check_labels(y, len(rows))
            begins = check_lengths(lengths, len(rows))
            begins[0] = not goes_on or stream.n_rows == 0
            after = stream.updated(np.column_stack([begins.astype(np.float64), rows]))
            self._take(None, after, after.seed)
        return self

    def predict(self, X: Any, lengths: Any = None) -> IndexArray:
        """Return the states of the most probable path of every sequence (Viterbi)."""
        return self.decode(X, lengths)[1]

    def decode(self, X: Any, lengths: Any = None) -> tuple[float, IndexArray]:
        """Return the logarithm of the probability of rows and path together, and the most probable path."""
        hmm, rows, begins = self._asked(X, lengths)
        path, likelihood = hmm.viterbi(rows, begins)
        return likelihood, path

    def predict_proba(self, X: Any, lengths: Any = None) -> FloatArray:
        """Return the distribution of the state of every row given its whole sequence, n x k."""
        hmm, rows, begins = self._asked(X, lengths)
        return hmm.posterior(rows, begins)

    def score(self, X: Any, y: Any = None, *, lengths: Any = None) -> float:
        """Return the mean log-likelihood of a row; times the number of rows it is what hmmlearn returns.

        A private model refuses: a search over settings calls this, and would choose by the exact sequences that each
        model was made to hide. For sequences that need no protection take the mean of `score_samples`.
        """
        if getattr(self, "_privacy", None) is not None:
            raise ValueError(
                "The score of a private model must not choose between models: it is exact, and no budget pays for it. "
                "Got a call of score. For sequences that need no protection call score_samples."
            )
        hmm, rows, begins = self._asked(X, lengths)
        check_labels(y, len(rows))
        return float(hmm.log_likelihoods(rows, begins).mean())

    def score_samples(self, X: Any, lengths: Any = None) -> FloatArray:
        """Return the log-likelihood of every row given those before it in its sequence."""
        hmm, rows, begins = self._asked(X, lengths)
        return hmm.log_likelihoods(rows, begins)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[Any, IndexArray]:
        """Draw one sequence: return its rows, as `fit` takes them, and its states.

        Without `random_state` that of the model is taken.
        """
        hmm = self._hmm()
        state = self.random_state if random_state is None else random_state
        rng = np.random.default_rng(check_random_state(state).randint(2**31 - 1))
        rows, states = hmm.sample(check_count("n_samples", n_samples), rng)
        return rows[:, None] if rows.ndim == 1 else rows, states

    @property
    def symbol_names_(self) -> list[str]:
        """What the symbols 0, 1, 2, … are called; their numbers, if they have no names."""
        fitted = self._learnt("symbol_names_")
        if not fitted.symbols.shape[1]:
            raise AttributeError("`symbol_names_` is what a model of symbols has. This TensorHMM has vectors.")
        return cast("FittedChain", fitted).symbol_names

    def summary(self) -> str:
        """Return a short text: a verdict, and what each state is."""
        return summary_of(self._learnt("summary"), self._feature_names())

    def plot(self) -> Any:
        """Return a Matplotlib figure of the moves between states, and of what states emit."""
        from odeco.models.hmm.display import picture_of  # Matplotlib takes a second, and may be missing

        fitted = self._learnt("plot")
        return picture_of(fitted.hmm, self._feature_names(), fitted.symbol_names)

    @property
    def startprob_(self) -> FloatArray:
        """The distribution of the first state of a sequence."""
        return cast("FloatArray", self._learnt("startprob_").start)

    @property
    def transmat_(self) -> FloatArray:
        """The distribution of the next state, one row a state."""
        return cast("FloatArray", self._learnt("transmat_").transitions)

    @property
    def emissionprob_(self) -> FloatArray:
        """The distribution of symbols in each state."""
        symbols = self._learnt("emissionprob_").symbols
        if not symbols.shape[1]:
            raise AttributeError("`emissionprob_` is what a model of symbols has. This TensorHMM has vectors.")
        return cast("FloatArray", symbols)

    @property
    def means_(self) -> FloatArray:
        """The mean of each state."""
        return self._vectors("means_").means

    @property
    def covars_(self) -> FloatArray:
        """The variances of each state, or its covariances."""
        covariances = self._vectors("covars_").covariances
        flat = covariances.shape[2] == 1 and self.covariance_type == "diag"
        return covariances[:, :, 0] if flat else covariances

    @property
    def stationary_(self) -> FloatArray:
        """How much of a long sequence each state has."""
        return cast("FloatArray", self._learnt("stationary_").hmm.stationary)

    @property
    def n_components_(self) -> int:
        """Number of states."""
        return int(self._learnt("n_components_").start.size)

    @property
    def tried_(self) -> dict[int, float]:
        """Mean log-likelihood of rows that were not learnt from, by the number of states."""
        fitted = self._learnt("tried_")
        return dict(zip(fitted.tried_numbers.tolist(), fitted.tried_likelihoods.tolist(), strict=True))

    @property
    def n_iter_(self) -> int:
        """Number of steps."""
        return int(self._learnt("n_iter_").n_steps)

    @property
    def converged_(self) -> bool:
        """Whether the steps ended before they were used up."""
        return bool(self._learnt("converged_").converged)

    @property
    def n_rows_(self) -> int:
        """Number of rows seen."""
        return int(self._learnt("n_rows_").n_rows)

    def _check_settings(self) -> Settings:
        return check_settings(self)

    def _fitted_from_stream(self) -> FittedChain:
        stream = cast("SequenceStream", self._stream)
        if stream.n_rows < _LEAST_ROWS:
            raise ValueError(
                f"A model needs at least {_LEAST_ROWS} rows. Got {stream.n_rows} so far. Call partial_fit with more."
            )
        return stream.fitted()

    def _vectors(self, name: str) -> FittedChain:
        fitted = cast("FittedChain", self._learnt(name))
        if not fitted.means.shape[1]:
            raise AttributeError(f"`{name}` is what a model of vectors has. This TensorHMM has symbols.")
        return fitted

    def _hmm(self) -> HMM:
        check_is_fitted(self)
        return cast("FittedChain", self._learnt("hmm")).hmm

    def _asked(self, X: Any, lengths: Any) -> tuple[HMM, Any, BoolArray]:
        """Return the model, and the rows and beginnings of sequences that it is asked about."""
        check_is_fitted(self)
        fitted = cast("FittedChain", self._learnt("hmm"))
        rows = self._validated(X, fitted.symbols.shape[1], fitted.names.tolist())
        return fitted.hmm, rows, check_lengths(lengths, len(rows))

    def _validated_anew(self, X: Any, names: list[str], settings: Settings) -> tuple[Any, int, list[str]]:
        """Return rows that a new model is learnt from, the number of symbols, which is 0 for vectors, and names."""
        if names or settings.emissions != "gaussian":
            X, names = numbered(X, names)
        checked = validate_data(self, _column(X), reset=True, dtype="numeric", ensure_min_samples=_LEAST_ROWS)
        kind = settings.emissions
        if kind == "auto":
            kind = "categorical" if checked.dtype.kind in "iu" and checked.shape[1] == 1 else "gaussian"
        if kind == "categorical":
            symbols, n_symbols = as_symbols(checked, len(names) or settings.n_symbols)
            return symbols, max(n_symbols, settings.n_symbols or 0), names
        if names:
            raise ValueError(
                "`symbol_names` is for symbols. Got rows that are taken as vectors. Leave it out, or pass "
                "emissions='categorical'."
            )
        if settings.n_symbols is not None:
            raise ValueError(
                f"`n_symbols` is for symbols. Got n_symbols={settings.n_symbols} and rows that are taken as vectors. "
                "Leave it out, or pass emissions='categorical'."
            )
        return checked.astype(np.float64, copy=False), 0, []

    def _validated(self, X: Any, n_symbols: int, names: list[str]) -> Any:
        """Return rows of the kind that the model knows."""
        if names:
            X = numbered(X, names)[0]
        checked = validate_data(self, _column(X) if n_symbols else X, reset=False, dtype="numeric")
        return as_symbols(checked, n_symbols)[0] if n_symbols else checked.astype(np.float64, copy=False)

    def _feature_names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        return [f"x{place}" for place in range(self.n_features_in_)] if names is None else [str(each) for each in names]


def _column(X: Any) -> Any:
    """Return whole numbers without columns as one column of symbols, and everything else as it is."""
    if isinstance(X, np.ndarray | list | tuple):
        array = np.asarray(X)
        if array.ndim == 1 and array.dtype.kind in "iu":
            return array[:, None]
    return X
