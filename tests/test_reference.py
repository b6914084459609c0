"""The published tables as they are shipped."""

from toolkit.functional import welch_bound
from toolkit.reference import model_capacities, optimised_packing, random_packing


def test_model_capacities_hold_45_models() -> None:
    models = model_capacities()
    assert len({model.model for model in models}) == len(models) == 45
    llama = next(model for model in models if model.model == "Llama 2 7B")
    assert llama == ("Llama 2 7B", 4096, 0.0645, 3.99e7)


def test_capacities_are_published_for_class_two_only() -> None:
    for model in model_capacities():
        assert (model.capacity is not None) == (model.epsilon < 0.1), model


def test_packings_hold_their_rows_and_respect_the_welch_bound() -> None:
    optimised, drawn = optimised_packing(), random_packing()
    assert (len(optimised), len(drawn)) == (166, 256)
    assert optimised[0] == (2000, 32, 0.38594260811805725)
    assert {point.dim for point in optimised} >= {32, 1024, 4096}
    for point in optimised + drawn:
        assert welch_bound(point.num_vectors, point.dim) <= point.max_abs_cosine < 1
