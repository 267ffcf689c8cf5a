"""``odeco topics``: learn topics from text, and apply them to new text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from odeco.cli import options as _options
from odeco.cli.app import LastingInterrupt, TableGroup
from odeco.cli.output import Output, deliver, emit_json, note, read_row_ids
from odeco.cli.private import budget_options, check_budget, spent_sentence
from odeco.display.progress import progress_bar
from odeco.models.lda import vocabulary as words

#: Types of options: a number of at least 1, and a share of the documents.
COUNT, SHARE = click.IntRange(1), click.FloatRange(0, 1, min_open=True)

#: These options choose words; a list of words leaves nothing to choose.
_PRUNING = ("min_documents", "max_share", "max_words", "stop_words")


class _Topics(TableGroup):
    """Calls `fit` unless the first argument names a sub-command: ``odeco topics FILE`` is ``odeco topics fit FILE``."""

    @property
    def summaries(self) -> dict[str, str]:
        return {name: each.get_short_help_str(limit=80) for name, each in sorted(self.commands.items())}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["fit", *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "FILE... -k K [OPTIONS]")
        formatter.write_usage(ctx.command_path, "apply MODEL FILE... [OPTIONS]", prefix="       ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        fit.format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


@click.group("topics", cls=_Topics)
def topics() -> None:
    r"""Learn K topics from the documents in FILEs: which words occur together, and each topic's share of the text.

    Text is read from .txt and .text (one document per line), .csv and .tsv (--column), .jsonl and .ndjson (--column),
    any of these compressed as .gz, .parquet (--column), a folder of .txt files (one document per file), and - for lines
    of the standard input.
    Word counts are read from .npz (data, indices, indptr, shape, and optionally vocabulary).

    A word begins with a letter, has at least two characters, and is converted to lower case. Topics come from the
    moments of words by tensor decomposition, and are then refined by Gibbs sweeps. Topics are numbered from 0. With
    --epsilon and --delta they are differentially private; on a terminal, the run asks before it spends.

    \b
    Examples:
      odeco topics reviews.csv --column text -k 20 --out model.npz --report page.html
      odeco topics --python-documentation -k auto
      odeco topics apply model.npz new.csv --column text --out shares.csv
      odeco topics notes.jsonl --column body -k 10 --epsilon 4 --delta 1e-6
      odeco topics notes.txt -k 10 --epsilon 4 --delta 1e-6 --vocabulary words.txt --dry-run
      odeco topics notes.txt -k 10 --epsilon 4 --delta 1e-6 --public agreed.txt
      odeco topics notes.txt -k 10 --epsilon 1 --delta 1e-6 --ledger notes.ledger --budget 3
      odeco topics '/shared/counts-*.npz' -k 50 --scheduler tcp://host:8786 --out model.npz
      odeco topics '/shared/*.parquet' --column text -k 50 --scheduler tcp://host:8786 --out model.npz
    """


@topics.command("fit")
@click.argument("files", type=_options.FILE, nargs=-1, metavar="FILE...")
@click.option(
    *("-k", "--k", "--n-components", "n_components"),
    metavar="K",
    required=True,
    callback=partial(_options.number_or_auto, texts=("auto", "fine")),
    help="Number of topics. 'auto' takes about twice the number that two halves of the documents agree on; 'fine' as "
    "many as the pairs of words support, at most 100.",
)
@click.option("--python-documentation", is_flag=True, help="Read the documentation of Python's library, not FILEs.")
@_options.text_column
@click.option("--min-documents", type=COUNT, default=words.MIN_DOCUMENTS, help="Leave out words in fewer documents.")
@click.option(
    "--max-share", type=SHARE, default=words.MAX_SHARE, help="Leave out words in a larger share of the documents."
)
@click.option("--max-words", type=COUNT, default=words.MAX_WORDS, help="Largest number of words to keep.")
@click.option("--stop-words", default="english", metavar="LIST", help="english, none, or a file of words.")
@click.option(
    "--seed-words", type=_options.FILE, metavar="FILE", help="Topics to find first, one 'label: word word' per line."
)
@click.option("--vocabulary", type=_options.FILE, metavar="FILE", help="Count only these words, one per line.")
@click.option(
    "--tokenizer", type=click.Choice(["words", "blanks"]), default="words", help="Split text as above, or at blanks."
)
@click.option("--max-iter", type=click.IntRange(0), default=words.MAX_ITER, metavar="N", help="Number of Gibbs sweeps.")
@click.option(
    "--held-out",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.1,
    metavar="SHARE",
    help="Share of the documents to hold out, to measure perplexity. 0 uses all for learning.",
)
@budget_options("documents")
@click.option(
    "--unit", type=click.Choice(["document", "user"]), default="document", help="Whom the guarantee protects."
)
@_options.groups("document")
@click.option(
    "--public",
    type=_options.FILE,
    metavar="FILE",
    help="For a private run: documents that need NO protection, counted beside the others.",
)
@click.option("--dry-run", is_flag=True, help="For a private run: print the plan, from public numbers, and stop.")
@click.option(
    "--n-words", type=click.IntRange(2), metavar="V", help="For --dry-run without --vocabulary: number of words."
)
@click.option(
    "--document-length", type=click.IntRange(2), default=50, metavar="L", help="For --dry-run: words per document."
)
@_options.scheduler
@_options.seed
@_options.threads
@click.option("--top", type=COUNT, default=words.TOP_WORDS, help="Number of words to show for each topic.")
@click.option("--out", type=_options.OUTPUT, metavar="FILE", help="Write the model, as .npz without pickle.")
@_options.report
@_options.json_output
def fit(
    files: tuple[Path, ...], python_documentation: bool, n_components: Any, top: int, as_json: bool, **given: Any
) -> None:
    """Learn K topics from the documents in FILEs; `fit` may be left out. See `odeco topics --help`."""
    private = given["epsilon"] is not None or given["delta"] is not None
    _check_usage(files, python_documentation, n_components, given, private)
    if given["dry_run"]:
        from odeco.cli.topics_fit import print_plan

        with _options.limited(given["threads"]):
            print_plan(files, n_components, given, as_json=as_json)
        return
    # scikit-learn and numba take a second, and may be missing
    from odeco.cli.topics_files import print_topics, topics_document, write_page_of
    from odeco.cli.topics_fit import agree_to_learn, learn, read_for_learning, read_on_cluster

    with (
        _options.limited(given["threads"]),
        _options.connected(given["scheduler"]) as client,
        LastingInterrupt() as interrupt,
    ):
        with _stages(interrupt) as show:
            show("reading", 0, None)
            if client is None:
                read = read_for_learning(files, given, private=private, show=show)
            else:
                read = read_on_cluster(files, given, client, private=private)
        ledger = agree_to_learn(read, given) if private else None  # without a bar, which would hide the question
        with _stages(interrupt) as show:
            learnt = learn(read, n_components, given, ledger=ledger, show=show)

    def show_topics() -> None:
        for text in learnt.summary.advice:
            note(f"Warning: {text}")
        if as_json:
            emit_json({"n_documents": int(learnt.kept.counts.shape[0]), **topics_document(learnt.summary, top)})
        else:
            print_topics(learnt.summary, top, chosen=isinstance(n_components, str))

    deliver(
        show_topics,
        Output(given["out"], learnt.model.save),
        Output(given["report"], lambda path: write_page_of(learnt, files, path)),
        save=("model.npz", learnt.model.save),
        spent=spent_sentence(given["epsilon"], given["ledger"]),
    )


def _check_usage(
    files: tuple[Path, ...], documentation: bool, n_components: int | str, given: dict[str, Any], private: bool
) -> None:
    """Raise if options contradict each other."""
    context = click.get_current_context()
    explicit = [name for name in given if context.get_parameter_source(name) is not ParameterSource.DEFAULT]
    neither_nor = documentation == bool(files)
    _options.check_usage({"Either FILEs or --python-documentation must be given, and not both.": neither_nor})
    if given["scheduler"] is None:
        for path in (*files, given["public"], given["seed_words"]):
            if path is not None and str(path) != "-" and not path.exists():
                raise FileNotFoundError(2, "No such file or directory", str(path))
    else:
        _check_cluster(files, documentation, explicit, given, private)
    chooses = _first(explicit, *_PRUNING)
    about = _first(explicit, "public", "dry_run", "groups", "ledger", "budget")
    about = {"--groups": "--unit user", "--budget": "--ledger"}.get(about, about)
    _options.check_usage(
        {
            f"With --vocabulary all its words are counted. Leave out {chooses}.": given["vocabulary"] and chooses,
            "--unit user and --groups FILE need each other. Pass both or neither.": (given["unit"] == "user")
            != (given["groups"] is not None),
            f"{about} is about private runs. Pass --epsilon and --delta, or leave it out.": about and not private,
        }
    )
    if private:
        _check_private(n_components, explicit, given)


def _check_cluster(
    files: tuple[Path, ...], documentation: bool, explicit: list[str], given: dict[str, Any], private: bool
) -> None:
    """Raise if an option cannot be used on a cluster."""
    from odeco.cli.topics_files import are_texts

    counts = not private and not are_texts(files, given["column"])
    pruning, local = (
        _first(explicit, *_PRUNING) if counts else "",
        _first(explicit, "held_out", "dry_run", "seed_words"),
    )
    local = local or ("--python-documentation" if documentation else "")
    local = local or ("the standard input" if any(str(path) == "-" for path in files) else "")
    _options.check_usage(
        {
            f"With --scheduler word counts are read as they are. Leave out {pruning}.": pruning,
            f"Workers of a cluster have only the FILEs. Leave out {local} or --scheduler.": local,
        }
    )


def _check_private(n_components: int | str, explicit: list[str], given: dict[str, Any]) -> None:
    """Raise if a private run lacks an option, or has one that would read documents without noise."""
    exact = _first(explicit, "min_documents", "max_share")
    unused = "" if given["dry_run"] else _first(explicit, "n_words", "document_length")
    if given["dry_run"] and given["vocabulary"] is not None:
        unused = _first(explicit, "n_words")
    again = _first([name for name in explicit if given[name]], "max_iter", "seed_words", "held_out")
    _options.check_usage(
        {
            "A private run needs both --epsilon and --delta. Choose δ far below 1 / number of documents, such as "
            "1e-6.": given["epsilon"] is None or given["delta"] is None,
            f"{exact} counts documents without noise. Leave it out: a private run chooses words by noisy votes, or "
            "takes those of --vocabulary FILE.": exact,
            "A private run needs -k as a number. Its output says how many topics are clear of noise.": isinstance(
                n_components, str
            ),
            f"{unused} is for --dry-run without --vocabulary. Leave it out.": unused,
            f"{again} would read the documents again, without noise. Leave it out.": again,
        }
    )
    check_budget(given["ledger"], given["budget"])


def _first(explicit: list[str], *names: str) -> str:
    """Return the first of some options that was given, or nothing."""
    return next((f"--{name.replace('_', '-')}" for name in names if name in explicit), "")


#: What users read for a stage.
_STAGES = {
    "pairs": "counting pairs of words",
    "triples": "decomposing triples of words",
    "number of topics": "selecting the number of topics",
    "sweeps": "Gibbs sweeps",
    "measuring": "measuring perplexity",
}


@contextmanager
def _stages(interrupt: LastingInterrupt) -> Iterator[Callable[[str, int, int | None], None]]:
    """Yield a function that shows the stage of the work and how much of it is done, unless it was interrupted."""
    with progress_bar(only_on_terminal=True) as show_progress:

        def show(stage: str, done: int, total: int | None) -> None:
            interrupt.check()
            count = f"{done:,} documents" if stage == "reading" and done else ""
            if stage == "sweeps" and done:
                count = f"{done:,} of {total:,}"
            elif stage in ("triples", "sweeps"):
                count = "(the first run compiles)"  # loops are kept on disk for later runs
            # A stage of one step shows that work goes on, not a bar that stands still.
            show_progress(_STAGES.get(stage, stage), done, total if total != 1 else None, count)

        yield show


@topics.command("apply")
@click.argument("model", type=_options.LOCAL_FILE)
@click.argument("files", type=_options.FILE, nargs=-1, required=True, metavar="FILE...")
@_options.text_column
@click.option("--out", type=_options.OUTPUT, metavar="FILE", help="Write a .csv or .npz file instead of CSV on stdout.")
@click.option("--by", metavar="COLUMN", help="Write the shares in each group of documents, with standard errors.")
@_options.row_ids
@_options.threads
@_options.json_output
def apply(
    model: Path,
    files: tuple[Path, ...],
    column: str | None,
    out: Path | None,
    by: str | None,
    id_column: str | None,
    append: bool,
    threads: int | None,
    as_json: bool,
) -> None:
    r"""Compute the share of each topic of MODEL in each document of FILEs.

    FILEs are read as for learning, and are split into words in the same way. Words that the model does not know are
    ignored. Each row of the result is a document and sums to one; a document without a known word gets the mean of all
    documents. With --by, each row is a group of documents, which count as often as they have known words.

    \b
    Examples:
      odeco topics apply model.npz new.txt
      odeco topics apply model.npz new.csv --column text --by year
      odeco topics apply model.npz new.csv --column text --id review --out shares.csv
    """
    bad_suffix = out is not None and out.suffix not in (".csv", ".npz")
    in_table = not as_json and (out is None or out.suffix == ".csv")
    _options.check_usage(
        {
            f"--out must end in .csv or .npz. Got {out}. Rename it.": bad_suffix,
            "--id and --append are for a table. Leave them out, or write CSV.": (id_column is not None or append)
            and not in_table,
            "--by writes a table of groups, not of documents. Leave out --id and --append.": by is not None
            and (id_column is not None or append),
            "--by writes CSV. Let --out end in .csv.": by is not None and out is not None and out.suffix != ".csv",
        }
    )
    # scikit-learn may be missing
    from odeco.cli.topics_files import deliver_groups, proportions_table, read_for_model, write_proportions
    from odeco.models.lda.estimator import TensorLDA
    from odeco.models.lda.use import shares_in_groups

    learnt = TensorLDA.load(model)
    learnt.n_jobs = threads
    if not hasattr(learnt, "words_"):
        raise ValueError(f"{model} must know its words to count those of new documents. It does not. Learn it again.")
    with _options.limited(threads), LastingInterrupt() as interrupt, _stages(interrupt) as show:
        corpus = read_for_model(learnt.words_, files, column=column, show=show, tokenizer=learnt.tokenizer_)
        counts, n_rows = corpus.counted.counts, corpus.counted.counts.shape[0]
        ids = read_row_ids(files, id_column, append=append, n_rows=n_rows, what="topic")
        labels = read_row_ids(files, by, append=False, n_rows=n_rows, what="topic", option="--by")
        show("finding topics", 0, None)
        if labels is not None:
            found = shares_in_groups(learnt, counts, [label for (label,) in labels.rows])
        else:
            proportions = learnt._proportions(counts)
    if labels is not None:
        deliver_groups(found, out, as_json=as_json)
        return

    def show_proportions() -> None:
        if as_json:
            emit_json({"kind": "topic proportions", "documents": corpus.names or None, "proportions": proportions})
        elif out is None:
            click.echo(proportions_table(proportions, corpus.names, ids), nl=False)
        else:
            note(f"{proportions.shape[0]:,} documents, {proportions.shape[1]:,} topics")

    def save(path: Path) -> None:
        write_proportions(path, proportions, corpus.names, ids)

    deliver(show_proportions, Output(out, save), save=("proportions.npz", save))
