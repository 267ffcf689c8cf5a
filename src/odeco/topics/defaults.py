"""What is done where nothing is said: the command and Python have the same defaults, and both take them from here."""

from __future__ import annotations

#: Gibbs sweeps that refine topics.
REFINE = 50
#: A word is kept if at least so many documents hold it, and at most this share of them; and so many words at most.
MIN_DOCUMENTS, MAX_SHARE, MAX_WORDS = 5, 0.3, 50_000
#: How many words of a topic are shown.
TOP_WORDS = 10
#: How far relevance goes by probability (1) or by lift (0); of 0.2 to 1, readers named topics best at 0.6 (Sievert and
#: Shirley, *LDAvis*, 2014).
RELEVANCE = 0.6
