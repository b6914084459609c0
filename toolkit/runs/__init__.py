"""The files of a run: folder, configuration, checkpoints, table and summary."""
