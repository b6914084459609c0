"""Figures, drawn without pyplot's global state; matplotlib is imported when a figure is drawn."""
