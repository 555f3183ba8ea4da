import pandas as pd
import tensorflow as tf
from model import train_step


def load(row):
    image = tf.io.decode_image(tf.io.read_file(row["path"]), 3, expand_animations=False)
    return tf.image.resize(image, (64, 64)), row["label"], row["age"] / 100


people = tf.data.Dataset.from_tensor_slices(dict(pd.read_csv("people.csv")))
people = people.shuffle(len(people)).repeat(2).map(load, tf.data.AUTOTUNE).batch(16).prefetch(2)
for batch in people:
    train_step(batch)
