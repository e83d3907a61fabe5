"""Recipes are options that each command takes, and that others override."""

import re
from argparse import Namespace
from functools import partial
from inspect import signature
from pathlib import Path

import pytest

import bertprep
from bertprep import cli, recipes
from bertprep.commands.create import Create
from bertprep.commands.tokenize import Tokenize
from bertprep.errors import UsageError
from bertprep.options import read_options
from trainer.cli import make_parser
from trainer.data import ExampleSettings

MASK_AS_BERT = (ExampleSettings.mask_as, ExampleSettings.packed)
NOT_OF_TRAINER = {"albert", "chinese-modernbert", "clm-then-mlm", "llada", "mdlm", "spanbert"}
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "recipes.md"


def read(command: str, *arguments: str) -> Namespace:
    """What a command line gives, and its recipe with it."""
    parser = make_parser(command) if command == recipes.PRETRAIN else cli.make_command_parser([command])
    return recipes.apply(command, parser.parse_args([command, *arguments]))


def create(*arguments: str) -> Create:
    return read_options(Create, read(recipes.CREATE, *arguments))


def test_create_takes_the_options_of_a_phase_and_others_override_them(capsys: pytest.CaptureFixture[str]) -> None:
    found = create("--dupe", "2", "--recipe", "bert:2")
    assert (found.seq, found.pred, found.masked_lm_prob, found.dupe) == (512, 80, 0.15, 2)
    assert capsys.readouterr().err == "--recipe bert:2: --seq 512 --pred 80 --masked-lm-prob 0.15\n"
    assert create("--recipe=mlperf").pred == 76


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("create", {"bert", "mlperf"}),
        ("tokenize", {*recipes.RECIPES}),
        ("pretrain", {*recipes.RECIPES} - NOT_OF_TRAINER | {"chinese-modernbert", "clm-then-mlm"}),
    ],
)
def test_help_offers_the_recipes_that_the_command_takes(
    command: str, names: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        read(command, "--help")
    text = " ".join(capsys.readouterr().out.split())
    text = re.sub(r"(?<=[a-z])- (?=[a-z])", "-", text)  # lines may end after any hyphen
    [listed] = re.findall(r"was pretrained: one of (.*?), with a phase", text)
    assert {*listed.split(", ")} == names


def test_a_recipe_is_a_mapping_of_the_keywords_of_a_token_dataset() -> None:
    assert dict(bertprep.recipe("mmbert:3")) == {
        "seq": 8192, "masked_lm_prob": 0.05, "mask_as": (0.8, 0.1, 0.1), "packed": True, "first_position": 0,
    }  # fmt: skip
    assert bertprep.recipe("mmbert").dataset(phase=3, seq=64) == {**bertprep.recipe("mmbert:3"), "seq": 64}
    assert bertprep.recipe("roberta")["first_position"] == 2
    assert dict(bertprep.recipe("clm-then-mlm")) == {"seq": 2048, "packed": True, "first_position": 0, "objective": "clm"}
    assert bertprep.recipe("chinese-modernbert")["masked_lm_prob"] == bertprep.MaskSchedule(0.3, 0.15, 1_171_875_000)


def test_keywords_given_with_a_recipe_take_the_place_of_its_own() -> None:
    assert {**bertprep.recipe("mmbert:3", seq=64, seed=1)} == {**bertprep.recipe("mmbert:3"), "seq": 64, "seed": 1}
    assert bertprep.recipe("mmbert", seq=64).dataset(phase=3, seed=1)["seq"] == 64
    assert bertprep.recipe("mmbert", seq=64).dataset(seq=32)["seq"] == 32
    named = bertprep.recipe("eurobert", mlm_probability=0.2)
    assert named["mlm_probability"] == 0.2
    assert "masked_lm_prob" not in named
    assert hash(named) == hash(bertprep.recipe("eurobert"))
    for name, call in (("recipe", partial(bertprep.recipe, "bert")), ("dataset", bertprep.recipe("bert").dataset)):
        with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected keyword argument 'sed', did you mean seed\?$"):
            call(sed=1)


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_the_phases_of_a_recipe_are_all_of_its_tokens(name: str) -> None:
    recipe = bertprep.recipe(name)
    fractions = [phase.fraction for phase in recipe.phases if phase.fraction is not None]
    assert not fractions or abs(sum(fractions) - 1) < 1e-6
    assert len(fractions) in (0, len(recipe.phases))
    assert abs(sum(recipe.mask_as) - 1) < 1e-6


def as_in_docs(phase: recipes.Phase, *, is_only: bool) -> str:
    if phase.masked is None:
        masked = "clm"
    elif isinstance(phase.masked, tuple):
        masked = "{:.3g}-{:.3g}%".format(*(100 * share for share in phase.masked))
    else:
        masked = f"{100 * phase.masked:.3g}" + (f" to {100 * phase.last:.3g}%" if phase.last is not None else "%")
    fraction = "" if is_only or phase.fraction is None else f", {100 * phase.fraction:.3g}%"
    return f"{phase.seq:,}, {masked}{fraction}"


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_the_table_of_the_docs_has_the_values(name: str) -> None:
    recipe = bertprep.recipe(name)
    (row,) = re.findall(rf"^\| {re.escape(name)} \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    tokenizer, phases, masks, packed, _ = row.split(" | ")
    mask_as, _, words = masks.partition("; ")
    assert tokenizer == recipe.tokenizer
    assert phases == "; ".join(as_in_docs(phase, is_only=len(recipe.phases) == 1) for phase in recipe.phases)
    assert mask_as == ", ".join(f"{100 * share:.0f}" for share in recipe.mask_as)
    assert packed == ("pairs: `create`" if recipe.dupe is not None else "yes" if recipe.packed else "no")
    assert words == (
        f"spans to {recipe.span}" if recipe.span
        else f"n-grams to {recipe.ngram}" if recipe.ngram
        else "whole words" if recipe.whole_word
        else ""
    )  # fmt: skip


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_tokenize_knows_the_options_of_a_recipe(name: str) -> None:
    recipe = bertprep.recipe(name)
    words = ["--recipe", name, "--input", "text", "--output", "mds"]
    assert read_options(Tokenize, read("tokenize", *words)).tokenizer == recipe.tokenizer
    of_mds = read_options(Tokenize, read("tokenize", *words, "--format", "mds"))
    of_its_trainer = ("tokens", "int32") if name in ("eurobert", "clm-then-mlm") else (None, None)
    assert of_mds.seq == recipe.phase(1).seq
    assert (of_mds.column, of_mds.dtype) == of_its_trainer


@pytest.mark.parametrize("name", sorted({*recipes.RECIPES} - NOT_OF_TRAINER))
def test_the_trainer_knows_the_options_of_a_recipe(name: str) -> None:
    recipe = bertprep.recipe(name)
    examples = read_options(ExampleSettings, read("pretrain", "--recipe", name, "--seq", "64"))
    assert examples.masked_lm_prob == recipe.phase(1).masked_lm_prob
    assert examples.whole_word == recipe.whole_word
    assert (examples.mask_as, examples.packed) == ((recipe.mask_as, recipe.packed) if recipe.dupe is None else MASK_AS_BERT)


@pytest.mark.parametrize("name", sorted(NOT_OF_TRAINER))
def test_the_trainer_refuses_masks_that_it_has_not(name: str) -> None:
    with pytest.raises(
        UsageError, match=rf'^--recipe {name}: the trainer only masks a fixed fraction .* \*\*bertprep.recipe\("{name}"\)\)$'
    ):
        read("pretrain", "--recipe", name)


def test_a_phase_that_the_trainer_has_is_not_refused_for_another() -> None:
    assert read("pretrain", "--recipe", "clm-then-mlm:2").masked_lm_prob == 0.4


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ("modernbert:2", "--seq 8192 --masked-lm-prob 0.3 --mask-as 0.8,0.1,0.1"),
        ("bert:1", "--seq 128"),
        ("mmbert:3 --seq 64", "--masked-lm-prob 0.05 --mask-as 0.8,0.1,0.1"),
        ("neobert:2 --mask_as 1,0,0", "--seq 4096 --no-packed --masked-lm-prob 0.2"),
        ("eurobert", "phase 1 of 2: --seq 2048 --masked-lm-prob 0.5 --mask-as 1,0,0"),
        ("mlperf --seq 64", "all of its options are given"),
    ],
)
def test_the_trainer_is_given_what_other_options_do_not_override(
    given: str, options: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *others = given.split()
    read("pretrain", *others, "--recipe", name)
    assert capsys.readouterr().err == f"--recipe {name}: {options}\n"


def test_what_is_given_wins_even_where_it_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert create("--seq", "128", "--recipe", "bert:2").seq == 128
    assert capsys.readouterr().err == "--recipe bert:2: --pred 80 --masked-lm-prob 0.15 --dupe 5\n"


def test_a_recipe_without_a_phase_is_its_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert read("pretrain", "--recipe", "bert").seq == 128
    assert capsys.readouterr().err == "--recipe bert: phase 1 of 2: --seq 128\n"


def test_a_tokenizer_that_is_given_overrides_that_of_a_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert read("tokenize", "--recipe", "modernbert", "--format", "mds", "--tokenizer", "mine.json").tokenizer == "mine.json"
    assert capsys.readouterr().err == "--recipe modernbert: --seq 1024\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", "--recipe", "modernbart"], "recipe modernbart: unknown, did you mean modernbert?; choose one of bert, "),
        (["create", "--recipe", "bert:3"], "recipe bert: has no phase 3; choose 1 to 2"),
        (["create", "--recipe", "bert:two"], "recipe bert:two: expected a name, or name:phase"),
        (["create", "--recipe", "bert:²"], "recipe bert:²: expected a name, or name:phase"),
        (["create", "--recipe", "neobert"], "--recipe neobert: needs token shards, not records with masks; make them"),
        (["validate", "--recipe", "bert"], "--recipe: unknown option"),
    ],
)
def test_what_no_recipe_gives_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"bertprep: error: {message}")


def test_a_name_in_python_is_checked_too() -> None:
    with pytest.raises(UsageError, match="unknown"):
        bertprep.recipe("gpt")
    for name in (None, 5, b"bert"):
        with pytest.raises(UsageError, match=f"^recipe {name!r}: expected a name, such as bert$"):
            bertprep.recipe(name)  # type: ignore[arg-type]


def test_the_keywords_of_a_recipe_are_those_of_the_data_set() -> None:
    assert tuple(name for name in signature(bertprep.TokenDataset).parameters if name != "data") == recipes._KEYWORDS
