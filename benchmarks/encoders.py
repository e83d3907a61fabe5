"""Measure what batches for an encoder cost, next to other libraries in the same process and thread.

Documents are synthetic, with log-normal lengths: median 400 tokens, sigma 1. Batches have 16 rows of at most 1,024 tokens, 30%
of them masked. Other libraries are measured if they are installed, best in an environment of their own:

    pip install -e ".[torch]" datasets litdata datatrove mosaicml-streaming
    python -m benchmarks encoders --modernbert CLONE    # of github.com/AnswerDotAI/ModernBERT
    python -m benchmarks encoders --random 1300         # rows at random next to rows in order, of 1,300 million tokens

The rows of the table take turns, and the first turn is not timed. Costs are CPU seconds of all threads for 1,024 tokens, not
counting padding.
"""

import argparse
import importlib.util
import statistics
import sys
import tempfile
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

import bertprep
from benchmarks.harness import describe_machine, used
from bertprep.instances.document_tokenizer import TokenizerInfo
from bertprep.tokens.shard import DOCUMENT_FILES, TokenShard, write_token_shard
from bertprep.work.manifest import TOKEN_SHARDS, Manifest

SEQ, BATCH, SHARE = 1024, 16, 0.3
MEDIAN, SIGMA, MOST = 400, 1.0, 100_000  # of the tokens of a document
PAD, UNK, CLS, SEP, MASK = SPECIAL = tuple(range(5))
WIDTH = 30_000
SHARD_TOKENS = 100_000_000
PEERS = {"datasets": "datasets", "litdata": "litdata", "datatrove": "datatrove", "streaming": "mosaicml-streaming"}


@dataclass(frozen=True)
class Way:
    """A way to make batches: a function for the batches of an epoch, and whether documents are kept apart."""

    name: str
    batches: Callable[[], Iterable[Any]]
    apart: str


def write_tokens(folder: Path, tokens: int) -> Path:
    """Write token shards of synthetic documents with about `tokens` tokens in total, and return their folder."""
    folder.mkdir()
    info = TokenizerInfo("synthetic", "0" * 64, "BPE", WIDTH, CLS, SEP, PAD, MASK, UNK, SPECIAL, "word_ids")
    random = np.random.default_rng(1)
    files: dict[str, Any] = {}
    for shard, start in enumerate(range(0, tokens, SHARD_TOKENS)):
        paths = {end: folder / f"x_training_{shard:05d}.{end}" for end in DOCUMENT_FILES}
        with write_token_shard(paths, width=WIDTH) as writer:
            while writer.tokens < min(SHARD_TOKENS, tokens - start):
                lengths = np.minimum(random.lognormal(np.log(MEDIAN), SIGMA, 1000).astype(np.int64) + 1, MOST)
                ids = random.integers(len(SPECIAL), WIDTH, int(lengths.sum())).astype(np.int32)
                writer.add(ids, lengths, begins_word=random.random(len(ids)) < 0.6)
        files |= {paths[end].name: entry for end, entry in writer.entries.items()}
        files[paths["bin"].name] |= {"documents": writer.documents, "tokens": writer.tokens}
    manifest = Manifest(TOKEN_SHARDS, {"tokenizer": info.made_with}, files, {"bertprep": bertprep.__version__})
    (folder / "manifest.json").write_bytes(manifest.as_bytes())
    return folder


def documents_of(folder: Path) -> list[np.ndarray[Any, Any]]:
    """Return the tokens of each document, without special tokens."""
    shard: TokenShard = bertprep.TokenDataset(folder, seq=SEQ).documents.shards[0]
    return [shard.tokens[start:end] for start, end in pairwise(shard.starts)]


def of_bertprep(folder: Path) -> list[Way]:
    import transformers
    from torch.utils.data import DataLoader

    data = bertprep.TokenDataset(folder, seq=SEQ, masked_lm_prob=SHARE)
    padded = bertprep.TokenDataset(folder, seq=SEQ, masked_lm_prob=SHARE, packed=False, by_length=True)
    steps = len(data) // BATCH
    sizes: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    ids = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), PAD)
    config = transformers.ModernBertConfig(vocab_size=WIDTH, max_position_embeddings=SEQ, **sizes, **ids)
    model = transformers.AutoModelForMaskedLM.from_config(config)
    collators = {"`collate`": data.collate, "`collate_for`": data.collate_for(model)}
    return [
        Way("`TokenDataset.stream`", lambda: data.stream(BATCH, epochs=1), "yes"),
        Way("`TokenDataset.batches`, arrays", lambda: data.batches(BATCH, stop=steps), "yes"),
        *(
            Way(f"`DataLoader`, {name}", lambda collate=collate: DataLoader(data, BATCH, collate_fn=collate), "yes")  # type: ignore[misc]
            for name, collate in collators.items()
        ),
        Way("`packed=False, by_length=True`, stream", lambda: padded.stream(BATCH, epochs=1), "one a row"),
    ]


def _collator(folder: Path) -> Any:
    import transformers

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{index}" for index in range(WIDTH - len(SPECIAL)))]
    (folder / "vocab.txt").write_text("\n".join(names) + "\n")
    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"))
    return transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=SHARE)


def _with_special(documents: list[np.ndarray[Any, Any]]) -> list[list[int]]:
    return [[CLS, *document[: SEQ - 2].tolist(), SEP] for document in documents]


def _blocks(documents: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    joined = np.concatenate([np.concatenate([[CLS], document, [SEP]]) for document in documents])
    return joined[: len(joined) // SEQ * SEQ].reshape(-1, SEQ)


def of_datasets(folder: Path, documents: list[np.ndarray[Any, Any]], collate: Any) -> list[Way]:
    import datasets
    from torch.utils.data import DataLoader

    datasets.disable_progress_bars()
    ways = []
    for name, rows, apart in (
        ("blocks", _blocks(documents).tolist(), "no"),
        ("documents", _with_special(documents), "one a row"),
    ):
        datasets.Dataset.from_dict({"input_ids": rows}).save_to_disk(str(folder / name))
        read = datasets.load_from_disk(str(folder / name))
        loader = DataLoader(read, BATCH, shuffle=True, collate_fn=collate)
        ways.append(Way(f"`datasets`, {name}, MLM collator", lambda loader=loader: loader, apart))  # type: ignore[misc]
    return ways


def of_litdata(folder: Path, documents: list[np.ndarray[Any, Any]], collate: Any) -> list[Way]:
    import torch
    from litdata import StreamingDataset, TokensLoader
    from litdata.streaming.writer import BinaryWriter
    from torch.utils.data import DataLoader

    cache = folder / "litdata"
    writer = BinaryWriter(str(cache), chunk_size=SEQ * 1024, item_loader=TokensLoader(SEQ))
    for index, block in enumerate(_blocks(documents)):
        writer[index] = torch.from_numpy(block.astype(np.int32))
    writer.done()
    writer.merge(1)

    def batches() -> Iterator[Any]:
        read = StreamingDataset(str(cache), item_loader=TokensLoader(SEQ), shuffle=True)
        return iter(DataLoader(read, BATCH, collate_fn=lambda rows: collate([{"input_ids": row} for row in rows])))

    return [Way("litdata `TokensLoader`, MLM collator", batches, "no")]


def of_datatrove(folder: Path, documents: list[np.ndarray[Any, Any]], collate: Any) -> list[Way]:
    from datatrove.utils.dataset import DatatroveFileDataset
    from torch.utils.data import DataLoader

    path = folder / "x.ds"
    _blocks(documents).astype("<u2").tofile(path)
    read = DatatroveFileDataset(str(path), SEQ - 1)  # it reads one token more, for labels
    loader = DataLoader(read, BATCH, shuffle=True, collate_fn=collate)
    return [Way("datatrove (Nanoset), MLM collator", lambda: loader, "no")]


def of_streaming(folder: Path, documents: list[np.ndarray[Any, Any]], collate: Any) -> list[Way]:
    from streaming import MDSWriter, StreamingDataset
    from torch.utils.data import DataLoader

    with MDSWriter(out=str(folder / "mds"), columns={"input_ids": "ndarray:uint16"}) as writer:
        for ids in _with_special(documents):
            writer.write({"input_ids": np.array(ids, np.uint16)})
    read = StreamingDataset(local=str(folder / "mds"), batch_size=BATCH, shuffle=True)

    def as_lists(rows: list[dict[str, Any]]) -> Any:
        return collate([{"input_ids": row["input_ids"].tolist()} for row in rows])

    loader = DataLoader(read, BATCH, collate_fn=as_lists)
    return [Way("mosaicml-streaming, MLM collator", lambda: loader, "one a row")]


def of_modernbert(folder: Path, clone: Path) -> list[Way]:
    """Return ModernBERT's own reader and packer, from a clone, on the MDS of `of_streaming`; Composer is not needed."""
    from torch.utils.data import DataLoader

    names = {
        "composer": (), "composer.core": ("Time",), "composer.core.types": ("Batch",), "composer.utils": ("dist",),
        "omegaconf": ("DictConfig", "OmegaConf"),
    }  # fmt: skip
    for name, members in names.items():
        module = types.ModuleType(name)
        for member in members:
            setattr(module, member, type(member, (), {}))
        sys.modules[name] = module
    sys.path.insert(0, str(clone))
    packer = importlib.import_module("src.sequence_packer").GreedyBestFitSequencePacker
    read = importlib.import_module("src.text_data").NoStreamingDataset(str(folder / "mds"), None, SEQ)

    def batches() -> Iterator[Any]:
        loader = DataLoader(read, BATCH, shuffle=True, collate_fn=list)
        return iter(packer.from_composer(
            loader, batch_size=BATCH, micro_batch_size=BATCH, max_seq_len=SEQ, pad_token_id=PAD, mask_token_id=MASK,
            mask_prob=SHARE,
        ))  # fmt: skip

    return [Way("ModernBERT, `NoStreamingDataset` and packer", batches, "yes")]


def compare(folder: Path, options: argparse.Namespace) -> None:
    """Print the table of all ways."""
    import torch

    torch.set_num_threads(1)
    tokens = write_tokens(folder / "tokens", options.tokens)
    documents, collate = documents_of(tokens), _collator(folder)
    ways = of_bertprep(tokens)
    for name, make in zip(PEERS, (of_datasets, of_litdata, of_datatrove, of_streaming), strict=True):
        if importlib.util.find_spec(name):
            ways += make(folder, documents, collate)
    if options.modernbert:
        ways += of_modernbert(folder, options.modernbert)
    seconds: list[list[float]] = [[] for _ in ways]
    counted = []
    for way in ways:
        first = [np.asarray(batch["input_ids"]) for batch in islice(iter(way.batches()), options.batches)]
        counted.append((sum(int((ids != PAD).sum()) for ids in first), sum(ids.size for ids in first)))
    for _ in range(options.runs):
        for way, of_way in zip(ways, seconds, strict=True):
            started = used()
            for _ in islice(iter(way.batches()), options.batches):
                pass
            of_way.append(used() - started)
    print("\n| CPU us for 1,024 tokens | best | median | times the stream | padding | documents apart |")
    print("|---|---:|---:|---:|---:|---|")
    costs = [[1e6 * SEQ * each / real for each in of_way] for of_way, (real, _) in zip(seconds, counted, strict=True)]
    for way, cost, (real, all_tokens) in zip(ways, costs, counted, strict=True):
        times = statistics.median(one / stream for one, stream in zip(cost, costs[0], strict=True))
        cells = [
            f"{min(cost):.1f}",
            f"{statistics.median(cost):.1f}",
            f"{times:.1f}",
            f"{1 - real / all_tokens:.2%}",
            way.apart,
        ]
        print(f"| {way.name} | {' | '.join(cells)} |", flush=True)


def read_at_random(folder: Path, options: argparse.Namespace) -> None:
    """Print the cost of random rows next to rows in order, in batches of 64 from a data set of many windows."""
    tokens = write_tokens(folder / "tokens", round(options.random * 1e6))
    started = used()
    data = bertprep.TokenDataset(tokens, seq=SEQ, masked_lm_prob=SHARE)
    rows = len(data)
    print(f"\n{rows:,} rows were packed in {used() - started:.2f} CPU s")
    random, steps = np.random.default_rng(1), 100
    costs: dict[str, list[float]] = {"in order": [], "at random": []}
    for run in range(options.runs + 1):
        for name, of_name in costs.items():
            first = run * steps * 64 % (rows - steps * 64)
            order = (
                random.integers(0, rows, (steps, 64)) if name == "at random" else first + np.arange(steps * 64).reshape(-1, 64)
            )
            started = used()
            for indices in order.tolist():
                data.__getitems__(indices)
            of_name += [(used() - started) / order.size * 1e6] if run else []
    print("\n| CPU us a row | best | median |\n|---|---:|---:|")
    for name, of_name in costs.items():
        print(f"| {name} | {min(of_name):.1f} | {statistics.median(of_name):.1f} |")


def main() -> None:
    """Make the documents, measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modernbert", type=Path, metavar="CLONE", help="a clone of AnswerDotAI/ModernBERT, measured too")
    parser.add_argument("--random", type=float, metavar="MILLIONS", help="measure rows at random, of so many million tokens")
    parser.add_argument("--tokens", type=int, default=4_000_000, help="of the documents (default: %(default)s)")
    parser.add_argument("--batches", type=int, default=1_000_000, help="of each row of the table, at most (default: an epoch)")
    parser.add_argument("--runs", type=int, default=5, help="of each row (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="where data goes and is removed, which decides the file system")
    options = parser.parse_args()
    if options.modernbert and not (options.modernbert / "src/sequence_packer.py").exists():
        parser.error(f"{options.modernbert}: has no src/sequence_packer.py; clone https://github.com/AnswerDotAI/ModernBERT")
    if options.runs < 1 or (options.random is not None and options.random < 10):
        parser.error("--runs must be at least 1, and --random at least 10, in million tokens")
    print(describe_machine("torch", "transformers", *PEERS.values()))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        (read_at_random if options.random else compare)(Path(folder), options)
