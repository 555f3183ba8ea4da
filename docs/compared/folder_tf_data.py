from keras import Sequential, layers
from keras.utils import image_dataset_from_directory
from model import evaluate, train_step

options = {"validation_split": 0.1, "subset": "both", "seed": 1, "crop_to_aspect_ratio": True}
train, val = image_dataset_from_directory("photos", image_size=(72, 72), batch_size=None, **options)
scale = layers.Rescaling(1 / 255)
augment = Sequential([layers.RandomCrop(64, 64), layers.RandomFlip("horizontal"), scale])
center = Sequential([layers.CenterCrop(64, 64), scale])
train = train.map(lambda x, y: (augment(x, training=True), y)).batch(16).prefetch(2)
val = val.map(lambda x, y: (center(x), y)).batch(16).prefetch(2)
for _ in range(2):
    for batch in train:
        train_step(batch)
    for batch in val:
        evaluate(batch)
