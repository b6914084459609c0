"""The command capacity: the capacity laws as a calculator."""
