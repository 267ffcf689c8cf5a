"""Topics of text, from files to a summary.

The files, in the order in which data pass them:

- `documents` reads texts from files, one document at a time.
- `vocabulary` turns texts into word counts, and chooses the words that count.
- `counts` checks word counts, and cuts them into chunks.
- `count_products` multiplies chunks of counts with matrices.
- `moments` sums the moments of words, of pairs and of triples of words, in a basis.
- `basis` finds that basis, and moves it while documents arrive.
- `corrected_moments` corrects moments so that their components are the topics.
- `spectral` reads topics off the moments: whiten, decompose, un-whiten.
- `simplex` makes a distribution of a topic with negative entries.
- `concentration` chooses how many topics a document mixes.
- `diagnostics` says how far to trust the topics.
- `refine` improves the topics by Gibbs sweeps; `gibbs_sampler`, `gibbs_kernels` and `gibbs_priors` do its work.
- `fitted` holds what was learnt.
- `infer` finds the proportions of topics in a document.
- `evaluate` measures how well topics predict words, and how coherent they are.
- `summarise` collects what there is to say about them.

The files that put these steps together:

- `learn_at_once` learns topics from all documents.
- `learn_in_batches` learns topics from a stream of documents.
- `learn_privately` learns topics from the noisy answers of `bounded_counts`.
- `lda` is the estimator that calls the three; `lda_settings` checks its settings, and `lda_file` saves it.

Nothing is imported here, because some of the files need scikit-learn and numba and others do not.
"""
