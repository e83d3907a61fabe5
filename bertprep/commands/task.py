"""`bertprep task squad` and `task glue`: the files of a fine-tuning task become record files."""

from __future__ import annotations

from bertprep.commands.request import function_of
from bertprep.commands.task_request import Glue, Squad
from bertprep.files.paths import as_path
from bertprep.terminal import print_results
from bertprep.work.layout import TRAINING
from bertprep.work.made import Made

_UNUSUAL = {
    "dropped": "whose answer is not in their context",
    "recovered": "which run_squad.py drops for the white space in or around their answer",
}
"""What the manifest counts of SQuAD's questions for training besides all of them."""


def create_task(request: Squad | Glue) -> Made:
    """Make record files of a task: the examples of Google's `run_squad.py` or `run_classifier.py`.

    The files are downloaded ones, or `inputs`, whose names begin with train, dev or test. `version` is SQuAD's; `name` is a
    task of GLUE, or the user's own with texts and labels in TSV or JSON Lines, whose classes are `labels` or those of the
    training file. `vocab` is a file or a downloaded model, bert-base by default. Finished files are kept. `part`, such as
    "3/400", makes only that part.

    Raises `UsageError` for a request that cannot be met, `BertprepError` for wrong files, vocabulary or machine, or other
    settings.

        bertprep.create_glue("mrpc", workdir="data")
    """
    from bertprep.commands.task_job import resolve_task

    workers = request.start_workers(shared=as_path(request.output or request.workdir))
    return resolve_task(request).run(request.read_part(), workers, request.reporter)


REQUEST = {"squad": Squad, "glue": Glue}
create_squad = function_of(Squad, create_task, "create_squad")
create_glue = function_of(Glue, create_task, "create_glue")


def run(request: Squad | Glue) -> None:
    """Make the records of a task, and print what each format and split has."""
    made = create_task(request)
    print_results(*made.lines())
    counts, labels = made.manifest.counts, made.manifest.made_with.get("labels")
    if labels:
        print_results(f"labels: {', '.join(labels)}")  # a misspelled one would be a class of its own
    for name, why in _UNUSUAL.items():
        if found := counts.get(f"{TRAINING}_{name}"):
            print_results(f"{name}: {found:,} of {counts[f'{TRAINING}_questions']:,} questions for training, {why}")
    print_results(*request.finished_lines())
