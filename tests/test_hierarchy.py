"""Formulas: what is parsed, how tables become arrays, and what is refused."""

import json
import time

import formulae
import numpy as np
import pandas as pd
import pytest

from nousppl.errors import FileError, ModelError
from nousppl.models.hierarchy import Encoding, Formula, GroupTerm, encode

FULL = "1 + hedging + (1|kind) + (1|kind:channel) + (1|source)"


@pytest.fixture
def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "kind": ["site", "person", "site", "bot", "person"],
            "channel": [2, 1, 1, 2, 1],
            "source": ["s2", "s1", "s3", "s2", "s1"],
            "hedging": [0.5, 0.0, 1.0, 0.25, 0.75],
            "grade": pd.Categorical(["B", "A", "B", "C", "A"], categories=["C", "B", "A", "D"]),
            "derived": [True, False, False, True, False],
        }
    )


def world(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "kind": rng.choice(["site", "person", "bot"], rows),
            "channel": rng.integers(0, 5, rows),
            "source": rng.choice([f"s{i}" for i in range(300)], rows),
            "hedging": rng.random(rows),
        }
    )


def standard(values: pd.Series) -> np.ndarray:
    """Less its mean, over its standard deviation."""
    return ((values - values.mean()) / values.std(ddof=0)).to_numpy()


# Parsing


def test_parse_names_every_part() -> None:
    formula = Formula.parse("reliability", FULL)
    assert formula.intercept
    assert formula.fixed == ("hedging",)
    assert formula.groups == (
        GroupTerm("1|kind", ("kind",), None),
        GroupTerm("1|kind:channel", ("kind", "channel"), None),
        GroupTerm("1|source", ("source",), None),
    )
    assert formula.columns == ("hedging", "kind", "channel", "source")
    assert str(formula) == f"reliability = '{FULL}'"


@pytest.mark.parametrize(
    ("text", "intercept", "fixed", "groups"),
    [
        ("1", True, (), ()),
        ("0", False, (), ()),
        ("0 + x", False, ("x",), ()),
        ("x", True, ("x",), ()),
        ("-1 + x", False, ("x",), ()),
        ("a*b", True, ("a", "b", "a:b"), ()),
        ("a:b + a", True, ("a", "a:b"), ()),
        ("(a + b)**2", True, ("a", "b", "a:b"), ()),
        ("x + x", True, ("x",), ()),
        ("`odd name` + (1|`a:b`)", True, ("odd name",), ("1|a:b",)),
        ("(1|g) + (1|g)", True, (), ("1|g",)),
        ("(1|a/b)", True, (), ("1|a", "1|a:b")),
        ("(x|g)", True, (), ("1|g", "x|g")),
        ("0 + (0 + x|g)", False, (), ("x|g",)),
    ],
)
def test_parse(text: str, intercept: bool, fixed: tuple[str, ...], groups: tuple[str, ...]) -> None:
    formula = Formula.parse("reliability", text)
    assert (formula.intercept, formula.fixed) == (intercept, fixed)
    assert tuple(group.name for group in formula.groups) == groups


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 + (1|source", r"reliability = '1 \+ \(1\|source' is not a formula: .*\)"),
        ("1 +", "is not a formula"),
        ("", "'' is not a formula"),
        ("x y", "goes on where it should end, at 'y'"),
        ("1 + (1|kind) (1|source)", "not a formula"),
        ("x**2", "the power of a column"),
        ("y ~ x", "only the right-hand side"),
        ("np.log(x)", r"np.log\(x\) is a function call; add it to the table as a column"),
        ("(1|C(kind))", r"C\(kind\) is a function call"),
        ("2 + x", "2 is no column; of numbers only 1"),
        ("x['a']", "picks a category; write x alone"),
        ("(a:b|g)", r"the slope of \(a:b\|g\) must be one column, not a:b"),
        (3, "the formula of reliability must be text .* but it is 3"),
    ],
)
def test_what_is_not_understood_is_refused(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Formula.parse("reliability", text)


def test_power_is_refused_without_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ModelError, match="power"):
        Formula.parse("reliability", "x**3")
    assert not caplog.records


def test_parsing_is_cached() -> None:
    assert Formula.parse("reliability", FULL) is Formula.parse("reliability", FULL)


# Arrays


def test_design_of_the_full_formula(frame: pd.DataFrame) -> None:
    encoding = encode(Formula.parse("reliability", FULL), frame)
    design = encoding.design(frame)
    assert design.fixed_names == ("1", "hedging")
    np.testing.assert_allclose(design.fixed, np.column_stack([np.ones(5), standard(frame["hedging"])]))
    kind, pair, source = design.groups
    assert encoding.levels == {
        "1|kind": ("bot", "person", "site"),
        "1|kind:channel": ("bot:2", "person:1", "site:1", "site:2"),
        "1|source": ("s1", "s2", "s3"),
    }
    np.testing.assert_array_equal(kind.index, [2, 1, 2, 0, 1])
    np.testing.assert_array_equal(pair.index, [3, 1, 2, 0, 1])
    np.testing.assert_array_equal(source.index, [1, 0, 2, 1, 0])
    assert all(g.index.dtype == np.int32 and g.new_levels == () and (g.value == 1).all() for g in design.groups)


def test_no_fixed_part(frame: pd.DataFrame) -> None:
    design = encode(Formula.parse("freshness", "0 + (1|source)"), frame).design(frame)
    assert design.fixed.shape == (5, 0)
    assert design.fixed_names == ()


def test_slopes_carry_their_column(frame: pd.DataFrame) -> None:
    intercepts, slopes = encode(Formula.parse("r", "(hedging|source)"), frame).design(frame).groups
    np.testing.assert_allclose(slopes.value, standard(frame["hedging"]))
    np.testing.assert_array_equal(slopes.index, intercepts.index)
    np.testing.assert_array_equal(intercepts.value, np.ones(5))


def test_truth_values_are_numbers(frame: pd.DataFrame) -> None:
    design = encode(Formula.parse("r", "derived"), frame).design(frame)
    np.testing.assert_array_equal(design.fixed[:, 1], [1, 0, 0, 1, 0])
    assert design.fixed_names == ("1", "derived")


def test_numbers_are_standardised_as_learned_and_new_tables_by_the_same_scale(frame: pd.DataFrame) -> None:
    encoding = encode(Formula.parse("r", "hedging + (0 + channel|source)"), frame)
    design = encoding.design(frame)
    assert design.fixed[:, 1].mean() == pytest.approx(0.0, abs=1e-12) and design.fixed[:, 1].std() == pytest.approx(1.0)
    mean, sd = frame["hedging"].mean(), frame["hedging"].std(ddof=0)
    assert encoding.scales["hedging"] == pytest.approx((mean, sd))
    new = encoding.design(frame.assign(hedging=[5.0, 6.0, 7.0, 8.0, 9.0], channel=[7, 7, 7, 8, 8]))
    np.testing.assert_allclose(new.fixed[:, 1], (np.arange(5.0, 10.0) - mean) / sd)
    np.testing.assert_allclose(new.groups[0].value, (np.array([7, 7, 7, 8, 8]) - 1.4) / frame["channel"].std(ddof=0))


@pytest.mark.parametrize("text", ["hedging", "hedging*kind", "(hedging|source)"])
def test_the_unit_of_a_number_changes_nothing(frame: pd.DataFrame, text: str) -> None:
    formula, other = Formula.parse("r", text), frame.assign(hedging=100 * frame["hedging"] + 273)
    one, two = (encode(formula, table).design(table) for table in (frame, other))
    np.testing.assert_allclose(one.fixed, two.fixed, atol=1e-12)
    np.testing.assert_allclose(one.groups[-1].value if one.groups else 1, two.groups[-1].value if two.groups else 1)


def test_a_number_that_never_varies_is_centred_only(frame: pd.DataFrame) -> None:
    encoding = encode(Formula.parse("r", "hedging"), frame.assign(hedging=0.1))
    assert encoding.scales["hedging"] == pytest.approx((0.1, 1.0))
    np.testing.assert_allclose(encoding.design(frame).fixed[:, 1], frame["hedging"] - 0.1)


def test_declared_categories_keep_their_order(frame: pd.DataFrame) -> None:
    design = encode(Formula.parse("r", "grade"), frame).design(frame)
    assert design.fixed_names == ("1", "grade[B]", "grade[A]", "grade[D]")
    np.testing.assert_array_equal(design.fixed[:, 1], frame["grade"] == "B")


ORACLE = [
    "x",
    "0 + x",
    "a",
    "0 + a",
    "a + b",
    "0 + a + b",
    "a*b",
    "a:b",
    "0 + a:b",
    "a:x",
    "a*x",
    "0 + a:x",
    "x:z",
    "x*z",
    "a + a:x:z",
    "a*b*x",
    "a + b + a:b:x",
    "x + a:b:x",
]


@pytest.mark.parametrize("text", ORACLE)
def test_fixed_part_equals_that_of_formulae(text: str) -> None:
    rng = np.random.default_rng(1)
    table = pd.DataFrame(
        {
            "a": rng.choice(["p", "q", "r"], 60),
            "b": rng.choice(["u", "v"], 60),
            "x": rng.normal(size=60),
            "z": rng.normal(3, 2, size=60),
        }
    )
    table[["x", "z"]] = table[["x", "z"]].apply(standard)
    ours = encode(Formula.parse("r", text), table).design(table).fixed
    theirs = np.asarray(formulae.design_matrices(text, table).common)
    assert ours.shape == theirs.shape
    assert np.linalg.matrix_rank(ours) == ours.shape[1]
    order = np.lexsort(ours.round(9)), np.lexsort(theirs.round(9))
    np.testing.assert_allclose(
        ours[:, np.lexsort(ours.round(9)[::-1])], theirs[:, np.lexsort(theirs.round(9)[::-1])], err_msg=str(order)
    )


# New tables


def test_new_levels_follow_the_known_ones(frame: pd.DataFrame) -> None:
    encoding = encode(Formula.parse("r", FULL), frame)
    new = pd.DataFrame(
        {
            "kind": ["site", "zine", "album"],
            "channel": [9, 1, 1],
            "source": ["s3", "s3", "s9"],
            "hedging": [0.0, 0.0, 0.0],
        }
    )
    kind, pair, source = encoding.design(new).groups
    assert kind.new_levels == ("album", "zine")
    np.testing.assert_array_equal(kind.index, [2, 4, 3])
    assert pair.new_levels == ("album:1", "site:9", "zine:1")
    np.testing.assert_array_equal(pair.index, [5, 6, 4])
    assert source.new_levels == ("s9",)
    np.testing.assert_array_equal(source.index, [2, 2, 3])


def test_rows_in_another_order_give_the_same_rows(frame: pd.DataFrame) -> None:
    formula = Formula.parse("r", FULL + " + grade")
    order = np.array([3, 1, 4, 0, 2])
    encoding = encode(formula, frame)
    assert encode(formula, frame.iloc[order]) == encoding
    old, new = encoding.design(frame), encoding.design(frame.iloc[order])
    np.testing.assert_array_equal(new.fixed, old.fixed[order])
    for a, b in zip(old.groups, new.groups, strict=True):
        np.testing.assert_array_equal(b.index, a.index[order])


def test_json_round_trip_gives_the_same_encoding(frame: pd.DataFrame) -> None:
    encoding = encode(Formula.parse("r", "1 + grade*hedging + (hedging|source) + (1|kind:channel)"), frame)
    again = Encoding.from_dict(json.loads(json.dumps(encoding.to_dict())))
    assert again == encoding
    new = frame.assign(source="other")
    np.testing.assert_array_equal(again.design(new).fixed, encoding.design(new).fixed)
    assert again.design(new).groups[0].new_levels == ("other",)


@pytest.mark.parametrize("lost", ["name", "text", "kinds", "categories", "fixed", "levels", "scales"])
def test_a_damaged_encoding_is_refused(frame: pd.DataFrame, lost: str) -> None:
    saved = encode(Formula.parse("r", FULL), frame).to_dict()
    del saved[lost]
    with pytest.raises(FileError, match=f"damaged.*{lost}"):
        Encoding.from_dict(saved)


def test_an_encoding_without_levels_of_a_term_is_refused(frame: pd.DataFrame) -> None:
    saved = encode(Formula.parse("r", FULL), frame).to_dict()
    del saved["levels"]["1|kind"]
    with pytest.raises(FileError, match="has levels for"):
        Encoding.from_dict(saved)


@pytest.mark.parametrize(
    "values",
    [
        ["1", "2", "1"],
        [1, 2, 1],
        [1.0, 2.0, 1.0],
        np.array([1, 2, 1], np.uint8),
        pd.array([1, 2, 1], "Int64"),
        pd.Categorical([1, 2, 1]),
        pd.Series(["1", "2", "1"], dtype=object),
        pd.Series(["1", "2", "1"], dtype="category"),
    ],
)
def test_group_factors_of_any_type(values: object) -> None:
    table = pd.DataFrame({"g": values})
    encoding = encode(Formula.parse("r", "(1|g)"), table)
    assert encoding.levels["1|g"] == ("1", "2")
    np.testing.assert_array_equal(encoding.design(table).groups[0].index, [0, 1, 0])


def test_truth_values_and_times_as_group_factors() -> None:
    table = pd.DataFrame({"b": [True, False], "t": pd.to_datetime(["2026-11-02", "2026-11-01"])})
    encoding = encode(Formula.parse("r", "(1|b) + (1|t)"), table)
    assert encoding.levels["1|b"] == ("False", "True")
    assert encoding.levels["1|t"] == ("2026-11-01T00:00:00", "2026-11-02T00:00:00")


def test_unused_categories_are_no_levels() -> None:
    table = pd.DataFrame({"g": pd.Categorical(["b", "b"], categories=["a", "b", "c"])})
    assert encode(Formula.parse("r", "(1|g)"), table).levels["1|g"] == ("b",)


def test_numbers_are_levels_by_value() -> None:
    encoding = encode(Formula.parse("r", "(1|g)"), pd.DataFrame({"g": [1, 2]}))
    group = encoding.design(pd.DataFrame({"g": [2.0, 1.0, 1.5]})).groups[0]
    np.testing.assert_array_equal(group.index, [1, 0, 2])
    assert group.new_levels == ("1.5",)


def test_colons_in_labels_do_not_merge_levels() -> None:
    table = pd.DataFrame({"a": ["x:y", "x", "x\\"], "b": ["z", "y:z", ":y:z"]})
    levels = encode(Formula.parse("r", "(1|a:b)"), table).levels["1|a:b"]
    assert len(levels) == 3
    assert "x\\:y:z" in levels


# Refusals


@pytest.mark.parametrize("column", ["hedging", "source", "grade"])
def test_missing_values_are_refused_by_name(frame: pd.DataFrame, column: str) -> None:
    formula = Formula.parse("reliability", FULL + " + grade")
    encoding = encode(formula, frame)
    frame.loc[[2, 4], column] = None
    for use in (lambda: encode(formula, frame), lambda: encoding.design(frame)):
        with pytest.raises(
            ModelError, match=rf"column '{column}' is missing in 2 of 5 rows, first in row 2: \{{'kind'"
        ):
            use()


def test_blank_text_and_infinite_numbers_are_refused(frame: pd.DataFrame) -> None:
    with pytest.raises(ModelError, match="column 'source' is blank in 1 of 5 rows, first in row 1"):
        encode(Formula.parse("r", "(1|source)"), frame.assign(source=["a", " ", "b", "c", "d"]))
    with pytest.raises(ModelError, match="column 'hedging' is infinite in 1 of 5 rows, first in row 0"):
        encode(Formula.parse("r", "hedging"), frame.assign(hedging=[np.inf, 1, 2, 3, 4])).design(
            frame.assign(hedging=[np.inf, 1, 2, 3, 4])
        )


def test_unseen_categories_of_fixed_effects_are_refused_by_name(frame: pd.DataFrame) -> None:
    encoding = encode(Formula.parse("r", "kind"), frame)
    new = frame.assign(kind=["site", "zine", "zine", "album", "bot"])
    with pytest.raises(
        ModelError, match=r"'kind' holds 'album', 'zine', .* in 3 of 5 rows, first in row 1: .*allowed are 'bot'"
    ):
        encoding.design(new)


def test_unseen_category_is_refused_where_a_constant_effect_has_no_column(frame: pd.DataFrame) -> None:
    encoding = encode(Formula.parse("r", "kind"), frame.assign(kind="site"))
    assert encoding.fixed_names == ("1",)
    with pytest.raises(ModelError, match="holds 'bot', 'person'"):
        encoding.design(frame)


def test_missing_column_lists_what_there_is(frame: pd.DataFrame) -> None:
    formula = Formula.parse("reliability", "1 + (1|sourc)")
    with pytest.raises(
        ModelError, match=r"there is no column 'sourc' \(did you mean 'source'\?\); the table has 'kind', 'ch"
    ):
        encode(formula, frame)


def test_column_given_twice_is_refused(frame: pd.DataFrame) -> None:
    with pytest.raises(ModelError, match="2 columns called 'kind'"):
        encode(Formula.parse("r", "kind"), pd.concat([frame, frame[["kind"]]], axis=1))


@pytest.mark.parametrize("values", [[1, "1"], [True, 1], [True, "True"], [1.0, "a"], [(1,), (2,)], [1 + 2j, 3j]])
def test_mixed_kinds_in_a_column_are_refused(values: list[object]) -> None:
    table = pd.DataFrame({"g": pd.Series(values, dtype=object)})
    with pytest.raises(ModelError, match="column 'g' holds .*only numbers, only text"):
        encode(Formula.parse("r", "(1|g)"), table)


@pytest.mark.parametrize(("old", "new"), [([1, 2], ["1", "2"]), (["1", "2"], [1, 2]), (["True"], [True])])
def test_number_and_text_do_not_merge_across_tables(old: list[object], new: list[object]) -> None:
    encoding = encode(Formula.parse("r", "(1|g)"), pd.DataFrame({"g": old}))
    with pytest.raises(ModelError, match="'1' are not the same level"):
        encoding.design(pd.DataFrame({"g": new}))


def test_number_that_became_text_is_refused(frame: pd.DataFrame) -> None:
    encoding = encode(Formula.parse("r", "hedging"), frame)
    with pytest.raises(ModelError, match="column 'hedging' must hold numbers; it holds for example 'high'"):
        encoding.design(frame.assign(hedging="high"))


def test_slope_of_a_category_is_refused_with_advice(frame: pd.DataFrame) -> None:
    with pytest.raises(ModelError, match=r"'kind' of \(kind\|source\) is not a number; .* write \(1\|source:kind\)"):
        encode(Formula.parse("r", "(kind|source)"), frame)


def test_table_without_rows(frame: pd.DataFrame) -> None:
    encoding = encode(Formula.parse("r", FULL), frame)
    design = encoding.design(frame.iloc[:0])
    assert design.fixed.shape == (0, 2)
    assert [len(group.index) for group in design.groups] == [0, 0, 0]
    fresh = encode(Formula.parse("r", "1 + (1|kind:channel)"), frame.iloc[:0])
    assert fresh.levels == {"1|kind:channel": ()}
    assert fresh.design(frame).groups[0].new_levels == ("bot:2", "person:1", "site:1", "site:2")


def test_the_table_is_not_changed(frame: pd.DataFrame) -> None:
    before = frame.copy(deep=True)
    encode(Formula.parse("r", FULL + " + grade"), frame).design(frame)
    pd.testing.assert_frame_equal(frame, before)


# Speed


def test_a_question_takes_about_a_millisecond() -> None:
    formula, table = Formula.parse("r", FULL), world(10)

    def once() -> float:
        start = time.perf_counter()
        encode(formula, table).design(table)
        return time.perf_counter() - start

    assert min(once() for _ in range(50)) < 0.005


@pytest.mark.slow
def test_millions_of_rows_take_seconds() -> None:
    table = world(2_800_000)
    start = time.perf_counter()
    design = encode(Formula.parse("r", FULL), table).design(table)
    assert time.perf_counter() - start < 10
    assert len(design.fixed) == len(table)
