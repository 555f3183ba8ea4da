"""A whole training job on real images, small enough to run anywhere in seconds.

`digits.py` holds the data, `classifier.py` the network, `job.py` the work itself; ``python -m batchup_ng demo``
runs it. `shapes.py` draws images with boxes and masks, for examples and pages. Nothing else in the package imports this
folder.
"""
