"""Programs for processes of their own, which the look for doctests would import, without PyTorch too."""

collect_ignore_glob = ["*_rank.py"]
