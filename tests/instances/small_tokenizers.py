"""Small tokenizers of each kind, made in a moment: what a tokenizer.json of the field is, but for the size of its training."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import bertprep
from bertprep.instances.tokenizer_files import tokenizer_files
from bertprep.instances.vocabulary import load_vocabulary
from tests.golden import GOLDEN

TEXT = [
    "The quick brown fox jumps over the lazy dog, and the dog doesn't mind: it was asleep at 12.30 on 4 July 1976.",
    "We the People of the United States, in Order to form a more perfect Union, establish Justice, insure Tranquility,",
    "def scale(values, by=2):\n    return [by * each for each in values]  # twice\n\n\nclass Word:\n\tpass",
    "Die Straße führt über den Fluß; où l'été naît-il? Москва, 北京, αβγ Σ, ½ ﬁ ® 👍🏽.",
] * 4
_LLAMA = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def wordpiece(*, cased: bool = False) -> Tokenizer:
    """BERT's, of the golden vocabulary, as bertprep writes it."""
    return Tokenizer.from_str(
        tokenizer_files(load_vocabulary(GOLDEN / "vocab.txt"), cased=cased, seq=128)["tokenizer.json"].decode()
    )


def byte_bpe() -> Tokenizer:
    """GPT-2's and RoBERTa's kind, as ModernBERT has it: [CLS] and [SEP], and none for what is unknown."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $0 [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    tokenizer.enable_truncation(8)  # what files carry, and tokenizing a corpus must not apply
    tokenizer.enable_padding(length=16, pad_id=3, pad_token="[PAD]")
    return tokenizer


def unigram() -> Tokenizer:
    """SentencePiece's kind, as T5 and XLM-R have it; its model finds </s> in a text by itself."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(vocab_size=200, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def llama() -> Tokenizer:
    """Llama 3's kind: 128,003 entries, so that ids need 32 bits; only <|begin_of_text|> stands before a text."""
    small = Tokenizer(models.BPE())
    small.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    small.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False))
    model = json.loads(small.to_str())["model"]
    trained = sorted(model["vocab"], key=model["vocab"].__getitem__)
    tokens = [*(f"§{number}" for number in range(128_000 - len(trained))), *trained]
    merges = [tuple(pair) for pair in model["merges"]]
    tokenizer = Tokenizer(models.BPE({token: at for at, token in enumerate(tokens)}, merges, ignore_merges=True))
    split = pre_tokenizers.Split(Regex(_LLAMA), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|mask|>"])
    begin = ("<|begin_of_text|>", 128_000)
    tokenizer.post_processor = processors.TemplateProcessing("<|begin_of_text|> $0", special_tokens=[begin])
    return tokenizer


def characters() -> Tokenizer:
    """Of a protein or DNA model: a letter a token, no pre-tokenizer, <unk> for the rest."""
    letters = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO", "<mask>"]
    tokenizer = Tokenizer(models.BPE({letter: at for at, letter in enumerate(letters)}, [], unk_token="<unk>"))
    tokenizer.add_special_tokens(["<cls>", "<pad>", "<eos>", "<unk>", "<mask>"])
    special = [("<cls>", 0), ("<eos>", 2)]
    tokenizer.post_processor = processors.TemplateProcessing("<cls> $0 <eos>", special_tokens=special)
    return tokenizer


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "wordpiece": wordpiece, "byte_bpe": byte_bpe, "unigram": unigram, "llama": llama, "characters": characters,
}  # fmt: skip


@cache
def content_of(kind: str) -> str:
    """The tokenizer.json of a kind."""
    return str(KINDS[kind]().to_str())


def write_tokenizer(folder: Path, kind: str) -> Path:
    """Write the tokenizer.json of a kind to FOLDER/KIND/tokenizer.json."""
    path = folder / kind / "tokenizer.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content_of(kind))
    return path


def write_tokens(folder: Path) -> Path:
    """Write text.parquet, documents of 1 to 30 words, and token shards of them by the byte-level BPE; return their folder."""
    words = " ".join(TEXT).split()
    texts = [" ".join(words[start : start + 1 + start * 7 % 30]) for start in range(len(words))]
    pq.write_table(pa.table({"text": texts}), folder / "text.parquet")
    tokenizer = write_tokenizer(folder, "byte_bpe")
    bertprep.tokenize(inputs=[folder / "text.parquet"], tokenizer=tokenizer, output=folder / "tokens", workers=1)
    return folder / "tokens"
