"""Explain what each finding means, and what to do about it.

The sentence of a code in `ADVICE` follows the finding in a terminal, on the page and in Python. docs/reference/findings.md has
the same table; a test compares the two. A finding whose cause is known has advice of its own. `MEANINGS` are shown on the page,
for people who do not have the docs.
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
    "next-sentence-share": "if sentences are as long as a record, make longer records, or records with --pairs none; if lines "
    f"are documents, run the text through bertprep shard; else {_LABELS}",
    "next-sentence-text": _LABELS,
    "lone-document": "make the text shards again with blank lines between documents or fewer --shards, or make records with "
    "--pairs none",
    "record-order": "shuffle the records, or let the trainer shuffle all of them, not only a buffer",
    "short-share": "check that the tool that made the records fills them up to seq",
    "few-predictions": "choose a larger --pred, or a smaller --masked-lm-prob",
    "cut-off": "make longer records, or make the text shards again with bertprep shard, which divides long sentences",
    "padding-share": "choose a smaller --seq, or longer documents; python -m trainer --pack computes less of the padding",
    "unknown-tokens": "remove these files and make them again: put spaces between words of more than 200 characters, name a "
    "--vocab of the text's language, or train one, or a larger one, on this text with bertprep vocab",
    "split-words": "remove these files and make them again: with a larger vocabulary, or one of the text's language, "
    "or train one, or a larger one, on this text with bertprep vocab",
    "letters-lost": "remove these files and make them again with --cased and a cased vocabulary",
    "answers-misplaced": "correct answer_start, the number of characters before the answer, and run bertprep task again",
    "words-are-numbers": "make a file with the word in the first column and its tag in the last one, and run bertprep task "
    "again",
    "vocabulary-case": "make the records again with a vocabulary whose case agrees with --cased",
    "short-documents": "if each file is one document, run bertprep shard again with --one-document-per-file "
    "and another --corpus; else join documents that are parts of one text",
    "duplicate-records": "remove repeated files or documents from the text, and give each shard a seed of its own",
    "test-in-training": "remove the test text from the training text, and make both splits again",
    "test-text-in-training": "remove test text, or what nearly repeats it, from the training text, and make both splits again",
    "repeated-texts": "remove one of the two files, or the repeated text, and make the records again",
    "identical-files": "remove one of the two files",
    "split-sizes": "choose a smaller --test-fraction, or find what training has lost; the folders may be swapped",
    # manifests
    "file-missing": "run the command that made the data again, or copy the file",
    "file-extra": "remove the file, or move it to another folder",
    "file-changed": "copy the file again; or remove it with bertprep validate --remove-damaged, and run the command that "
    "made it",
    "text-changed": "remove the records or tokens, and run the command that made them again",
    "manifest": "make the data again; if you passed --vocab, check that it is the vocabulary of the data",
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
    "words": _TOKENIZE,
    "round-trip": "tokenize the text again with the tokenizer.json that the model will have, into an empty folder",
    "no-sentences": "make records with bertprep create --pairs none, or token shards with one sequence for each sentence",
}
"""The advice for each code, in one sentence."""
EXPLAINED = "the file is not the one that was made: see file-changed"
"""The advice of other findings in a file that has the finding file-changed."""

MEANINGS = {
    # files
    "unreadable": "The file cannot be opened, or is in none of the formats that bertprep reads.",
    "empty-file": "The file has no bytes. Many trainers stop at it, and others skip it silently.",
    "truncated": "The file ends inside a record or document: a copy or a run was interrupted. What comes before was checked.",
    "trailing-bytes": "Bytes follow the last record that are not a record.",
    "bad-checksum": "The bytes have changed since they were written, as on a failing disk. TensorFlow stops at such a record.",
    "bad-message": "The bytes of a record are not a valid message of its format.",
    "feature-missing": "A trainer reads a feature that these records do not have.",
    "feature-type": "A feature has numbers of another type than trainers read.",
    "feature-shape": "A feature does not have as many values as in the first record, so records do not fit into one batch.",
    "mixed-shape": "Records of several kinds, lengths or formats are mixed. A trainer expects one.",
    "file-sizes": "Some files have far more or fewer records than the others. Processes that read one each wait for the last.",
    # records
    "padding": "A model attends to padding, or does not see text, because mask and tokens disagree.",
    "no-cls": "Records do not begin with [CLS], or have it elsewhere. Usually the vocabulary is not that of the records.",
    "separators": "The segments do not end where [SEP] should be.",
    "segments": "The segment ids do not change where the second segment begins.",
    "id-range": "Tokens are outside the vocabulary. A trainer crashes on them, or reads other memory.",
    "mask-order": "Positions of masked tokens are repeated or out of order.",
    "mask-outside": "There are predictions at positions without text.",
    "mask-on-special": "There are predictions of [CLS] or [SEP], which BERT never makes.",
    "weights": "The weights do not tell which predictions count.",
    "prediction-count": "Records do not have as many masked tokens as the settings require.",
    "whole-words": "Parts of words are masked, although whole words should be.",
    "next-sentence-label": "The label is neither 0 nor 1.",
    "mask-without-label": "[MASK] is shown at a position without a prediction, so the model learns nothing from it.",
    "word-pieces": "Pieces of words have no beginning: the ids are of another vocabulary, or out of order.",
    # fine-tuning records
    "answer-positions": "The answer is outside the passage, so the model would learn to answer with other text.",
    "impossible": "The flag and the positions disagree on whether the question has an answer.",
    "unique-ids": "Predictions could not be assigned to their questions.",
    "label-range": "A label is outside the range of the task.",
    # data sets
    "replacement-shares": "BERT shows 80% of the masked tokens as [MASK], 10% unchanged and 10% as a random token. "
    "These records do not.",
    "position-shares": "Some positions are masked more often than others, so a model can guess from the position.",
    "label-frequencies": "Some tokens are masked more or less often than their frequency in the text suggests.",
    "label-beside-mask": "Labels equal the token next to the mask too often: labels or positions are off by one.",
    "random-tokens": "Random replacements are not drawn from the whole vocabulary, so they are easier to recognize.",
    "next-sentence-share": "In half of the records the second segment should be random. Otherwise a model can guess the label.",
    "next-sentence-text": "Segments that are labelled random belong together: labels are wrong, or both come from one text.",
    "lone-document": "Random next sentences come from the same document as the first, or from very little other text, so a "
    "model learns little from the label.",
    "record-order": "Neighbouring records are alike. A trainer that shuffles little gets batches of one text.",
    "short-share": "More or fewer records are short than the settings explain.",
    "few-predictions": "The limit on predictions leaves many tokens unmasked, so a step of training teaches less.",
    "cut-off": "Sentences are longer than a record, and no record has their rest, so a model never sees that text.",
    "padding-share": "A model computes padding as it does text, so much of the training time is wasted.",
    "unknown-tokens": "Every [UNK] is a word that the model cannot see. The vocabulary does not fit the text.",
    "split-words": "The vocabulary lacks most words and splits them into many pieces, from which a model learns less.",
    "letters-lost": "Lower-casing also removed accents, vowel signs or other marks, so different words became the same.",
    "answers-misplaced": "Questions are lost, or learned with the words beside their answers.",
    "words-are-numbers": "The model learns to tag the numbers of words in place of the words.",
    "vocabulary-case": "Words with capitals become [UNK], or tokens with capitals are never used.",
    "short-documents": "Documents are so short that most records have few tokens, and random second segments.",
    "duplicate-records": "The same records occur again more often than by chance. The model sees them more often than others.",
    "test-in-training": "Test records are in training too, so the test measures memory.",
    "test-text-in-training": "The text of test records is in training too, with other masks, so the test measures memory.",
    "repeated-texts": "Two files have the same text with different masks: a shard is there twice.",
    "identical-files": "Two files have the same records.",
    "split-sizes": "The test split is larger than intended: the folders may be swapped, or training has lost records.",
    # manifests
    "file-missing": "A file that belongs to the data set is not there.",
    "file-extra": "A file is there that does not belong to the data set. Trainers read all files of a folder.",
    "file-changed": "The file is not the one that was made: its size or checksum differ.",
    "text-changed": "The text shards have changed since these files were made from them.",
    "manifest": "The manifest does not match the files.",
    "vocabulary": "Without the vocabulary, ids outside it, [UNK] and random tokens cannot be checked.",
    # text and token shards
    "document-twice": "A document occurs more than once. The model sees it more often than others.",
    "document-in-both-splits": "A document is in both test and training, so the test measures memory.",
    "blank-sentence": "A line has no sentence, or a document ends where it should not.",
    "long-sentence": "The text has few sentence ends, or the splitter does not know its language.",
    "not-utf8": "The text has bytes that are not UTF-8, so characters are lost.",
    "token-shard": "The files of a token shard do not match, or cannot be read.",
    "special-token": "The text has special tokens such as [MASK], which only the tool that makes records may add.",
    "empty-document": "A document has no token.",
    "words": "Whole words would be masked by wrong borders.",
    "round-trip": "The tokens are not those of this tokenizer, or not in the order of a text.",
    "word-starts": "A document begins in the middle of a word, so whole words cannot be masked.",
    "no-sentences": "Each document is one sequence. Sentence pairs need a sequence for each sentence.",
}
"""The meaning of each code for training, in one or two sentences for the page."""
