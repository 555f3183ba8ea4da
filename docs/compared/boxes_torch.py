import pandas as pd
import torch
from model import train_step
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.transforms import v2
from torchvision.tv_tensors import BoundingBoxes

flip_and_crop = [v2.RandomHorizontalFlip(), v2.RandomCrop(48)]
augment = v2.Compose([v2.ToImage(), *flip_and_crop, v2.SanitizeBoundingBoxes()])


def load(row):
    boxes = torch.tensor(row["boxes"]).reshape(-1, 4)
    boxes = BoundingBoxes(boxes, format="XYXY", canvas_size=(64, 64))
    image = Image.open(row["path"]).convert("RGB")
    return augment({"image": image, "boxes": boxes, "labels": torch.tensor(row["labels"])})


scenes = pd.read_json("scenes.jsonl", lines=True).to_dict("records")
loader = DataLoader(scenes, 16, shuffle=True, num_workers=2, collate_fn=lambda x: [*map(load, x)])
for _ in range(2):
    for batch in loader:
        train_step(batch)
