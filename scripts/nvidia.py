#!/usr/bin/env python3
"""Run the trainer with the positional arguments of NVIDIA's BERT scripts: pretrain_adam, pretrain_lamb, run_squad, run_glue.

Each of these four scripts calls this file with its own name, which is the name of a function here. The function's docstring is
the help, with a table of the arguments in NVIDIA's order with NVIDIA's defaults; the function returns the commands to run.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

PRECISIONS = {"fp16": "fp16", "manual_fp16": "fp16", "fp32": "off", "tf32": "off", "bf16": "bf16"}
XLA = {"true": "on", "false": "off"}
MODELS = {"large": "google-bert/bert-large-uncased", "base": "google-bert/bert-base-uncased"}
NOTES = """
All arguments may be omitted. --steps or --epochs after -- replaces the length that the arguments give. The commands are printed
and then run; with --dry-run, or DRY_RUN=1 in the environment, they are only printed. PYTHON in the environment names another
Python.
"""


def pretrain_adam(given: list[str]) -> list[list[str]]:
    """Pretrain BERT with Adam at one sequence length, by the arguments of NVIDIA's run_pretraining_adam.sh:

    scripts/pretrain_adam [--dry-run] [ARGUMENT...] [-- OPTION...]

     1 train_batch_size        14      sequences per GPU in a micro-batch
     2 eval_batch_size         8       not used: evaluation uses the training batch size
     3 learning_rate           1e-4    PER GPU: the learning rate is this times num_gpus
     4 precision               fp16    or fp32, bf16; manual_fp16 means fp16, tf32 as fp32
     5 use_xla                 true    or false
     6 num_gpus                8       on this host
     7 warmup_steps            10000
     8 train_steps             1144000
     9 save_checkpoint_steps   5000
    10 accumulation            1       micro-batches per step
    11 seq_len                 128
    12 max_pred_per_seq        20      not used: the records have it

    Versions of the original differ. Those that take a bert_model (large or base) have it in position 10, and a seq_len of 512
    as default after it: a name there is recognized, shifts the rest by one, and sets this default. Without a name the model is
    large, as in the original. The newest records of that length in data/tfrecord are used; options after -- go to the trainer
    unchanged, such as -- --format ofrecord --workdir DIR --out DIR.
    """
    model = ""
    if re.match("[a-z]", "".join(given[9:10])):
        model, given = given[9], [*given[:9], *given[10:]]
    values = read(pretrain_adam.__doc__, given, seq_len="512" if model else "128")
    phase = {"seq": values["seq_len"], "steps": values["train_steps"], "batch-size": values["train_batch_size"]}
    phase |= {"accumulate": values["accumulation"], "lr": per_host(values), "warmup-steps": values["warmup_steps"]}
    return [pretrain(values, model or "large", "adam", phase)]


def pretrain_lamb(given: list[str]) -> list[list[str]]:
    """Both phases of BERT's pretraining with LAMB, by the arguments of NVIDIA's run_pretraining_lamb.sh:

    scripts/pretrain_lamb [--dry-run] [ARGUMENT...] [-- OPTION...]

     1 batch_size_phase1       64      sequences per GPU in a micro-batch, of 128 tokens
     2 batch_size_phase2       8       and of 512 tokens
     3 eval_batch_size         8       not used: evaluation uses the training batch size
     4 learning_rate_phase1    7.5e-4  PER GPU: the learning rate is this times num_gpus
     5 learning_rate_phase2    5e-4    PER GPU
     6 precision               fp16    or fp32, bf16; manual_fp16 means fp16, tf32 as fp32
     7 use_xla                 true    or false
     8 num_gpus                8       on this host
     9 warmup_steps_phase1     2000
    10 warmup_steps_phase2     200
    11 train_steps             7820    phase 1 makes 9/10 of them; phase 2 the last 10th, in more steps of a smaller batch
    12 save_checkpoint_steps   100
    13 accumulation_phase1     128     micro-batches per step
    14 accumulation_phase2     512
    15 bert_model              large   or base, or another that python -m trainer --help names

    The defaults are the original's, and those of its example call for 8 GPUs of 32 GB (one version of the original saves every
    5000 steps). Each phase trains on the newest records of its length in data/tfrecord; options after -- go to both runs
    unchanged, such as -- --format ofrecord --workdir DIR. The runs are OUT/phase-1 and OUT/phase-2, by default in
    data/models/lamb_MODEL; OUT in the environment names another folder.
    """
    values = read(pretrain_lamb.__doc__, given)

    model, steps = values["bert_model"], number(values, "train_steps")
    first, second = (number(values, f"batch_size_phase{n}") * number(values, f"accumulation_phase{n}") for n in (1, 2))
    steps_of_phases = steps * 9 // 10, steps // 10 * first // second  # as many sequences as at the first global batch
    if min(steps_of_phases) < 1:
        fail(f"train_steps {steps}: leaves a phase without a step")
    out = os.environ.get("OUT", f"data/models/lamb_{Path(model).stem}")
    commands = []
    for n, seq in ((1, "128"), (2, "512")):
        phase = {"seq": seq, "steps": str(steps_of_phases[n - 1]), "batch-size": values[f"batch_size_phase{n}"]}
        phase |= {"accumulate": values[f"accumulation_phase{n}"], "lr": per_host(values, f"learning_rate_phase{n}")}
        phase |= {"warmup-steps": values[f"warmup_steps_phase{n}"]} | ({"init": f"{out}/phase-1"} if n == 2 else {})
        commands.append(pretrain(values, model, "lamb", phase | {"out": f"{out}/phase-{n}"}))
    return commands


def pretrain(values: dict[str, str], model: str, optimizer: str, phase: dict[str, str]) -> list[str]:
    """Return the command of one pretraining run."""
    which = ["--format", "tfrecord", "--model", model, "--optimizer", optimizer, "--schedule", "nvidia"]
    words = [word for name, value in phase.items() for word in (f"--{name}", value)]
    return ["trainer", *which, *mode(values), "--save-every", values["save_checkpoint_steps"], *words]


def run_squad(given: list[str]) -> list[list[str]]:
    """Fine-tune BERT on SQuAD and score it, by the arguments of NVIDIA's run_squad.sh:

    scripts/run_squad [--dry-run] [ARGUMENT...] [-- OPTION...]

     1 batch_size              8       sequences per GPU
     2 learning_rate           5e-6    PER GPU: the learning rate is this times num_gpus
     3 precision               fp16    or fp32, bf16; manual_fp16 means fp16, tf32 as fp32
     4 use_xla                 true    or false
     5 num_gpus                8       on this host
     6 seq_length              384
     7 doc_stride              128
     8 bert_model              large   or base
     9 squad_version           1.1     or 2.0
    10 init_checkpoint         -       a checkpoint of the trainer, a model.safetensors or Google's bert_model.ckpt; omitted:
                                       Google's weights, as bertprep download weights --model brings them
    11 epochs                  2.0

    First bertprep download squad weights. The records are made if they are missing, of data/download/squad and with the
    vocabulary of bert_model; options after -- go to the trainer unchanged, such as -- --engine oneflow --out DIR. WORKDIR in
    the environment names another workspace than data.
    """
    values = read(run_squad.__doc__, given)
    seq, stride, version = values["seq_length"], values["doc_stride"], values["squad_version"]
    records = f"lower_case_1_seq_len_{seq}_doc_stride_{stride}_max_query_64/squad_v{version}"
    return finetune(values, "squad", ["--version", version], ["--seq", seq, "--doc-stride", stride], records)


def run_glue(given: list[str]) -> list[list[str]]:
    """Fine-tune BERT on a task of GLUE and score it, by the arguments of NVIDIA's run_glue.sh:

    scripts/run_glue [--dry-run] [ARGUMENT...] [-- OPTION...]

     1 task_name               MRPC    or CoLA, MNLI, which are NVIDIA's, and SST-2, QQP, STS-B, QNLI, RTE, WNLI
     2 batch_size              16      sequences per GPU
     3 learning_rate           3e-6    PER GPU: the learning rate is this times num_gpus
     4 precision               fp16    or fp32, bf16; manual_fp16 means fp16, tf32 as fp32
     5 use_xla                 true    or false
     6 num_gpus                8       on this host
     7 seq_length              128
     8 doc_stride              64      not used: a text that is too long is cut
     9 bert_model              large   or base
    10 epochs                  3.0
    11 warmup                  0.1     fraction of the steps in which the learning rate rises
    12 init_checkpoint         -       a checkpoint of the trainer, a model.safetensors or Google's bert_model.ckpt; omitted:
                                       Google's weights, as bertprep download weights --model brings them

    First bertprep download glue weights. The records are made if they are missing, of data/download and with the vocabulary of
    bert_model; options after -- go to the trainer unchanged, such as -- --engine oneflow --out DIR. WORKDIR in the environment
    names another workspace than data.
    """
    values = read(run_glue.__doc__, given)
    name = re.sub("[-_]", "", values["task_name"]).lower()  # SST-2 is sst2
    seq = values["seq_length"]
    commands = finetune(values, "glue", ["--name", name], ["--seq", seq], f"lower_case_1_seq_len_{seq}/glue_{name}")
    commands[1] += ["--warmup", values["warmup"]]
    return commands


def finetune(values: dict[str, str], task: str, which: list[str], lengths: list[str], records: str) -> list[list[str]]:
    """Return the commands that make the records of a task and train on them."""
    workdir, model = os.environ.get("WORKDIR", "data"), choose(values, "bert_model", MODELS)
    named = which[1:] if task == "glue" else which
    make = ["bertprep", "task", task, *named, "--workdir", workdir, *lengths, "--vocab", model]
    train = ["trainer", task, "--workdir", workdir, *which, "--data", f"{workdir}/tfrecord/{records}"]
    train += ["--init", model if values["init_checkpoint"] == "-" else values["init_checkpoint"]]
    train += ["--batch-size", values["batch_size"], "--lr", per_host(values), "--epochs", values["epochs"]]
    return [make, train + mode(values)]


def add_options(command: list[str], options: list[str]) -> list[str]:
    """Return the trainer's command with the user's options, whose --steps or --epochs replaces the script's."""
    lengths = {"--steps", "--epochs"}
    if lengths & {word.partition("=")[0] for word in options}:
        at = next(index for index, word in enumerate(command) if word in lengths)
        command = command[:at] + command[at + 2 :]
    return command + options


def read(table: str | None, given: list[str], **defaults: str) -> dict[str, str]:
    """Return the value of each argument in the table of a help, either given or default."""
    rows = dict(re.findall(r"^ +\d+ (\w+) +(\S+)", table or "", re.MULTILINE)) | defaults
    if len(given) > len(rows):
        fail(f"{len(given)} arguments, expected at most {len(rows)}")
    return rows | dict(zip(rows, given, strict=False))


def mode(values: dict[str, str]) -> list[str]:
    """Return the options that all runs have."""
    precision, xla = choose(values, "precision", PRECISIONS), choose(values, "use_xla", XLA)
    return ["--amp", precision, "--xla", xla, "--devices", values["num_gpus"]]


def choose(values: dict[str, str], name: str, meanings: dict[str, str]) -> str:
    if values[name] not in meanings:
        fail(f"{name} {values[name]}: must be one of {', '.join(meanings)}")
    return meanings[values[name]]


def per_host(values: dict[str, str], name: str = "learning_rate") -> str:
    """Return the learning rate of the global batch."""
    try:
        return f"{float(values[name]) * number(values, 'num_gpus'):.10g}"
    except ValueError:
        fail(f"{name} {values[name]}: must be a number, such as 1e-4")


def number(values: dict[str, str], name: str) -> int:
    if not re.fullmatch("0*[1-9][0-9]{0,8}", values[name]):
        fail(f"{name} {values[name]}: must be a whole number, at least 1")
    return int(values[name])


def fail(message: str) -> NoReturn:
    name = sys.argv[1]
    print(f"{name}: error: {message}; see scripts/{name} --help", file=sys.stderr)
    raise SystemExit(2)


def find_python() -> str:
    """Return $PYTHON, else the Python of .venv unless another environment is active."""
    made = Path(__file__).parents[1] / ".venv" / "bin" / "python"
    usual = str(made) if made.exists() and not os.environ.get("VIRTUAL_ENV") else shutil.which("python") or "python3"
    python = os.environ.get("PYTHON", usual)
    if not shutil.which(python):
        fail(f"PYTHON {python}: is not a program")
    return python


def main() -> int:
    """Print the commands and run them; return the exit status."""
    script = {each.__name__: each for each in (pretrain_adam, pretrain_lamb, run_squad, run_glue)}[sys.argv[1]]
    words = sys.argv[2:]
    at = words.index("--") if "--" in words else len(words)
    options = {word for word in words[:at] if word.startswith("-")}
    if options & {"-h", "--help"}:
        print(f"{script.__doc__}{NOTES}".replace("\n    ", "\n"))
        return 0
    if unknown := options - {"--dry-run"}:
        fail(f"{min(unknown)}: unknown option")
    commands = script([word for word in words[:at] if word != "--dry-run"])
    for command in commands:
        if command[0] == "trainer":
            command = add_options(command, words[at + 1 :])
        command = [find_python(), "-m", *command]
        print(shlex.join(command), flush=True)
        if (
            not options
            and os.environ.get("DRY_RUN", "0") == "0"
            and (status := subprocess.run(command, check=False).returncode)
        ):
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
