"""The numbers in docs/decisions, measured again: python docs/decisions/measure.py [PART ...] [--vocab vocab.txt]

CPU time, of several runs the least, since other work on the machine only ever adds. The text is the sample corpus; the
vocabulary is one trained on it unless --vocab names one. What a part compares with must be installed: typer, nanotoken.
"""

import argparse
import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from bertprep import kernels
from bertprep.instances import Tokenizer, load_vocabulary, reference
from bertprep.kernels.numbers import TEXT_SLACK
from bertprep.sources.sample import write_sample
from bertprep.text import sentences
from bertprep.text.sentences import Splitter, split_paragraph, split_sentences
from bertprep.text.train_vocabulary import train_vocabulary
from bertprep.work.layout import Workspace

RUNS = 7


def least(work: Callable[[], Any], runs: int = RUNS) -> float:
    """CPU seconds, of all threads of this process."""
    times = []
    for _ in range(runs):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def least_after(prepare: Callable[[], Any], work: Callable[[Any], Any], runs: int = RUNS) -> float:
    """The same for work on something new each time, whose making is not counted."""
    times = []
    for _ in range(runs):
        prepared = prepare()
        times.append(least(lambda prepared=prepared: work(prepared), 1))
    return min(times)


def least_of_process(*arguments: str, runs: int = 15, **environment: str) -> float:
    """CPU seconds of a fresh Python with these arguments, start and end of the interpreter included."""
    times = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **environment})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def report(what: str, value: float, unit: str) -> None:
    """Print one line."""
    print(f"  {what:64s} {value:10,.1f} {unit}", flush=True)


def measure_tokenizer(text: Path, vocab: Path) -> None:
    """0001: rates on English, start-up, and the characters on which tokenizers differ from Google's."""
    from tokenizers import Tokenizer as Reference
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    megabytes = text.stat().st_size / 1e6
    lines = text.read_text(encoding="utf-8").split("\n")
    vocabulary = load_vocabulary(vocab)
    print(f"  {len(vocabulary):,} tokens, {megabytes:.1f} MB")
    own = Tokenizer(vocabulary, lower=True)
    report("bertprep: build", 1e3 * least(lambda: Tokenizer(vocabulary, lower=True)), "ms")
    report("bertprep: file to ids, with CRC-32C", megabytes / least(lambda: own.tokenize_file(text)), "MB/s")
    report(
        "bertprep: the same, no word met before",
        megabytes / least_after(lambda: Tokenizer(vocabulary, lower=True), lambda own: own.tokenize_file(text)),
        "MB/s",
    )
    own_ids = own.tokenize_file(text).tokens.tolist()

    model = WordPiece.from_file(str(vocab), unk_token="[UNK]", max_input_chars_per_word=200)
    slow = Reference(model)
    slow.normalizer, slow.pre_tokenizer = BertNormalizer(lowercase=True), BertPreTokenizer()
    some = lines[: len(lines) // 10]
    share = sum(len(line.encode()) + 1 for line in some) / 1e6
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    fast = least(lambda: slow.encode_batch_fast(some, add_special_tokens=False), 3)
    report("tokenizers: lines to ids, one thread", share / fast, "MB/s")
    slow_ids = [i for line in slow.encode_batch_fast(lines, add_special_tokens=False) for i in line.ids]
    print(f"  same ids as tokenizers on this text: {own_ids == slow_ids}")

    with contextlib.suppress(ImportError):
        import nanotoken

        other = nanotoken.Tokenizer(slow)
        other.encode_batch(lines[:1000], add_special_tokens=False, parallel=False)
        plain = least_of_process("-c", "import numpy")
        report("nanotoken: import, beyond numpy", 1e3 * (least_of_process("-c", "import nanotoken") - plain), "ms")
        report("nanotoken: build", 1e3 * least(lambda: nanotoken.Tokenizer(slow)), "ms")
        encode = {"add_special_tokens": False, "parallel": False}
        report(
            "nanotoken: list of lines to ids, one thread",
            megabytes / least(lambda: other.encode_batch(lines, **encode)),
            "MB/s",
        )
        split = least(lambda: text.read_bytes().split(b"\n"))
        report("nanotoken: file to ids", megabytes / (split + least(lambda: other.encode_batch(lines, **encode))), "MB/s")
        report(
            "nanotoken: list of lines to ids, no word met before",
            megabytes / least_after(lambda: nanotoken.Tokenizer(slow), lambda one: one.encode_batch(lines, **encode)),
            "MB/s",
        )

    normalizer, pre_tokenizer = slow.normalizer, slow.pre_tokenizer
    differ: dict[str, int] = {}
    for point in range(0x110000):
        word = f"a{chr(point)}b"
        if 0xD800 <= point <= 0xDFFF or word[1] in "\r\n":
            continue
        theirs = [piece for piece, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(word))]
        if theirs != list(reference.split_words(word, lower=True)):
            category = reference.unicodedata.category(chr(point))
            differ[category] = differ.get(category, 0) + 1
    print(f"  characters that tokenizers treats unlike Google's, by category: {dict(sorted(differ.items()))}")
    for word in ("ΟΔΟΣ",):
        print(
            f"  {word}: tokenizers {normalizer.normalize_str(word)}, Google's {list(reference.split_words(word, lower=True))}"
        )


def measure_kernels(_text: Path, _vocab: Path) -> None:
    """0002: a process that loads the compiled kernels, one that compiles them, and numba's import."""
    bare = least_of_process("-c", "import numpy, llvmlite.binding")
    load = "from bertprep import kernels; kernels.load()"
    report(
        "import numba, beyond numpy",
        1e3 * (least_of_process("-c", "import numpy, numba") - least_of_process("-c", "import numpy")),
        "ms",
    )
    report("load kernels from the cache, beyond numpy and llvmlite", 1e3 * (least_of_process("-c", load) - bare), "ms")
    inside = (
        "import time, llvmlite.binding; from bertprep import kernels; t = time.process_time(); kernels.load(); "
        "print(time.process_time() - t)"
    )
    took = min(float(subprocess.run([sys.executable, "-c", inside], capture_output=True, check=True).stdout) for _ in range(15))
    report("kernels.load() itself", 1e3 * took, "ms")
    with tempfile.TemporaryDirectory() as folder:
        report("compile them", least_of_process("-c", load, runs=1, BERTPREP_CACHE=folder), "s")
        report("object file", sum(path.stat().st_size for path in Path(folder).iterdir()) / 1e3, "KB")


def measure_cli(_text: Path, _vocab: Path) -> None:
    """0004: what argparse and typer add to the start of a process."""
    bare = least_of_process("-c", "pass")
    for name in ("argparse", "typer"):
        report(f"import {name}", 1e3 * (least_of_process("-c", f"import {name}") - bare), "ms")
    for name in ("argparse", "typer"):
        program = {
            "argparse": "import argparse; p = argparse.ArgumentParser(); p.add_argument('--seq', type=int); p.parse_args()",
            "typer": "import typer\ndef main(seq: int = 128): pass\ntyper.run(main)",
        }[name]
        report(f"one command with one option, {name}", 1e3 * (least_of_process("-c", program, "--seq", "1") - bare), "ms")
    report("bertprep --help", 1e3 * least_of_process("-m", "bertprep", "--help"), "ms")
    report("python -c pass", 1e3 * bare, "ms")


def measure_trainer(text: Path, _vocab: Path) -> None:
    """0005: how many different files equal runs write."""
    program = """
import sys
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
t.train([sys.argv[1]], trainers.WordPieceTrainer(vocab_size=8000, special_tokens="[PAD] [UNK] [CLS] [SEP] [MASK]".split()))
v = t.get_vocab(); sys.stdout.write("".join(f"{w}\\n" for w in sorted(v, key=v.get)))
"""
    for name, runs, code in (
        ("tokenizers", 10, program),
        ("bertprep", 3, "import sys, pathlib; from bertprep.text.train_vocabulary import train_vocabulary as t; "
                        "t([pathlib.Path(sys.argv[1])], pathlib.Path('/dev/shm/measure.txt')); "
                        "print(pathlib.Path('/dev/shm/measure.txt').read_text())"),
    ):  # fmt: skip
        files, times = set(), []
        for _ in range(runs):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            files.add(subprocess.run([sys.executable, "-c", code, str(text)], capture_output=True, check=True).stdout)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        print(f"  {name}: {len(files)} different files in {runs} runs, {min(times):.1f} CPU-s a run")


def measure_sentences(text: Path, _vocab: Path) -> None:
    """0006: sentences of the sample corpus, split by paragraph and with all lines of a document joined."""
    documents = [document for document in text.read_text(encoding="utf-8").split("\n\n") if document.strip()]
    for name, rule in (
        ("as bertprep does", split_sentences),
        ("all lines of a document joined", lambda document: split_paragraph(" ".join(document.split()), "en")),
    ):
        found = [sentence for document in documents for sentence in rule(document)]
        sizes = sorted(map(len, found))
        over = sum(size > 2000 for size in sizes)
        print(f"  {name}: {len(sizes):,} sentences, longest {sizes[-1]:,} characters, {over} over 2,000")


def measure_plain_sentences(text: Path, _vocab: Path) -> None:
    """0017: splitting the sample corpus by sentencex alone, and with the kernel that cuts plain lines."""
    documents = [document for document in text.read_text(encoding="utf-8").split("\n\n") if document.strip()]
    encoded = [document.encode() for document in documents]
    megabytes = sum(map(len, encoded)) / 1e6
    batches = []
    for start in range(0, len(encoded), 10):
        batch = encoded[start : start + 10]
        ends = np.cumsum([len(document) for document in batch], dtype=np.int64)
        batches.append((np.frombuffer(b"".join(batch) + bytes(TEXT_SLACK), np.uint8), ends))

    def split_all(splitter: Splitter) -> list[bytes]:
        return [bytes(splitter.split(*batch)) for batch in batches]

    asked: list[int] = []

    class Counting(Splitter):
        def _ask(self, line: bytes | memoryview) -> bytes:
            asked.append(len(line))
            return super()._ask(line)

    with mock.patch.object(sentences, "PLAIN_IN", ()):
        alone = Splitter("sentencex", "en")
    knowing = Counting("sentencex", "en")
    assert split_all(alone) == split_all(knowing)
    asked.clear()
    split_all(knowing)
    print(f"  left to sentencex: {sum(asked) / megabytes / 1e4:.1f}% of {megabytes:.1f} MB, {len(asked):,} lines")
    report("a document at a time, in Python", 1e3 * least(lambda: list(map(split_sentences, documents))) / megabytes, "ms a MB")
    report("tidied by the kernel, all lines to sentencex", 1e3 * least(lambda: split_all(alone)) / megabytes, "ms a MB")
    report("words met for the first time", 1e3 * least(lambda: split_all(Splitter("sentencex", "en"))) / megabytes, "ms a MB")
    report("words known", 1e3 * least(lambda: split_all(knowing)) / megabytes, "ms a MB")


def measure_writes(_text: Path, _vocab: Path) -> None:
    """0007: 100 MB to a file, by way of the page cache and past it; a record of 128/20 has 832 bytes."""
    import mmap

    size, block_size, record = 100 << 20, 1 << 20, 832
    block = mmap.mmap(-1, block_size)
    block.write(os.urandom(block_size))
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path = Path(folder) / "file"

        def write(flags: int, reserve: bool) -> tuple[float, float]:
            path.unlink(missing_ok=True)
            wall, started = time.perf_counter(), time.process_time()
            file = os.open(path, os.O_WRONLY | os.O_CREAT | flags)
            if reserve:
                os.posix_fallocate(file, 0, size)
            for _ in range(size // block_size):
                os.write(file, block)
            os.fsync(file)
            os.close(file)
            return time.process_time() - started, time.perf_counter() - wall

        for name, flags, reserve in (
            ("page cache", 0, False),
            ("page cache, fallocate", 0, True),
            ("O_DIRECT", os.O_DIRECT, False),
            ("O_DIRECT, fallocate", os.O_DIRECT, True),
        ):
            times = [write(flags, reserve) for _ in range(5)]
            report(f"{name}: CPU", 1e9 * min(cpu for cpu, _ in times) * record / size, "ns a record")
            walls = sorted(wall for _, wall in times)
            print(f"    wall {walls[0]:.2f} to {walls[-1]:.2f} s")


PARTS = {name.removeprefix("measure_"): part for name, part in list(globals().items()) if name.startswith("measure_")}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--vocab", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sample = write_sample(Workspace(Path(folder)))
        chosen = options.vocab or Path(folder) / "vocab.txt"
        if options.vocab is None:
            train_vocabulary([sample], chosen)
        kernels.load()
        for part in options.parts or PARTS:
            print(part)
            PARTS[part](sample, chosen)
