"""Makes a `tokenizer.json` of a `vocab.txt`: BERT's, with a `tokenizer_config.json`, or one of characters, as ESM has it.

With BERT's, `transformers` and `tokenizers` tokenize like bertprep: unlike `vocab.txt`, these files say whether text is
lower-cased, and that words of more than 200 characters become [UNK], as in Google's tokenizer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bertprep.errors import BertprepError, first_line
from bertprep.instances.vocabulary import SPECIAL_TOKENS, Vocabulary
from bertprep.untrusted import parse_json, read_bounded

TOKENIZER, TOKENIZER_CONFIG = TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
VOCAB = "vocab.txt"
_OTHER_FILES = (VOCAB, "vocab.json", "merges.txt", "dict.txt")
_ESM = "EsmTokenizer"
_IN_PYTHON = ("BertJapaneseTokenizer",)
_SHOWN = 40  # characters of a name in an error
_OF_ESM = {"cls_token": "<cls>", "pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>", "mask_token": "<mask>"}
_MAX_WORD_LENGTH = 200


def is_of_characters(config: Path) -> bool:
    """Return whether a tokenizer_config.json is of a class that has a vocab.txt of characters and no tokenizer.json, ESM's."""
    return config.is_file() and read_config(config).get("tokenizer_class") == _ESM


def character_tokenizer(vocab: Path, config: Path) -> bytes:
    """Return the tokenizer.json of transformers' EsmTokenizer: the longest token at each position, and one for unknown letters.

    The tokens of ESM-2 are letters, and those of models of DNA also k-mers. Words, between white space, are split alone.
    """
    import re

    from tokenizers import AddedToken, Regex, Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Sequence as All
    from tokenizers.pre_tokenizers import Split, WhitespaceSplit
    from tokenizers.processors import TemplateProcessing

    try:
        tokens = [line.strip() for line in read_bounded(vocab).decode("utf-8-sig").splitlines()]
    except (OSError, ValueError) as error:
        raise BertprepError(f"{vocab}: cannot be read as a vocabulary: {first_line(error)}") from error
    ids, found = {token: number for number, token in enumerate(tokens)}, read_config(config)
    names = {role: name for role, usual in _OF_ESM.items() if (name := name_of_token(found.get(role, usual)))}
    if missing := [token for token in names.values() if token not in ids]:
        raise BertprepError(f"{vocab}: lacks {', '.join(missing)}, which {config} names; name the folder of another model")
    longest_first = sorted((token for token in ids if token), key=len, reverse=True)
    tokenizer = Tokenizer(WordLevel(ids, unk_token=names.get("unk_token", _OF_ESM["unk_token"])))
    each = Regex("|".join(map(re.escape, longest_first)))
    tokenizer.pre_tokenizer = All([WhitespaceSplit(), Split(each, "isolated")])
    cls, eos = ([names[role]] if role in names else [] for role in ("cls_token", "eos_token"))
    around = [(token, ids[token]) for token in (*cls, *eos)]
    tokenizer.post_processor = TemplateProcessing([*cls, "$A", *eos], [*cls, "$A", *eos, "$B", *eos], special_tokens=around)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in names.values()])
    return (tokenizer.to_str(pretty=True) + "\n").encode()


def has_tokenizer(folder: Path) -> bool:
    """Return whether a folder has a file of a tokenizer, of which a tokenizer.json could be made."""
    return any(path.name == TOKENIZER_CONFIG or is_of_tokenizer(path) for path in folder.iterdir())


def is_of_tokenizer(path: Path) -> bool:
    """Return whether a file is named like those that have the tokens of a tokenizer in a form other than tokenizer.json."""
    return path.name in _OTHER_FILES or path.suffix in (".model", ".spm", ".tiktoken")


def how_to_convert(source: str, config: Path | None = None) -> str:
    """Return how to make a tokenizer.json of the files of a model, for an error; `config` is its tokenizer_config.json."""
    found = read_config(config) if config and config.is_file() else {}
    if found.get("backend") == "custom" or found.get("tokenizer_class") in _IN_PYTHON:
        return (
            f"its class, {str(found.get('tokenizer_class'))[:_SHOWN]}, splits text in Python, which no such file can do; split "
            "the text with it first, put spaces between the words, and make a tokenizer.json of its vocab.txt with the library "
            "tokenizers: WordPiece after WhitespaceSplit"
        )
    return (
        "make one of the model's files and its config.json with transformers (pip install transformers sentencepiece): python "
        f"-c \"from transformers import AutoTokenizer as T; T.from_pretrained('{source}').save_pretrained('NEW')\"; name NEW"
    )


def read_config(path: Path) -> dict[str, Any]:
    """Return the content of a file of transformers; raises `BertprepError` if it is not such a file."""
    try:
        content = parse_json(read_bounded(path))
        if not isinstance(content, dict):
            raise ValueError(f"expected an object, found {type(content).__name__}")
    except (OSError, ValueError) as error:
        raise BertprepError(f"{path}: is not a {path.name}: {first_line(error)}; fix or remove it") from error
    return content


def name_of_token(token: Any) -> str | None:
    """Return the name of a token in such a file, where it is a string, or an object with the name as `content`."""
    name = token.get("content") if isinstance(token, dict) else token
    return name if isinstance(name, str) and name else None


def tokenizer_files(vocabulary: Vocabulary, *, cased: bool, seq: int) -> dict[str, bytes]:
    """Return the content of both files by name, for records of `seq` tokens; it depends only on the arguments."""
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.decoders import WordPiece as Decoder
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import BertProcessing

    cls, sep = "[CLS]", "[SEP]"
    numbers = vocabulary.ids
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
