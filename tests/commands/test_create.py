"""The stage from text shards to record files: names, manifest, resume, and the same bytes however it is run."""

import gzip
import json
import shutil
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import bertprep
from bertprep.cli import main
from bertprep.commands.create import create
from bertprep.commands.shard import shard
from bertprep.config import RECORD_FORMATS
from bertprep.errors import BertprepError, BertprepWarning
from bertprep.files.paths import checksum_of
from bertprep.instances import load_vocabulary
from bertprep.tokens.make import mask_warnings
from bertprep.work.choose import find_records
from bertprep.work.layout import MANIFEST
from tests.corpora import deal, pad_at, sums
from tests.golden import GOLDEN
from tests.instances.examples import reference_examples

VOCABULARY = GOLDEN / "vocab.txt"
SETTINGS = bertprep.InstanceSettings(dupe=2)
NAME = "lower_case_1_seq_len_128_max_pred_20_masked_lm_prob_0.15_random_seed_12345_dupe_factor_2_shard_4_test_split_10"


def test_input_files_become_record_files_in_the_order_of_numbers(golden_corpus: Path, tmp_path: Path) -> None:
    inputs = deal(golden_corpus, tmp_path / "text", 11)
    created = create(inputs=inputs, output=tmp_path / "out", vocab=VOCABULARY, **vars(SETTINGS), workers=2)
    names = {
        "ofrecord": [f"training/part-{n}" for n in range(11)],
        "tfrecord": [f"training/corpus_training_{n:05d}.tfrecord" for n in range(11)],
    }
    assert set(sums(tmp_path / "out")) == {
        f"{folder}/{name}" for folder in names for name in ("manifest.json", "vocab.txt", *names[folder])
    }
    for record_format, manifest in created.manifests.items():
        folder = created.folders[record_format]
        assert list(manifest.files) == list(find_records(folder).files) == names[record_format]
        assert list(json.loads((folder / MANIFEST).read_text())["files"]) == names[record_format]
        for number, (name, entry) in enumerate(manifest.files.items()):
            assert entry["blake3"] == checksum_of(folder / name)
            assert entry["bytes"] == (folder / name).stat().st_size
            assert entry["seed"] == 12345 + number
            assert entry["text"]["bytes"] == inputs[number].stat().st_size
            with bertprep.records.open(folder / name) as file:
                assert entry["examples"] == len(file)


DIGESTS = [  # of TFRecord, OFRecord and Arrow
    (
        {},
        "ed2247335fc791ec2764b1b76abf611d9816df29f1974e28ff1472aafd239e81",
        "1c1a08db3238a1d5150cd64f317a69c25c1be953e1e550487b55f80eb115393b",
        "4c4ac0fe3ba3dcfc3ea4fe0b6ba424ab72224ee0b1f816ff128a650c1ab30292",
    ),
    (
        {"seq": 512, "pred": 80},
        "bf78dc34bed496eabf3c3ee9425354c39bb253845e98a307d0975b9ef8fc6087",
        "80336edd249935f88d83fc71dd443394c5fdd76c31161e5db530ee2287ace768",
        "1818eab97ece60cb1f1cb7213f3528af6f1817bfab843ce81a19ce9d8ed4fb7d",
    ),
    (
        {"dupe": 2, "whole_word": True},
        "a6badd57794d2e76e676215d9b19f06abf7c5c69d4c288a1f9cf7ead1dd91eea",
        "100ccd835e107c19bda997d5bc77590cb476d3455b5f78f3427067be32b4172d",
        "17dd65af23396cb54abb8b8fc8df652a024c6247989cdfb81ecba8055a19fb32",
    ),
    (
        {"dupe": 2, "cased": True},
        "9628b393dcfc68bae4e975d6f29879c3b273e6bffe855588be1764d912243af4",
        "f63187fb3a8cc55ee980c003c2af1fa1b0ea77dcad7279dbba10e37051ae72fd",
        "934d8935b318b241af978aab5a106bf5760f1e3931fc592d74c2f4ad14b15d06",
    ),
]


@pytest.mark.parametrize(("settings", "tfrecord", "ofrecord", "arrow"), DIGESTS)
def test_the_bytes_are_the_same_on_every_python_and_machine(
    settings: dict[str, Any], tfrecord: str, ofrecord: str, arrow: str, golden_corpus: Path, tmp_path: Path
) -> None:
    """And whether the formats are made at once or one after the other."""
    asked, formats = bertprep.InstanceSettings(**settings), ("tfrecord", "ofrecord", "arrow")
    for some in (formats[:2], formats[2:]):
        how = {"vocab": VOCABULARY, "any_case": asked.cased, "formats": some}
        create(inputs=[golden_corpus], output=tmp_path, **vars(asked), **how, workers=1)
    names = ("training/corpus_training_00000.tfrecord", "training/part-0", "train/corpus_training_00000.arrow")
    found = sums(tmp_path)
    made = [found[f"{folder}/{name}"] for folder, name in zip(formats, names, strict=True)]
    assert made == [tfrecord, ofrecord, arrow]


@pytest.mark.parametrize(
    ("pad", "settings"),
    [
        (4, bertprep.InstanceSettings(dupe=2)),
        (201, bertprep.InstanceSettings(seq=40, pred=38, masked_lm_prob=0.3, pairs="none")),
        (20_000, bertprep.InstanceSettings(seq=512, pred=80)),
    ],
    ids=["one byte", "two bytes, without pairs", "three bytes"],
)
def test_padding_is_the_number_of_pad(
    pad: int, settings: bertprep.InstanceSettings, golden_corpus: Path, tmp_path: Path
) -> None:
    text, vocab = tmp_path / "text.txt", pad_at(pad, tmp_path)
    text.write_bytes(b"\n\n".join(golden_corpus.read_bytes().split(b"\n\n")[:20]))
    asked = {"vocab": vocab, **vars(settings), "formats": RECORD_FORMATS}
    with pytest.warns(
        BertprepWarning, match=f"^\\[PAD\\] is token {pad} of .*, so input_ids are padded with {pad}, not with 0$"
    ):
        made = create(inputs=[text], output=tmp_path / "made", **asked, workers=1)
    expected = reference_examples(text, load_vocabulary(vocab), settings, seed=12345)
    for record_format, manifest in made.manifests.items():
        assert manifest.made_with["vocabulary"]["pad"] == pad
        path = made.folders[record_format] / next(iter(manifest.files))
        with bertprep.records.open(path) as file:
            found = file[:]
        assert len(found) == len(expected)
        for row, example in enumerate(expected):
            for name, padding in [("input_ids", pad), ("segment_ids", 0), ("masked_lm_positions", 0), ("masked_lm_ids", 0)]:
                values = getattr(found, name)[row].tolist()
                wanted = getattr(example, name)
                assert values == [*wanted, *[padding] * (len(values) - len(wanted))], (row, name)
            assert found.input_mask[row].sum() == len(example.input_ids)
        assert (found.input_mask.sum(axis=1) < settings.seq).sum() > 10
        other = {"tfrecord": "arrow", "arrow": "ofrecord", "ofrecord": "parquet", "parquet": "tfrecord"}[record_format]
        converted = bertprep.convert(path, tmp_path / other, to=other, workers=1).folder  # by the encoder of examples
        (same,) = (made.folders[other] / name for name in made.manifests[other].files)
        assert converted.read_bytes() == same.read_bytes()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"masked_lm_prob": 0.3},
            "--pred 20 limits the masks: --masked-lm-prob 0.3 of 128 tokens is 38 masks; use --pred 38 ",
        ),
        ({"masked_lm_prob": 1.0, "pairs": "none"}, "of 128 tokens is 128 masks; use --pred 126 to allow them"),
        ({"masked_lm_prob": 0.3, "pred": 38}, ""),
        ({"seq": 512, "pred": 76}, ""),
    ],
)
def test_a_limit_of_masks_is_warned_of(settings: dict[str, Any], said: str) -> None:
    lines = list(mask_warnings(bertprep.InstanceSettings(**settings)))
    assert len(lines) == bool(said)
    assert said in "".join(lines)


def test_words_without_spaces_are_the_cause_of_unknown_tokens(tmp_path: Path) -> None:
    """Also for a vocabulary that was trained on this text: no other would help."""
    text = tmp_path / "text.txt"
    text.write_text("ab cd\n" + "".join(f"{'acgt' * 60}\n{'ttga' * 70}\n\n" for _ in range(20)))
    with pytest.warns(BertprepWarning) as found:
        create(inputs=[text], output=tmp_path / "out", workdir=tmp_path, formats="tfrecord", workers=1)
    lines = [str(each.message) for each in found]
    assert [line for line in lines if "--vocab" in line or "bertprep vocab" in line] == []
    assert (
        f"99% of the beginning of {text} is in words of more than 200 characters, which become [UNK] with any vocabulary; put "
        "spaces between the words of the text"
    ) in lines


@pytest.mark.parametrize(
    ("line", "said"), [("我们是中国人。\n他们也是。\n\n", ["--whole-word: 83%"]), ("the dog 人 barks\nno\n\n", [])]
)
def test_whole_words_of_hanzi_are_single_characters_which_is_said(line: str, said: list[str], tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(line * 20, encoding="utf-8")
    given: dict[str, Any] = {"inputs": [tmp_path / "text.txt"], "workdir": tmp_path, "formats": "tfrecord", "workers": 1}
    for whole_word in (True, False):
        with warnings.catch_warnings(record=True) as found:
            create(**given, whole_word=whole_word, output=tmp_path / str(whole_word))
        lines = [str(each.message) for each in found if str(each.message).startswith("--whole-word")]
        assert [each.partition(" of the first tokens")[0] for each in lines] == (said if whole_word else [])


def test_a_vocabulary_that_does_not_fit_the_text_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a shell by a line, whose advice mends the records, and in Python by a warning where `create` is called."""
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text("один два три\nчетыре пять\n\nшесть семь\nвосемь девять\n\n")
    assert main(["create", "--input", str(text), "--output", str(out), "--vocab", str(VOCABULARY)]) == 0
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: "))
    assert line == (
        f"warning: 100% of the first tokens of {text} are [UNK]: {VOCABULARY} does not fit this text; remove the output, and "
        "name another vocabulary with --vocab, or train one, or a larger one, on this text with bertprep vocab"
    )
    with pytest.warns(BertprepWarning, match="^100% of the first tokens of .* are ") as found:
        create(inputs=[text], output=tmp_path / "again", vocab=VOCABULARY, workers=1)
    assert [each.filename for each in found] == [__file__]
    shutil.rmtree(out)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "100%", BertprepWarning)
        create(inputs=[text], output=out, workdir=tmp_path, workers=1)


def test_token_shards_that_are_mostly_unknown_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, tokens = tmp_path / "text.txt", tmp_path / "tokens"
    text.write_text("один два три\nчетыре пять\n\n" * 20)
    assert main(["tokenize", "--input", str(text), "--output", str(tokens), "--vocab", str(VOCABULARY)]) == 0
    capsys.readouterr()
    assert main(["create", "--input", str(tokens), "--output", str(tmp_path / "out"), "--vocab", str(VOCABULARY)]) == 0
    error = capsys.readouterr().err
    assert error.count("warning: 100% of the first tokens of ") == 1
    assert "and run bertprep tokenize with another --vocab\n" in error


@pytest.mark.parametrize(
    ("function", "named"),
    [
        ("create", []),
        ("forecast", []),
        ("tokenize", []),
        ("create_squad", []),
        ("create_glue", ["own"]),
        ("create_ner", ["own"]),
    ],
)
def test_a_vocabulary_of_the_wrong_case_is_refused_by_each_function(function: str, named: list[str], tmp_path: Path) -> None:
    """Before any text is read."""
    cased = tmp_path / "cased.txt"
    cased.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "The", "the", "Dog", "."]) + "\n")
    nothing, out = tmp_path / "train.txt", tmp_path / "out"
    nothing.write_bytes(b"\xff")
    for vocab, is_cased, advice in ((VOCABULARY, True, "leave --cased out"), (cased, False, "add --cased")):
        with pytest.raises(bertprep.UsageError, match=f"^--vocab {vocab}: .*; {advice}, or name .*; --any-case accepts it"):
            getattr(bertprep, function)(*named, inputs=[nothing], output=out, vocab=vocab, cased=is_cased)


def test_records_that_do_not_fit_the_disk_are_refused_before_the_first_is_made(
    golden_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a forecast, of what is still to be made."""
    texts = deal(golden_corpus, tmp_path / "text", 4)
    asked: dict[str, Any] = {"inputs": texts, "vocab": VOCABULARY, "lines_are_sentences": True, "workers": 1}
    made = create(**asked, output=tmp_path / "made")
    needed = sum(entry["bytes"] for manifest in made.manifests.values() for entry in manifest.files.values())
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=needed // 2))
    with pytest.raises(BertprepError, match=r": about [\d,]+ MB are still to write, but only .*; free some space, or") as error:
        create(**asked, output=tmp_path / "out")
    forecast = 1e6 * int(str(error.value).split("about ")[1].split(" MB")[0].replace(",", ""))
    assert forecast == pytest.approx(needed, rel=0.1, abs=1e6)
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert create(**asked, output=tmp_path / "made").made == 0  # nothing is left to write
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=needed))
    assert create(**asked, output=tmp_path / "out").made == 4


def test_case_and_vocabulary_must_fit(tmp_path: Path) -> None:
    """What was named may be taken all the same; what is trained here fits, even on text that has no capitals."""
    (tmp_path / "text.txt").write_text("all of it is small\nno word has a capital\n\n")
    asked: dict[str, Any] = {"inputs": [tmp_path / "text.txt"], "workdir": tmp_path, "cased": True, "workers": 1}
    with pytest.raises(
        bertprep.UsageError, match=r"so with --cased each word that begins with one is \[UNK\]; leave --cased out"
    ):
        create(**asked, output=tmp_path / "named", vocab=VOCABULARY)
    assert not (tmp_path / "named").exists()
    assert create(**asked, output=tmp_path / "named", vocab=VOCABULARY, any_case=True).made
    assert create(**asked, output=tmp_path / "trained").made


def test_a_vocabulary_of_the_workspace_is_named_without_its_digest(tmp_path: Path) -> None:
    trained = []
    for text in ("first", "second"):
        (tmp_path / text).write_text(f"the {text} text\nhas two sentences\n\n")
        vocab = bertprep.train_vocabulary([tmp_path / text], corpus="zh", size=30, workdir=tmp_path)
        trained.append(vocab)
        asked: dict[str, Any] = {"inputs": [tmp_path / text], "output": tmp_path / f"{text} records", "workdir": tmp_path}
        if text == "first":
            made = create(**asked, vocab="zh_30").manifests["tfrecord"]
            assert made.made_with["vocabulary"]["sha256"] == checksum_of(vocab, "sha256")
    with pytest.raises(
        bertprep.UsageError, match=r"--vocab zh_30: names 2 vocabularies; choose one of .*zh_30_\w{8}\.txt, .*zh_30_"
    ):
        create(**asked, vocab="zh_30")
    assert create(**asked, vocab=trained[1].stem).made
    with pytest.raises(
        bertprep.UsageError, match=r"--vocab zh: is neither .* \(it has zh_30_\w{8}, zh_30_\w{8}\); if it is the"
    ):
        create(**asked, vocab="zh")


def test_one_seed_gives_every_shard_the_same(golden_corpus: Path, tmp_path: Path) -> None:
    text = deal(golden_corpus, tmp_path / "text", 1)[0]
    twin = text.with_name("twin.txt")
    twin.write_bytes(text.read_bytes())
    for one_seed in (False, True):
        settings = bertprep.InstanceSettings(dupe=1, one_seed=one_seed)
        out = tmp_path / str(one_seed)
        create(inputs=[text, twin], output=out, vocab=VOCABULARY, **vars(settings), formats="ofrecord", workers=1)
        same = checksum_of(out / "ofrecord/training/part-0") == checksum_of(out / "ofrecord/training/part-1")
        assert same == one_seed


def test_a_corpus_has_both_splits_under_the_names_of_the_field(golden_corpus: Path, tmp_path: Path) -> None:
    shard([golden_corpus], splitter="lines", workdir=tmp_path, corpus="gold", workers=2)
    asked = {"dupe": 2, "one_seed": True, "formats": RECORD_FORMATS, "vocab": VOCABULARY}  # one seed is not in the name
    created = create(workdir=tmp_path, corpus="gold", **asked, workers=2)
    assert created.folders["tfrecord"] == tmp_path / "tfrecord" / NAME / "gold"
    assert list(created.manifests["tfrecord"].files) == [
        *(f"training/gold_training_0000{n}.tfrecord" for n in range(4)),
        "test/gold_test_00000.tfrecord",
    ]
    assert list(created.manifests["ofrecord"].files) == [*(f"training/part-{n}" for n in range(4)), "test/part-0"]
    for name in ("arrow", "parquet"):
        assert created.folders[name] == tmp_path / name / NAME / "gold"
        assert list(created.manifests[name].files) == [
            *(f"train/gold_training_0000{n}.{name}" for n in range(4)),
            f"test/gold_test_00000.{name}",
        ]
        assert "pyarrow" in created.manifests[name].versions
    documents = sum(entry["documents"] for entry in created.manifests["ofrecord"].files.values())
    assert documents == 150
    assert not create(workdir=tmp_path, corpus="gold", **asked, workers=1).made
    (tmp_path / "sharded/gold/training/gold_training_00001.txt").unlink()
    with pytest.raises(BertprepError, match=r"gold_training_00001\.txt: is missing or incomplete"):
        create(workdir=tmp_path, corpus="gold", **asked, workers=1)


def test_what_datasets_reads_beside_arrow_files_is_repaired(golden_corpus: Path, tmp_path: Path) -> None:
    """A function of the files, so that the same come back, also where one of these is made again."""
    shard([golden_corpus], splitter="lines", workdir=tmp_path, corpus="gold", workers=2)
    asked: dict[str, Any] = {"workdir": tmp_path, "corpus": "gold", "vocab": VOCABULARY, "formats": "arrow", "workers": 1}
    folder = create(**asked, **vars(SETTINGS)).folders["arrow"]
    before = sums(folder)
    names = [
        "dataset_dict.json",
        *(f"{split}/{name}.json" for split in ("test", "train") for name in ("dataset_info", "state")),
    ]
    assert {name for name in before if name.endswith(".json")} == {*names, "manifest.json"}
    (folder / names[0]).unlink()
    for name in names[1:]:
        (folder / name).write_text("{}")
    (folder / "train" / "gold_training_00001.arrow").unlink()
    create(**asked, **vars(SETTINGS))
    assert sums(folder) == before
    state = json.loads((folder / "train" / "state.json").read_text())
    assert [file["filename"] for file in state["_data_files"]] == [f"gold_training_0000{n}.arrow" for n in range(4)]


def test_a_variant_changes_names_and_bytes_and_nothing_else(golden_corpus: Path, tmp_path: Path) -> None:
    inputs = deal(golden_corpus, tmp_path / "text", 2)

    def make(**variant: Any) -> tuple[dict[str, bytes], dict[str, Any], dict[str, str]]:
        asked = {"inputs": inputs, "output": tmp_path / str(variant), "formats": "tfrecord", "vocab": VOCABULARY, "workers": 1}
        made = create(**asked, **vars(SETTINGS), **variant)
        manifest = made.manifests["tfrecord"]
        return {n: (made.folders["tfrecord"] / n).read_bytes() for n in manifest.files}, manifest.made_with, manifest.versions

    plain, made_with, versions = make()
    assert not {"feature_names", "compress"} & made_with.keys()  # which only TFRecords have
    assert "isal" not in versions
    tf2, made_with_tf2, _ = make(feature_names="tf2")
    assert made_with_tf2 == {**made_with, "feature_names": "tf2"}
    assert list(tf2) == list(plain)
    packed, made_with_both, versions = make(feature_names="tf2", compress="gzip")
    assert made_with_both == {**made_with, "feature_names": "tf2", "compress": "gzip"}
    assert {name: gzip.decompress(content) for name, content in packed.items()} == {f"{n}.gz": c for n, c in tf2.items()}
    assert versions["isal"] == version("isal")


def test_settings_text_and_vocabulary_never_mix(golden_corpus: Path, tmp_path: Path) -> None:
    inputs, other = deal(golden_corpus, tmp_path / "text", 2), tmp_path / "vocab.txt"
    other.write_bytes(VOCABULARY.read_bytes() + b"entirelynew\n")
    asked: dict[str, Any] = {"inputs": inputs, "output": tmp_path / "out", "vocab": VOCABULARY, **vars(SETTINGS), "workers": 1}
    create(**asked)
    before = sums(tmp_path / "out")
    for change, message in (
        ({"dupe": 3}, "was made with --dupe 2, but this run has --dupe 3"),
        ({"one_seed": True}, "was made without --one-seed, but this run has --one-seed; choose another --output"),
        ({"compress": "gzip", "formats": "tfrecord"}, "was made without --compress, but this run has --compress gzip"),
        ({"corpus": "other"}, "was made with --corpus corpus, but this run has --corpus other"),
        ({"inputs": inputs[:1]}, "was made of 2 --input files, but this run has 1; choose another --output"),
        ({"vocab": other}, r"was made with another --vocab: vocabulary\.tokens 2937, but this run has 2938"),
    ):
        with pytest.raises(BertprepError, match=message):
            create(**{**asked, **change})
    assert sums(tmp_path / "out") == before


@pytest.mark.parametrize("change", [lambda text: text + b"one more line\n", lambda text: text.replace(b"a", b"e", 1)])
def test_changed_text_does_not_mix(change: Callable[[bytes], bytes], golden_corpus: Path, tmp_path: Path) -> None:
    inputs = deal(golden_corpus, tmp_path / "text", 2)
    create(inputs=inputs, output=tmp_path / "out", vocab=VOCABULARY, **vars(SETTINGS), workers=1)
    inputs[0].write_bytes(change(inputs[0].read_bytes()))
    for what in ("nothing", "a file"):  # is missing
        if what == "a file":
            (tmp_path / "out/ofrecord/training/part-1").unlink()
        with pytest.raises(BertprepError, match=r"was made from [\d,]+ bytes of text .*text_0\.txt has changed since"):
            create(inputs=inputs, output=tmp_path / "out", vocab=VOCABULARY, **vars(SETTINGS), workers=1)


def test_without_a_vocabulary_one_is_trained_for_the_text_and_kept(golden_corpus: Path, tmp_path: Path) -> None:
    a, b = deal(golden_corpus, tmp_path / "text", 2)
    asked: dict[str, Any] = {**vars(SETTINGS), "formats": "ofrecord", "workers": 1}
    for text, workspace in ((a, "data"), (b, "data"), (b, "fresh")):
        create(inputs=[text], output=tmp_path / f"{text.stem}_{workspace}", workdir=tmp_path / workspace, **asked)
    assert sums(tmp_path / "text_1_data") == sums(tmp_path / "text_1_fresh")
    assert sums(tmp_path / "text_0_data") != sums(tmp_path / "text_1_data")
    [kept] = (tmp_path / "fresh/vocab").iterdir()
    assert (tmp_path / "text_1_fresh/ofrecord/vocab.txt").read_bytes() == kept.read_bytes()


def test_the_vocabulary_of_a_corpus_is_trained_on_its_training_split(golden_corpus: Path, tmp_path: Path) -> None:
    """It is that of `bertprep vocab`, and knows nothing of the text that is held out."""
    shard([golden_corpus], splitter="lines", workdir=tmp_path, corpus="gold", workers=1)
    create(workdir=tmp_path, corpus="gold", dupe=1, formats="tfrecord", workers=1)
    [trained] = (tmp_path / "vocab").iterdir()
    assert bertprep.train_vocabulary(corpus="gold", workdir=tmp_path) == trained
    texts = sorted((tmp_path / "sharded/gold/training").iterdir())
    alone = bertprep.train_vocabulary(texts, output=tmp_path / "alone.txt")
    assert alone.read_bytes() == trained.read_bytes()


def test_text_without_a_last_newline_resumes(tmp_path: Path) -> None:
    texts = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for text in texts:
        text.write_bytes(b"One sentence.\nThe last one")
    asked = {"inputs": texts, "output": tmp_path / "out", "vocab": VOCABULARY, **vars(SETTINGS), "workers": 1}
    first = create(**asked)  # type: ignore[arg-type]
    assert first.manifests["tfrecord"].files["training/corpus_training_00000.tfrecord"]["text"]["bytes"] == 26
    whole = sums(tmp_path / "out")
    (tmp_path / "out/ofrecord/training/part-1").unlink()
    create(**asked)  # type: ignore[arg-type]
    assert sums(tmp_path / "out") == whole


@pytest.mark.parametrize(
    ("form", "found"),
    [("paragraphs", "lines contain several sentences"), ("documents of one line", "documents have only one line")],
)
def test_running_text_is_no_text_shard(
    form: str, found: str, golden_corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stops before anything is made, unless no pairs are made of it, or the user or a manifest says what its lines are."""
    documents = [d.split("\n") for d in golden_corpus.read_text(encoding="utf-8").split("\n\n") if d.strip()]
    if form == "paragraphs":
        documents = [[". ".join(d[at : at + 9]) + "." for at in range(0, len(d), 9)] for d in documents]
    ends = "\n\n" if form == "documents of one line" else "\n"
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text("\n\n".join(ends.join(d) for d in documents) + "\n\n", encoding="utf-8")
    given = ["--input", str(text), "--vocab", str(VOCABULARY)]
    for command in ("create", "tokenize"):
        assert main([command, *given, "--output", str(out)]) == BertprepError.exit_status
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert all(words in said for words in (found, "bertprep shard --input", "--lines-are-sentences"))
    assert not out.exists()
    assert main(["create", *given, "--output", str(out), "--lines-are-sentences"]) == 0
    assert main(["create", *given, "--output", str(tmp_path / "unpaired"), "--pairs", "none"]) == 0
    shard([text], shards=1, splitter="lines", workdir=tmp_path, corpus="mine", workers=1)
    (made,) = (tmp_path / "sharded/mine/training").iterdir()
    create(inputs=[made], output=tmp_path / "sharded_by_us", vocab=VOCABULARY, workers=1)


def test_lines_that_are_sentences_pass(golden_corpus: Path, tmp_path: Path) -> None:
    """A few documents of one line, and a few lines of two sentences, as the best splitters leave."""
    documents = golden_corpus.read_text(encoding="utf-8").split("\n\n")
    few = len(documents) // 3
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join([*documents, *["It is. It was."] * few]), encoding="utf-8")
    create(inputs=[text], output=tmp_path / "out", vocab=VOCABULARY, formats="tfrecord", workers=1)


def test_the_seconds_are_those_of_all_steps(tmp_path: Path) -> None:
    begun = time.monotonic()
    made = create(workdir=tmp_path, dupe=1, formats="tfrecord", workers=1)
    assert made.seconds > 0.8 * (time.monotonic() - begun)  # the text and the vocabulary take more than the records
