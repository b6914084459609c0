"""Labelled texts by the name of their source: AG News, docstrings, or a file."""

from toolkit.data.ag_news import AG_NEWS, load_ag_news
from toolkit.data.docstring_topics import load_docstring_topics
from toolkit.data.labelled_texts import LabelledTexts
from toolkit.functional._checks import valid_text


def load_texts(name: str, *, num_train: int, num_test: int, seed: int = 0) -> LabelledTexts:
    """Return the labelled texts of a source given as a string.

    Args:
        name: ``ag_news``; ``docstrings``, which needs no download; or a source of `load_ag_news`: a
            CSV or Parquet file, a folder saved by ``datasets``, a name on the Hub.
        num_train: Number of training texts.
        num_test: Number of test texts.
        seed: Fixes the draw.

    Raises:
        ValueError: If the texts cannot be read or are too few; the message says what to do.
    """
    if valid_text("name", name) == "docstrings":
        return load_docstring_topics(num_train=num_train, num_test=num_test, seed=seed)
    source = AG_NEWS if name == "ag_news" else name
    return load_ag_news(source, num_train=num_train, num_test=num_test, seed=seed)
