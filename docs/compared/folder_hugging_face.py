from datasets import load_dataset
from model import evaluate, train_step
from torch.utils.data import DataLoader
from torchvision import transforms as T

augment = T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip(), T.ToTensor()])
center = T.Compose([T.Resize(64), T.CenterCrop(64), T.ToTensor()])
photos = load_dataset("imagefolder", data_dir="photos", split="train").train_test_split(0.1, seed=1)
train = photos["train"].with_transform(lambda x: {**x, "image": [*map(augment, x["image"])]})
val = photos["test"].with_transform(lambda x: {**x, "image": [*map(center, x["image"])]})
train, val = DataLoader(train, 16, shuffle=True, num_workers=2), DataLoader(val, 16, num_workers=2)
for _ in range(2):
    for batch in train:
        train_step(batch)
    for batch in val:
        evaluate(batch)
