"""Every error and warning class of odeco. Their texts are written where they are raised."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odeco.tensors.components import Components


class ConvergenceWarning(UserWarning):
    """A component was returned whose residual is above the tolerance."""


class DominantColumnWarning(UserWarning):
    """One column outweighs all others, so that components of a stream, or of a model, are hardly
    more than this column.

    Attributes
    ----------
    column : int
        The column, counted from 0.
    name : str or None
        Its name, if it has one.
    share : float
        Its share of the second moment of the rows that were looked at; for a model, its share of
        the variance.
    n_components : int
        How many components were found.
    agreement : float or None
        For a model: how well its components agree with those that do not depend on units; 1 if they
        are the same. Of mixtures it is the adjusted Rand index of the labels, of sources the share
        of the directions that both have.
    """

    def __init__(
        self,
        column: int,
        name: str | None,
        share: float,
        n_components: int,
        agreement: float | None = None,
    ) -> None:
        self.column = column
        self.name = name
        self.share = share
        self.n_components = n_components
        self.agreement = agreement
        called = f"Column {column}" if name is None else f"Column {column}, {name!r},"
        if agreement is not None:
            super().__init__(
                f"{called} outweighs all others: it has {100 * share:.3g} % of the variance of "
                "the rows. The components depend on units: columns of equal variance give others "
                f"(agreement {agreement:.2f} of 1). Drop the column if it is an index or a label, "
                "or pass standardize=True."
            )
            return
        others = "" if n_components == 1 else " The others lean on it too."
        super().__init__(
            f"{called} outweighs all others: it has {100 * share:.3g} % of the second moment of "
            f"the rows, and a component is little else.{others} Components of other columns "
            "cannot be seen beside it. Drop the column if it is an index or a number that means "
            "nothing here, or bring all columns to one scale."
        )

    def called(self, name: str) -> DominantColumnWarning:
        """Return the same warning with a name for the column."""
        return DominantColumnWarning(
            self.column, name, self.share, self.n_components, self.agreement
        )


class MisfitWarning(UserWarning):
    """The moment of a stream is not the sum of the components that were found, which are not
    determined.

    Attributes
    ----------
    mean_share : float
        The share of the second moment of the rows that their mean has, in the rows that were looked
        at.
    """

    def __init__(self, mean_share: float) -> None:
        self.mean_share = mean_share
        mean = (
            f" The mean of the rows has {100 * mean_share:.2g} % of their second moment, and "
            "moments of rows with a mean hold it times their covariance, which is no component. "
            "If it is not part of the signal, subtract it, or pass moment='cumulant'."
        )
        super().__init__(
            "The moment of the rows is not the sum of these components: at combinations of them "
            f"it differs from their sum by more than chance.{mean if mean_share >= 0.01 else ''} "
            "There may be more components: pass a larger n_components, or 'auto'."
        )


class FileFormatError(ValueError):
    """A file is damaged, holds something else, or was written by another version of odeco."""


class RankError(ValueError):
    """The tensor has fewer components than were asked for; those found are in ``found``."""

    def __init__(self, message: str, found: Components) -> None:
        super().__init__(message)
        self.found = found


class NothingFoundError(ValueError):
    """No component is finished yet."""


class StreamEndedError(ValueError):
    """A stream ended before all components were found; those finished are in ``found``, which may
    be None.
    """

    def __init__(self, message: str, found: Components | None = None) -> None:
        super().__init__(message)
        self.found = found


class ClusterError(RuntimeError):
    """A Dask cluster failed: its scheduler is not reachable, its workers died, or they have too
    little memory.
    """


class BadRowError(ValueError):
    """A row is not finite, or too large for its powers to be."""


class SourceError(ValueError):
    """Rows cannot be read, or cannot be used.

    Attributes
    ----------
    path : Path or None
        The file at fault, if the rows come from a file.
    row : int or None
        The row at fault, counted from 0 within that file (or within the array or stream), if it is
        one row.
    """

    def __init__(self, message: str, *, path: Path | None = None, row: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.row = row


class BudgetExhausted(RuntimeError):  # noqa: N818 - the name says what happened, as StopIteration does
    """A query was refused: its release would have exceeded the limit of a ledger. Nothing was
    released.

    Attributes
    ----------
    mu, limit : float
        What the ledger would have come to, and its limit.
    name : {"mu", "delta"}
        Which of the two limits of a ledger it is.
    """

    def __init__(self, mu: float, limit: float, name: str = "mu") -> None:
        decimals = 2
        while f"{mu:.{decimals}f}" == f"{limit:.{decimals}f}" and decimals < 17:
            decimals += 1
        super().__init__(
            f"Budget exhausted: this query would bring {name} to {mu:.{decimals}f}, above the "
            f"limit {limit:.{decimals}f}. Nothing was released."
        )
        self.mu = mu
        self.limit = limit
        self.name = name


class DocumentError(ValueError):
    """A file does not hold the documents that it should hold."""


class VocabularyError(ValueError):
    """No word is left to learn topics from, or the given words do not fit the documents."""


class WordCountError(ValueError):
    """An array that was given as word counts does not hold word counts."""


class NotPrivateWarning(UserWarning):
    """The noise of a private run comes from a seeded source, so that its result is not private."""


class WeakGuaranteeWarning(UserWarning):
    """A private run protects its records so little that an adversary is right above 75 % of the
    time.
    """


class ReusedRecordsWarning(UserWarning):
    """The same records were given to several private runs without a common ledger, so that their
    budgets add up.
    """


class UnreliableTopicsWarning(UserWarning):
    """The documents are too short or too few for this number of topics."""
