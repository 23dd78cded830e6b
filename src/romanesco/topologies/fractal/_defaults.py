"""Every default of the FRACTAL topology, in one place.

They are ours and un-tuned: chosen by reasoning and small simulations, not by measurement on tasks. Where the
paper names a value (delta, r_dwell, r_max, quorum, m, c) we keep it; ``TAU_SAT`` goes with our own diversity
measure. Change one by giving the parameter of the same name in lower case.
"""

from __future__ import annotations

K = 4
"""Proposing members of a node."""
K_MIN, K_MAX = 3, 5
"""Range of ``k`` (Def. 1)."""
R_MAX = 3
"""Divergent rounds at most."""
ROUNDS_MAX = 9
"""Largest ``rounds`` that can be asked for: proposal ids keep one digit, so that prompt sizes are computable."""
R_DWELL = 2
"""No switch by saturation before this round (Prop. 10)."""
TAU_SAT = 0.65
"""The switch fires below this ratio of diversity gains (Def. 9, our measure)."""
DELTA = 0.4
"""Least pairwise bias distance of an admissible ensemble (Def. 3)."""
EPS = 1.0
"""Ledger gain below which a round counts as one of diminishing returns: one new entry."""
DR_ROUNDS = 3
"""Consecutive rounds below ``EPS`` that end the divergent mode. It can't happen before round 3, so with
``R_MAX`` 3 the rule is nearly inert."""
QUORUM = 0.8
"""Share of the eligible members that must back one proposal (Thm. 12)."""
EVALUATORS = 2
"""``m``: evaluators of a node."""
CRITIQUES = 3
"""``c``: critiques of each proposal by each evaluator."""

ENTRY_WEIGHTS = {"fact": 1.0, "constraint": 1.0, "risk": 1.0, "discarded": 1.0, "claim": 0.5}
"""Weight of a new ledger entry in the ledger gain: an unbacked claim counts half."""
DUPLICATE = 0.8
"""Two ledger entries are duplicates if their words overlap (Jaccard) at least this much."""

PROPOSAL_TEMPERATURE = 0.8
CRITIQUE_TEMPERATURE = 0.4
DECISION_TEMPERATURE = {"compact": 0.3, "full": 0.0}
"""By style: at 0 a very small model repeats one phrase until its cap."""

COMPACT_WINDOW = 4096
"""Windows up to this size (tokens) get the compact prompts."""
MEDIUM_WINDOW = 16384
"""Windows up to this size get the full prompts with smaller caps."""
UNKNOWN_WINDOW = 8192
"""What is planned for when nobody knows the model's window."""

CRITIQUE_SLACK = 30
"""Tokens that a compact critique call may generate beyond its three critiques: for the JSON around them, and because a
very small model may spell a text in more tokens than English needs. Without it about one call in eight was cut."""

COMPACT_CRITIQUE_BYTES = 4
"""A compact matrix shows an evaluator's three critiques in this many UTF-8 bytes for each token of their cap, 300 by
default: so k = 5 fits 2,048 tokens, and three critiques as long as asked for (12 words each) need about 225."""

EVIDENCE = 4
"""Pieces of evidence that a proposal with sources is asked for at most."""
ABSORBED, DECISION_ENTRIES = 2, 4
"""Absorbed parts and ledger entries that a decision in the full style is asked for at most."""

CAPS = {"compact": (90, 25, 220), "medium": (300, 60, 800), "full": (500, 100, 1200)}
"""Output caps in tokens: (a proposal, one critique, the decision). ``full`` is near the paper's worked table."""
