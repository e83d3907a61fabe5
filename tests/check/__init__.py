"""Tests of `validate`: what it finds, and what it must not."""

from bertprep.check.rules import RecordRules
from bertprep.instances import load_vocabulary
from tests.golden import GOLDEN

VOCABULARY = load_vocabulary(GOLDEN / "vocab.txt")
RULES = RecordRules(128, 20, len(VOCABULARY), VOCABULARY.cls, VOCABULARY.sep, VOCABULARY.mask, masked_lm_prob=0.15)
"""Those of records of the golden corpus in the default settings."""
