"""Text shards to masked-LM instances: the generator, exactly as Google's, and what it is made of.

`reference` is the algorithm in plain Python; `generator` the compiled one, with the same result.
"""

from bertprep.instances.generator import Instances, generate_instances
from bertprep.instances.tokenizer import TokenizedShard, Tokenizer
from bertprep.instances.vocabulary import Vocabulary, load_vocabulary

__all__ = ["Instances", "TokenizedShard", "Tokenizer", "Vocabulary", "generate_instances", "load_vocabulary"]
