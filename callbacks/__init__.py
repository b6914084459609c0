"""Lightning callbacks that measure representation geometry while a model trains."""
