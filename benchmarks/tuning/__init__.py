"""How near ``workers="auto"`` comes to the best fixed number of workers."""
