import torch
from datasets import Image, load_dataset
from model import train_step
from torch.utils.data import DataLoader
from torchvision.transforms import v2
from torchvision.tv_tensors import BoundingBoxes

flip_and_crop = [v2.RandomHorizontalFlip(), v2.RandomCrop(48)]
augment = v2.Compose([v2.ToImage(), *flip_and_crop, v2.SanitizeBoundingBoxes()])


def load(row):
    boxes = torch.tensor(row["boxes"]).reshape(-1, 4)
    boxes = BoundingBoxes(boxes, format="XYXY", canvas_size=(64, 64))
    return augment({"image": row["path"], "boxes": boxes, "labels": torch.tensor(row["labels"])})


scenes = load_dataset("json", data_files="scenes.jsonl", split="train").cast_column("path", Image())
loader = DataLoader(scenes, 16, shuffle=True, num_workers=2, collate_fn=lambda x: [*map(load, x)])
for _ in range(2):
    for batch in loader:
        train_step(batch)
