"""Frameworks that copy, shuffle, count, split and resume a `TokenDataset`, as people use them."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import bertprep
from bertprep import MaskSchedule, Mixture, PairDataset, TokenDataset
from bertprep.errors import BertprepError, UsageError
from tests.instances.small_tokenizers import TEXT, write_tokenizer

SEQ, BATCH = 64, 4


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Token shards of documents of 1 to 90 words, some of them twice."""
    folder = tmp_path_factory.mktemp("loaders")
    words = " ".join(TEXT).split()
    texts = [" ".join((words * 3)[start : start + 1 + start * 7 % 90]) for start in range(len(words))]
    pa.parquet.write_table(pa.table({"text": [*texts, *texts[:20]]}), folder / "text.parquet")
    tokenizer = write_tokenizer(folder, "byte_bpe")
    bertprep.tokenize(inputs=[folder / "text.parquet"], tokenizer=tokenizer, output=folder / "tokens", workers=1)
    return folder / "tokens"


@pytest.fixture
def dataset(tokens: Path) -> Iterator[TokenDataset]:
    opened = TokenDataset(tokens, seq=SEQ)
    yield opened
    opened.close()


def read(loader: Iterable[Any], count: int = 1 << 30) -> list[list[int]]:
    """The ids of the rows of a loader's first batches."""
    return [ids for batch, _ in zip(loader, range(count), strict=False) for ids in batch["input_ids"].tolist()]


def saved_state(loader: Any) -> Any:
    """The state of a loader, as a checkpoint gives it back."""
    return pickle.loads(pickle.dumps(loader.state_dict()))


def begun(loader: Any, batches: int) -> Iterator[Any]:
    """An iterator over a loader, of which some batches are read."""
    iterator = iter(loader)
    for _ in range(batches):
        next(iterator)
    return iterator


def without_padding(rows: list[list[int]]) -> list[list[int]]:
    """The rows up to their last token, which is [SEP]: batches have different widths."""
    return [ids[: len(ids) - ids[::-1].index(2)] for ids in rows]


def unmasked(rows: Any) -> list[list[int]]:
    """The rows before they were masked: which documents they have."""
    ids, labels = (np.asarray(rows[name]) for name in ("input_ids", "labels"))
    found: list[list[int]] = np.where(labels >= 0, labels, ids).tolist()
    return found


def of_epoch(tokens: Path, epoch: int, **settings: Any) -> list[list[int]]:
    """The ids of an epoch's rows in its order, from a data set that knows of no other epoch."""
    dataset = TokenDataset(tokens, seq=SEQ, **settings)
    rows = dataset.rows_in_epoch
    return dataset.rows(np.arange(rows) + epoch * rows)["input_ids"].tolist()


# --- the epoch


@pytest.mark.torch
@pytest.mark.parametrize(
    ("how", "context"), [("index", "fork"), ("index", "spawn"), ("index", "forkserver"), ("sampler", "fork")]
)
def test_persistent_workers_get_the_next_epoch(how: str, context: str, dataset: TokenDataset, tokens: Path) -> None:
    from torch.utils.data import DataLoader

    sampler = dataset.sampler() if how == "sampler" else None
    loader: Any = DataLoader(
        dataset, batch_size=BATCH, sampler=sampler, collate_fn=dataset.collate, num_workers=2, persistent_workers=True,
        multiprocessing_context=context,
    )  # fmt: skip
    epochs = []
    for epoch in range(3):
        dataset.set_epoch(epoch)
        epochs.append(read(loader))
    if sampler:
        assert epochs == [of_epoch(tokens, epoch) for epoch in range(3)]
    else:
        assert epochs[0] == of_epoch(tokens, 0)
        assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
        dataset.set_epoch(2)
        assert epochs[2] == dataset[:]["input_ids"].tolist()


def test_copies_share_the_epoch_and_a_pickle_carries_it(dataset: TokenDataset) -> None:
    copies = copy.copy(dataset), copy.deepcopy(dataset)
    dataset.set_epoch(2)
    pickled: TokenDataset = pickle.loads(pickle.dumps(dataset))
    assert [each.epoch for each in (*copies, pickled)] == [2, 2, 2]
    assert copies[1][3]["input_ids"].tolist() == dataset[3]["input_ids"].tolist()
    dataset.set_epoch(5)
    assert [each.epoch for each in (*copies, pickled)] == [5, 5, 2]


@pytest.mark.torch
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("how", ["index", "sampler"])
def test_a_state_from_before_in_or_after_an_epoch_goes_on_there(how: str, workers: int, tokens: Path) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    def make() -> tuple[TokenDataset, Any]:
        dataset = TokenDataset(tokens, seq=SEQ)
        sampler = dataset.sampler() if how == "sampler" else None
        return dataset, StatefulDataLoader(
            dataset, batch_size=BATCH, sampler=sampler, collate_fn=dataset.collate, num_workers=workers
        )

    def run(epochs: range, state: Any = None) -> list[list[list[int]]]:
        dataset, loader = make()
        if state:
            loader.load_state_dict(state)
        rows = []
        for epoch in epochs:
            dataset.set_epoch(epoch)
            rows.append(read(loader))
        return rows

    expected = run(range(3))
    assert len({str(rows) for rows in expected}) == 3
    dataset, loader = make()
    before = saved_state(loader)
    assert run(range(3), before) == expected
    dataset, loader = make()
    dataset.set_epoch(1)
    iterator = begun(loader, 3)
    within = saved_state(loader)
    [rest, whole] = run(range(1, 3), within)
    assert (rest, whole) == (expected[1][3 * BATCH :], expected[2])
    read(iterator)
    after = saved_state(loader)
    assert run(range(2, 3), after) == expected[2:]


@pytest.mark.torch
@pytest.mark.parametrize("how", ["index", "sampler"])
def test_an_accelerate_loader_counts_epochs_itself(how: str, dataset: TokenDataset, tokens: Path) -> None:
    from accelerate import Accelerator
    from torch.utils.data import DataLoader

    sampler = dataset.sampler() if how == "sampler" else None
    loader = Accelerator(cpu=True).prepare(
        DataLoader(dataset, batch_size=BATCH, sampler=sampler, collate_fn=dataset.collate)  # type: ignore[arg-type]
    )
    epochs = [read(loader) for _ in range(3)]
    if sampler:
        assert epochs == [of_epoch(tokens, epoch) for epoch in range(3)]
    for epoch, rows in enumerate(epochs):
        dataset.set_epoch(epoch)
        assert sorted(rows) == sorted(dataset[:]["input_ids"].tolist())


@pytest.mark.torch
def test_an_accelerate_loader_skips_the_batches_of_an_epoch_that_were_read(dataset: TokenDataset, tokens: Path) -> None:
    from accelerate import Accelerator
    from torch.utils.data import DataLoader

    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(
        DataLoader(dataset, batch_size=BATCH, sampler=dataset.sampler(), collate_fn=dataset.collate)  # type: ignore[arg-type]
    )
    rest = accelerator.skip_first_batches(loader, 3)
    rest.set_epoch(1)
    assert read(rest) == of_epoch(tokens, 1)[3 * BATCH :]
    loader.set_epoch(2)
    assert read(loader) == of_epoch(tokens, 2)


def read_with_accelerate(rank: int, port: int, tokens: Path, done: Any) -> None:
    """Be one of two processes of accelerate, and report the rows that it reads, and what is refused."""
    from accelerate import Accelerator
    from torch.utils.data import DataLoader

    ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in ranks.items()})
    accelerator = Accelerator(cpu=True)
    dataset: Any = TokenDataset(tokens, seq=SEQ)
    rows = read(
        accelerator.prepare(DataLoader(dataset, batch_size=BATCH, sampler=dataset.sampler(), collate_fn=dataset.collate))
    )
    shares = {"rank": accelerator.process_index, "world": accelerator.num_processes}
    loaders = [
        DataLoader(dataset, batch_size=BATCH, sampler=dataset.sampler(**shares), collate_fn=dataset.collate),
        DataLoader(dataset.stream(BATCH, **shares), batch_size=None),
    ]
    refused = []
    for loader in loaders:
        try:
            read(accelerator.prepare(loader), 1)
        except UsageError as error:
            refused.append(str(error))
    unprepared = read(loaders[0])
    done.put((rank, rows, unprepared, refused))
    accelerator.end_training()


@pytest.mark.torch
def test_rows_are_divided_once_among_the_processes_of_accelerate(dataset: TokenDataset, tokens: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    processes: Any = multiprocessing.get_context("spawn")
    done = processes.Queue()
    started = [processes.Process(target=read_with_accelerate, args=(rank, port, tokens, done)) for rank in range(2)]
    for each in started:
        each.start()
    found = sorted(done.get(timeout=300) for _ in started)
    for each in started:
        each.join()
    expected = {tuple(row) for row in of_epoch(tokens, 0)}
    by_sampler, by_rank = ([{tuple(row) for row in each[which]} for each in found] for which in (1, 2))
    assert by_sampler[0] | by_sampler[1] == expected
    assert not by_rank[0] & by_rank[1]
    assert sum(map(len, by_rank)) == len(dataset) // 2 * 2
    for _, _, _, refused in found:
        assert len(refused) == 2
        assert all("do not prepare() its DataLoader" in line for line in refused)


@pytest.mark.torch
def test_an_evaluation_has_the_same_masks_at_each_pass_of_any_loader(tokens: Path) -> None:
    from accelerate import Accelerator
    from torch.utils.data import DataLoader

    held_out = TokenDataset(tokens, seq=SEQ, held_out=0.3, only_held_out=True)
    loader = Accelerator(cpu=True).prepare(DataLoader(held_out, batch_size=BATCH, collate_fn=held_out.collate))  # type: ignore[arg-type]
    first = read(loader)
    assert read(loader) == first
    assert len(first) == len(held_out)  # the last, incomplete batch too
    fresh = TokenDataset(tokens, seq=SEQ, held_out=0.3, only_held_out=True, same_masks=False)
    before = fresh[:]["input_ids"].tolist()
    fresh.set_epoch(1)
    assert fresh[:]["input_ids"].tolist() != before


def count_epochs(dataset: TokenDataset, others: Any, done: Any) -> None:
    """Be one of several programs with the same data set, that count epochs each for itself, and report the rows of epoch 1."""
    dataset.set_epoch(1)
    others.wait()  # until all of them have chosen an epoch
    done.put(dataset[:3]["input_ids"].tolist())


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_programs_that_start_with_one_data_set_count_epochs_each_for_itself(context: str, dataset: TokenDataset) -> None:
    processes: Any = multiprocessing.get_context(context)
    expected = dataset[:3]["input_ids"].tolist()
    others, done = processes.Barrier(3), processes.Queue()
    started = [processes.Process(target=count_epochs, args=(dataset, others, done)) for _ in range(2)]
    for each in started:
        each.start()
    others.wait(100)
    found = [done.get(timeout=100) for _ in started]
    assert dataset.epoch == 0
    assert dataset[:3]["input_ids"].tolist() == expected
    dataset.set_epoch(1)
    assert found == [dataset[:3]["input_ids"].tolist()] * 2
    for each in started:
        each.join()


# --- indices


@pytest.mark.torch
def test_a_part_of_a_data_set_has_the_same_documents_in_every_epoch(dataset: TokenDataset) -> None:
    import torch
    from torch.utils.data import DataLoader, Subset, random_split

    training, validation = random_split(dataset, [0.8, 0.2], generator=torch.Generator().manual_seed(0))  # type: ignore[var-annotated,arg-type]
    of_parts = []
    for epoch in range(2):
        dataset.set_epoch(epoch)
        loaders = [
            DataLoader(part, batch_size=BATCH, collate_fn=dataset.collate, shuffle=True) for part in (training, validation)
        ]
        of_parts.append([sorted(row for batch in each for row in unmasked(batch)) for each in loaders])
        few = Subset(dataset, [5, 3, 9])  # type: ignore[var-annotated,arg-type]
        assert unmasked(dataset[[5, 3, 9]]) == [unmasked(few[i]) for i in range(3)]
    assert of_parts[0] == of_parts[1]


@pytest.mark.torch
def test_a_random_sampler_of_some_indices_reads_the_same_documents_in_every_epoch(dataset: TokenDataset) -> None:
    from torch.utils.data import DataLoader, SubsetRandomSampler

    indices = np.random.default_rng(1).permutation(len(dataset)).tolist()
    samplers = [SubsetRandomSampler(part) for part in (indices[:60], indices[60:])]
    of_epochs = []
    for epoch in range(2):
        dataset.set_epoch(epoch)
        loaders = [DataLoader(dataset, BATCH, sampler=each, collate_fn=dataset.collate) for each in samplers]  # type: ignore[arg-type]
        of_epochs.append([sorted(row for batch in each for row in unmasked(batch)) for each in loaders])
    assert of_epochs[0] == of_epochs[1]


@pytest.mark.torch
@pytest.mark.parametrize(
    "settings", [{"masked_lm_prob": MaskSchedule(0.5, 0.1, rows=100)}, {"packed": False, "by_length": True}]
)
def test_what_needs_an_order_is_read_by_the_sampler_and_refused_by_index(settings: dict[str, Any], tokens: Path) -> None:
    from torch.utils.data import DataLoader

    dataset: Any = TokenDataset(tokens, seq=SEQ, **settings)
    for rows in (3, slice(3), [1, 2]):
        with pytest.raises(
            UsageError, match=r"has (a MaskSchedule|rows of similar length together), .*sampler=dataset\.sampler\(\)"
        ):
            dataset[rows]
    with pytest.raises(UsageError, match=r"sampler=dataset\.sampler\(\)"):
        read(DataLoader(dataset, batch_size=BATCH, shuffle=True, collate_fn=dataset.collate))
    loader = DataLoader(dataset, batch_size=BATCH, sampler=dataset.sampler(), collate_fn=dataset.collate, num_workers=2)
    for epoch in range(2):
        dataset.set_epoch(epoch)
        rows = dataset.rows_in_epoch
        expected = dataset.rows(np.arange(rows) + epoch * rows)
        assert without_padding(read(loader)) == without_padding(expected["input_ids"].tolist())


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["plain", "schedule", "length", "mixture"])
def test_lightning_shuffles_the_sampler_again_for_several_processes(kind: str, tokens: Path) -> None:
    from lightning.fabric.utilities.distributed import DistributedSamplerWrapper
    from torch.utils.data import DataLoader

    dataset: Any = TokenDataset(tokens, seq=SEQ)
    if kind == "mixture":
        dataset = Mixture([(dataset, 0.7), (TokenDataset(tokens, seq=SEQ, seed=2), 0.3)])
    elif kind != "plain":
        others = {
            "schedule": {"masked_lm_prob": MaskSchedule(0.5, 0.1, rows=100)},
            "length": {"by_length": True, "packed": False},
        }
        dataset = TokenDataset(tokens, seq=SEQ, **others[kind])
    sampler: Any = DistributedSamplerWrapper(dataset.sampler(), num_replicas=2, rank=0, shuffle=True)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler, collate_fn=dataset.collate)
    if kind == "plain":
        assert len(read(loader)) == -(-len(dataset) // 2)
        return
    with pytest.raises(UsageError, match="use_distributed_sampler=False"):
        read(loader)
    of_rank = DataLoader(dataset, batch_size=16, sampler=dataset.sampler(rank=1, world=2), collate_fn=dataset.collate)
    found = without_padding(read(of_rank))
    assert found == without_padding(dataset.rows(np.arange(1, len(found) * 2, 2))["input_ids"].tolist())


def test_ranks_of_a_sampler_share_an_epoch(dataset: TokenDataset) -> None:
    dataset.set_epoch(1)
    whole = [position.in_run for position in dataset.sampler()]
    ranks = [[position.in_run for position in dataset.sampler(rank=rank, world=3)] for rank in range(3)]
    assert {len(positions) for positions in ranks} == {len(dataset) // 3}
    assert [position for step in zip(*ranks, strict=True) for position in step] == whole[: len(dataset) // 3 * 3]
    for rank, world in ((2, 2), (-1, 2), (0, 10**6), (None, 2), (0, None)):
        with pytest.raises(UsageError, match="rank"):
            dataset.sampler(rank=rank, world=world)  # type: ignore[arg-type]


@pytest.mark.torch
def test_the_sampler_is_given_as_the_sampler_of_batches(dataset: TokenDataset) -> None:
    from torch.utils.data import DataLoader

    with pytest.raises(UsageError, match="sampler=, beside a batch_size"):
        read(DataLoader(dataset, batch_sampler=dataset.sampler(), collate_fn=dataset.collate))  # type: ignore[arg-type]


@pytest.mark.torch
def test_the_sampler_of_another_data_set_is_given(dataset: TokenDataset, tokens: Path) -> None:
    """As when the loader of an evaluation is copied from that of training."""
    from torch.utils.data import DataLoader

    held_out: Any = TokenDataset(tokens, seq=SEQ, held_out=0.3, only_held_out=True)
    with pytest.raises(UsageError, match=r"with the sampler of another data set; give .* its own sampler\(\)"):
        read(DataLoader(held_out, batch_size=BATCH, sampler=dataset.sampler(), collate_fn=held_out.collate))
    same: Any = TokenDataset(tokens, seq=SEQ)
    assert read(DataLoader(same, batch_size=BATCH, sampler=dataset.sampler(), collate_fn=same.collate)) == of_epoch(tokens, 0)


def test_the_rows_of_a_mixture_have_positions_only(tokens: Path) -> None:
    mixture = Mixture([(TokenDataset(tokens, seq=SEQ), 0.7), (TokenDataset(tokens, seq=SEQ, seed=2), 0.3)])
    with pytest.raises(UsageError, match=r"sampler=dataset\.sampler\(\)"):
        mixture[3]
    found = mixture.__getitems__([*mixture.sampler()][:9]).columns["input_ids"]
    np.testing.assert_array_equal(found, mixture.rows(np.arange(9))["input_ids"])


# --- documents that are held out


def test_no_document_is_both_held_out_and_trained_on(tokens: Path) -> None:
    settings: dict[str, Any] = {"seq": 256, "packed": False}
    training = TokenDataset(tokens, held_out=0.2, **settings)
    held_out = TokenDataset(tokens, held_out=0.2, only_held_out=True, **settings)
    everything = TokenDataset(tokens, **settings)
    documents = [Counter(map(tuple, unmasked(each[:]))) for each in (training, held_out, everything)]
    assert documents[0] + documents[1] == documents[2]
    assert not documents[0].keys() & documents[1].keys()  # equal documents are on one side
    assert 0.1 < len(documents[1]) / len(documents[2]) < 0.3
    again = TokenDataset(tokens, held_out=0.2, seed=9, only_held_out=True, **settings)
    assert Counter(map(tuple, unmasked(again[:]))) != documents[1]


@pytest.mark.torch
def test_every_process_holds_the_same_documents_out_whatever_its_random_state(tokens: Path) -> None:
    import torch

    found = []
    for rank in range(2):
        torch.manual_seed(rank)
        np.random.seed(rank)
        found.append(unmasked(TokenDataset(tokens, seq=SEQ, held_out=0.2, only_held_out=True)[:]))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"held_out": 1.0}, "held_out 1.0: expected a fraction"),
        ({"held_out": "10%"}, "held_out '10%': expected a fraction"),
        ({"only_held_out": True}, "no documents are held out"),
        ({"held_out": 1e-12, "only_held_out": True}, "none of its .* documents"),
    ],
)
def test_a_part_that_cannot_be_held_out_is_refused(settings: dict[str, Any], message: str, tokens: Path) -> None:
    with pytest.raises(UsageError, match=message):
        TokenDataset(tokens, **settings)


# --- streams


@pytest.mark.torch
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("size", [{"batch_size": BATCH}, {"tokens": 512}])
def test_each_pass_over_a_stream_of_one_epoch_is_whole(
    size: dict[str, int], persistent: bool, workers: int, tokens: Path
) -> None:
    from torch.utils.data import DataLoader

    dataset = TokenDataset(tokens, seq=SEQ, packed="tokens" not in size)
    stream = dataset.stream(epochs=1, **size)
    loader = DataLoader(stream, batch_size=None, num_workers=workers, persistent_workers=persistent and workers > 0)
    read(loader, 2)  # broken off, as a validation of a few batches
    passes = []
    for epoch in (0, 0, 1):
        dataset.set_epoch(epoch)
        passes.append(read(loader))
        expected = of_epoch(tokens, epoch, packed=dataset.packed)
        rows = len(stream) * BATCH if dataset.packed else len(expected)
        assert without_padding(passes[-1]) == without_padding(expected[:rows])
    assert passes[0] == passes[1] != passes[2]


@pytest.mark.torch
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_of_one_epoch_goes_on_from_any_state(workers: int, tokens: Path) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    def make() -> tuple[TokenDataset, Any]:
        dataset = TokenDataset(tokens, seq=SEQ)
        return dataset, StatefulDataLoader(dataset.stream(BATCH, epochs=1), batch_size=None, num_workers=workers)

    dataset, loader = make()
    expected = []
    for epoch in range(2):
        dataset.set_epoch(epoch)
        expected.append(read(loader))
        if epoch == 0:
            after = saved_state(loader)
    dataset, loader = make()
    loader.load_state_dict(after)
    dataset.set_epoch(1)
    assert read(loader) == expected[1]
    dataset, loader = make()
    dataset.set_epoch(1)
    reading = begun(loader, 3)
    within = saved_state(loader)
    del reading
    dataset, loader = make()
    loader.load_state_dict(within)
    dataset.set_epoch(1)
    assert read(loader) == expected[1][3 * BATCH :]


@pytest.mark.torch
def test_a_stream_without_a_batch_is_refused(dataset: TokenDataset) -> None:
    for settings in ({"batch_size": 10**5, "epochs": 1}, {"batch_size": BATCH, "world": 10**4, "epochs": 2}):
        with pytest.raises(UsageError, match="too few for a batch of"):
            dataset.stream(**settings)  # type: ignore[arg-type]
    stream = dataset.stream(BATCH, epochs=1)
    with pytest.raises(UsageError, match=f"this stream has {len(stream)}$"):
        stream.load_state_dict({"batch": 10**6})


@pytest.mark.torch
@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_that_would_be_batched_again_is_refused(workers: int, dataset: TokenDataset, tmp_path: Path) -> None:
    from torch.utils.data import DataLoader
    from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments

    with pytest.raises(BertprepError, match="batch_size=None"):
        next(iter(DataLoader(dataset.stream(BATCH), batch_size=BATCH, num_workers=workers)))
    model = BertForMaskedLM(BertConfig(num_hidden_layers=1, hidden_size=8, num_attention_heads=1, intermediate_size=8))
    arguments = TrainingArguments(
        str(tmp_path), max_steps=1, report_to="none", use_cpu=True, disable_tqdm=True, dataloader_num_workers=workers
    )
    with pytest.raises(BertprepError, match="batch_size=None"):
        Trainer(model, arguments, train_dataset=dataset.stream(BATCH)).train()


@pytest.mark.torch
def test_a_stream_is_not_divided_once_more_by_accelerate(dataset: TokenDataset) -> None:
    from accelerate import Accelerator
    from torch.utils.data import DataLoader

    expected = read(dataset.stream(BATCH), 3)
    loader = Accelerator(cpu=True).prepare(DataLoader(dataset.stream(BATCH), batch_size=None))
    assert read(loader, 3) == expected
    of_rank = Accelerator(cpu=True).prepare(DataLoader(dataset.stream(BATCH, rank=1, world=2), batch_size=None))
    with pytest.raises(UsageError, match=r"do not prepare\(\)"):
        read(of_rank, 1)


# --- trainers


@pytest.mark.torch
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("collator", ["default", "masks", "derived"])
def test_a_collator_of_transformers_is_refused(
    collator: str, workers: int, tokens: Path, dataset: TokenDataset, tmp_path: Path
) -> None:
    from transformers import (
        BertConfig,
        BertForMaskedLM,
        DataCollatorForLanguageModeling,
        PreTrainedTokenizerFast,
        Trainer,
        TrainingArguments,
    )

    given: Any = None
    if collator != "default":

        class Derived(DataCollatorForLanguageModeling):
            """As programs change which tokens are masked."""

        names = {"mask_token": "[MASK]", "pad_token": "[PAD]"}
        given = (Derived if collator == "derived" else DataCollatorForLanguageModeling)(
            PreTrainedTokenizerFast(tokenizer_file=str(tokens.parent / "byte_bpe" / "tokenizer.json"), **names)
        )
    model = BertForMaskedLM(BertConfig(num_hidden_layers=1, hidden_size=8, num_attention_heads=1, intermediate_size=8))
    arguments = TrainingArguments(
        str(tmp_path), max_steps=1, report_to="none", use_cpu=True, disable_tqdm=True, dataloader_num_workers=workers
    )
    with pytest.raises(UsageError, match=r"data_collator=dataset\.collate_for\(model\)"):
        Trainer(model, arguments, train_dataset=dataset, data_collator=given).train()
    if collator == "default":  # takes rows of one sequence as they are
        unpacked: Any = TokenDataset(tokens, seq=SEQ, packed=False)
        model.resize_token_embeddings(unpacked.documents.tokenizer.width)
        Trainer(model, arguments, train_dataset=unpacked).train()


def sampled_trainer(*arguments: Any, **settings: Any) -> Any:
    """The Trainer of transformers with our sampler, as the docs have it."""
    from transformers import Trainer

    class SampledTrainer(Trainer):
        def _get_train_sampler(self, train_dataset: Any = None) -> Any:  # noqa: ARG002
            return self.train_dataset.sampler()

    return SampledTrainer(*arguments, **settings)


@pytest.mark.torch
def test_the_trainer_goes_on_within_an_epoch(dataset: TokenDataset, tmp_path: Path) -> None:
    from transformers import BertConfig, BertForMaskedLM, TrainingArguments

    steps = -(-len(dataset) // 64)
    config = BertConfig(
        num_hidden_layers=1, hidden_size=8, num_attention_heads=1, intermediate_size=8,
        vocab_size=dataset.documents.tokenizer.width,
    )  # fmt: skip
    seen: list[list[int]] = []

    def run(until: int, checkpoint: str | None = None) -> list[list[int]]:
        seen.clear()
        model = BertForMaskedLM(config)
        collate = dataset.collate_for(model)

        def collate_and_note(rows: Any) -> Any:
            seen.extend(dataset.collate(rows)["input_ids"].tolist())
            return collate(rows)

        arguments = TrainingArguments(
            str(tmp_path), num_train_epochs=3, per_device_train_batch_size=64, report_to="none", use_cpu=True,
            disable_tqdm=True, save_steps=steps + steps // 2, save_only_model=False,
        )  # fmt: skip
        callbacks = [dataset.trainer_callback()]
        trainer = sampled_trainer(model, arguments, train_dataset=dataset, data_collator=collate_and_note, callbacks=callbacks)
        trainer.train(resume_from_checkpoint=checkpoint)
        return seen[-until:]

    rest = 3 * len(dataset) - len(dataset) - 64 * (steps // 2)
    expected = run(rest)
    dataset.set_epoch(0)
    assert run(rest, str(tmp_path / f"checkpoint-{steps + steps // 2}")) == expected
    assert expected == dataset.rows(np.arange(3 * len(dataset) - rest, 3 * len(dataset)))["input_ids"].tolist()


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["schedule", "mixture"])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_trainer_of_transformers_reads_by_our_sampler(kind: str, workers: int, tokens: Path, tmp_path: Path) -> None:
    from transformers import BertConfig, BertForMaskedLM, TrainingArguments

    dataset: Any = TokenDataset(tokens, seq=SEQ, masked_lm_prob=MaskSchedule(0.5, 0.1, rows=200))
    if kind == "mixture":
        dataset = Mixture([(TokenDataset(tokens, seq=SEQ), 0.7), (TokenDataset(tokens, seq=SEQ, seed=2), 0.3)])
    width = (dataset.sets[0] if kind == "mixture" else dataset).documents.tokenizer.width
    model = BertForMaskedLM(
        BertConfig(num_hidden_layers=1, hidden_size=8, num_attention_heads=1, intermediate_size=8, vocab_size=width)
    )
    collate, seen = dataset.collate_for(model), []

    def collate_and_note(rows: Any) -> Any:
        seen.extend(dataset.collate(rows)["input_ids"].tolist())
        return collate(rows)

    arguments = TrainingArguments(
        str(tmp_path), num_train_epochs=2, per_device_train_batch_size=64, report_to="none", use_cpu=True, disable_tqdm=True,
        dataloader_num_workers=workers, dataloader_persistent_workers=workers > 0, save_strategy="no",
    )  # fmt: skip
    trainer = sampled_trainer(
        model, arguments, train_dataset=dataset, data_collator=collate if workers else collate_and_note,
        callbacks=[dataset.trainer_callback()],
    )  # fmt: skip
    trainer.train()
    if not workers:
        assert seen == dataset.rows(np.arange(2 * len(dataset)))["input_ids"].tolist()


@pytest.mark.torch
def test_lightning_sets_the_epoch_of_our_sampler(dataset: TokenDataset, tokens: Path, tmp_path: Path) -> None:
    import lightning
    import torch
    from torch.utils.data import DataLoader

    class Reading(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))
            self.read: dict[int, list[list[int]]] = {}

        def training_step(self, batch: Any, _: int) -> Any:
            self.read.setdefault(self.current_epoch, []).extend(batch["input_ids"].tolist())
            return self.weight.sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module = Reading()
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path, barebones=False,
    )  # fmt: skip
    trainer.fit(module, DataLoader(dataset, batch_size=BATCH, sampler=dataset.sampler(), collate_fn=dataset.collate))  # type: ignore[arg-type]
    assert [module.read[epoch] for epoch in range(2)] == [of_epoch(tokens, epoch) for epoch in range(2)]


@pytest.mark.parametrize("columns", [None, ["text"], ["label"]])
def test_a_data_set_with_a_transform_is_not_read_raw(columns: list[str] | None, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    stored = datasets.Dataset.from_dict({"text": TEXT, "label": [0] * len(TEXT)})
    given = stored.with_transform(lambda batch: {name: [f"{each}?" for each in batch[name]] for name in batch}, columns=columns)
    settings: dict[str, Any] = {"tokenizer": write_tokenizer(tmp_path, "byte_bpe"), "output": tmp_path / "out", "workers": 1}
    for each in (given, datasets.DatasetDict({"train": given})):
        with pytest.raises(UsageError, match=r"has a transform, .*dataset\.with_format\(None\)"):
            bertprep.tokenize(dataset=each, **settings)
    assert bertprep.tokenize(dataset=given.with_format(None), **settings)


def test_a_data_set_with_a_format_of_the_same_values_is_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    given = datasets.Dataset.from_dict({"text": TEXT}).with_format("numpy")
    tokenizer = write_tokenizer(tmp_path, "byte_bpe")
    assert bertprep.tokenize(dataset=given, tokenizer=tokenizer, output=tmp_path / "out", workers=1)


def test_pairs_hold_no_documents_out(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="held_out"):
        PairDataset(tmp_path, held_out=0.1)


@pytest.mark.torch
@pytest.mark.parametrize("settings", [{}, {"by_length": True}])
def test_ranks_have_equally_many_batches_by_tokens_in_every_epoch(settings: dict[str, Any], tokens: Path) -> None:
    dataset = TokenDataset(tokens, seq=SEQ, packed=False, **settings)
    streams = [dataset.stream(tokens=256, rank=rank, world=2, epochs=1) for rank in range(2)]
    for epoch in range(6):
        dataset.set_epoch(epoch)
        passes = [list(stream) for stream in streams]
        assert {len(batches) for batches in passes} == {len(streams[0])}
        read_rows = sum(len(batch["input_ids"]) for batches in passes for batch in batches)
        last = max(len(batch["input_ids"]) for batches in passes for batch in batches)
        assert len(dataset) - last <= read_rows <= len(dataset)
