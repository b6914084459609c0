"""The commands, one folder each; none of them imports another."""
