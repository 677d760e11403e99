"""The reports: one file each, nothing fetched, everything escaped, and words that say what the numbers say."""

import base64
import dataclasses
import itertools
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from privrl.mdp.lq import LinearPolicy
from privrl.mdp.types import TabularPolicy
from privrl.plots.charts import draw_regret
from privrl.plots.means import mean_and_error
from privrl.plots.style import spread_labels, to_svg
from privrl.privacy.accounting.certificate import Certificate
from privrl.privacy.accounting.events import Event
from privrl.privacy.accounting.gdp import gdp_epsilon
from privrl.reports.certificate_facts import compute_guess_rate, share_budget
from privrl.reports.certificate_text import explain_certificate
from privrl.reports.demo_page import render_demo
from privrl.reports.demo_study import DemoStudy
from privrl.reports.folder_page import detect_content, render_folder
from privrl.reports.policy_section import render_policy
from privrl.reports.rendering import mark_code, render, render_page
from privrl.reports.result_page import render_result
from privrl.reports.verdict_markdown import render_markdown
from privrl.studies.results.result import Result


def certificate(*events: Event, delta: float = 1e-6, **changes: object) -> Certificate:
    mus = [event.parameter for event in events if event.mechanism == "gaussian"]
    mu = math.hypot(*mus) if len(mus) == len(events) else None
    made = Certificate(
        epsilon=gdp_epsilon(mu, delta) if mu is not None else sum(event.parameter for event in events),
        delta=delta,
        epsilon_zcdp=None,
        rho=None,
        mu=mu,
        notion="central",
        adjacency="replace-one",
        unit="stay",
        bounds={},
        records_per_unit=1,
        events=events,
        releases=(),
        accountant="exact Gaussian accounting",
        noise_source="system",
        version="0",
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def gaussian(name: str, mu: float, times: int = 1, group: str | None = None) -> Event:
    return Event(name, "gaussian", mu, times, group)


@pytest.fixture
def study() -> DemoStudy:
    made = certificate(gaussian("visits", 0.4), gaussian("transitions", 0.8), unit="<stay>", learner="APVI")
    return DemoStudy(
        recipe="dp-apvi",
        episodes=1234,
        seed=5,
        epsilon=3.0,
        baselines={"optimal": 0.8, "uniform": 0.6, "behaviour": 0.7, "mode": 0.71},
        non_private=(0.77, 0.79),
        private={1.0: (0.70, 0.72), 3.0: (0.74, 0.76), 9.0: (0.76, 0.77)},
        result=Result(TabularPolicy(jnp.ones((1, 2, 1))), made, {}),
        value=0.7512,
        seconds=1.0,
    )


class Reader(HTMLParser):
    """Collects the tags, the text, and every attribute that could make a browser fetch something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.fetched: list[str] = []
        self.words: list[str] = []
        self.alternatives: list[str] = []
        self.heads: list[str | None] = []
        self.feed(text)
        self.close()

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.fetched += [
            v or "" for k, v in attributes if k in ("src", "href", "xlink:href", "srcset", "data", "action")
        ]
        if tag not in ("meta", "br", "img", "link"):
            self.open.append(tag)
        given = dict(attributes)
        if tag == "img" or given.get("role") == "img":
            self.alternatives.append(given.get("alt") or given.get("aria-label") or "")
        if tag == "th":
            self.heads.append(given.get("scope"))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def stands_alone(text: str) -> Reader:
    """The page, after checking that it is whole, fetches nothing, and says what its pictures and tables are."""
    page = Reader(text)
    assert page.open == []
    assert not {"script", "link", "iframe", "object", "embed", "form", "a"} & set(page.seen)
    assert [address for address in page.fetched if not address.startswith(("#", "data:image/"))] == []
    assert not re.search(r"url\((?!#)|@import", text)
    assert "default-src 'none'" in text and 'name="viewport"' in text
    assert page.seen.count("h1") == 1 and page.seen.count("title") == page.seen.count("main") == 1
    levels = [int(tag[1]) for tag in page.seen if re.fullmatch(r"h\d", tag)]
    assert all(below <= above + 1 for above, below in itertools.pairwise(levels))
    assert all(page.alternatives) and len(page.alternatives) == page.seen.count("svg") + page.seen.count("img")
    assert set(page.heads) <= {"col", "row"}
    return page


def page_with(part: str) -> str:
    """A page around a part of one."""
    return render_page("page.html", title="Part").replace("</h1>", f"</h1>{part}")


def rows_of(text: str) -> list[list[str]]:
    """The cells of all tables, row by row, without the headings of columns."""
    bodies = "".join(re.findall(r"<tbody>(.*?)</tbody>", text, flags=re.DOTALL))
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", bodies, flags=re.DOTALL)
    return [re.findall(r"<t[dh][^>]*>([^<]*)</t[dh]>", row) for row in rows]


def test_backticks_become_code_and_everything_is_escaped() -> None:
    assert mark_code("a `b` <c>") == "a <code>b</code> &lt;c&gt;"
    assert mark_code("`<b>`") == "<code>&lt;b&gt;</code>" and mark_code("one ` tick") == "one ` tick"
    assert "<code>&lt;b&gt;</code>" in render("alarm.html", problems=["`<b>`"])


def test_a_name_that_a_template_misspells_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="problems"):
        render("alarm.html", problem=["misspelt"])


def test_page_is_one_file_that_fetches_nothing(study: DemoStudy) -> None:
    page = stands_alone(render_demo(study))
    assert page.seen.count("svg") == 2 and "img" not in page.seen


def test_page_says_what_was_found(study: DemoStudy) -> None:
    page = Reader(render_demo(study))
    words = " ".join(" ".join(page.words).split())
    assert "75.1" in words  # the value of the policy that was kept
    assert "0.7500 ± 0.0100" in words  # its repetitions: mean and standard error by hand
    assert "must not guide the treatment" in words
    assert "<stay>" in words and "stay" not in page.seen  # escaped, not taken for a tag
    assert str(study.result.certificate).splitlines()[1].split()[-1] in words


def test_rows_measure_the_gap_from_doctors_to_optimal(study: DemoStudy) -> None:
    gaps = {name: gap for name, _, gap in study.list_policies()}
    assert gaps["best possible"] == 1 and gaps["doctors"] == 0
    assert gaps["private, epsilon = 3"] == pytest.approx(0.5)
    assert gaps["random treatment"] == pytest.approx(-1)
    assert study.chosen_row in gaps


def test_mean_and_error_by_hand() -> None:
    assert mean_and_error([3.0]) == (3.0, None)
    mean, error = mean_and_error([1.0, 2.0, 6.0])
    assert (mean, error) == (3.0, pytest.approx(math.sqrt(7.0 / 3)))


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
def test_guess_rate_of_gaussian_noise_is_that_of_the_best_test(mu: float) -> None:
    """Against the total variation distance that dp-accounting finds: rate = (1 + TV)/2, and TV = delta at epsilon 0."""
    distance = pld.from_gaussian_mechanism(1 / mu).get_delta_for_epsilon(0.0)
    assert compute_guess_rate(certificate(gaussian("a", mu))) == pytest.approx((1 + distance) / 2, rel=1e-3)


def test_guess_rate_without_a_mu_follows_epsilon_and_delta() -> None:
    pure = certificate(Event("a", "laplace", math.log(3)), delta=0.0)
    assert compute_guess_rate(pure) == pytest.approx(0.75)
    assert compute_guess_rate(dataclasses.replace(pure, delta=0.2)) == pytest.approx(0.8)
    huge = dataclasses.replace(pure, epsilon=1e6)
    assert compute_guess_rate(huge) == pytest.approx(1.0)


def test_shares_of_gaussian_releases_are_of_mu_squared() -> None:
    parts = share_budget(certificate(gaussian("a", 1.0, times=3), gaussian("b", 1.0)))
    assert parts == pytest.approx({"a": 0.75, "b": 0.25})
    assert share_budget(certificate(Event("a", "laplace", 1.0), Event("b", "laplace", 3.0))) == pytest.approx(
        {"a": 0.25, "b": 0.75}
    )


def test_shares_of_disjoint_groups_are_of_the_dearest() -> None:
    parts = share_budget(
        certificate(gaussian("all", 1.0), gaussian("x", 1.0, group="1"), gaussian("y", 2.0, group="2"))
    )
    assert parts == pytest.approx({"all": 0.2, "x": 0.2, "y": 0.8})


def test_no_privacy_is_said_and_has_no_shares() -> None:
    plain = certificate(Event("a", "none", math.inf), notion="none", epsilon=math.inf)
    assert share_budget(plain) == {}
    (question, answer), *rest = explain_certificate(plain)
    assert "No." in answer and not rest and question


def test_words_change_with_the_certificate() -> None:
    def text(made: Certificate) -> str:
        return " ".join(answer for _, answer in explain_certificate(made))

    made = certificate(gaussian("a", 0.5))
    rate = math.ceil(100 * compute_guess_rate(made))
    assert f"at most {rate} of 100 cases (exact" in text(made) and "one in 1,000,000" in text(made)
    assert "number of stays is public" in text(made)
    assert "number of stays" not in text(dataclasses.replace(made, adjacency="add-remove"))
    assert "At most 4 episodes" in text(dataclasses.replace(made, records_per_unit=4))
    assert "simulation" in text(dataclasses.replace(made, noise_source="seed"))
    assert "whole numbers" in text(made)
    assert "Very little" in text(made) and "Possibly much" in text(certificate(gaussian("a", 4.0)))
    assert "added the noise before it sent" in text(dataclasses.replace(made, notion="local"))


@given(levels=st.lists(st.floats(0, 1), min_size=1, max_size=8), gap=st.floats(0.01, 0.3))
def test_labels_keep_their_order_and_distance(levels: list[float], gap: float) -> None:
    places = spread_labels(levels, gap)
    order = np.argsort(levels, kind="stable")
    assert np.all(np.diff(np.asarray(places)[order]) >= gap * (1 - 1e-9))
    assert np.mean(places) == pytest.approx(np.mean(levels), abs=1e-9)


def test_labels_that_do_not_collide_stay_where_they_are() -> None:
    assert spread_labels([0.9, 0.1, 0.5], 0.2) == [0.9, 0.1, 0.5]


def test_a_figure_is_the_same_text_every_time() -> None:
    curve = {"episodes": [1, 2], "mean": [1.0, 1.5], "se": [None, 0.1]}
    first, second = (to_svg(draw_regret({"learner": curve}, {"uniform": 4.0}, "title"), "regret") for _ in range(2))
    assert first == second
    assert first.startswith("<svg role") and "aria-label" in first


# ------------------------------------------------------------------------------------------- any saved result


NASTY = "<img src=x onerror=alert(1)>&\"'"


def saved(tmp_path: Path, made: Certificate, policy: object = None, **report: object) -> Path:
    chosen = TabularPolicy(jnp.ones((2, 3, 4)) / 4) if policy is None else policy
    return Result(chosen, made, {"users": 1234, "episodes": 1234, **report}).save(tmp_path / "policy")


def release(name: str, mu: float, **changes: object) -> dict[str, object]:
    noise = {"sensitivity": 2.0, "scale": 2.0 / mu, "times": 1}
    return {
        "name": name,
        "access": "rounds",
        "declared": 1,
        "counted": 1,
        "skipped": 0,
        "burnt": 0,
        "noise": [noise],
        **changes,
    }


def test_a_result_shows_policy_words_shares_and_releases(tmp_path: Path) -> None:
    made = certificate(
        gaussian("visits", 0.6),
        gaussian("transitions", 0.8),
        releases=(release("visits", 0.6, counted=0, burnt=1), release("transitions", 0.8)),
        bounds={"horizon": 2, "reward range": [0.0, 1.0]},
        learner="APVI",
    )
    page = stands_alone(render_folder(saved(tmp_path, made, recipe="dp-apvi")))
    assert "dp-apvi (learner APVI) learned this policy from 1,234 stays" in page.text.replace(" dp-apvi ", "dp-apvi ")
    assert f"epsilon = {made.epsilon:.3g}, delta = 1e-06" in page.text
    rate = math.ceil(100 * compute_guess_rate(made))
    assert f"right in at most {rate} of 100 cases" in page.text
    assert all(question in page.text for question, _ in explain_certificate(made))
    assert "0 of 1, 1 burnt" in page.text and "36.0%" in page.text and "64.0%" in page.text
    assert "which state came next" in page.text and "0, 1" in page.text
    assert "2 steps, 3 states and 4 actions" in page.text and "privrl certify policy" in page.text
    assert str(tmp_path) not in page.text  # a page shows no path of the machine
    assert "simulation" not in page.text and "NOT hold" not in page.text


def test_the_guess_is_a_bound_and_is_rounded_up() -> None:
    made = certificate(gaussian("a", 0.5))  # Phi(1/4) = .5987
    assert "at most 60 of 100" in render_result(Result(TabularPolicy(jnp.ones((1, 1, 1))), made), "policy")


def test_a_result_says_what_is_wrong_with_it() -> None:
    made = certificate(
        gaussian("a", 1.0),
        noise_source="seed",
        claimed={"epsilon": 1.25, "source": "qiao-wang"},
        notes=("One release was burnt.",),
    )
    page = stands_alone(render_result(Result(TabularPolicy(jnp.ones((1, 1, 1))), made), "policy", ["`mu` is wrong."]))
    assert "does NOT hold" in page.text and "mu is wrong." in page.text.replace("mu  is", "mu is")
    assert "protects no real person" in page.text and "One release was burnt." in page.text
    assert f"claims epsilon = 1.25; exact accounting gives {made.epsilon:.4g}" in page.text


def test_a_result_without_privacy_says_so_first() -> None:
    plain = certificate(Event("a", "none", math.inf), notion="none", epsilon=math.inf)
    page = stands_alone(render_result(Result(TabularPolicy(jnp.ones((1, 2, 2)) / 2), plain), "policy"))
    assert "without privacy" in page.text and "no privacy guarantee" in page.text
    assert "private with epsilon" not in page.text and "svg" not in page.seen


def test_nothing_in_a_result_can_become_a_tag() -> None:
    made = certificate(
        gaussian(NASTY, 1.0),
        unit=NASTY,
        learner=NASTY,
        notes=(NASTY,),
        bounds={NASTY: NASTY},
        releases=(release(NASTY, 1.0),),
        claimed={"epsilon": 1.0, "source": NASTY},
        accountant=NASTY,
    )
    result = Result(TabularPolicy(jnp.ones((1, 1, 1))), made, {"recipe": NASTY, "users": 3})
    page = stands_alone(render_result(result, NASTY, [NASTY]))
    assert "img" not in page.seen and page.text.count("onerror") > 8


def test_a_small_policy_is_shown_state_by_state() -> None:
    values = jnp.asarray(
        [[[1.0, 0.0, 0.0], [1.0, 1.0, 1.0], [1.0, 1.0, 0.0]], [[0.0, 0.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]]
    )
    text = render_policy(TabularPolicy.greedy(values))
    assert re.findall(r'<th scope="col"[^>]*>([^<]*)</th>', text) == ["state", "step 0", "step 1"]
    assert rows_of(text) == [["0", "0", "2"], ["1", "any", "any"], ["2", "0 or 1", "0 or 1"]]
    assert "33%" in text and "depends on the step" in text


def test_a_large_policy_is_shown_action_by_action() -> None:
    values = np.zeros((2, 20, 12))
    values[:, :15, 3] = values[0, 15:, 7] = values[1, 15:, 9] = 1.0
    text = render_policy(TabularPolicy.greedy(jnp.asarray(values)))
    rows = rows_of(text)
    assert rows[:3] == [["3", "75%", "75%"], ["7", "12%", "25%"], ["9", "12%", "0%"]]
    assert rows[-1] == ["4 others", "0%", "0%"] and len(rows) == 9


def test_a_controller_is_shown_by_its_gains() -> None:
    gains = jnp.asarray([[[0.3, -0.4]], [[0.0, -1e-9]]])
    text = render_policy(LinearPolicy(gains, 0.25))
    assert "from 1e-09 to 0.5" in " ".join(text.split()) and "exploration of size 0.25" in text
    assert re.findall(r">(-?[\d.]+)<", text) == ["0.3000", "0.0000", "-0.4000", "0.0000"]


# --------------------------------------------------------------------------------------------------- figures


SVG = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
VERDICT = """# Figure 1: <loss> against people

Printed by `privrl reproduce one`, **in full**.

![the loss falls](loss.png)

## Claims

| claim | number | verdict |
|---|---:|---|
| it `falls` \\| always | 0.2 ± 0.1 | **not reproduced** |

- first
  item
- second & last

```console
$ privrl <now>
```
"""


def figure_folder(tmp_path: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "verdict.md").write_text(VERDICT.replace("\\\\", "\\"))
    (folder / "loss.svg").write_text(SVG)
    (folder / "loss.png").write_bytes(b"png")
    (folder / "regret.png").write_bytes(b"PNG")
    pq.write_table(pa.table({"recipe": ["a", "b", "c"], "loss": [1.0, 2.0, 3.0]}), folder / "runs.parquet")
    return folder


def test_a_figure_carries_its_plots_and_its_verdict(tmp_path: Path) -> None:
    text = render_folder(figure_folder(tmp_path))
    page = stands_alone(text)
    assert page.alternatives[1] == "the loss falls" and "regret" in page.alternatives[0]
    kinds = re.findall(r'src="data:([^;]+);base64,([^"]+)"', text)
    assert [kind for kind, _ in kinds] == ["image/png", "image/svg+xml"]  # each plot once, as lines where it can be
    assert base64.b64decode(kinds[1][1]).decode() == SVG  # an image: nothing in it runs
    assert "Figure 1: <loss> against people" in page.text and "loss" not in page.seen
    assert "it falls | always" in page.text.replace("  ", " ") and "not reproduced" in page.text
    assert "3 rows" in page.text and "$ privrl <now>" in page.text
    assert "<strong>in full</strong>" in text and "<li>second &amp; last</li>" in text and "first item" in page.text


def test_a_verdict_can_show_only_pictures_of_its_own_folder(tmp_path: Path) -> None:
    folder = figure_folder(tmp_path)
    (tmp_path / "secret.png").write_bytes(b"secret")
    (folder / "verdict.md").write_text("# One\n\n![a](../secret.png)\n\n![b](missing.png)\n\n![c](verdict.md)\n")
    page = stands_alone(render_folder(folder))
    assert page.text.count("is not in this folder") == 3
    assert base64.b64encode(b"secret").decode() not in render_folder(folder)


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("**a *b* c**", "<p><strong>a <em>b</em> c</strong></p>"),
        ("a *b* **c** 2 * 3 * 4", "<p>a <em>b</em> <strong>c</strong> 2 * 3 * 4</p>"),
        ("![a *b*](c.png)", "[c.png: a *b*]"),
        ("a [link](b.md) and [two](https://c.d)", "<p>a link and two (https://c.d)</p>"),
        ("one `tick", "<p>one `tick</p>"),
        ("## A `b`\n# c", "<h2>A <code>b</code></h2>\n<h2>c</h2>"),
        ("text\n- item", "<p>text</p>\n<ul>\n<li>item</li>\n</ul>"),
        ("<!-- note -->\n<b>x</b>", "<p>&lt;b&gt;x&lt;/b&gt;</p>"),
        ("```\n<a>\n# no heading", "<pre><code>&lt;a&gt;\n# no heading</code></pre>"),
    ],
)
def test_markdown_by_hand(text: str, html: str) -> None:
    assert render_markdown(text, lambda address, description: f"[{address}: {description}]") == html


TAGS = re.findall(
    r"\w+", "h2 h3 h4 h5 h6 p ul ol li blockquote hr pre code strong em div br table thead tbody tr th td"
)


@given(st.text(alphabet="a<>&|-#`*![]()\n \"'", max_size=60))
def test_markdown_never_lets_a_tag_through(text: str) -> None:
    page = Reader(render_markdown(text, lambda address, description: ""))
    assert page.open == []
    assert not [tag for tag in page.seen if tag not in TAGS]


# ---------------------------------------------------------------------------------------------------- audits


AUDITED = {
    "recipe": "dp-apvi",
    "epsilon_claimed": 1.0,
    "epsilon_exact": 0.98,
    "epsilon_lower": 0.83,
    "delta": 1e-6,
    "trials": 2000,
    "confidence": 0.95,
    "broken": False,
}
CASE = {"name": "noise <once>", "paper": "sahu A1:26", "flaw": "one draw", "claimed": 0.005, "audited": 0.99}
CASE |= {"unit": "success rate", "caught": True}


def audit_folder(tmp_path: Path, content: object) -> Path:
    folder = tmp_path / "audit"
    folder.mkdir()
    (folder / "audit.json").write_text(json.dumps(content))
    (folder / "audit.svg").write_text(SVG)
    return folder


def test_an_audit_that_holds(tmp_path: Path) -> None:
    page = stands_alone(render_folder(audit_folder(tmp_path, AUDITED)))
    assert "not broken: no attack" in page.text and "0.83" in page.text and "0.98" in page.text
    assert "2,000 trials, delta 1e-06, confidence 95%" in page.text and page.seen.count("img") == 1


@pytest.mark.parametrize("changes", [{"broken": True}, {"epsilon_lower": 0.99}, {"epsilon_lower": "inf"}])
def test_a_broken_recipe_is_said_first(changes: dict[str, object], tmp_path: Path) -> None:
    text = render_folder(audit_folder(tmp_path, [AUDITED, AUDITED | {"recipe": "bad-one", **changes}]))
    page = stands_alone(text)
    assert "Broken: bad-one" in page.text.replace("  ", " ") and text.index("Broken") < text.index("<img")
    assert page.text.count("BROKEN") == 1 and text.count('<tr class="bad">') == 1 and "claim false" not in page.text


def test_a_false_claim_with_honest_accounting_is_not_called_broken(tmp_path: Path) -> None:
    text = render_folder(audit_folder(tmp_path, AUDITED | {"epsilon_exact": 2.5, "epsilon_lower": 1.4}))
    page = stands_alone(text)
    assert "False claim: dp-apvi" in page.text.replace("  ", " ") and "claim false" in page.text
    assert "Broken:" not in page.text and '<tr class="bad">' in text


def test_a_sensitivity_beyond_its_declaration_stands_out(tmp_path: Path) -> None:
    entry = {"release": "visits", "adjacency": "replace-one", "found": 2.0, "declared": 2.0}
    text = render_folder(audit_folder(tmp_path, AUDITED | {"sensitivities": [entry, entry | {"found": 2.1}]}))
    assert text.count('<tr class="bad">') == 1 and "2.1" in stands_alone(text).text


def test_known_mistakes_are_caught_or_the_audit_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    good = stands_alone(render_folder(audit_folder(tmp_path / "a", {"cases": [CASE, CASE | {"name": "two"}]})))
    assert "All 2 known mistakes were caught" in good.text and "noise <once> (sahu A1:26)" in good.text
    bad = stands_alone(
        render_folder(audit_folder(tmp_path / "b", {"cases": [CASE, CASE | {"name": "two", "caught": False}]}))
    )
    assert "NOT caught: two" in bad.text and "were caught" not in bad.text


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ([], "contains no audits"),
        ({"cases": {}}, "contains no audits"),
        ({"recipe": "x"}, "lacks `epsilon_claimed`"),
        (AUDITED | {"trials": "many"}, "`trials` must be a number"),
        ({"cases": [{"name": "x"}]}, "lacks `claimed`"),
    ],
)
def test_a_damaged_audit_is_refused(content: object, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        render_folder(audit_folder(tmp_path, content))


def test_a_file_that_is_not_json_is_refused(tmp_path: Path) -> None:
    folder = audit_folder(tmp_path, AUDITED)
    (folder / "audit.json").write_text("{")
    with pytest.raises(ValueError, match="is not JSON"):
        render_folder(folder)


def test_kinds_are_told_apart(tmp_path: Path) -> None:
    assert detect_content(figure_folder(tmp_path)) == "figure"
    assert detect_content(audit_folder(tmp_path, AUDITED)) == "audit"
    assert detect_content(saved(tmp_path, certificate(gaussian("a", 1.0)))) == "result"
    with pytest.raises(ValueError, match="Did you mean .*audit` or .*one` or .*policy`"):
        detect_content(tmp_path)
    with pytest.raises(ValueError, match="There is no folder"):
        detect_content(tmp_path / "nowhere")
