"""Train a network on images of spirals, fed by a DataLoader."""

import torch
from torch.utils.data import DataLoader, Dataset

EPOCHS = 8
torch.manual_seed(1)
torch.set_num_threads(1)


class Spirals(Dataset):
    """Images of three spiral arms; the label is the arm that the image shows."""

    def __len__(self):
        return 900

    def __getitem__(self, index):
        label = index % 3
        noise = torch.randn(12, 2, generator=torch.Generator().manual_seed(index))
        radius = torch.linspace(1, 7, 12)
        angle = radius / 2 + 2.1 * label
        points = torch.stack([angle.cos() * radius, angle.sin() * radius], 1) + 0.5 * noise + 8
        rows, columns = points.round().long().clamp(0, 15).T
        picture = torch.zeros(1, 16, 16)
        picture[0, rows, columns] = 1
        return picture, label


loader = DataLoader(Spirals(), batch_size=32, shuffle=True, num_workers=2)

network = torch.nn.Sequential(
    torch.nn.Conv2d(1, 8, 5, stride=2),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(8 * 6 * 6, 3),
)
optimiser = torch.optim.SGD(network.parameters(), lr=0.05)
loss_function = torch.nn.CrossEntropyLoss()

for epoch in range(EPOCHS):
    total = 0.0
    for pictures, labels in loader:
        optimiser.zero_grad()
        loss = loss_function(network(pictures), labels)
        loss.backward()
        optimiser.step()
        total += loss.item()
    print(f"epoch {epoch}: mean loss {total / len(loader):.6f}")
