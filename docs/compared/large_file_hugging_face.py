from datasets import load_dataset
from model import train_step
from torch.utils.data import DataLoader

data = load_dataset("hdf5", data_files="train.h5", split="train").with_format("torch")
loader = DataLoader(data, 16, shuffle=True, num_workers=2)
for _ in range(2):
    for batch in loader:
        train_step(batch)
