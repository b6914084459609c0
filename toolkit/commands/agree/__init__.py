"""The command agree: whether models place the same texts alike."""
