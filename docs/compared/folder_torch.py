from model import evaluate, train_step
from torch import Generator
from torch.utils.data import DataLoader, random_split
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

augment = T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip(), T.ToTensor()])
center = T.Compose([T.Resize(64), T.CenterCrop(64), T.ToTensor()])
train, _ = random_split(ImageFolder("photos", augment), [0.9, 0.1], Generator().manual_seed(1))
_, val = random_split(ImageFolder("photos", center), [0.9, 0.1], Generator().manual_seed(1))
train, val = DataLoader(train, 16, shuffle=True, num_workers=2), DataLoader(val, 16, num_workers=2)
for _ in range(2):
    for batch in train:
        train_step(batch)
    for batch in val:
        evaluate(batch)
