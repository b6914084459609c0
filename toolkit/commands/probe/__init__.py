"""The command probe: walk over checkpoints and measure each."""
