"""Topics of text, from files to a summary.

The files, in the order in which data pass them:

- `documents` reads texts from files, one `text` at a time (`texts_in_parquet`: from Parquet).
- `vocabulary` turns texts into word counts, and chooses the words that count; `private_vocabulary` chooses them by
  the noisy `private_votes` of documents.
- `counts` checks word counts, cuts them into chunks, and multiplies these with matrices.
- `moments` sums the moments of words, of pairs and of triples of words, in a basis.
- `basis` finds that basis, and moves it while documents arrive.
- `spectral` reads topics off the moments: whiten, decompose, un-whiten.
- `number_of_topics` chooses how many topics there are, if that is left to the data.
- `concentration` chooses how many topics a document mixes, and finds the topics for that choice.
- `diagnostics` says how far to trust the topics.
- `refine` improves the topics by Gibbs sweeps; `gibbs_sampler`, `gibbs_kernels` and `gibbs_priors` do its work.
- `fitted` holds what was learnt.
- `infer` finds the proportions of topics in a document.
- `evaluate` measures how well topics predict words, and how coherent they are.
- `relevance` says which words tell a topic from the others, `examples` which documents show it best.
- `summarise` collects what there is to say about the topics; `plot_topics` draws them.

The files that put these steps together:

- `corpus` is what learning asks of all documents; `corpus_on_cluster`, `gibbs_on_cluster` and `infer_on_cluster` ask it
  of the workers of a cluster.
- `learn_at_once` learns topics from all documents.
- `learn_in_batches` learns topics from a stream of documents.
- `learn_privately` learns topics from noisy answers, and `learn_privately_in_batches` from a stream of them.
  `bounded_counts` (with `bounded_kernels`) holds the documents, `private_answers` adds the noise, `private_plan` deals
  the budget; the rest sees no document: `denoise` reads frequencies off noisy sums, `factorise_pairs` starts topics,
  `simulate` and `unfold` undo what noisy topics confuse, `private_topics` puts these together, `trust` says how far to
  trust the result (on documents with the `further_topics` that pairs show), and `plan_topics` what can be expected.
- `lda` is the estimator that calls these. `lda_settings` checks its settings (`defaults` has them), `lda_input` what it
  is given, `telling` says how far it is, and `lda_file` saves it. `lda_on_cluster` and `lda_private` are its ways to
  learn there; `lda_learnt` holds its attributes, `lda_words` reads words off its topics, and `lda_text` takes texts.
- `word_moment` is the third moment as an oracle, apart from the estimator.

Nothing is imported here, because some of the files need scikit-learn and numba and others do not.
"""
