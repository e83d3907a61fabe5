"""The trainer's command line: defaults are chosen and printed, every option arrives, and each ending has its exit status."""

import argparse
import re
import signal
from pathlib import Path

import pytest

import trainer
from bertprep import __version__
from bertprep.weights.hugging_face import save_weights
from bertprep.work.layout import VOCABULARY
from tests.trainer.numpy_engine import at_step, plan, refuse, run_command
from tests.trainer.small_data import TOKENS, write_data, write_in_workspace
from trainer.cli import COMMANDS, HINTS, main, make_parser
from trainer.model_config import ModelConfig
from trainer.optimizers import Schedule
from trainer.settings import EngineSettings, OptimizerSettings
from trainer.tasks.pretraining import Pretraining
from trainer.weights import initial_values

TINY = ModelConfig.preset("tiny", vocab_size=10)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def printed_plan(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    return {line[:15].strip(): line[15:] for line in capsys.readouterr().err.splitlines()}


def test_defaults_are_chosen_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    newest = write_in_workspace(Path("data"), "made", time=2, seq=128, pred=20, records=100, record_format="ofrecord")
    write_in_workspace(Path("data"), "made", time=1, seq=128, pred=20)
    run = plan("pretrain")
    assert run.model == TINY
    assert (run.data.folders, run.options.batch_size, run.schedule.steps) == ((newest,), 32, 3)
    assert (run.data.vocabulary, run.data.cased) == (newest / VOCABULARY, False)
    parts = {
        "task": "sentence pairs", "model": "2 layers of 128, a vocabulary of 10, 497,420 parameters", "init": "random weights",
        "data": f"{newest}: 100 training records of 128/20, ofrecord",
        "global batch": "32 sequences: 32 x 1 (devices) x 1 (accumulated)", "steps": "3; epochs: 0.96",
        "learning rate": "0.0001 after 0 steps", "optimizer": "adam",
        "out": "data/models/tiny_corpus_ofrecord_seq_128_adam_3_steps", "engine": "tensorflow", "precision": "float32",
        "devices": "NumPy",
    }  # fmt: skip
    printed = printed_plan(capsys)
    assert list(printed) == list(parts)
    for name, part in parts.items():
        assert part in printed[name]


def test_the_default_out_names_model_corpora_and_format() -> None:
    made = {"seq": 128, "pred": 20, "records": 100}
    corpus = write_in_workspace(Path("data"), "made", time=1, corpus="wiki", **made)
    of_one = plan("pretrain")
    newer = {**made, "corpus": "try", "records": 70, "record_format": "ofrecord", "tokens": (*TOKENS, "x")}
    write_in_workspace(Path("data"), "tried", time=2, **newer)
    of_newest = plan("pretrain")
    of_both = plan(f"--data {corpus} {write_data(Path('second'), corpus='books', **made)}")
    other = write_data(Path("other"), records=100, tokens=None, has_manifest=False)
    Path("mine.json").write_text(ModelConfig(vocab_size=10).to_json())
    of_file = plan(f"--data {other} --model mine.json --no-dropout")
    assert of_file.model == ModelConfig(vocab_size=10).without_dropout()
    on_accelerator = plan(f"--data {corpus} --workdir w", has_accelerator=True)
    assert on_accelerator.model == ModelConfig.preset("base", vocab_size=10)
    assert [str(run.out) for run in (of_one, of_newest, of_both, of_file, on_accelerator)] == [
        "data/models/tiny_wiki_tfrecord_seq_128_adam_3_steps",
        "data/models/tiny_try_ofrecord_seq_128_adam_2_steps",
        "data/models/tiny_wiki_books_tfrecord_seq_128_adam_6_steps",
        "data/models/mine_corpus_tfrecord_seq_8_adam_3_steps",
        "w/models/base_wiki_tfrecord_seq_128_adam_3_steps",
    ]


@pytest.mark.parametrize(
    ("line", "schedule"),
    [
        ("--optimizer lamb", Schedule.nvidia("lamb", peak=2e-3, steps=100, warmup_steps=10)),
        ("--schedule nvidia", Schedule.nvidia("adam", peak=1e-4, steps=100, warmup_steps=10)),
        ("--schedule google --optimizer lamb --warmup 0.2", Schedule(peak=2e-3, steps=100, warmup_steps=20)),
        ("--lr 1e-3 --warmup-steps 7", Schedule(peak=1e-3, steps=100, warmup_steps=7)),
    ],
)
def test_the_schedule_is_the_optimizers_own_or_the_given(line: str, schedule: Schedule) -> None:
    write_data(Path("a"), records=128)
    assert plan(f"--data a --steps 100 {line}").schedule == schedule


def test_devices_make_the_global_batch(capsys: pytest.CaptureFixture[str]) -> None:
    write_data(Path("a"), records=128)
    run = plan("--data a --batch-size 1 --accumulate 2 --amp bf16 --xla", devices=4, processes=2)
    assert run.schedule == Schedule(peak=1e-4, steps=16, warmup_steps=1)  # 128 records, 1 x 4 x 2 a step; a tenth of it
    printed = printed_plan(capsys)
    assert printed["global batch"].startswith("8 sequences: 1 x 4 (devices) x 2 (accumulated)")
    assert printed["precision"].startswith("bf16")
    assert (printed["precision"][-3:], printed["devices"]) == ("XLA", "NumPy, 2 processes")
    plan("--data a --batch-size 1 --hosts one:1,two:1 --host-rank 1", devices=4, processes=2, rank=1)
    assert capsys.readouterr().err.count("\n") == 1


def test_every_option_arrives() -> None:
    write_data(Path("a"), records=128)
    save_weights(Path("model.safetensors"), initial_values(TINY, seed=1, task=Pretraining()))
    optimizer = {"weight_decay": 0.1, "beta_1": 0.8, "beta_2": 0.98, "epsilon": 1e-8, "clip_norm": 2.0}
    names = ["log_every", "eval_every", "eval_sequences", "save_every", "keep", "seed", "skip_bad_records"]
    counts = {name: count for count, name in enumerate(names, 1)}
    given = {**{name.replace("beta_", "beta"): value for name, value in optimizer.items()}, **counts}
    numbers = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in given.items())
    engines = []
    run = plan(
        f"pretrain --data a --out out --init model.safetensors --model tiny --batch-size 8 {numbers} --no-resume --lengthen "
        "--bias-correction --keep-best --attention-dropout 0 --engine tensorflow --devices 2 --hosts one:1,two:2 --host-rank 1 "
        "--amp fp16 --xla --deterministic off",
        on_open=engines.append,
    )
    assert {name: getattr(run.options, name) for name in counts} == counts
    assert (run.out, run.init, run.options.resume) == (Path("out"), Path("model.safetensors"), False)
    assert (run.options.lengthen, run.keep_best, run.model.attention_probs_dropout_prob) == (True, True, 0)
    assert run.optimizer == OptimizerSettings(bias_correction=True, **optimizer)
    assert engines == [
        EngineSettings(
            engine="tensorflow", devices=2, hosts=("one:1", "two:2"), host_rank=1, amp="fp16", xla="on",
            deterministic="off",
        )
    ]  # fmt: skip


def test_the_options_of_googles_trainer_name_those_that_replace_them(capsys: pytest.CaptureFixture[str]) -> None:
    """All options of the command that docs/how-to/migrate.md takes over, whose table has the same names."""
    page = (Path(trainer.__file__).parents[1] / "docs/how-to/migrate.md").read_text()
    given = page.partition("python run_pretraining.py")[2].partition("```")[0]
    names = re.findall(r" --(\w+)=", given)
    assert len(names) == 12
    known = shown_options("pretrain", capsys)
    for name in names:
        status, error = refuse(f"pretrain --{name}=1")
        assert (status, error.partition(": is ")[0]) == (2, f"--{name}")
        for option in re.findall(r"--[a-z-]+", error.partition(": ")[2]):
            assert option in known, error


def test_every_hint_names_options_of_some_command(capsys: pytest.CaptureFixture[str]) -> None:
    known = set().union(*(shown_options(command, capsys) for command in COMMANDS))
    for words in HINTS.values():
        assert known.issuperset(re.findall(r"--[a-z-]+", words)), words


def shown_options(command: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    with pytest.raises(SystemExit):
        main([command, "--help-all"])
    return set(re.findall(r"^  (--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))


def test_the_originals_spellings_are_understood() -> None:
    given = ["pretrain", "--nums-split", "2", "--grad-acc-steps", "4", "--remat", "--strategy", "inter_first"]
    namespace = make_parser("pretrain").parse_args(given)
    found = (namespace.stages, namespace.accumulate, namespace.checkpoint_activations, namespace.strategy)
    assert found == (2, 4, True, "inter_first")


def test_a_second_ctrl_c_stops_at_once_with_its_own_status(capsys: pytest.CaptureFixture[str]) -> None:
    write_data(Path("a"), records=128)
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    def interrupt_twice() -> None:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):  # the first two ask for the end after this step
            signal.raise_signal(number)
        pytest.fail("was not interrupted")

    assert run_command("--data", "a", "--model", "tiny", "--out", "out", on_step=at_step(2, interrupt_twice)) == 130
    assert capsys.readouterr().err.splitlines()[-1].startswith("trainer: stopped; the same command resumes")
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_the_version_is_that_of_bertprep(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["--version"])
    assert capsys.readouterr().out == f"bertprep {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_names_its_default_or_is_needed(command: str) -> None:
    [choices] = [each.choices for each in make_parser(command)._actions if isinstance(each, argparse._SubParsersAction)]
    options = [action for action in choices[command]._actions if action.dest not in ("help", "help_all")]
    assert len(options) >= 3
    for option in options:
        assert any(each in str(getattr(option, "rare_help", option.help)) for each in ("(default: ", "(required")), option.dest
