"""The report and the tables of echoes, on beliefs made by hand."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from belief_cases import drinks, handmade, table

from nousppl import echoes, plotting
from nousppl.beliefs import Beliefs
from nousppl.errors import FileError
from nousppl.report import Content, Example, render, score_rows, write_report


@pytest.fixture
def content() -> Content:
    n = 30
    answers = pd.DataFrame({"entity": np.repeat(np.arange(n), 2), "attribute": "drink"})
    answers["answer"], answers["probability"] = np.tile(["tea", "coffee"], n), np.tile([0.7, 0.3], n)
    facts = pd.DataFrame({"entity": np.arange(n), "attribute": "drink", "value": ["tea"] * 20 + ["coffee"] * 10})
    sources = pd.DataFrame(
        {
            "reliability": [0.9, 0.4],
            "reliability_lower": [0.8, 0.2],
            "reliability_upper": [0.95, 0.7],
            "freshness": [1.5, -1.0],
            "freshness_lower": [0.5, -2.0],
            "freshness_upper": [2.5, 0.5],
            "claims": [12, 3],
            "settled": [6, 0],
        },
        index=pd.Index(["alice", "<bob>"], name="source"),
    )
    return Content(
        title="A small & hand-made world",
        summary=["Fitted on 15 claims."],
        sources=sources,
        beliefs=Beliefs.from_frame(answers),
        settled=facts,
        explained=[drinks()],
        examples=[Example("clear", drinks(), "It turned out to be tea.")],
    )


class Opened(HTMLParser):
    """Collects the addresses that a page loads, and checks that tags are closed in order."""

    void = ("meta", "img", "br", "link", "input")

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.loads: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in self.void:
            self.stack.append(tag)
        self.loads += [value for name, value in attrs if name in ("src", "href", "srcset")]

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def opened(page: str) -> Opened:
    parser = Opened()
    parser.feed(page)
    return parser


def test_report_is_one_file_that_loads_nothing(content, tmp_path):
    write_report(tmp_path / "report.html", content)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    parsed = opened(page)
    assert parsed.stack == []
    assert len(parsed.loads) == 3
    assert all(address.startswith("data:image/svg+xml;base64,") for address in parsed.loads)
    assert "<script" not in page and "@import" not in page and "url(" not in page


def test_report_says_what_it_should(content):
    words = " ".join(opened(render(content)).words)
    assert "A small & hand-made world" in words
    assert "On 30 settled facts the top answer was right 66.7% of the time and held at 70.0% on average" in words
    assert "no miscalibration that chance would not explain" in words
    assert "0.90 (0.80 – 0.95)" in words
    assert "All 2 sources" in words
    assert "1 of these are more likely echoes than fresh" in words
    assert "echo 0.80 (of c1 0.80)" in words
    assert "It turned out to be tea." in words


def test_report_escapes_names(content):
    page = render(content)
    assert "<bob>" not in page and "&lt;bob&gt;" in page


def test_report_is_the_same_every_time(content):
    assert render(content) == render(content)


def test_report_without_facts_or_echoes(content):
    bare = content._replace(settled=content.settled.head(0), explained=[], examples=[])
    words = " ".join(opened(render(bare)).words)
    assert "Nothing was settled" in words
    assert "Read from 0 questions with 0 claims: none of these is likely an echo." in words


def test_freshness_is_left_out_where_there_are_no_echoes(content):
    alone = content.sources.assign(freshness=np.inf, freshness_lower=np.inf, freshness_upper=np.inf)
    page = render(content._replace(sources=alone))
    assert "Freshness" not in page and "inf" not in " ".join(opened(page).words).split()
    assert "Freshness" in render(content)


def test_report_shows_the_sources_with_most_claims(content):
    many = pd.concat([content.sources] * 40)
    many.index = [f"source {i}" for i in range(80)]
    many["claims"] = np.arange(80)
    words = " ".join(opened(render(content._replace(sources=many))).words)
    assert "The 40 sources with most claims" in words
    assert "source 79" in words and "source 39 " not in words


def test_report_shows_which_sources_echo_each_other(content):
    pairs = pd.DataFrame(
        {
            "source": ["b", "c", "c", "<d>"],
            "origin": ["a", "a", "b", "a"],
            "met": [30, 20, 25, 12],
            "weight": [90.0, 80.0, 70.0, 0.02],
            "lower": [60.0, 50.0, 40.0, 0.0],
            "upper": [120.0, 110.0, 100.0, 0.1],
            "repeats": [0.99, 0.98, 0.97, 0.02],
            "repeats_lower": [0.98, 0.97, 0.96, 0.0],
        }
    )
    page = render(content._replace(affinities=pairs))
    parsed = opened(page)
    words = " ".join(parsed.words)
    assert parsed.stack == [] and len(parsed.loads) == 4
    assert "Sources that echo each other" in words and "1 group among 4 pairs of sources" in words
    assert "a, b, c" in words and "<d>" not in page
    strangers = opened(render(content._replace(affinities=pairs.assign(repeats_lower=0.1))))
    assert len(strangers.loads) == 3 and "0 groups among 4 pairs" in " ".join(strangers.words)
    assert "Sources that echo each other" not in " ".join(opened(render(content)).words)


def test_the_matrix_of_echoes_holds_both_directions():
    from matplotlib.figure import Figure

    pairs = pd.DataFrame({"source": ["b", "a", "c"], "origin": ["a", "b", "a"], "repeats": [0.9, 0.2, 0.5]})
    axes = plotting.plot_echoes(pairs, Figure().subplots())
    matrix = np.ma.getdata(axes.images[0].get_array())
    assert [label.get_text() for label in axes.get_yticklabels()] == ["b", "a", "c"]
    # A row repeats a column; the pair of a and c stands for both directions.
    assert (matrix[0, 1], matrix[1, 0], matrix[2, 1], matrix[1, 2]) == (0.9, 0.2, 0.5, 0.5)


def test_report_into_a_missing_folder(content, tmp_path):
    with pytest.raises(FileError, match="cannot be written"):
        write_report(tmp_path / "none" / "report.html", content)


def test_score_rows_name_their_counts(content):
    rows = score_rows(content.beliefs.score(content.settled)).set_index("score")["value"]
    assert rows["top answer right"] == "66.7%"
    assert rows["settled questions scored"] == "30"
    assert rows["share held at .85 or more"] == "0.0%"
    assert rows["of these right"] == "none"
    assert not re.search("seen|missing|rejections", " ".join(rows.index))


def test_echo_pairs_are_the_origins_of_the_claims():
    pairs = echoes.echo_pairs([drinks()])
    assert pairs[["claim", "origin", "source", "origin_source"]].to_numpy().tolist() == [["c2", "c1", "bob", "alice"]]
    assert pairs["probability"].tolist() == pytest.approx([0.8])


def test_small_probabilities_are_left_out():
    assert len(echoes.echo_pairs([drinks(fresh=[1.0, 0.995, 1.0])])) == 0
    assert len(echoes.echo_pairs([drinks(fresh=[1.0, 0.9, 0.7])])) == 2


def test_echoes_are_counted_over_questions():
    rows = table(("d1", "alice", "tea", 1.0), ("d2", "bob", "tea", 2.0), ("d3", "bob", "tea", 3.0))
    one = handmade(rows, ("tea",), domain=4, reliability=[0.7], fresh=[1.0, 0.1, 0.4])
    pairs = echoes.echo_pairs([one, drinks()])
    repeats = echoes.who_repeats_whom(pairs).set_index(["source", "origin_source"])["echoes"]
    assert repeats["bob", "alice"] == pytest.approx(0.9 + 0.8)
    assert repeats["bob", "bob"] == pytest.approx(0.6)
    assert repeats.is_monotonic_decreasing
    likely = echoes.likeliest_origins(pairs)
    assert likely["echo"].tolist() == pytest.approx([0.9, 0.8, 0.6])


def test_a_claim_that_may_repeat_several_counts_once():
    belief = drinks()
    origins = belief.origins.to_numpy().copy()
    origins[2] = [0.1, 0.5, 0.4, 0.0]
    pairs = echoes.echo_pairs([replace(belief, origins_of=lambda: origins)])
    likely = echoes.likeliest_origins(pairs).set_index("claim")
    assert likely.loc["c3", "echo"] == pytest.approx(0.9)
    assert likely.loc["c3", "origin"] == "c1"
    most = echoes.most_echoed(pairs)
    assert most["claim"].tolist() == ["c1", "c2"]
    assert most["echoes"].tolist() == pytest.approx([1.3, 0.4])
