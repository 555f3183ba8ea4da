"""Train a small transformer with Hugging Face's Trainer, and resume it in mid-epoch from a checkpoint."""

import tempfile

import numpy as np
import torch
import transformers

import batchup_ng as bu
from batchup_ng.demo.digits import load_digits
from batchup_ng.frameworks.torch import as_dataset, to_torch

EPOCHS, BATCH_SIZE, SEED = 8, 32, 1
torch.set_num_threads(1)
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


def to_inputs(images, labels):
    """Return the inputs of the model by name: each image as a text of 8 words, its rows, used as embeddings."""
    return {"inputs_embeds": np.tile(images / np.float32(16), 8), "labels": labels.astype(np.int64)}


class Trainer(transformers.Trainer):
    """Takes batches from a loader; given the data set itself, it would wrap it in a DataLoader that batches batches."""

    def __init__(self, loader, **options):
        super().__init__(**options)
        self.loader = loader
        self.add_callback(SaveLoader(loader))

    def get_train_dataloader(self):
        return as_dataset(bu.watch(self.loader))


class SaveLoader(transformers.TrainerCallback):
    """Adds the state of the loader to each checkpoint."""

    def __init__(self, loader):
        self.loader = loader

    def on_save(self, args, state, control, **others):
        self.loader.save_state(f"{args.output_dir}/checkpoint-{state.global_step}/loader.json")


def train(folder, checkpoint=None):
    """Return the model after all epochs; if a checkpoint is given, train only the remaining ones."""
    torch.manual_seed(SEED)
    shape = {"vocab_size": 1, "max_position_embeddings": 8, "num_labels": 10}
    size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.BertConfig(**shape, **size, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = transformers.BertForSequenceClassification(config)  # with random weights
    options = {"num_train_epochs": EPOCHS, "learning_rate": 3e-3, "per_device_train_batch_size": BATCH_SIZE}
    options |= {"save_steps": 100, "ignore_data_skip": True}  # the loader restores its own position
    quiet = {"report_to": "none", "disable_tqdm": True, "logging_strategy": "no"}
    with bu.Loader(training, BATCH_SIZE, shuffle=SEED, pool="threads") as loader:
        if checkpoint:
            loader.load_state(f"{checkpoint}/loader.json")
        trainer = Trainer(loader, model=model, args=transformers.TrainingArguments(folder, **options, **quiet))
        trainer.train(resume_from_checkpoint=checkpoint)
    return model


digits = bu.ArrayDataSource(list(load_digits())).map(to_inputs)
training, test = bu.split(digits, [0.75, 0.25], SEED)
with tempfile.TemporaryDirectory() as folder:
    unbroken = train(folder)
    resumed = train(folder, f"{folder}/checkpoint-100")

inputs = next(to_torch(test.batch_iterator(test.num_samples())))
with torch.no_grad():
    accuracy = (resumed.eval()(**inputs).logits.argmax(1) == inputs["labels"]).float().mean()
same = all(torch.equal(a, b) for a, b in zip(unbroken.parameters(), resumed.parameters(), strict=True))
print(f"test accuracy {accuracy:.3f}; weights equal to those of the unbroken run: {same}")
