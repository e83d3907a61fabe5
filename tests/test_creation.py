"""The stage from text shards to record files: names, manifest, resume, and the same bytes however it is run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bertprep
from bertprep.creation import create
from bertprep.errors import BertprepError, UsageError
from bertprep.manifest import sha256_of
from bertprep.sharding import shard
from tests.corpora import deal, sums
from tests.golden import GOLDEN

VOCABULARY = GOLDEN / "vocab.txt"
SETTINGS = bertprep.InstanceSettings(dupe=2)
NAME = "lower_case_1_seq_len_128_max_pred_20_masked_lm_prob_0.15_random_seed_12345_dupe_factor_2_shard_4_test_split_10"


def test_given_text_files_become_record_files_in_their_order(golden_corpus: Path, tmp_path: Path) -> None:
    inputs = deal(golden_corpus, tmp_path / "text", 3)
    created = create(inputs=inputs, output=tmp_path / "out", vocab=VOCABULARY, settings=SETTINGS, workers=1)
    assert sorted(sums(tmp_path / "out")) == [
        "ofrecord/manifest.json",
        "ofrecord/part-00000",
        "ofrecord/part-00001",
        "ofrecord/part-00002",
        "ofrecord/vocab.txt",
        "tfrecord/corpus_training_00000.tfrecord",
        "tfrecord/corpus_training_00001.tfrecord",
        "tfrecord/corpus_training_00002.tfrecord",
        "tfrecord/manifest.json",
        "tfrecord/vocab.txt",
    ]
    for record_format, manifest in created.manifests.items():
        folder = created.folders[record_format]
        for number, (name, facts) in enumerate(manifest.files.items()):
            assert facts["sha256"] == sha256_of(folder / name)
            assert facts["bytes"] == (folder / name).stat().st_size
            assert facts["seed"] == 12345 + number
            assert facts["text"]["bytes"] == inputs[number].stat().st_size
            with bertprep.records.open(folder / name) as file:
                assert facts["examples"] == len(file)
    with bertprep.records.open(tmp_path / "out/tfrecord/corpus_training_00000.tfrecord") as a:
        alone = create(inputs=inputs[:1], output=tmp_path / "alone", vocab=VOCABULARY, settings=SETTINGS, formats="ofrecord")
        with bertprep.records.open(alone.folders["ofrecord"] / "part-00000") as b:
            assert (a[:].input_ids == b[:].input_ids).all()


@pytest.mark.parametrize(
    ("settings", "tfrecord", "ofrecord"),
    [
        (
            {},
            "ed2247335fc791ec2764b1b76abf611d9816df29f1974e28ff1472aafd239e81",
            "1c1a08db3238a1d5150cd64f317a69c25c1be953e1e550487b55f80eb115393b",
        ),
        (
            {"seq": 512, "pred": 80},
            "bf78dc34bed496eabf3c3ee9425354c39bb253845e98a307d0975b9ef8fc6087",
            "80336edd249935f88d83fc71dd443394c5fdd76c31161e5db530ee2287ace768",
        ),
        (
            {"dupe": 2, "whole_word": True},
            "a6badd57794d2e76e676215d9b19f06abf7c5c69d4c288a1f9cf7ead1dd91eea",
            "100ccd835e107c19bda997d5bc77590cb476d3455b5f78f3427067be32b4172d",
        ),
        (
            {"dupe": 2, "cased": True},
            "9628b393dcfc68bae4e975d6f29879c3b273e6bffe855588be1764d912243af4",
            "f63187fb3a8cc55ee980c003c2af1fa1b0ea77dcad7279dbba10e37051ae72fd",
        ),
    ],
)
def test_the_bytes_are_the_same_on_every_python_and_machine(
    settings: dict[str, Any], tfrecord: str, ofrecord: str, golden_corpus: Path, tmp_path: Path
) -> None:
    asked = bertprep.InstanceSettings(**settings)
    create(inputs=[golden_corpus], output=tmp_path, vocab=VOCABULARY, settings=asked, workers=1)
    found = sums(tmp_path)
    assert (found["tfrecord/corpus_training_00000.tfrecord"], found["ofrecord/part-00000"]) == (tfrecord, ofrecord)


def test_one_seed_gives_every_shard_the_same(golden_corpus: Path, tmp_path: Path) -> None:
    text = deal(golden_corpus, tmp_path / "text", 1)[0]
    twin = text.with_name("twin.txt")
    twin.write_bytes(text.read_bytes())
    for one_seed in (False, True):
        settings = bertprep.InstanceSettings(dupe=1, one_seed=one_seed)
        out = tmp_path / str(one_seed)
        create(inputs=[text, twin], output=out, vocab=VOCABULARY, settings=settings, formats="ofrecord", workers=1)
        same = sha256_of(out / "ofrecord/part-00000") == sha256_of(out / "ofrecord/part-00001")
        assert same == one_seed


def test_the_bytes_do_not_depend_on_workers_or_formats(golden_corpus: Path, tmp_path: Path) -> None:
    inputs = deal(golden_corpus, tmp_path / "text", 5)
    found = []
    for workers in (1, 2, 3):
        out = tmp_path / f"workers{workers}"
        create(inputs=inputs, output=out, vocab=VOCABULARY, settings=SETTINGS, workers=workers)
        found.append(sums(out))
    out = tmp_path / "one format after the other"
    for record_format in ("ofrecord", "tfrecord"):
        create(inputs=inputs, output=out, vocab=VOCABULARY, settings=SETTINGS, formats=record_format, workers=1)
    assert found[0] == found[1] == found[2] == sums(out)


def test_a_corpus_has_both_splits_under_the_names_of_the_field(golden_corpus: Path, tmp_path: Path) -> None:
    shard([golden_corpus], bertprep.ShardSettings(splitter="lines"), workdir=tmp_path, corpus="gold", workers=2)
    created = create(workdir=tmp_path, corpus="gold", vocab=VOCABULARY, settings=SETTINGS, workers=2)
    assert created.folders["tfrecord"] == tmp_path / "tfrecord" / NAME / "gold"
    assert list(created.manifests["tfrecord"].files) == [
        *(f"training/gold_training_0000{n}.tfrecord" for n in range(4)),
        "test/gold_test_00000.tfrecord",
    ]
    assert list(created.manifests["ofrecord"].files) == [*(f"training/part-0000{n}" for n in range(4)), "test/part-00000"]
    documents = sum(facts["documents"] for facts in created.manifests["ofrecord"].files.values())
    assert documents == 150


def test_what_is_there_is_not_made_again_and_what_is_gone_is(golden_corpus: Path, tmp_path: Path) -> None:
    inputs = deal(golden_corpus, tmp_path / "text", 3)

    def run() -> dict[str, int]:
        create(inputs=inputs, output=tmp_path / "out", vocab=VOCABULARY, settings=SETTINGS, workers=1)
        return {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*0000*")}

    first = run()
    whole = sums(tmp_path / "out")
    assert run() == first
    (tmp_path / "out/ofrecord/part-00001").unlink()
    (tmp_path / "out/tfrecord/corpus_training_00002.tfrecord").write_bytes(b"cut short")
    again = run()
    assert {name for name in first if again[name] != first[name]} == {"part-00001", "corpus_training_00002.tfrecord"}
    assert sums(tmp_path / "out") == whole


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": bertprep.InstanceSettings(dupe=3)}, "was made with dupe 2, asked for is 3"),
        ({"settings": bertprep.InstanceSettings(dupe=2, whole_word=True)}, "was made with whole_word false, asked for is true"),
        ({"corpus": "other"}, 'was made with corpus "corpus", asked for is "other"'),
    ],
)
def test_settings_never_mix(golden_corpus: Path, tmp_path: Path, change: dict[str, object], message: str) -> None:
    inputs = deal(golden_corpus, tmp_path / "text", 2)
    asked = {"inputs": inputs, "output": tmp_path / "out", "vocab": VOCABULARY, "settings": SETTINGS, "workers": 1}
    create(**asked)  # type: ignore[arg-type]
    before = sums(tmp_path / "out")
    with pytest.raises(BertprepError, match=message):
        create(**{**asked, **change})  # type: ignore[arg-type]
    assert sums(tmp_path / "out") == before


def test_another_number_of_shards_another_text_and_another_vocabulary_do_not_mix_either(
    golden_corpus: Path, tmp_path: Path
) -> None:
    inputs = deal(golden_corpus, tmp_path / "text", 2)
    create(inputs=inputs, output=tmp_path / "out", vocab=VOCABULARY, settings=SETTINGS, workers=1)
    before = sums(tmp_path / "out")
    with pytest.raises(BertprepError, match="was made with shards 2, asked for is 1"):
        create(inputs=inputs[:1], output=tmp_path / "out", vocab=VOCABULARY, settings=SETTINGS, workers=1)
    other = tmp_path / "vocab.txt"
    other.write_bytes(VOCABULARY.read_bytes() + b"entirelynew\n")
    with pytest.raises(BertprepError, match=r"was made with vocabulary\.tokens 2937, asked for is 2938"):
        create(inputs=inputs, output=tmp_path / "out", vocab=other, settings=SETTINGS, workers=1)
    assert sums(tmp_path / "out") == before


@pytest.mark.parametrize("change", [lambda text: text + b"one more line\n", lambda text: text.replace(b"a", b"e", 1)])
def test_changed_text_does_not_mix(change: Callable[[bytes], bytes], golden_corpus: Path, tmp_path: Path) -> None:
    inputs = deal(golden_corpus, tmp_path / "text", 2)
    create(inputs=inputs, output=tmp_path / "out", vocab=VOCABULARY, settings=SETTINGS, workers=1)
    inputs[0].write_bytes(change(inputs[0].read_bytes()))
    (tmp_path / "out/ofrecord/part-00001").unlink()  # something is still to be made
    with pytest.raises(BertprepError, match=r"was made from [\d,]+ bytes of text .*text_0\.txt has changed since"):
        create(inputs=inputs, output=tmp_path / "out", vocab=VOCABULARY, settings=SETTINGS, workers=1)


def test_without_a_vocabulary_one_is_trained_and_kept(golden_corpus: Path, tmp_path: Path) -> None:
    inputs = deal(golden_corpus, tmp_path / "text", 2)
    made = [
        create(inputs=inputs, output=tmp_path / out, workdir=tmp_path / "data", vocab_size=500, settings=SETTINGS, workers=1)
        for out in ("a", "b")
    ]
    assert sums(tmp_path / "a") == sums(tmp_path / "b")
    assert made[0].manifests["tfrecord"].made_with["vocabulary"]["tokens"] == 500
    [kept] = (tmp_path / "data/vocab").iterdir()
    assert (tmp_path / "a/tfrecord/vocab.txt").read_bytes() == kept.read_bytes()


def test_another_text_has_another_vocabulary(golden_corpus: Path, tmp_path: Path) -> None:
    a, b = deal(golden_corpus, tmp_path / "text", 2)
    for text, workspace in ((a, "data"), (b, "data"), (b, "fresh")):
        out = tmp_path / f"{text.stem}_{workspace}"
        create(inputs=[text], output=out, workdir=tmp_path / workspace, vocab_size=500, settings=SETTINGS, workers=1)
    assert sums(tmp_path / "text_1_data") == sums(tmp_path / "text_1_fresh")
    assert sums(tmp_path / "text_0_data") != sums(tmp_path / "text_1_data")


def test_a_manifest_that_is_none_is_named(golden_corpus: Path, tmp_path: Path) -> None:
    inputs = deal(golden_corpus, tmp_path / "text", 1)
    (tmp_path / "out/tfrecord").mkdir(parents=True)
    (tmp_path / "out/tfrecord/manifest.json").write_text(json.dumps({"hello": 1}))
    with pytest.raises(BertprepError, match=r"manifest\.json: is not a manifest of bertprep"):
        create(inputs=inputs, output=tmp_path / "out", vocab=VOCABULARY, settings=SETTINGS, workers=1)


def test_a_corpus_that_was_not_sharded_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"make them first: bertprep shard --input FILES --corpus mine"):
        create(workdir=tmp_path, corpus="mine", vocab=VOCABULARY)
    assert not list(tmp_path.iterdir())


def test_a_name_that_leaves_the_workspace_is_refused(golden_corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--corpus \.\./mine: must be wikipedia, bookcorpus"):
        create(inputs=[golden_corpus], output=tmp_path / "out", corpus="../mine", vocab=VOCABULARY)


def test_the_sample_corpus_is_made_once(tmp_path: Path) -> None:
    made = [create(workdir=tmp_path, vocab_size=1000, settings=SETTINGS, formats="ofrecord", workers=2) for _ in range(2)]
    assert made[0].manifests == made[1].manifests
    assert len(made[0].manifests["ofrecord"].files) == 5


def test_a_finished_folder_is_not_taken_for_that_of_another_text(golden_corpus: Path, tmp_path: Path) -> None:
    a, b = deal(golden_corpus, tmp_path / "text", 2)
    create(inputs=[a], output=tmp_path / "out", vocab=VOCABULARY, settings=SETTINGS, formats="tfrecord", workers=1)
    before = sums(tmp_path / "out")
    for formats in ("tfrecord", ("tfrecord", "ofrecord")):
        with pytest.raises(BertprepError, match=r"text_1\.txt has changed since"):
            create(inputs=[b], output=tmp_path / "out", vocab=VOCABULARY, settings=SETTINGS, formats=formats, workers=1)
    assert {name: digest for name, digest in sums(tmp_path / "out").items() if name.startswith("tfrecord")} == before


def test_text_without_a_last_newline_resumes(tmp_path: Path) -> None:
    texts = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for text in texts:
        text.write_bytes(b"One sentence.\nThe last one")
    asked = {"inputs": texts, "output": tmp_path / "out", "vocab": VOCABULARY, "settings": SETTINGS, "workers": 1}
    first = create(**asked)  # type: ignore[arg-type]
    assert first.manifests["tfrecord"].files["corpus_training_00000.tfrecord"]["text"]["bytes"] == 26
    whole = sums(tmp_path / "out")
    (tmp_path / "out/ofrecord/part-00001").unlink()
    create(**asked)  # type: ignore[arg-type]
    assert sums(tmp_path / "out") == whole
