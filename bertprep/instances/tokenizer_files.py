"""Makes `tokenizer.json` and `tokenizer_config.json`, with which `transformers` and `tokenizers` tokenize like bertprep.

Unlike `vocab.txt`, these files say whether text is lower-cased, and that words of more than 200 characters become [UNK], as in
Google's tokenizer.
"""

from __future__ import annotations

import json

from bertprep.instances.vocabulary import SPECIAL_TOKENS, Vocabulary

TOKENIZER, TOKENIZER_CONFIG = TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
_MAX_WORD_LENGTH = 200


def tokenizer_files(vocabulary: Vocabulary, *, cased: bool, seq: int) -> dict[str, bytes]:
    """Return the content of both files by name, for records of `seq` tokens; it depends only on the arguments."""
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.decoders import WordPiece as Decoder
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import BertProcessing

    cls, sep = "[CLS]", "[SEP]"
    numbers = {token: number for number, token in enumerate(vocabulary.tokens)}
    tokenizer = Tokenizer(WordPiece(numbers, unk_token="[UNK]", max_input_chars_per_word=_MAX_WORD_LENGTH))
    tokenizer.normalizer = BertNormalizer(lowercase=not cased)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = BertProcessing((sep, numbers[sep]), (cls, numbers[cls]))
    tokenizer.decoder = Decoder()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",  # uses tokenizer.json unchanged, including the longest word
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "do_lower_case": not cased,
        "model_max_length": seq,
        **{f"{token.strip('[]').lower()}_token": token for token in SPECIAL_TOKENS},
    }
    return {
        TOKENIZER: (tokenizer.to_str(pretty=True) + "\n").encode(),
        TOKENIZER_CONFIG: (json.dumps(config, indent=2) + "\n").encode(),
    }
