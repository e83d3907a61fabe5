"""Folders are named for all that their files depend on."""

from itertools import product

import pytest

from bertprep.config import DEFAULT_VARIANT, GlueSettings, InstanceSettings, SquadSettings, Variant
from bertprep.work.layout import settings_name, task_settings_name


@pytest.mark.parametrize(
    ("variant", "ending"),
    [
        (DEFAULT_VARIANT, ""),
        (Variant(compress="gzip"), "_gzip"),
        (Variant(feature_names="tf2"), "_tf2_names"),
        (Variant(feature_names="tf2", compress="gzip"), "_tf2_names_gzip"),
    ],
)
def test_a_folder_is_named_for_the_form_of_its_records(variant: Variant, ending: str) -> None:
    assert task_settings_name(GlueSettings(), variant=variant) == f"lower_case_1_seq_len_128{ending}"
    squad = "lower_case_1_seq_len_384_doc_stride_128_max_query_64"
    assert task_settings_name(SquadSettings(), variant=variant) == f"{squad}{ending}"
    name = settings_name(InstanceSettings(), variant=variant, shards=256, test_fraction=0.1)
    assert name.endswith(f"_shard_256_test_split_10{ending}")


def test_tasks_of_other_settings_have_other_folders() -> None:
    settings = [GlueSettings(cased=cased, seq=seq) for cased, seq in product((False, True), (64, 128))]
    settings += [
        SquadSettings(cased=cased, seq=seq, doc_stride=doc_stride, max_query=max_query)
        for cased, seq, doc_stride, max_query in product((False, True), (384, 512), (64, 128), (32, 64))
    ]
    assert len({task_settings_name(each) for each in settings}) == len(settings)
