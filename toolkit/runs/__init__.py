"""What a run leaves on disk: its folder, configuration, checkpoints, table and summary."""
