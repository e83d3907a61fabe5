"""Phases: what is asked for on the command line or in a file, and the steps and learning rates that come of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertprep.errors import BertprepError, UsageError
from trainer.data import Data
from trainer.phases import PhaseOptions, check_learning, make_phases, read_phases
from trainer.schedule import Schedule
from trainer.settings import Phase


def data_of(seq: int, records: int) -> Data:
    return Data(folders=(Path(f"data/{seq}"),), format="tfrecord", seq=seq, pred=20, records=records, has_test=True)


def phases_of(
    text: str | None, *, devices: int = 2, optimizer: str = "adam", records: int = 1000, **options: Any
) -> tuple[Phase, ...]:
    """The phases on two devices, from data of which each length has so many records."""
    asked = PhaseOptions(phases=text, **options)
    entries = read_phases(asked)
    data = [data_of(entry.get("seq", 128), records) for entry in entries]
    return make_phases(entries, data, asked, devices=devices, optimizer=optimizer)


def test_a_run_is_one_phase_of_one_pass_over_the_records() -> None:
    [phase] = phases_of(None, batch_size=(5,), accumulation=(4,), records=1039)
    assert (phase.data, phase.seq, phase.batch_size, phase.accumulation) == ((Path("data/128"),), 128, 5, 4)
    assert phase.schedule == Schedule(peak=1e-4, steps=25, warmup_steps=2)  # 1039 // (5 x 2 x 4), and a tenth of it


def test_a_phase_whose_learning_rate_never_leaves_0_is_refused() -> None:
    """That of the last step is 0, and it is the only one."""
    phases = phases_of(None, records=10)
    assert phases[0].steps == 1
    with pytest.raises(UsageError) as error:
        check_learning(phases, [data_of(128, 10)], devices=2)
    assert str(error.value) == (
        "data/128: the run has one step, of 64 sequences where there are 10 records; the last step has a learning rate of 0, "
        "so nothing would be learned; give more --steps, or a smaller --batch-size"
    )
    with pytest.raises(UsageError, match=r"^data/512: phase 2 has one step, of 64 sequences where there are 1,000 records; "):
        check_learning(phases_of("128:2,512:1"), [data_of(128, 1000), data_of(512, 1000)], devices=2)
    check_learning(phases_of(None, records=10, steps=2), [data_of(128, 10)], devices=2)


def test_lamb_has_a_learning_rate_and_a_schedule_of_its_own() -> None:
    [phase] = phases_of(None, optimizer="lamb", steps=100)
    assert phase.schedule == Schedule.nvidia("lamb", peak=2e-3, steps=100, warmup_steps=10)


def test_a_schedule_can_be_asked_for() -> None:
    of_adam = phases_of(None, schedule="nvidia", steps=100)[0].schedule
    of_lamb = phases_of(None, schedule="google", optimizer="lamb", steps=100)[0].schedule
    assert (of_adam.crossover, of_lamb.power) == (True, 1.0)


def test_fractions_are_of_the_steps_of_the_run() -> None:
    first, second = phases_of("128:0.9,512:0.1", steps=7820)
    assert (first.seq, first.steps, second.seq, second.steps) == (128, 7038, 512, 782)
    assert (first.data, second.data) == ((Path("data/128"),), (Path("data/512"),))


def test_fractions_of_one_pass_over_the_data_of_the_first_phase() -> None:
    first, second = phases_of("128:0.9,512:0.1", records=6400)
    assert (first.steps, second.steps) == (90, 10)  # of 6400 // (32 x 2)


def test_fractions_that_divide_no_step_still_add_up() -> None:
    steps = [phase.steps for phase in phases_of("128:0.3333333,256:0.3333333,512:0.3333334", steps=100)]
    assert (sum(steps), max(steps) - min(steps)) == (100, 1)


def test_whole_numbers_are_steps() -> None:
    assert [phase.steps for phase in phases_of("128:7038, 512:1564")] == [7038, 1564]
    assert [phase.steps for phase in phases_of("128:7038,512:1564", steps=8602)] == [7038, 1564]


def test_options_have_one_value_for_all_phases_or_one_for_each() -> None:
    options: dict[str, Any] = {"accumulation": (2,), "learning_rate": (6e-3, 4e-3), "warmup_steps": (20, 0)}
    first, second = phases_of("128:90,512:10", batch_size=(64, 16), **options)
    assert (first.batch_size, first.accumulation, second.batch_size, second.accumulation) == (64, 2, 16, 2)
    assert (first.schedule.peak, first.schedule.warmup_steps) == (6e-3, 20)
    assert (second.schedule.peak, second.schedule.warmup_steps) == (4e-3, 0)


def test_a_file_says_what_differs_from_the_options(tmp_path: Path) -> None:
    path = tmp_path / "phases.json"
    second = {"data": ["b", "c"], "seq": 512, "share": 0.1, "batch_size": 8, "accumulate": 4, "lr": 4e-4, "warmup_steps": 0}
    path.write_text(json.dumps([{"seq": 128, "share": 0.9}, second]))
    first, other = read_phases(PhaseOptions(phases=str(path), batch_size=(64,), learning_rate=(1e-3,)))
    assert first == {"seq": 128, "fraction": 0.9, "batch_size": 64, "learning_rate": 1e-3}
    assert other == {
        "data": (Path("b"), Path("c")), "seq": 512, "fraction": 0.1, "batch_size": 8, "accumulation": 4,
        "learning_rate": 4e-4, "warmup_steps": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("128", {}, "--phases 128: '128' is not a phase; expected SEQ:FRACTION or SEQ:STEPS, such as 128:0.9,512:0.1"),
        ("128:0.9,512:ten", {}, "'512:ten' is not a phase"),
        ("none.json", {}, "--phases none.json: cannot be read: No such file"),
        ("128:0.9,512:782", {}, r"fractions \(0.9\) and steps \(782\) are mixed"),
        ("128:0.9,512:0.2", {}, "fractions must be above 0 and add up to 1, these give 1.1; steps have no point"),
        ("128:1.5,512:-0.5", {}, "fractions must be above 0"),
        ("128:0.5", {}, "add up to 1, these give 0.5"),
        ("128:0.9,512:0.1", {"seq": 128}, "--seq 128 does not go with --phases"),
        ("128:0.9,512:0.1", {"data": (Path("a"),)}, "--data does not go with --phases; a phase file names the data"),
        ("128:0.9,512:0.1", {"batch_size": (1, 2, 3)}, "--batch-size 1,2,3: has 3 values for 2 phases; give one"),
        (None, {"learning_rate": (0.1, 0.2)}, "--lr 0.1,0.2: has 2 values for 1 phase; give one"),
        ("128:90,512:10", {"steps": 200}, "--steps 200: the phases have 100 steps; leave --steps out"),
        ("128:0.9,512:0.1", {"steps": 4}, "--steps 4: phase 2, a fraction of 0.1, has no step; give more steps"),
        (None, {"schedule": "cosine"}, "--schedule cosine: unknown; choose one of google, nvidia"),
        (None, {"steps": 0}, "--steps 0: must be at least 1"),
        ("128:0,512:10", {}, "--steps 0: must be at least 1"),
        (None, {"batch_size": (0,)}, "--batch-size 0, --accumulate 1: must be at least 1"),
        (None, {"learning_rate": (0.0,)}, "--lr 0.0: must be above 0"),
        (None, {"warmup_steps": (-1,)}, "--warmup-steps -1: must be at least 0"),
    ],
)
def test_requests_that_cannot_be_met(text: str | None, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        phases_of(text, **options)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[{", r"is not JSON \(.*\); expected a list of phases"),
        ("[" * 200_000, r"is not JSON \(it is nested too deeply\); expected a list of phases"),
        ("{}", "expected a list of phases, such as"),
        ("[]", "expected a list of phases"),
        ("[128]", "expected a list of phases"),
        ('[{"seq": 128}, {"sequence": 512}]', "phase 2: 'sequence' is unknown; a phase may have data, seq, steps, share"),
        ('[{"seq": "128"}]', 'phase 1: seq is "128", expected a whole number, at least 0'),
        ('[{"seq": true}]', "phase 1: seq is true, expected a whole number"),
        ('[{"share": 1}]', "phase 1: share is 1, expected a number with a point"),
        ('[{"data": "a"}]', 'phase 1: data is "a", expected a list of folders'),
        ('[{"data": []}]', r"phase 1: data is a list of 0, expected a list of folders"),
        ('[{"seq": 128, "steps": 10}, {"seq": 512}]', "a phase has neither a fraction nor steps; each of several needs one"),
        ('[{"seq": 128, "steps": 10}, {"seq": 512, "share": 0.1}]', r"fractions \(0.1\) and steps \(10\) are mixed"),
    ],
)
def test_phase_files_that_are_wrong(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "phases.json"
    path.write_text(content)
    with pytest.raises(BertprepError, match=f"^{path}: {message}"):
        read_phases(PhaseOptions(phases=str(path)))
