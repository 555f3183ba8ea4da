"""Learn from a few labelled digits and many without labels, side by side in every batch."""

import numpy as np

import batchup_ng as bu
from batchup_ng.demo.classifier import Classifier
from batchup_ng.demo.digits import load_digits

N_LABELLED, EPOCHS, SURE = 100, 15, 0.9

images, labels = load_digits()
images = images.astype(np.float32) / 16
everything = bu.ArrayDataSource([images, labels.astype(np.int64)])
train, test = bu.split(everything, [0.75, 0.25], 1, stratify=labels)
x_train, y_train = next(iter(train.batch_iterator(len(images))))
x_test, y_test = next(iter(test.batch_iterator(len(images))))

# The few labelled digits repeat without end; an epoch ends with the last unlabelled digit.
labelled = bu.ArrayDataSource([x_train[:N_LABELLED], y_train[:N_LABELLED]], repeats=-1)
unlabelled = bu.ArrayDataSource([x_train[N_LABELLED:]])
both = bu.CompositeDataSource([labelled, unlabelled])

network = Classifier(64, 10, seed=1)
with bu.Loader(both, 32, shuffle=7) as loader:
    for epoch in range(EPOCHS):
        for x, y, x_without in loader:
            network.train_batch(x, y)
            # From the second epoch on, a guess that the network is sure of becomes the label.
            guess = network.probabilities(x_without)
            sure = guess.max(axis=1) > SURE
            if epoch > 0 and sure.any():
                network.train_batch(x_without[sure], guess[sure].argmax(axis=1))

accuracy = np.mean(network.predict(x_test) == y_test)
print(f"test accuracy {accuracy:.3f} from {N_LABELLED} labelled and {unlabelled.num_samples()} other digits")
