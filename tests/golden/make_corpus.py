"""The golden corpus: seeded pseudo-English in BERT's input form, one sentence a line and a blank line after each document.

Same bytes on Python 3.10 to 3.13; README.md has their sha256. Every draw from `rng` counts: another order, another corpus.

    python make_corpus.py vocab.txt > corpus.txt
"""

import random
import sys
from pathlib import Path

# fmt: off
ODD_WORDS = [
    "naïve", "Zürich", "北京大学", "“quoted”", "e.g.", "U.S.", "3.14", "1,000,000", "can't", "--", "…", "co-operate", "[MASK]",
    "antidisestablishmentarianism", "x" * 150, "x" * 210, "Ⅷ", "½", "ﬁne", "e\u0301clair", "zero\u200bwidth", "no\u00a0break",
    "🙂", "###", "C++", "http://a.b/c?d=e",
]
# fmt: on


def build(vocab: Path, seed: int = 7, documents: int = 150) -> str:
    """The text of the corpus, from the plain words of a vocabulary."""
    rng = random.Random(seed)
    lines = vocab.read_text(encoding="utf-8").split("\n")
    words = [word for word in lines if word.isascii() and word.isalpha() and len(word) > 1]
    common = words[:300]

    def draw_word() -> str:
        kind = rng.random()
        if kind < 0.6:
            word = rng.choice(common)
        elif kind < 0.93:
            word = rng.choice(words)
        elif kind < 0.97:
            word = rng.choice(words) + rng.choice(words)
        else:
            word = rng.choice(ODD_WORDS)
        return word + "," if rng.random() < 0.08 else word

    out = []
    for _ in range(documents):
        for _ in range(min(1 + int(rng.expovariate(1 / 14)), 120)):
            sentence = [draw_word() for _ in range(1 + int(rng.expovariate(1 / 17)))]
            sentence[0] = sentence[0].capitalize()
            out.append(" ".join(sentence) + rng.choice('.....?!;")'))
        out.append("")
        if rng.random() < 0.05:
            out.append("")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    sys.stdout.buffer.write(build(Path(sys.argv[1])).encode())
