"""A column of text goes through a tokenizer, batch by batch, in any pool."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.work_pool import AbstractWorkerPool

TEXTS = ["one two three", "two", "three four five six", "", "one one"] * 8


def tokenizer() -> Any:
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    trainer = tokenizers.trainers.WordLevelTrainer(special_tokens=["[PAD]", "[UNK]"], show_progress=False)
    made.train_from_iterator(TEXTS, trainer)
    return made


def test_text_is_tokenised_in_batches_and_padded(pools: list[AbstractWorkerPool]) -> None:
    made = tokenizer()
    expected = [made.encode(text).ids for text in TEXTS]
    made.encode_batch(TEXTS)  # its threads run before workers start

    def ids(texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in made.encode_batch(texts)]

    source = bu.ArrayDataSource({"text": TEXTS, "row": np.arange(len(TEXTS))}).map(ids, on="text", out="ids")
    padded = source.pad("ids", mask=True, lengths=True)
    for over in (padded, *[pool.parallel_data_source(padded) for pool in pools]):
        seen = 0
        for batch in over.batch_iterator(7, shuffle=1):
            assert batch["text"] == [TEXTS[row] for row in batch["row"]]
            assert batch["ids"].shape == batch["ids_mask"].shape
            for row, own, real, n in zip(
                batch["row"], batch["ids"], batch["ids_mask"], batch["ids_lengths"], strict=True
            ):
                assert own[real].tolist() == expected[row]
                assert len(expected[row]) == n
                seen += 1
        assert seen == len(TEXTS)
