import pandas as pd
import tensorflow as tf
from model import train_step


def load(path, boxes, labels):
    image = tf.io.decode_image(tf.io.read_file(path), 3, expand_animations=False)
    boxes = boxes.to_tensor(shape=(None, 4))
    if tf.random.uniform(()) < 0.5:
        image = image[:, ::-1]
        boxes = tf.abs([64, 0, 64, 0] - tf.gather(boxes, [2, 1, 0, 3], axis=1))
    left, top = tf.unstack(tf.random.uniform([2], maxval=17, dtype=tf.int32))
    boxes = tf.clip_by_value(boxes - [left, top, left, top], 0, 48)
    kept = tf.reduce_all(boxes[:, 2:] > boxes[:, :2], axis=1)
    return image[top : top + 48, left : left + 48], boxes[kept], labels[kept]


scenes = pd.read_json("scenes.jsonl", lines=True)
ragged = [tf.ragged.constant(scenes[name]) for name in ("boxes", "labels")]
scenes = tf.data.Dataset.from_tensor_slices((scenes["path"], *ragged))
scenes = scenes.shuffle(len(scenes)).repeat(2).map(load, tf.data.AUTOTUNE)
for batch in scenes.ragged_batch(16).prefetch(2):
    train_step(batch)
