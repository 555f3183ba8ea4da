"""What stands here are programs for processes of their own; the look for doctests would import them, without PyTorch too."""

collect_ignore_glob = ["*_rank.py"]
