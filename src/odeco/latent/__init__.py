"""What models with hidden variables share: a new model is a file for its moments and one for its estimator.

The files, in the order in which a model uses them:

- `estimator` is the base of the estimators: names, seeds, what is learnt taken in one step, files.
- `state` is what is learnt: a dataclass of arrays, which `model_file` writes and reads without knowing which model.
- `row_stream` feeds rows to a model in blocks that do not depend on how they arrive.
- `three_views` starts models of which three parts of a record are independent given the hidden class.
- `likelihood` climbs from several starts by likelihood steps, and keeps the best; `acceleration` looks ahead along the
  steps so far.
- `number_of_components` chooses how many components there are, by rows that were not learnt from.
- `private_sums` releases sums over private records, with noise that is paid for.

Nothing is imported here, because some of the files need scikit-learn and others do not.
"""
