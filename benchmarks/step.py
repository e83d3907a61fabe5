"""Measure what a training step costs: this repository's engines next to Hugging Face's BertForPreTraining in PyTorch.

Every row runs in its own process. The rows take turns in several rounds; their medians and the medians of their ratios to the
first row are printed. "Gathered" computes logits only at the masked positions, as the engines do; "as shipped" computes all.

On an accelerator, the figures are wall seconds of BERT base in bf16. Attention has no dropout in any row, since fused attention
needs that. With --cpu they are CPU seconds of BERT-small; one thread compares best there, since PyTorch's threads spin while
they wait, which counts as CPU time. --tiny uses a tiny model and a quarter of the lengths, to try the command.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks.harness import describe_machine
from trainer.batches import features
from trainer.bench import peak_of, synthetic_records
from trainer.engines import choice
from trainer.model_config import ModelConfig
from trainer.settings import EngineSettings, OptimizerSettings
from trainer.tasks.pretraining import Pretraining

ROOT = Path(__file__).resolve().parents[1]
ENGINES = {"tensorflow": "TensorFlow", "torch": "PyTorch"}
GATHERED, SHIPPED = "gathered", "shipped"
ROWS = {**ENGINES, GATHERED: "Hugging Face, gathered", SHIPPED: "Hugging Face, as shipped"}
HEADER = (
    "row",
    "batch",
    "s a step",
    "sequences/s",
    "model TFLOP/s",
    "MFU",
    "memory",
    "first step after",
    "first row's time over",
)
SECONDS_OF_ROW = 600  # a torch.compile that finds nothing in its cache takes minutes

Step = Callable[[int], Callable[[], object]]
"""A function that starts the step with a number, and returns a function that waits for it."""


def make_model(options: argparse.Namespace) -> ModelConfig:
    """Return the model settings of BERT; on an accelerator, without dropout of attention."""
    model = ModelConfig.preset("tiny" if options.tiny else options.model, vocab_size=1000 if options.tiny else 30522)
    return model if options.cpu else replace(model, attention_probs_dropout_prob=0.0)


def make_batches(options: argparse.Namespace, model: ModelConfig) -> list[Any]:
    """Return two batches of random tokens."""
    rng = np.random.default_rng(1)
    sizes = {"seq": options.seq, "pred": options.pred, "vocab_size": model.vocab_size}
    return [features(synthetic_records(rng, options.batch_size, **sizes)) for _ in range(2)]


def open_engine(options: argparse.Namespace, name: str) -> tuple[Step, Callable[[], dict[str, Any]]]:
    """Return a function for the steps of one of this repository's engines, and one that describes its device at the end."""
    if options.cpu and name == "tensorflow":
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    elif options.cpu and name == "torch":
        import torch

        torch.set_num_threads(options.threads)
    engine: Any = choice.open_engine(EngineSettings(engine=name, devices=1, amp=options.precision))
    refuse_cpu(options, ENGINES[name], has_accelerator=engine.has_accelerator)
    model = make_model(options)
    engine.build(model, OptimizerSettings(bias_correction=True), seed=1, task=Pretraining())
    batches = make_batches(options, model)

    def begin(number: int) -> Callable[[], object]:
        batch = batches[number % len(batches)]
        waiting: Callable[[], object] = engine.train(batch, step=number + 1, learning_rate=1e-6, accumulation=1, stop=False)
        return waiting

    return begin, lambda: {"device": engine.device_name, "memory": engine.peak_memory(), "versions": dict(engine.versions)}


def refuse_cpu(options: argparse.Namespace, framework: str, *, has_accelerator: bool) -> None:
    """Exit if BERT base would run on a CPU for minutes although the user did not ask for that."""
    if not has_accelerator and not options.tiny and not options.cpu:
        sys.exit(f"{framework} finds no accelerator that it can use; --cpu measures the processor, --tiny tries the command")


def open_torch(options: argparse.Namespace, row: str) -> tuple[Step, Callable[[], dict[str, Any]]]:
    """Return a function for the steps of Hugging Face's model with SDPA and AdamW, compiled on a GPU."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    import transformers
    from torch.nn.functional import cross_entropy

    device = "cuda" if torch.cuda.is_available() and not options.cpu else "cpu"
    refuse_cpu(options, "PyTorch", has_accelerator=device == "cuda")
    if options.cpu:
        torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    config = make_model(options)
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
             "attention_probs_dropout_prob")  # fmt: skip
    settings = {name: getattr(config, name) for name in names}
    model = transformers.BertForPreTraining(transformers.BertConfig(**settings, attn_implementation="sdpa")).to(device).train()
    is_fused = True if row == GATHERED else None  # None: as PyTorch chooses
    optimizer = torch.optim.AdamW(model.parameters(), 1e-6, eps=1e-6, weight_decay=0.01, fused=is_fused)
    used = ("input_ids", "segment_ids", "masked_lm_positions", "masked_lm_ids", "next_sentence_labels")
    arrays = [{name: torch.tensor(batch[name].astype(np.int64)) for name in used} for batch in make_batches(options, config)]
    if device == "cuda":
        arrays = [{name: tensor.pin_memory() for name, tensor in batch.items()} for batch in arrays]

    def gathered_loss(batch: dict[str, Any]) -> Any:
        # no mask: all tokens are real, and with one transformers would take a slower kernel
        hidden, pooled = model.bert(batch["input_ids"], token_type_ids=batch["segment_ids"])[:2]
        masked = hidden.gather(1, batch["masked_lm_positions"][..., None].expand(-1, -1, hidden.shape[-1]))
        tokens, next_sentence = model.cls(masked, pooled)
        next_loss = cross_entropy(next_sentence.float(), batch["next_sentence_labels"])
        return cross_entropy(tokens.flatten(0, 1).float(), batch["masked_lm_ids"].flatten()) + next_loss

    def shipped_loss(batch: dict[str, Any]) -> Any:
        ids = batch["input_ids"]
        labels = torch.full_like(ids, -100).scatter(1, batch["masked_lm_positions"], batch["masked_lm_ids"])  # -100: no loss
        next_labels = batch["next_sentence_labels"]
        return model(ids, token_type_ids=batch["segment_ids"], labels=labels, next_sentence_label=next_labels).loss

    loss_of = gathered_loss if row == GATHERED else shipped_loss
    compiled = torch.compile(loss_of) if device == "cuda" and not options.tiny else loss_of

    def begin(number: int) -> Callable[[], object]:
        batch = {name: tensor.to(device, non_blocking=True) for name, tensor in arrays[number % 2].items()}
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=options.precision != "off"):
            loss = compiled(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True if device == "cuda" else None)
        optimizer.step()
        if device == "cpu":
            return partial(float, loss.detach())
        done = torch.cuda.Event()  # reading the loss would wait for the step after it too, and leave the GPU idle between them
        done.record()
        wait: Callable[[], object] = done.synchronize
        return wait

    def describe() -> dict[str, Any]:
        versions = {"torch": torch.__version__, "transformers": transformers.__version__}
        if device == "cpu":
            return {"device": "CPU", "memory": None, "versions": versions}
        return {"device": torch.cuda.get_device_name(), "memory": torch.cuda.max_memory_allocated(), "versions": versions}

    return begin, describe


def measure(options: argparse.Namespace, row: str) -> dict[str, Any]:
    """Measure one row in this process. Each step is started before the program waits for the previous one."""
    started = time.perf_counter()
    begin, describe = open_engine(options, row) if row in ENGINES else open_torch(options, row)
    begin(0)()
    first = time.perf_counter() - started
    for number in range(1, 4):
        begin(number)()
    clock = time.process_time if options.cpu else time.perf_counter
    started_steps = clock()
    waiting = begin(0)
    for number in range(1, options.steps):
        following = begin(number)
        waiting()
        waiting = following
    waiting()
    return {"seconds": (clock() - started_steps) / options.steps, "first_step": first, **describe()}


def measure_apart(options: argparse.Namespace, row: str) -> dict[str, Any]:
    """Measure one row in its own process. Return {"error": its last line} if it fails or takes too long."""
    python = options.torch_python if row in (GATHERED, SHIPPED) else sys.executable
    command = [python, "-m", "benchmarks", "step", "--measure", json.dumps([vars(options), row])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    if options.cpu:
        environment |= {"CUDA_VISIBLE_DEVICES": ""}
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_OF_ROW, env=environment)
    except subprocess.TimeoutExpired:
        return {"error": f"took more than {SECONDS_OF_ROW} s"}
    results = [line for line in run.stdout.splitlines() if line.startswith("{")]  # a framework may write after its end
    if run.returncode or not results:
        return {"error": error_of(run.stderr)}
    found: dict[str, Any] = json.loads(results[-1])
    return found


def error_of(printed: str) -> str:
    """Return the line that explains a failed measurement: the one about memory that ran out, else the last one."""
    lines = printed.strip().splitlines() or ["it printed nothing"]
    of_memory = [line for line in lines if "out of memory" in line.lower() or "resource_exhausted" in line.lower()]
    return (of_memory or lines)[-1].strip()[:200].replace("|", "/")


def show_row(options: argparse.Namespace, row: str, rounds: list[dict[str, Any]], ratios: list[float]) -> str:
    """Return a line of the table, with the medians of all rounds."""
    good = sorted((found for found in rounds if "error" not in found), key=lambda found: float(found["seconds"]))
    if not good:
        return f"| {ROWS[row]} | {options.batch_size} | {rounds[0]['error']} |{' |' * (len(HEADER) - 3)}"
    found = good[len(good) // 2]
    flops = options.batch_size * Pretraining().flops(make_model(options), seq=options.seq, pred=options.pred)
    peak = None if options.cpu else peak_of(found["device"])
    cells = [
        ROWS[row], f"{options.batch_size}", f"{found['seconds']:.3f}", f"{options.batch_size / found['seconds']:,.1f}",
        f"{flops / found['seconds'] / 1e12:,.2f}", f"{flops / found['seconds'] / peak:.1%}" if peak else "-",
        f"{found['memory'] / 2**30:.1f} GiB" if found["memory"] else "-", f"{found['first_step']:.1f} s",
        f"{statistics.median(ratios):.2f}" if ratios else "-",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure the rows in turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS), help=f"{', '.join(ROWS)} (default: all)")
    parser.add_argument("--cpu", action="store_true", help="measure the processor")
    parser.add_argument("--torch-python", default=sys.executable, metavar="PYTHON", help="of an environment with transformers")
    parser.add_argument("--model", help="(default: base; on a CPU small)")
    parser.add_argument("--batch-size", type=int, help="(default: 512; on a CPU 32)")
    parser.add_argument("--seq", type=int, default=128, help="(default: %(default)s)")
    parser.add_argument("--pred", type=int, default=20, help="(default: %(default)s)")
    parser.add_argument("--precision", default="bf16", choices=("bf16", "off"), help="off is float32 (default: bf16)")
    parser.add_argument("--threads", type=int, default=1, help="on a CPU (default: 1)")
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--steps", type=int, help="of each round (default: 20; on a CPU 3)")
    parser.add_argument("--tiny", action="store_true", help="try the command")
    parser.add_argument("--measure", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        given, row = options.measure
        print(json.dumps(measure(argparse.Namespace(**given), row)))
        return
    rows = options.rows.split(",")
    if unknown := set(rows) - ROWS.keys():
        parser.error(f"--rows {','.join(sorted(unknown))}: unknown; choose from {', '.join(ROWS)}")
    options.model = options.model or ("small" if options.cpu else "base")
    options.batch_size = options.batch_size or (32 if options.cpu else 512)
    options.steps = options.steps or (3 if options.cpu else 20)
    if options.tiny:
        options.batch_size, options.seq, options.pred = 4, options.seq // 4, options.pred // 4
    what = f"BERT-{'tiny' if options.tiny else options.model}, {options.seq}/{options.pred}, {options.precision}"
    print(f"{describe_machine()}; {what}\n\n| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}", flush=True)
    rounds = [{row: measure_apart(options, row) for row in rows} for _ in range(options.rounds)]
    for row in rows:
        both = [(found[rows[0]], found[row]) for found in rounds if not {"error"} & (found[rows[0]].keys() | found[row].keys())]
        ratios = [first["seconds"] / this["seconds"] for first, this in both]
        print(show_row(options, row, [found[row] for found in rounds], ratios), flush=True)
    versions = {name: version for found in rounds[0].values() for name, version in found.get("versions", {}).items()}
    print(f"\n{', '.join(f'{name} {version}' for name, version in versions.items())}")
