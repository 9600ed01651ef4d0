"""Model files."""

import pytest

from nousppl import config
from nousppl.errors import FileError, InferenceError, ModelError
from nousppl.inference.options import NUTS, SVI
from nousppl.models.shapes import AnyOf, Number
from nousppl.models.specification import Errors, Origin

WHOLE = """
reliability = "1 + (1|kind) + (1|source)"
freshness = "1 + (1|source)"
change = "1 + (1|attribute)"
base_rates = "learned"

[origin]
strong = "same_source + same_channel"
text = "words"
lag = false
order = "unknown"
max_listed = 8

[errors]
popularity = false
difficulty = true
bias = "class"

[answers]
city = 5000
stance = ["T", "F"]

[fit]
method = "nuts"
learn_from = "all"
seed = 3
backend = "pyro"
"""


def written(tmp_path, text):
    path = tmp_path / "model.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_key_arrives(tmp_path):
    model, fit = config.read_model(written(tmp_path, WHOLE))
    assert model == {
        "reliability": "1 + (1|kind) + (1|source)",
        "freshness": "1 + (1|source)",
        "change": "1 + (1|attribute)",
        "base_rates": "learned",
        "origin": Origin(strong="same_source + same_channel", text="words", lag=False, order="unknown", max_listed=8),
        "errors": Errors(popularity=False, difficulty=True, bias="class"),
        "answers": {"city": 5000, "stance": ["T", "F"]},
    }
    assert fit == {"method": "nuts", "learn_from": "all", "seed": 3, "backend": "pyro"}


def test_options_of_the_method(tmp_path):
    _, fit = config.read_model(written(tmp_path, "[fit.svi]\nsteps = 300\nlearning_rate = 1\nguide = 'mean_field'"))
    assert fit == {"method": SVI(steps=300, learning_rate=1, guide="mean_field")}
    text = "[fit]\nmethod = 'nuts'\n[fit.nuts]\nnum_chains = 3\nkernel = {target_accept_prob = 0.9}"
    _, fit = config.read_model(written(tmp_path, text))
    assert fit == {"method": NUTS(num_chains=3, kernel={"target_accept_prob": 0.9})}


def test_what_is_not_named_is_left_to_the_defaults(tmp_path):
    assert config.read_model(written(tmp_path, "")) == ({}, {})
    model, _ = config.read_model(written(tmp_path, "[origin]\n[errors]"))
    assert model == {"origin": Origin(), "errors": Errors()}


def test_a_formula_of_shared_error(tmp_path):
    model, _ = config.read_model(written(tmp_path, '[errors]\npopularity = "1 + (1|attribute)"'))
    assert model == {"errors": Errors(popularity="1 + (1|attribute)")}


def test_no_echoes(tmp_path):
    assert config.read_model(written(tmp_path, "origin = false"))[0] == {"origin": None}


def test_no_strong_feature(tmp_path):
    assert config.read_model(written(tmp_path, '[origin]\nstrong = ""'))[0]["origin"] == Origin(strong=None)


def test_the_example_of_the_docstring_is_read(tmp_path):
    assert config.__doc__ is not None
    example = config.__doc__.split("Example::")[1]
    model, fit = config.read_model(written(tmp_path, "\n".join(line.strip() for line in example.splitlines())))
    assert model["answers"]["city"] == 5000
    assert fit["learn_from"] == "settled"
    assert fit["method"] == SVI(steps=8000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("reliabilty = '1'", r"unknown key 'reliabilty'; allowed are reliability, freshness"),
        ("reliability = 3", r"reliability = 3: must be text"),
        ("origin = true", r"must be a table, or origin = false for no echoes; got True"),
        ("[origin]\nlags = true", r"\[origin\]: unknown key 'lags'; allowed are strong, affinity, text, lag"),
        ("[origin]\nlag = 1", r"\[origin\] lag = 1: must be true or false"),
        ("[origin]\norder = 'often'", r"Origin\(order='often'\)"),
        ("[origin]\nmax_listed = true", r"max_listed = True: must be a whole number"),
        ("[errors]\npopularity = 1", r"\[errors\] popularity = 1: must be true or false or text"),
        ("[errors]\ndifficulty = 1", r"\[errors\] difficulty = 1: must be true or false or text"),
        ("[errors]\nbias = 'some'", r"Errors\(bias='some'\)"),
        ("errors = 'none'", r"\[errors\] must be a table"),
        ("[answers]\ncity = 1", r"\[answers\] city = 1: must be a whole number from 2"),
        ("[answers]\ncity = true", r"\[answers\] city = True: must be"),
        ("[answers]\ncity = 'Oslo'", r"\[answers\] city = 'Oslo': must be"),
        ("[fit]\nsteps = 3", r"\[fit\]: unknown key 'steps'; allowed are method, learn_from, seed, backend, svi, nuts"),
        ("[fit.svi]\nsteps = 1.5", r"\[fit.svi\] steps = 1.5: must be a whole number"),
        ("[fit.svi]\nsteps = 0", r"steps, draws and samples must be at least 1"),
        ("[fit.svi]\noptim = 'adam'", r"\[fit.svi\]: unknown key 'optim'; allowed are guide, steps"),
        ("[fit.nuts]\nkernel = 3", r"\[fit.nuts\] kernel = 3: must be a table"),
        ("[fit]\nmethod = 'nuts'\n[fit.svi]", r"\[fit\]: options of svi, and the method is 'nuts'"),
        ("[fit.nuts]\n[fit.svi]", r"\[fit\]: options of svi and nuts"),
        ("[fit]\nsvi = 3", r"\[fit.svi\] must be a table"),
        ("[fit]\nseed = 'x'", r"\[fit\] seed = 'x': must be a whole number"),
    ],
)
def test_mistakes_are_named(tmp_path, text, message):
    with pytest.raises((ModelError, InferenceError), match=message):
        config.read_model(written(tmp_path, text))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FileError, match="there is no such file"):
        config.read_model(tmp_path / "none.toml")
    with pytest.raises(FileError, match="not a TOML file"):
        config.read_model(written(tmp_path, "reliability = "))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match="cannot be read"):
        config.read_model(binary)


def test_shapes_of_answers(tmp_path):
    text = '[shapes]\nallergy = "any_of"\nauthors = { shape = "any_of", separator = "," }\n'
    model, _ = config.read_model(written(tmp_path, text))
    assert model["shapes"] == {"allergy": AnyOf(), "authors": AnyOf(separator=",")}
    text = '[shapes.guests]\nshape = "number"\nresolution = 1\ncentre = 2.5\nunit = "people"\n'
    model, _ = config.read_model(written(tmp_path, text))
    assert model["shapes"] == {"guests": Number(1, "people", centre=2.5)}
    with pytest.raises(ModelError, match=r"\[shapes\] guests resolution = 'small': must be a number or a whole number"):
        config.read_model(written(tmp_path, text.replace("= 1", '= "small"')))
    with pytest.raises(ModelError, match=r"\[shapes\] allergy = 'any of': allowed are one_of, any_of"):
        config.read_model(written(tmp_path, '[shapes]\nallergy = "any of"\n'))
    with pytest.raises(ModelError, match=r"\[shapes\] allergy: unknown key 'separates'"):
        config.read_model(written(tmp_path, '[shapes.allergy]\nshape = "any_of"\nseparates = ","\n'))
