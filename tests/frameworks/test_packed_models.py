"""Models of `transformers` cannot tell packed batches from texts one by one: equal losses and gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu

torch = pytest.importorskip("torch", reason="torch is not installed")
from batchup_ng.frameworks.torch import to_torch  # noqa: E402

MOST, WORDS, SIZE = 64, 50, 16
OPTIONS = {"segments": True, "positions": True, "labels": True}
NO_WORDS = {"bos_token_id": None, "eos_token_id": None}


@pytest.fixture(autouse=True)
def no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep torch from making a folder for compiled functions in that of all temporary files."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))


def model_of(kind: str, attention: str) -> Any:
    """Return a tiny model with random weights of 64 bits."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(1)
    if kind == "gpt2":
        drops = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        sizes = {"n_positions": MOST, "n_embd": SIZE, "n_layer": 2, "n_head": 2}
        config = transformers.GPT2Config(vocab_size=WORDS, **sizes, **drops, **NO_WORDS)
    else:
        sizes = {"hidden_size": SIZE, "intermediate_size": 2 * SIZE, "num_hidden_layers": 2, "num_attention_heads": 2}
        config = transformers.LlamaConfig(vocab_size=WORDS, max_position_embeddings=MOST, **sizes, **NO_WORDS)
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention).double()


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.in_turn
def test_a_packed_model_has_the_gradients_of_one_that_takes_each_text_alone(kind: str, attention: str) -> None:
    model = model_of(kind, attention)
    rng = np.random.default_rng(0)
    lengths = np.array([1, *rng.integers(2, 30, 38), MOST])
    data = bu.ArrayDataSource({"ids": bu.Ragged(rng.integers(0, WORDS, lengths.sum()), np.cumsum([0, *lengths]))})

    def trained(batches: Any, how: str) -> tuple[float, int, list[Any]]:
        """Return the loss, the number of batches and the gradients of an epoch."""
        model.zero_grad()
        total, n = 0.0, 0
        for batch in batches:
            columns = {name: column.reshape(1, -1) for name, column in batch.items()}
            segments, told = columns["segments"], {"position_ids": columns["positions"]}
            if how == "mask":
                seen = (segments[:, :, None] == segments[:, None]).tril()[:, None]
                least = torch.finfo(torch.float64).min
                told["attention_mask"] = torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, least)
            elif how == "alone":
                told = {}
            scores = model(input_ids=columns["ids"], use_cache=False, **told).logits[0, :-1]
            losses = {"ignore_index": -100, "reduction": "sum"}
            loss = torch.nn.functional.cross_entropy(scores, columns["labels"][0, 1:], **losses)
            loss.backward()
            total, n = total + loss.item(), n + 1
        return total, n, [parameter.grad.clone() for parameter in model.parameters()]

    with bu.Loader(data.map(bu.pack("ids", **OPTIONS)), 1, pool="serial") as texts:
        alone, n_texts, expected = trained(to_torch(texts), "alone")
    assert n_texts == 40
    for padded in (False, True):
        filled = bu.pack("ids", max_tokens=MOST, padded=padded, **OPTIONS)
        packed = data.sample(bu.PackSampler(lengths, MOST)).map(filled)
        for how in ("mask", "positions"):
            with bu.Loader(packed, shuffle=1, pool="serial") as bins:
                loss, n, found = trained(to_torch(bins), how)
            assert n <= 13
            assert loss == pytest.approx(alone, rel=1e-6)  # eager attention of Llama takes its softmax in 32 bits
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
