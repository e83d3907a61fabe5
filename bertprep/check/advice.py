"""What to do about each finding: one sentence a code, which follows the finding in a terminal, on the page and in Python.

docs/reference/findings.md has the same table; a test compares the two. A finding that knows its cause carries its own advice.
"""

_AGAIN = "run the command that made it again; if you have no such command, copy the file again"
_REMAKE = "make the records again with the tool that made them, after correcting it"
_MASKING = "correct the masking of the tool that made the records, or pass validate the --vocab that they were made with"
_VOCAB = "pass the --vocab that the data were made with; if it is this one, make them again"
_WORDS = "pass --whole-word if the records mask whole words and have no manifest.json; else correct the masking"
_LABELS = "correct how the tool that made the records labels and pairs its sentences"
_TOKENIZE = "run bertprep tokenize again into an empty folder"
_SHARD = "run bertprep shard again into an empty folder"

ADVICE = {
    # files
    "unreadable": _AGAIN,
    "empty-file": _AGAIN,
    "truncated": _AGAIN,
    "trailing-bytes": _AGAIN,
    "bad-checksum": _AGAIN,
    "bad-message": _AGAIN,
    "feature-missing": _REMAKE,
    "feature-type": _REMAKE,
    "feature-shape": _REMAKE,
    "mixed-shape": "move these files to a folder of their own",
    "file-sizes": "bertprep convert --shards N distributes the records evenly",
    # records
    "padding": _REMAKE,
    "no-cls": _VOCAB,
    "separators": _VOCAB,
    "segments": _REMAKE,
    "id-range": _VOCAB,
    "mask-order": _REMAKE,
    "mask-outside": _REMAKE,
    "mask-on-special": _REMAKE,
    "weights": _REMAKE,
    "prediction-count": "without a manifest.json pass their --masked-lm-prob, and --whole-word if they mask whole words",
    "whole-words": "make the records again, or leave out --whole-word",
    "next-sentence-label": _REMAKE,
    "mask-without-label": "remove [MASK] from the text, or correct the tool that masks it without a label",
    "word-pieces": _VOCAB,
    # fine-tuning records
    "answer-positions": _REMAKE,
    "impossible": _REMAKE,
    "unique-ids": "run bertprep task again into an empty folder",
    "label-range": _REMAKE,
    # data sets
    "replacement-shares": _MASKING,
    "position-shares": _WORDS,
    "label-frequencies": _WORDS,
    "label-beside-mask": _MASKING,
    "random-tokens": _MASKING,
    "next-sentence-share": f"{_LABELS}; if lines are documents, run the text through bertprep shard",
    "next-sentence-text": _LABELS,
    "record-order": "shuffle the records, or let the trainer shuffle all of them, not only a buffer",
    "short-share": "check that the tool that made the records fills them up to seq",
    "few-predictions": "choose a larger --pred, or a smaller --masked-lm-prob",
    "padding-share": "choose a smaller --seq, or longer documents; python -m trainer --pack computes less of the padding",
    "unknown-tokens": "remove these files and make them again: with a --vocab of the text's language, "
    "or train one on this text with bertprep vocab",
    "vocabulary-case": "make the records again with a vocabulary of the same case as --cased says",
    "short-documents": "if each file is one document, run bertprep shard again with --one-document-per-file "
    "and another --corpus; else join documents that are parts of one text",
    "duplicate-records": "remove repeated files or documents from the text, and give each shard a seed of its own",
    "test-in-training": "remove the test text from the training text and make both splits again",
    "test-text-in-training": "remove the test text, or texts that nearly repeat it, from the training text and make both again",
    "repeated-texts": "remove one of the two files, or the repeated text, and make the records again",
    "identical-files": "remove one of the two files",
    "split-sizes": "choose a smaller --test-fraction, or find what training has lost; folders may be exchanged",
    # manifests
    "file-missing": "run the command that made the data again, or copy the file",
    "file-extra": "remove the file, or move it to another folder",
    "file-changed": "bertprep validate --remove-damaged removes it; then run the command that made it again",
    "text-changed": "remove the records or tokens, and run the command that made them again",
    "manifest": "make the data again; if you passed --vocab, check that it is theirs",
    "vocabulary": "name the vocabulary of the records with --vocab",
    # text and token shards
    "document-twice": "remove the repeated document, or accept it with bertprep shard --keep-duplicates",
    "document-in-both-splits": _SHARD,
    "blank-sentence": _SHARD,
    "long-sentence": "check whether the text has sentence ends; a sentence is truncated to --seq",
    "not-utf8": "convert the text to UTF-8 and run bertprep shard again",
    "token-shard": _TOKENIZE,
    "special-token": _TOKENIZE,
    "empty-document": _TOKENIZE,
    "word-starts": _TOKENIZE,
    "no-sentences": "make records with bertprep create --pairs none, or token shards with one sequence for each sentence",
}
"""The sentence for each code."""
