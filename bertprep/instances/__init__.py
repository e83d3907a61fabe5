"""Turns text shards into masked-LM instances: tokenizers, vocabularies, and a generator with the same results as Google's.

`reference` has the algorithm in plain Python, and `generator` the compiled version, with the same results.
"""

from bertprep.instances.generator import Instances, generate_instances
from bertprep.instances.tokenizer import TokenizedShard, Tokenizer
from bertprep.instances.vocabulary import Vocabulary, load_vocabulary

__all__ = ["Instances", "TokenizedShard", "Tokenizer", "Vocabulary", "generate_instances", "load_vocabulary"]
