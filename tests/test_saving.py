"""A trust in a file: the same posterior to the last bit, and clear refusals."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import nousppl as nous
from nousppl import saving
from nousppl.datasets import example


@pytest.fixture(scope="module")
def world() -> Any:
    return example()


@pytest.fixture(scope="module")
def trust(world: Any) -> nous.Trust:
    evidence = nous.Evidence(world.claims, settled=world.learn, sources=world.sources)
    model = nous.TrustModel(
        reliability="1 + (1|kind) + (1|source)",
        origin=nous.Origin(strong="same_source + same_channel"),
        answers=world.answers,
    )
    return model.fit(evidence, method=nous.SVI(steps=200, draws=50))


@pytest.fixture(scope="module")
def saved(trust: nous.Trust, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "trust.nc"
    trust.save(path)
    return path


def test_a_loaded_trust_believes_the_same_to_the_last_bit(trust: nous.Trust, saved: Path, world: Any) -> None:
    loaded = nous.load(saved)
    newcomer = world.claims.head(3).assign(source="somebody new", claim=["n1", "n2", "n3"])
    evidence = nous.Evidence(pd.concat([world.claims, newcomer]), sources=world.sources)
    question = evidence.question("maya", "diet")
    np.testing.assert_array_equal(loaded.posterior(question).samples, trust.posterior(question).samples)
    before, after = trust.posteriors(evidence), loaded.posteriors(evidence)
    np.testing.assert_array_equal(before.probability, after.probability)
    np.testing.assert_array_equal(before.seen, after.seen)
    assert before.seen.sum() == len(world.learn)


def test_everything_else_comes_back(trust: nous.Trust, saved: Path) -> None:
    loaded = nous.load(saved)
    assert loaded.status == trust.status
    pd.testing.assert_frame_equal(loaded.sources, trust.sources)
    pd.testing.assert_frame_equal(loaded.groups, trust.groups)
    assert repr(loaded.model) == repr(trust.model)
    assert loaded.blueprint.plan == trust.blueprint.plan


@pytest.mark.parametrize(
    "model",
    [
        nous.TrustModel(origin=None, errors=nous.Errors(bias="source"), answers={"x": [1, 0]}, base_rates="learned"),
        nous.TrustModel(reliability="0 + size", origin=nous.Origin(text="words", lag=False), answers={"x": 5}),
    ],
    ids=["closed lists of numbers", "texts"],
)
def test_every_part_of_a_model_is_kept(model: nous.TrustModel, tmp_path: Path) -> None:
    claims = pd.DataFrame({"entity": [1, 1, 2], "attribute": "x", "value": [1, 0, 1], "source": ["a/b", "c", "é"]})
    claims = claims.assign(size=[0.5, 1.0, 2.0], words=["it is one", "it is none", "it is one"])
    evidence = nous.Evidence(claims)
    trust = model.fit(evidence, method=nous.SVI(steps=100, draws=20), learn_from="all")
    trust.save(tmp_path / "t.nc")
    loaded = nous.load(tmp_path / "t.nc")
    np.testing.assert_array_equal(loaded.posteriors(evidence).probability, trust.posteriors(evidence).probability)


def test_arviz_opens_the_file_by_itself(saved: Path) -> None:
    import arviz

    # xarray adds a filter of its own when it opens a tree.
    with warnings.catch_warnings():
        data = arviz.from_netcdf(saved)
    assert set(data["posterior"].dims) == {"chain", "draw", "kind", "source"}
    assert data["posterior"]["reliability_1|kind"].coords["kind"].values.tolist() == sorted(
        ["colleague", "newsletter", "reminder", "self", "web page"]
    )
    assert data["posterior"].sizes["draw"] == 50


def damaged(saved: Path, tmp_path: Path, how: str) -> Path:
    path = tmp_path / "bad.nc"
    if how == "missing":
        return path
    if how == "truncated":
        path.write_bytes(saved.read_bytes()[:-2000])
    elif how == "text":
        path.write_text("entity,attribute\n")
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "foreign":
        xr.Dataset({"x": ("n", [1.0])}).to_netcdf(path, engine="h5netcdf")
    else:
        tree = saving.read_tree(saved)
        if how == "newer":
            tree.attrs[saving.MARK] = saving.FORMAT + 1
        else:
            tree.attrs["nousppl"] = tree.attrs["nousppl"].replace('"reliability"', '"x"', 1)
        tree.to_netcdf(path, engine="h5netcdf")
    return path


REFUSALS = {
    "missing": "no such file",
    "truncated": "not a readable netCDF file",
    "text": "not a readable netCDF file",
    "empty": "not a readable netCDF file",
    "foreign": "not one that nousppl saved",
    "newer": r"in format 4; this version reads up to 3; upgrade nousppl",
    "altered": "the saved trust is damaged",
}


@pytest.mark.parametrize("how", REFUSALS)
def test_what_is_not_ours_is_refused(saved: Path, tmp_path: Path, how: str) -> None:
    with pytest.raises(nous.FileError, match=REFUSALS[how]):
        nous.load(damaged(saved, tmp_path, how))


def test_a_write_that_fails_leaves_the_old_file(
    trust: nous.Trust, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trust.nc"
    path.write_bytes(saved.read_bytes())

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(nous.FileError, match="cannot be written: disk full"):
        trust.save(path)
    assert path.read_bytes() == saved.read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["trust.nc"]


def test_a_folder_that_does_not_exist_is_refused(trust: nous.Trust, tmp_path: Path) -> None:
    with pytest.raises(nous.FileError, match="cannot be written"):
        trust.save(tmp_path / "nowhere" / "trust.nc")
