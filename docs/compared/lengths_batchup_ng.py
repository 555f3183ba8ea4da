from model import train_step

import batchup_ng as bu

corpus = bu.from_file("corpus.parquet")
buckets = bu.BucketSampler(corpus.lengths("ids"))
with bu.Loader(corpus.sample(buckets).pad("ids"), 16, shuffle=1) as loader:
    for batch in loader.epochs(2):
        train_step(batch)
