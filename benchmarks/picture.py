"""Draw the README's picture: a short example from the sample corpus, with a colour for what became of each token.

It is drawn from a record that `bertprep create` writes, so it shows the real content of a file. Its colours follow the reader's
theme.
"""

import argparse
import html
import tempfile
from pathlib import Path

import numpy as np

import bertprep
from benchmarks.pages import ROOT
from bertprep.records.examples import Examples

PICTURE = "docs/images/example.svg"
WIDTH, MARGIN, LINE, SIZE = 860, 24, 58, 14  # pixels: of the picture, around it, of a line of tokens, of letters
CHARACTER = 0.602 * SIZE  # the width of a character in a monospaced font
KINDS = {
    "a": "first segment", "b": "second segment", "masked": "[MASK], 80%", "random": "a random token, 10%", "kept": "kept, 10%",
}  # fmt: skip
"""Kind of a token -> its description in the legend; the last three kinds are predicted."""
STYLE = """
text { font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #1f2328; white-space: pre }
.small { font-size: 12px; fill: #59636e } .title { font: 600 16px system-ui, "DejaVu Sans", sans-serif }
.legend { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #59636e }
.a { fill: #dbe9f6 } .b { fill: #e3efda } .masked { fill: #f6a04d } .random { fill: #e58bb0 } .kept { fill: #f3d45c }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small, .legend { fill: #9198a1 }
  .a { fill: #1d3a57 } .b { fill: #2b4420 } .masked { fill: #a85a08 } .random { fill: #8a3259 } .kept { fill: #7a6410 }
}
"""


def choose(examples: Examples, vocabulary: list[str]) -> list[tuple[str, str, str]]:
    """Return the tokens of the first example of 30 to 50 tokens whose second segment follows the first, with all kinds."""
    lengths = examples.input_mask.sum(axis=1)
    for index in np.flatnonzero((lengths >= 30) & (lengths <= 50) & (examples.next_sentence_labels == 0)):
        tokens = tokens_of(examples, int(index), vocabulary)
        if {kind for _, kind, _ in tokens} == set(KINDS):
            return tokens
    raise SystemExit("no example has all kinds of predictions in so few tokens")


def tokens_of(examples: Examples, index: int, vocabulary: list[str]) -> list[tuple[str, str, str]]:
    """Return each token of an example, its kind, and the token to predict there, or ""."""
    example = examples[index]
    predicted = example.masked_lm_weights > 0
    labels = dict(zip(example.masked_lm_positions[predicted], example.masked_lm_ids[predicted], strict=True))
    mask = vocabulary.index("[MASK]")
    tokens = []
    for position in range(int(example.input_mask.sum())):
        token, kind = example.input_ids[position], "b" if example.segment_ids[position] else "a"
        if position in labels:
            kind = "masked" if token == mask else "kept" if token == labels[position] else "random"
        tokens.append((vocabulary[token], kind, vocabulary[labels[position]] if position in labels else ""))
    return tokens


def draw(tokens: list[tuple[str, str, str]]) -> str:
    """Draw tokens as boxes, with the original token below each predicted one; lines break between words."""
    shapes: list[str] = []
    x, y = float(MARGIN), 92
    for text, kind, label in tokens:
        box = max(len(text), len(label)) * CHARACTER + 12
        if x + box > WIDTH - MARGIN:
            x, y = float(MARGIN), y + LINE
        shapes.append(f'<rect class="{kind}" x="{x:.1f}" y="{y - 17}" width="{box:.1f}" height="24" rx="4"/>')
        shapes.append(f'<text x="{x + box / 2:.1f}" y="{y}" text-anchor="middle">{html.escape(text)}</text>')
        if label:
            shapes.append(
                f'<text class="small" x="{x + box / 2:.1f}" y="{y + 22}" text-anchor="middle">{html.escape(label)}</text>'
            )
        x += box + 5
    legend, x = [], float(MARGIN)
    for kind, meaning in KINDS.items():
        legend.append(f'<rect class="{kind}" x="{x:.0f}" y="46" width="14" height="14" rx="3"/>')
        legend.append(f'<text class="legend" x="{x + 20:.0f}" y="58">{meaning}</text>')
        x += 44 + 6.6 * len(meaning)
    title = f'<text class="title" x="{MARGIN}" y="28">An example for BERT: predict what stood at the coloured tokens</text>'
    size = f'width="{WIDTH}" height="{y + 36}" viewBox="0 0 {WIDTH} {y + 36}"'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><style>{STYLE}</style>'
    return "\n".join([svg, title, *legend, *shapes, "</svg>\n"])


def describe(tokens: list[tuple[str, str, str]]) -> str:
    """Return a description of the picture in words."""
    return " ".join(f"{text} (was {label})" if label else text for text, _, label in tokens)


def main() -> None:
    """Make the records of the sample corpus in a temporary folder, choose an example and draw it."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = bertprep.create(corpus="sample", workdir=Path(folder), formats="tfrecord")
        vocabulary = (made.folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
        with bertprep.records.open(made.folder / "training" / "sample_training_00000.tfrecord") as file:
            examples = file[:]
    tokens = choose(examples, vocabulary)
    (ROOT / PICTURE).write_text(draw(tokens), encoding="utf-8")
    print(describe(tokens))
