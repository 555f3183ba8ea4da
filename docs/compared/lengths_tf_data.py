import pandas as pd
import tensorflow as tf
from model import train_step

corpus = pd.read_parquet("corpus.parquet")
ids = tf.ragged.constant(corpus["ids"])
corpus = tf.data.Dataset.from_tensor_slices((ids, corpus["label"]))
corpus = corpus.shuffle(len(corpus)).map(lambda ids, label: (ids, label))
corpus = corpus.bucket_by_sequence_length(lambda ids, _: tf.size(ids), range(4, 33, 4), [16] * 9)
for batch in corpus.repeat(2).prefetch(2):
    train_step(batch)
