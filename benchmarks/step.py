"""What a training step costs: the engines next to Hugging Face's BertForPreTraining in PyTorch, on an accelerator or a CPU.

On an accelerator, in one command of at most 8 minutes, BERT base in bf16 at 128/20 and 512/80:

    products     the rate at which this machine multiplies large matrices: what MFU is also given against
    JAX          this repository's engine: the largest batch that fits, sequences/s, memory, time to the first step
    PyTorch      the same model with SDPA and torch.compile, its logits gathered too, AdamW fused
    losses       200 steps in float32 and in bf16 next to the same ones on the CPU, of a small model
    profile      of three steps, for TensorBoard and Perfetto; the operations that took longest
    variants     JAX with one thing changed: attention's dropout, deterministic sums, XLA's attention

With --cpu, 32 sequences of 128/20: the engines of TensorFlow, JAX and PyTorch, and Hugging Face's model in PyTorch (gathered,
and as shipped with logits at all positions) take turns, and figures are CPU seconds. One thread is the cleaner comparison:
threads of PyTorch spin while they wait, which counts.

Every measurement is a process of its own, and what does not fit the minutes is left out, with a line. Needs jax and numpy;
torch, transformers and safetensors for PyTorch's rows (--torch-python, if elsewhere), TensorFlow for its own; nothing compiled
of this repository, and no network. What is compiled is kept in --out, which begins empty, so the first row of a shape has what
its first step costs uncompiled. --tiny takes a tiny model and a quarter of the lengths, to try the command; its rows say so.
"""

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks.harness import describe_machine
from bertprep.files.outputs import begins_with, marked_by, write_output
from trainer.batches import features
from trainer.bench import peak_of, synthetic_records
from trainer.engines import choice
from trainer.model_config import ModelConfig
from trainer.settings import EngineSettings, OptimizerSettings
from trainer.tasks import Pretraining

ROOT = Path(__file__).resolve().parents[1]
SHAPES = {"128/20": (128, 20), "512/80": (512, 80)}
FIRST_BATCH = {"128/20": 1024, "512/80": 256}
JAX: dict[str, dict[str, Any]] = {  # of the engine, each compared with the first
    "JAX": {},
    "JAX, dropout of attention": {"attention_dropout": 0.1},
    "JAX, any order of sums": {"deterministic": "off"},
    "JAX, XLA's attention": {"fused": False},
}
TENSORFLOW, TORCH_ENGINE = "TensorFlow", "PyTorch, this engine"
TORCH, SHIPPED = "PyTorch, SDPA, gathered", "PyTorch, SDPA, as shipped"
_ENGINES = {TENSORFLOW: "tensorflow", TORCH_ENGINE: "torch"}  # of variants; the others are JAX's
LOSS_STEPS = 200
TOLERANCES = {"off": 1e-3, "bf16": 0.1}  # of a loss of about 10; the second is what the tests of every engine take
NAMES = {"off": "float32", "bf16": "bf16"}
SECONDS_OF_ROW, SECONDS_OF_FIRST_ROW = 120, 240  # a torch.compile that finds nothing in its cache takes more than 120
OUT_OF_MEMORY = ("out of memory", "resource_exhausted")  # in what PyTorch, JAX and this repository's engine print
HEADER = ("seq/pred", "what", "batch", "sequences/s", "CPU s a step", "model TFLOP/s", "MFU", "of products", "memory",
          "first step after", "first row's time over this")  # fmt: skip

Step = Callable[[int], Callable[[], float | None]]
"""Starts the step of that number; what it returns waits for it, and gives its loss where that costs nothing."""


def make_model(options: argparse.Namespace) -> Any:
    """BERT with dropout; on an accelerator with none of attention, as fused attention needs it, PyTorch's too."""
    model = ModelConfig.preset("tiny" if options.tiny else options.model, vocab_size=1000 if options.tiny else 30522)
    return model if options.cpu else replace(model, attention_probs_dropout_prob=0.0)


def shape_of(options: argparse.Namespace, shape: str) -> tuple[int, int]:
    return (SHAPES[shape][0] // 4, SHAPES[shape][1] // 4) if options.tiny else SHAPES[shape]


def label_of(options: argparse.Namespace, shape: str) -> str:
    """The name of a shape in the table: the shape itself, and with --tiny that it is not BERT base's."""
    seq, pred = shape_of(options, shape)
    return f"{seq}/{pred}{', tiny' if options.tiny else ''}"


def make_batches(model: Any, size: int, seq: int, pred: int, count: int = 2) -> list[Any]:
    rng = np.random.default_rng(1)
    return [features(synthetic_records(rng, size, seq=seq, pred=pred, vocab_size=model.vocab_size)) for _ in range(count)]


def open_engine(options: argparse.Namespace, variant: str, model: Any) -> Any:
    """The engine with that variant's settings."""
    name, settings = _ENGINES.get(variant, "jax"), JAX.get(variant, {})
    if options.cpu and name == "tensorflow":
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    elif options.cpu and name == "torch":
        import torch

        torch.set_num_threads(options.threads)
    elif options.cpu and hasattr(os, "sched_setaffinity"):  # JAX takes as many threads as the process may have
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    deterministic = settings.get("deterministic", "on")
    opened = EngineSettings(engine=name, devices=1, amp=options.precision, deterministic=deterministic)
    engine: Any = choice.open_engine(opened)
    if settings.get("fused") is False:
        engine.execution = engine.execution._replace(has_fused_attention=False)
    if "attention_dropout" in settings:
        model = replace(model, attention_probs_dropout_prob=settings["attention_dropout"])
    engine.build(model, OptimizerSettings(bias_correction=True), seed=1, task=Pretraining())
    return engine


def step_of(engine: Any, batches: list[Any], learning_rate: float = 1e-6) -> Step:
    def begin(number: int) -> Callable[[], float]:
        batch = batches[number % len(batches)]
        waiting = engine.train(batch, step=number + 1, learning_rate=learning_rate, accumulation=1, stop=False)
        return lambda: float(Pretraining().metrics(waiting().sums)["loss"])

    return begin


def refuse_cpu(options: argparse.Namespace, framework: str, device: str) -> None:
    """End where BERT base would run on a CPU unasked, for minutes."""
    if device == "cpu" and not options.tiny and not options.cpu:
        sys.exit(f"{framework} finds no accelerator that it can use; --cpu measures the processor, --tiny tries the command")


def time_steps(begin: Step, size: int, steps: int) -> dict[str, Any]:
    """Each step is started before the one before it is waited for; medians of three runs."""
    started = time.perf_counter()
    loss = begin(0)()
    first = time.perf_counter() - started
    for number in range(1, 4):
        begin(number)()
    seconds, cpu_seconds = [], []
    for _ in range(3):
        started, cpu_started, waiting = time.perf_counter(), time.process_time(), []
        for number in range(steps):
            waiting.append(begin(number))
            if len(waiting) > 1:
                waiting.pop(0)()
        waiting.pop()()
        seconds.append((time.perf_counter() - started) / steps)
        cpu_seconds.append((time.process_time() - cpu_started) / steps)
    found = {"cpu_seconds": statistics.median(cpu_seconds), "first_step": first, "loss": loss}
    return {**found, "sequences_per_second": size / statistics.median(seconds), "batch": size}


def measure_engine(options: argparse.Namespace, shape: str, size: int, variant: str) -> dict[str, Any]:
    """An engine with one batch size."""
    started, model = time.perf_counter(), make_model(options)
    engine = open_engine(options, variant, model)
    refuse_cpu(options, variant, "accelerator" if engine.has_accelerator else "cpu")
    opened = time.perf_counter() - started
    found = time_steps(step_of(engine, make_batches(model, size, *shape_of(options, shape))), size, options.steps)
    limit, attention = None, ""
    if variant in JAX:
        limit = (engine._device.memory_stats() or {}).get("bytes_limit")
        is_fused = engine._step.ops.has_fused_attention and variant != "JAX, dropout of attention"
        attention = "cuDNN's attention" if is_fused else "XLA's attention"
    return {
        **found, "first_step": found["first_step"] + opened, "device": engine.device_name, "memory": engine.peak_memory(),
        "memory_limit": limit, "versions": dict(engine.versions), "attention": attention, "precision": engine.precision,
    }  # fmt: skip


def measure_torch(options: argparse.Namespace, shape: str, size: int, variant: str) -> dict[str, Any]:
    """Hugging Face's model; gathered, with logits at the masked positions only."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    started = time.perf_counter()
    import torch
    import transformers
    from torch.nn.functional import cross_entropy

    model_config, is_gathered = make_model(options), variant == TORCH
    device = "cuda" if torch.cuda.is_available() and not options.cpu else "cpu"
    refuse_cpu(options, "PyTorch", device)
    if options.cpu:
        torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
             "attention_probs_dropout_prob")  # fmt: skip
    settings = {name: getattr(model_config, name) for name in names}
    model = transformers.BertForPreTraining(transformers.BertConfig(**settings, attn_implementation="sdpa")).to(device).train()
    is_fused = is_gathered or None  # None: as PyTorch chooses
    optimizer = torch.optim.AdamW(model.parameters(), 1e-6, eps=1e-6, weight_decay=0.01, fused=is_fused)
    used = ("input_ids", "segment_ids", "masked_lm_positions", "masked_lm_ids", "next_sentence_labels")
    batches = make_batches(model_config, size, *shape_of(options, shape))
    arrays = [{name: torch.tensor(batch[name].astype(np.int64)) for name in used} for batch in batches]
    if device == "cuda":
        arrays = [{name: tensor.pin_memory() for name, tensor in batch.items()} for batch in arrays]
        torch.cuda.reset_peak_memory_stats()

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

    loss_of = gathered_loss if is_gathered else shipped_loss
    compiled = torch.compile(loss_of) if device == "cuda" and not options.tiny else loss_of

    def begin(number: int) -> Callable[[], float | None]:
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
        wait: Callable[[], None] = done.synchronize
        return wait

    opened = time.perf_counter() - started
    found = time_steps(begin, size, options.steps)
    found |= {"device": "CPU", "memory": None, "memory_limit": None}
    if device == "cuda":
        limit = torch.cuda.get_device_properties(0).total_memory
        found |= {"device": torch.cuda.get_device_name(), "memory": torch.cuda.max_memory_allocated(), "memory_limit": limit}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    found |= {"versions": versions, "attention": "SDPA", "precision": "off" if options.precision == "off" else "bf16"}
    return {**found, "first_step": found["first_step"] + opened}


def measure_products(options: argparse.Namespace) -> dict[str, Any]:
    """FLOP/s of products of matrices in BERT base's own shapes, large enough to fill the device, and of square ones.

    A CPU's rate is that of one CPU second.
    """
    import jax
    import jax.numpy as jnp

    refuse_cpu(options, "JAX", jax.devices()[0].platform)
    rows, rates = 512 if options.tiny else 4096 if options.cpu else 65536, {}
    shapes = [(rows, 768, 3072), (rows, 3072, 768), (rows, 768, 2304), (8192, 8192, 8192)]
    clock = time.process_time if options.cpu else time.perf_counter
    dtype = jnp.float32 if options.precision == "off" else jnp.bfloat16
    multiply = jax.jit(jnp.matmul)
    for number, (m, k, n) in enumerate(shapes[:2] if options.tiny or options.cpu else shapes):
        # of random numbers: zeros take less power, and so are faster than what a model multiplies
        left, right = (jax.random.normal(jax.random.key(number), shape, dtype) for shape in ((m, k), (k, n)))

        multiply(left, right).block_until_ready()
        seconds = []
        for _ in range(5):
            started = clock()
            for _ in range(10):
                last = multiply(left, right)
            last.block_until_ready()
            seconds.append((clock() - started) / 10)
        rates[f"{m} x {k} x {n}"] = 2 * m * k * n / statistics.median(seconds)
    return {"best": max(rates.values()), "rates": rates, "device": jax.devices()[0].device_kind}


def measure_losses(options: argparse.Namespace, precision: str) -> dict[str, Any]:
    """The losses of a model that a CPU trains within a minute or two, of the same batches everywhere, without dropout."""
    if os.environ.get("JAX_PLATFORMS") == "cpu" and hasattr(os, "sched_setaffinity"):  # the others prepare steps meanwhile
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[len(cores) // 2 :])
    steps, size = (20, 8) if options.tiny else (LOSS_STEPS, 16)
    model = ModelConfig.preset("tiny" if options.tiny else "mini", vocab_size=make_model(options).vocab_size).without_dropout()
    options.precision = precision
    engine = open_engine(options, "JAX", model)
    begin = step_of(engine, make_batches(model, size, 64, 10, count=8), learning_rate=1e-4)
    return {"losses": [begin(number)() for number in range(steps)], "device": engine.device_name}


def measure_profile(options: argparse.Namespace, shape: str, size: int) -> dict[str, Any]:
    """The operations of three steps that took longest, in milliseconds a step; the whole profile is in --out."""
    import jax

    model = make_model(options)
    begin = step_of(open_engine(options, "JAX", model), make_batches(model, size, *shape_of(options, shape)))
    for number in range(3):
        begin(number)()
    folder = options.out / f"profile_{shape.replace('/', '_')}"
    with jax.profiler.trace(str(folder), create_perfetto_trace=True):
        for number in range(3):
            begin(number)()
    newest = max(folder.rglob("perfetto_trace.json.gz"), key=lambda path: path.stat().st_mtime)
    events = json.loads(gzip.decompress(newest.read_bytes()))["traceEvents"]
    threads = {(e["pid"], e.get("tid")): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    processes = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    total: Counter[str] = Counter()
    for event in events:
        process, thread = processes.get(event.get("pid"), ""), threads.get((event.get("pid"), event.get("tid")), "")
        is_of_device = "device:" in process and ("Stream" in thread or "XLA Ops" in thread)
        if event.get("ph") == "X" and (is_of_device or ("device:" not in process and "XLA" in thread)):
            total[event["name"].rstrip("0123456789.")] += event["dur"] / 1000 / 3
    return {"operations": total.most_common(12), "folder": str(folder)}


MEASURES: dict[str, Callable[..., dict[str, Any]]] = {
    "engine": measure_engine, "torch": measure_torch, "products": measure_products, "losses": measure_losses,
    "profile": measure_profile,
}  # fmt: skip


class Clock:
    """The minutes that are left; what does not start within them is left out."""

    def __init__(self, minutes: float) -> None:
        self._end = time.monotonic() + 60 * minutes
        self.left_out: list[str] = []

    @property
    def left(self) -> float:
        """Seconds; at least one, for what was started in time."""
        return max(self._end - time.monotonic(), 1.0)

    def allows(self, what: str, seconds: float) -> bool:
        if self.left >= seconds:
            return True
        self.left_out.append(what)
        return False


def measure_apart(
    options: argparse.Namespace,
    clock: Clock,
    what: str,
    *arguments: object,
    on_cpu: bool = False,
    seconds: float = SECONDS_OF_ROW,
) -> dict[str, Any]:
    """One measurement in a process of its own; {"error": its last line} where it fails or takes too long."""
    given = {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()}
    python = options.torch_python if what == "torch" else sys.executable
    command = [python, "-m", "benchmarks", "step", "--measure", json.dumps([given, what, *arguments])]
    compiled = options.out.resolve() / ".compiled_by_benchmark"
    caches = {"JAX_COMPILATION_CACHE_DIR": "jax", "TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    environment |= {name: str(compiled / folder) for name, folder in caches.items()}
    if on_cpu or options.cpu:
        environment |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    seconds = min(seconds, clock.left)
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds, env=environment)
    except subprocess.TimeoutExpired:
        return {"error": f"took more than {seconds:.0f} s"}
    results = [line for line in run.stdout.splitlines() if line.startswith("{")]  # a framework may write after its end
    if run.returncode or not results:
        return {"error": error_of(run.stderr)}
    found: dict[str, Any] = json.loads(results[-1])
    return found


def error_of(printed: str) -> str:
    """The line that explains a failed measurement: that of the memory that ran out, or else the last one."""
    lines = printed.strip().splitlines() or ["it printed nothing"]
    return (list(filter(is_out_of_memory, lines)) or lines)[-1].strip()[:200].replace("|", "/")


def is_out_of_memory(line: str) -> bool:
    return any(word in line.lower() for word in OUT_OF_MEMORY)


def find_row(options: argparse.Namespace, clock: Clock, what: str, shape: str, variant: str) -> dict[str, Any]:
    """The largest batch that fits: halved from a first guess until one does, or doubled while half of the memory is free."""
    best: dict[str, Any] = {}
    size = 4 if options.tiny else FIRST_BATCH[shape]
    while size:
        if not clock.allows(f"{label_of(options, shape)} {variant}, a batch of {size}", 20):
            return best if "batch" in best else {"error": f"no time was left for a batch of {size}"}
        seconds = SECONDS_OF_ROW if "batch" in best else SECONDS_OF_FIRST_ROW
        found = measure_apart(options, clock, what, shape, size, variant, seconds=seconds)
        if "error" not in found:
            best, halves = {**found, "batch": size}, "halves" in best
            if halves or not found["memory"] or found["memory"] > 0.45 * (found["memory_limit"] or 0):
                break
            size *= 2
        elif "batch" in best or not is_out_of_memory(found["error"]):
            best = best if "batch" in best else found
            break
        else:
            best, size = {**found, "halves": True}, size // 2
    return best


def show_row(options: argparse.Namespace, shape: str, variant: str, row: dict[str, Any], best: float, ratio: str = "") -> str:
    """A line of the table; `best` is the rate of products."""
    label = label_of(options, shape)
    if "error" in row:
        return f"| {label} | {variant} | {'- | ' * 7}{row['error']} | |"
    seq, pred = shape_of(options, shape)
    each = Pretraining().flops(make_model(options), seq=seq, pred=pred)
    flops, peak = row["sequences_per_second"] * each, peak_of(row["device"])
    of_products = row["batch"] * each / row["cpu_seconds"] if options.cpu else flops  # a CPU's rate is that of a CPU second
    notes = (f"{row['first_step']:.1f} s", row["attention"], NAMES.get(row["precision"], row["precision"]))
    cells = [
        label, variant, f"{row['batch']:,}", f"{row['sequences_per_second']:,.1f}", f"{row['cpu_seconds']:.2f}",
        f"{flops / 1e12:,.1f}", f"{flops / peak:.1%}" if peak else "-", f"{of_products / best:.1%}" if best else "-",
        f"{row['memory'] / 2**30:.1f} GiB" if row["memory"] else "-", ", ".join(filter(None, notes)), ratio,
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def compare_losses(options: argparse.Namespace, clock: Clock, exact: dict[str, Any]) -> str:
    """How far the device's losses are from the CPU's."""
    if "error" in exact:
        return f"losses: on CPU: {exact['error']}"
    expected = np.array(exact["losses"])
    lines = [f"losses: {len(expected)} steps on CPU in float32, from {expected[0]:.3f} to {expected[-1]:.3f}"]
    for precision, tolerance in TOLERANCES.items():
        if not clock.allows(f"the losses in {NAMES[precision]}", 20):
            continue
        found = measure_apart(options, clock, "losses", precision)
        if "error" in found:
            lines.append(f"losses in {NAMES[precision]}: {found['error']}")
            continue
        distance = np.abs(np.array(found["losses"]) - expected).max()
        verdict = f"{'within' if distance < tolerance else 'NOT within'} {tolerance:g}"
        lines.append(f"losses on {found['device']} in {NAMES[precision]}: at most {distance:.1e} from these: {verdict}")
    return "\n".join(lines)


class Report:
    """What is printed and kept: the table, its rows as JSON, and the lines around it."""

    def __init__(self, options: argparse.Namespace, clock: Clock) -> None:
        self.options, self.clock = options, clock
        self.lines: list[str] = []
        self.rows: list[dict[str, Any]] = []
        products = measure_apart(options, clock, "products")
        self.best = products.get("best", 0.0)
        rates = ", ".join(f"{shape} {rate / 1e12:,.2f}" for shape, rate in products.get("rates", {}).items())
        self.say(describe_machine())
        self.say(f"products: {products.get('error') or products['device'] + ', TFLOP/s: ' + rates}")
        self.say(f"\n| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")

    def say(self, line: str) -> None:
        self.lines.append(line)
        print(line, flush=True)

    def add(self, shape: str, variant: str, row: dict[str, Any], ratio: str = "") -> None:
        self.rows.append({"shape": label_of(self.options, shape), "what": variant, **row})
        self.say(show_row(self.options, shape, variant, row, self.best, ratio))

    def close(self) -> None:
        versions = {name: version for row in self.rows for name, version in row.get("versions", {}).items()}
        self.say(f"\n{', '.join(f'{name} {version}' for name, version in versions.items())}")
        for what in self.clock.left_out:
            self.say(f"left out, for want of minutes: {what}")
        rows, table = self.options.out / "rows.json", "\n".join(self.lines) + "\n"
        write_output(self.options.out / "table.md", table.encode(), marked_by(rows), "--out")
        write_output(rows, (json.dumps(self.rows, indent=1) + "\n").encode(), begins_with(b"[\n {\n"), "--out")


def run_on_cpu(options: argparse.Namespace, report: Report) -> None:
    """All variants in turns, round by round."""
    variants = {TENSORFLOW: "engine", "JAX": "engine", TORCH_ENGINE: "engine", TORCH: "torch", SHIPPED: "torch"}
    size = 4 if options.tiny else 32
    rounds = [
        {name: measure_apart(options, report.clock, what, "128/20", size, name, seconds=600) for name, what in variants.items()}
        for _ in range(options.rounds)
    ]
    for name in variants:
        good = [each for each in rounds if not {"error"} & (each[name].keys() | each[TENSORFLOW].keys())]
        ratios = [each[TENSORFLOW]["cpu_seconds"] / each[name]["cpu_seconds"] for each in good]
        ordered = sorted((each[name] for each in good), key=lambda row: row["cpu_seconds"])
        median = ordered[len(ordered) // 2] if ordered else rounds[-1][name]
        report.add("128/20", name, median, f"{statistics.median(ratios):.2f}" if ratios else "")


def run_on_accelerator(options: argparse.Namespace, report: Report) -> None:
    """The largest batches, the losses and the profile; then JAX's variants while there is time."""
    clock = report.clock
    beside = ThreadPoolExecutor(1)
    exact_losses = beside.submit(measure_apart, options, clock, "losses", "off", on_cpu=True, seconds=300)
    main_rows = {}
    for shape in SHAPES:
        main_rows[shape] = find_row(options, clock, "engine", shape, "JAX")
        report.add(shape, "JAX", main_rows[shape])
        report.add(shape, TORCH, find_row(options, clock, "torch", shape, TORCH))
    report.say("\n" + compare_losses(options, clock, exact_losses.result()))
    measured = {shape: row for shape, row in main_rows.items() if "batch" in row}
    for shape, row in measured.items():
        if clock.allows(f"the profile of {label_of(options, shape)}", 25):
            profile = measure_apart(options, clock, "profile", shape, row["batch"])
            longest = ", ".join(f"{name} {each:.1f}" for name, each in profile.get("operations", ()))
            what = f"profile of {label_of(options, shape)}, ms a step"
            report.say(f"{what}: {profile.get('error') or longest}; {profile.get('folder', '')}")
    for variant in list(JAX)[1:]:
        for shape, row in measured.items():
            if clock.allows(f"{label_of(options, shape)} {variant}", 30):
                found = measure_apart(options, clock, "engine", shape, row["batch"], variant)
                ratio = "" if "error" in found else f"{found['sequences_per_second'] / row['sequences_per_second']:.2f}"
                report.add(shape, variant, found, ratio)


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="store_true", help="measure the processor")
    parser.add_argument("--torch-python", default=sys.executable, metavar="PYTHON", help="of an environment with torch")
    parser.add_argument("--model", default=None, help="(default: base; on a CPU small)")
    parser.add_argument("--precision", default="bf16", choices=NAMES, help="(default: bf16)")
    parser.add_argument("--threads", type=int, default=1, help="on a CPU (default: 1)")
    parser.add_argument("--rounds", type=int, default=3, help="on a CPU (default: 3)")
    parser.add_argument("--minutes", type=float, default=8.0, help="on an accelerator (default: 8)")
    parser.add_argument("--steps", type=int, default=None, help="in each of three runs (default: 20; on a CPU 3)")
    parser.add_argument("--out", type=Path, default=Path("data/benchmark_step"), help="(default: %(default)s)")
    parser.add_argument("--tiny", action="store_true", help="try the command")
    parser.add_argument("--measure", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        given, what, *arguments = options.measure
        print(json.dumps(MEASURES[what](argparse.Namespace(**{**given, "out": Path(given["out"])}), *arguments)))
        return
    options.model = options.model or ("small" if options.cpu else "base")
    options.steps = options.steps or (3 if options.cpu else 20)
    options.out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(options.out / ".compiled_by_benchmark", ignore_errors=True)
    report = Report(options, Clock(1e6 if options.cpu else options.minutes))
    (run_on_cpu if options.cpu else run_on_accelerator)(options, report)
    report.close()
