"""Data for tests, benchmarks and experiments: tensors and topics that are planted, and corpora of
Python's own library.

Components of a planted problem are known. The documentation and the code of the standard library
are real corpora that every Python installation has.
"""

from __future__ import annotations

import ast
import io
import sysconfig
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
from scipy import sparse

from odeco._util.arguments import as_generator, check_choice, check_count, check_n_components
from odeco._util.types import FloatArray, RngLike
from odeco.power.operator_norm import operator_norm
from odeco.tensors.components import Components
from odeco.tensors.dense import DenseTensor, symmetrize
from odeco.tensors.oracle import Oracle

__all__ = [
    "Document",
    "appendix_a",
    "gaussian_noise",
    "planted_independent",
    "planted_orthogonal",
    "python_code",
    "python_documentation",
]

#: Weights of the rank-3 tensor of the paper's Appendix A.
APPENDIX_A_WEIGHTS = (1.0, 0.75, 0.5)

NoiseModel = Literal["gaussian", "adversarial", "weakly correlated"]


def planted_orthogonal(
    dimension: int, n_components: int, *, order: int = 3, weights: Any = None, rng: RngLike = None
) -> Components:
    """Return components with uniformly random orthonormal vectors.

    Parameters
    ----------
    dimension, n_components : int
        The dimension d, and the number k of components.
    order : int
        The order p of the tensor.
    weights : array of k numbers, optional
        The weights; by default they fall evenly from 2 to 1.
    rng : None, int or numpy.random.Generator
        Draws the vectors.

    Examples
    --------
    >>> from odeco.datasets import planted_orthogonal
    >>> planted_orthogonal(10, 3, rng=0).weights
    array([2. , 1.5, 1. ])
    """
    k = check_n_components(n_components, dimension)
    generator = as_generator(rng)
    vectors = np.linalg.qr(generator.standard_normal((dimension, k)))[0]
    return Components(np.linspace(2, 1, k) if weights is None else weights, vectors, order)


def planted_independent(
    dimension: int,
    n_components: int,
    *,
    order: int = 3,
    coherence: float = 0.3,
    weights: Any = None,
    rng: RngLike = None,
) -> Components:
    """Return linearly independent components, any two of which have about the same cosine.

    Parameters
    ----------
    dimension, n_components : int
        The dimension d, and the number k of components.
    order : int
        The order p of the tensor.
    coherence : float
        The cosine of two components, about.
    weights : array of k numbers, optional
        The weights; by default they fall evenly from 2 to 1.
    rng : None, int or numpy.random.Generator
        Draws the vectors.
    """
    basis = planted_orthogonal(dimension, n_components, order=order, weights=weights, rng=rng)
    common = np.sum(basis.vectors, axis=1, keepdims=True) / np.sqrt(n_components)
    vectors = np.sqrt(1 - coherence) * basis.vectors + np.sqrt(coherence) * common
    return Components(basis.weights, vectors / np.linalg.norm(vectors, axis=0), order)


def gaussian_noise(dimension: int, *, order: int = 3, rng: RngLike = None) -> DenseTensor:
    """Return a symmetrised array of independent standard normal entries (Appendix A, model 1).

    Parameters
    ----------
    dimension : int
        The size of each axis.
    order : int
        Number of axes.
    rng : None, int or numpy.random.Generator
        Seeds what is drawn.
    """
    check_count("dimension", dimension)
    return DenseTensor(symmetrize(as_generator(rng).standard_normal((dimension,) * order)))


@final
class AdversarialNoise(Oracle):
    """The noise Σᵢ v⊗eᵢ⊗eᵢ + eᵢ⊗v⊗eᵢ + eᵢ⊗eᵢ⊗v, which pulls every image towards one vector v
    (Appendix A, model 2).

    The image of u is E(I, u, u) = ‖u‖² v + 2 ⟨v, u⟩ u, which takes O(d) operations. For a unit
    vector v the operator norm is 3, and it is reached at v.

    Parameters
    ----------
    vector : array of d numbers
        The vector v.
    """

    order = 3

    def __init__(self, vector: Any) -> None:
        self.vector: FloatArray = np.array(vector, dtype=np.float64)
        self.dimension = self.vector.size

    def squared_norm(self) -> float:
        """Return 3d + 6, for a unit vector v."""
        return float(3 * self.dimension + 6) * float(self.vector @ self.vector)

    def _image(self, block: FloatArray) -> FloatArray:
        return np.outer(self.vector, np.sum(block**2, axis=0)) + 2 * (self.vector @ block) * block


@final
class WeaklyCorrelatedNoise(Oracle):
    """The noise Σᵢ eᵢ⊗eᵢ⊗eᵢ over the coordinates from `first` on, orthogonal to the signal
    (Appendix A, model 3).

    The image of u is the square of u in each of these coordinates, which takes O(d) operations. The
    operator norm is 1.

    Parameters
    ----------
    dimension : int
        The dimension d.
    first : int
        The first coordinate that has noise.
    """

    order = 3

    def __init__(self, dimension: int, first: int) -> None:
        self.dimension = check_count("dimension", dimension, 2)
        self.first = check_count("first", first, 0, dimension - 1)

    def squared_norm(self) -> float:
        """Return the number of terms."""
        return float(self.dimension - self.first)

    def _image(self, block: FloatArray) -> FloatArray:
        image: FloatArray = block**2
        image[: self.first] = 0
        return image


def appendix_a_noise(noise: str, dimension: int, generator: np.random.Generator) -> Oracle:
    """Return a draw of one of the noise models of Appendix A, before it is scaled."""
    if noise == "gaussian":
        return gaussian_noise(dimension, rng=generator)
    if noise == "adversarial":
        return AdversarialNoise(np.eye(dimension)[1])
    return WeaklyCorrelatedNoise(dimension, len(APPENDIX_A_WEIGHTS))


def appendix_a(
    dimension: int, noise: NoiseModel, sigma: float, *, rng: RngLike = None, n_restarts: int = 100
) -> tuple[Oracle, Components]:
    """Return the noisy tensor of the paper's Appendix A, and its true components.

    The true components are the first three coordinate vectors, with weights 1, 0.75 and 0.5.

    Parameters
    ----------
    dimension : int
        The dimension d.
    noise : {"gaussian", "adversarial", "weakly correlated"}
        The model of the noise.
    sigma : float
        The operator norm to which the noise is scaled.
    rng : None, int or numpy.random.Generator
        Draws the noise.
    n_restarts : int
        The number of starts from which `operator_norm` measures the noise before it is scaled.
    """
    check_choice("noise", noise, ("gaussian", "adversarial", "weakly correlated"))
    generator = as_generator(rng)
    k = len(APPENDIX_A_WEIGHTS)
    check_n_components(k, dimension)
    truth = Components(APPENDIX_A_WEIGHTS, np.eye(dimension)[:, :k])
    raw = appendix_a_noise(noise, dimension, generator)
    return truth + (sigma / operator_norm(raw, n_restarts=n_restarts, rng=generator)) * raw, truth


@dataclass(frozen=True, eq=False)
class TopicCorpus:
    """Documents drawn from known topics.

    Attributes
    ----------
    counts : CSR array of integers, documents x words
        The number of times that each document holds each word.
    topics : array, topics x words
        The true topics; each row is a distribution.
    alpha : array
        The true Dirichlet parameters of the proportions of topics.
    proportions : array, documents x topics
        The true proportions of each document.
    """

    counts: Any
    topics: FloatArray
    alpha: FloatArray
    proportions: FloatArray


def planted_topics(
    n_documents: int,
    n_words: int,
    alpha: Any,
    *,
    document_length: Any = 100,
    topics: Any = None,
    sparsity: float = 0.1,
    rng: RngLike = None,
) -> TopicCorpus:
    """Return documents drawn from latent Dirichlet allocation, with the topics that they were drawn
    from.

    Parameters
    ----------
    n_documents, n_words : int
        The number of documents, and the number of words in the vocabulary.
    alpha : array of k positive numbers
        The Dirichlet parameters of the proportions of topics in a document.
    document_length : int or array of n_documents ints
        The number of words in each document.
    topics : array, k x n_words, optional
        The topics; by default drawn from a symmetric Dirichlet distribution with parameter
        `sparsity`.
    sparsity : float
        The smaller this is, the fewer words a drawn topic has.
    rng : None, int or numpy.random.Generator
        Draws topics, proportions and words.

    Examples
    --------
    >>> from odeco.datasets import planted_topics
    >>> corpus = planted_topics(1000, 50, [0.5, 0.3, 0.2], document_length=20, rng=0)
    >>> corpus.counts.shape, int(corpus.counts.sum()), corpus.topics.shape
    ((1000, 50), 20000, (3, 50))
    """
    generator = as_generator(rng)
    check_count("n_documents", n_documents)
    check_count("n_words", n_words)
    alpha = np.array(alpha, dtype=np.float64)
    if topics is None:
        topics = generator.dirichlet(np.full(n_words, sparsity), size=alpha.size)
    topics = np.array(topics, dtype=np.float64)
    if topics.shape != (alpha.size, n_words):
        raise ValueError(
            f"`topics` must hold a row of {n_words} words for each of the {alpha.size} numbers in "
            f"`alpha`. Got shape {topics.shape}."
        )
    proportions = generator.dirichlet(alpha, size=n_documents)
    lengths = np.broadcast_to(np.asarray(document_length, dtype=np.int64), (n_documents,))
    # Given its topic, a word does not depend on its document. So all words of one topic are drawn
    # at once.
    by_topic = generator.multinomial(lengths, proportions)
    documents = [np.repeat(np.arange(n_documents), column) for column in by_topic.T]
    words = [
        generator.choice(n_words, size=len(place), p=topic)
        for place, topic in zip(documents, topics, strict=True)
    ]
    places = (np.concatenate(documents), np.concatenate(words))
    counts = sparse.coo_array(
        (np.ones(places[0].size, dtype=np.int64), places), shape=(n_documents, n_words)
    )
    return TopicCorpus(sparse.csr_array(counts), topics, alpha, proportions)


_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

#: Folders with these names are passed over: they hold tests, or what was installed beside the
#: library.
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__phello__"}


@dataclass(frozen=True)
class Document:
    """One documentation string, or the code of one function.

    Attributes
    ----------
    name : str
        The name of what it documents or defines, such as ``json.decoder.JSONDecoder.decode``.
    module : str
        The module that it is in.
    text : str
        The text; a documentation string comes without the indentation of the source.
    """

    name: str
    module: str
    text: str


def python_documentation(library: Path | None = None) -> Iterator[Document]:
    """Yield the documentation strings of the standard library, module by module.

    Parameters
    ----------
    library : path, optional
        A folder of Python files; by default that of the running Python's standard library.

    Yields
    ------
    Document
        Documents come in the order of the files' names, which is the same on every machine with the
        same Python.

    Notes
    -----
    Files are parsed, and never imported or executed. A file that cannot be parsed is passed over:
    the library has some that are meant for other versions of Python.

    Examples
    --------
    >>> from odeco.datasets import python_documentation
    >>> first = next(python_documentation())
    >>> first.name
    '__future__'
    """
    for path, module in _files(library):
        tree, _ = _parsed(path)
        for name, node in _walk(tree, module):
            text = ast.get_docstring(node)
            if text:
                yield Document(name, module, text)


def python_code(library: Path | None = None) -> Iterator[Document]:
    """Yield the code of the functions of the standard library, module by module, without
    documentation strings.

    Parameters
    ----------
    library : path, optional
        A folder of Python files; by default that of the running Python's standard library.

    Yields
    ------
    Document
        Documents come in the order of the files' names. A function inside another is part of that
        one's text, and no document of its own.

    Examples
    --------
    >>> from odeco.datasets import python_code
    >>> next(python_code()).name
    '__future__._Feature.__init__'
    """
    for path, module in _files(library):
        tree, lines = _parsed(path)
        last = 0
        for name, node in _walk(tree, module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno > last:
                last = node.end_lineno or node.lineno
                hidden = _lines_of_docstrings(node)
                kept = [
                    lines[number - 1]
                    for number in range(node.lineno, last + 1)
                    if number not in hidden
                ]
                yield Document(name, module, "\n".join(kept))


def _files(library: Path | None) -> Iterator[tuple[Path, str]]:
    """Yield the files of a library with the names of their modules, in the order of these."""
    folder = Path(sysconfig.get_paths()["stdlib"]) if library is None else library
    for path in sorted(folder.rglob("*.py"), key=lambda each: each.relative_to(folder).parts):
        parts = path.relative_to(folder).parts
        if _LEFT_OUT.isdisjoint(parts):
            yield path, _module_name(parts)


def _module_name(parts: tuple[str, ...]) -> str:
    names = [*parts[:-1], parts[-1].removesuffix(".py")]
    return ".".join(names[:-1] if names[-1] == "__init__" and len(names) > 1 else names)


def _parsed(path: Path) -> tuple[ast.Module, list[str]]:
    """Return the tree and the lines of a file; both are empty if it cannot be parsed."""
    try:
        source = path.read_bytes()
        with warnings.catch_warnings(
            action="ignore"
        ):  # the library warns about how its literals are written
            tree = ast.parse(source)
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        return tree, source.decode(encoding).splitlines()
    except (SyntaxError, ValueError, OSError):
        return ast.Module([], []), []


def _lines_of_docstrings(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[int]:
    """Return the numbers of the lines that documentation strings take, those of inner functions
    included.
    """
    lines: set[int] = set()
    for _, node in _walk(function, ""):
        if ast.get_docstring(node) is not None:
            first = node.body[0]
            lines |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def _walk(node: _Documented, name: str) -> Iterator[tuple[str, _Documented]]:
    """Yield a module, class or function with its full name, then those inside it, in the order of
    the source.
    """
    yield name, node
    waiting: list[ast.AST] = list(reversed(node.body))
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _walk(inner, f"{name}.{inner.name}")
        elif isinstance(
            inner, ast.stmt | ast.ExceptHandler | ast.match_case
        ):  # it may hold definitions, as an `if` does
            waiting += reversed(list(ast.iter_child_nodes(inner)))
