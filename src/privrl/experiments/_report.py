"""A study as one HTML file: plots inside, nothing fetched, readable on a phone."""

from collections.abc import Sequence
from html import escape

from privrl.experiments._numbers import written
from privrl.experiments._plots import shares_figure, to_svg, values_figure
from privrl.experiments._study import Study
from privrl.experiments._words import guess_rate, in_words, shares

_STYLE = """
:root { color-scheme: light; }
body { font: 17px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; color: #1a1a1a; background: #fff;
       max-width: 42rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
.key { background: #eef4f9; border-left: 5px solid #0072B2; padding: .7rem 1rem; }
.warn { background: #fdf3e4; border-left: 5px solid #E69F00; padding: .7rem 1rem; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; padding: .4rem .5rem .4rem 0; border-bottom: 1px solid #ddd; vertical-align: top; }
td.number, th.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; padding-right: 0;
                       padding-left: .5rem; }
tr.chosen td { font-weight: 600; background: #eef4f9; }
svg { width: 100%; height: auto; max-width: 36rem; display: block; margin: 0 auto; }
figure { margin: 1rem 0; } figcaption, .small { font-size: .88rem; color: #444; }
dt { font-weight: 600; margin-top: 1rem; } dd { margin: .2rem 0 0 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f5f5f5; padding: .7rem;
      font-size: .8rem; line-height: 1.4; }
"""


def page(title: str, body: str) -> str:
    """A complete HTML document around `body`."""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def study_page(study: Study) -> str:
    """The report of a demo study."""
    title = "A private treatment policy: what it is worth, and what it reveals"
    parts = [
        f"<h1>{escape(title)}</h1>",
        _summary(study),
        "<h2>What privacy costs</h2>",
        _values(study),
        _table(study),
        "<h2>What the policy reveals</h2>",
        _certificate_words(study),
        "<h2>What the budget was spent on</h2>",
        _spending(study),
        "<h2>The certificate</h2>",
        f"<pre>{escape(str(study.result.certificate))}</pre>",
        "<h2>Use the policy</h2>",
        _use(study),
    ]
    return page(title, "\n".join(parts))


def _summary(study: Study) -> str:
    certificate = study.result.certificate
    levels = study.baselines
    survive = f"{100 * study.value:.1f}&nbsp;%"
    return (
        f"<p>From {study.episodes:,} simulated ICU stays of sepsis patients, treated as doctors treat them, privrl "
        f"learned which treatment to choose in each condition, and added enough noise that no single stay can be read "
        f"back from the result.</p>"
        f'<p class="key">Under the private policy (epsilon&nbsp;=&nbsp;{study.epsilon:g}) '
        f"<b>{survive}</b> of simulated patients survive, against {100 * levels['behaviour']:.1f}&nbsp;% "
        f"under the doctors who were observed and {100 * levels['optimal']:.1f}&nbsp;% at best. Somebody who knows all "
        f"the other stays and has to guess which of two records was one patient's is right in at most "
        f"{100 * guess_rate(certificate):.0f} of 100 cases; a coin is right in 50.</p>"
        f'<p class="warn">This is a benchmark world estimated from hospital records (ICU-Sepsis, Choudhary, Gupta and '
        f"Thomas 2024). It shows how learning under privacy behaves. It must not guide the treatment of anybody.</p>"
    )


def _values(study: Study) -> str:
    lines = {
        "optimal": study.baselines["optimal"],
        "no privacy": sum(study.non_private) / len(study.non_private),
        "most frequent": study.baselines["mode"],
        "doctors": study.baselines["behaviour"],
        "random": study.baselines["uniform"],
    }
    figure = values_figure(study.private, study.epsilon, lines, "share of patients who survive")
    described = "Share of patients who survive against epsilon, between the levels of other policies"
    runs = f"{study.seeds} repetition{'s' if study.seeds > 1 else ''}"
    return (
        f"<figure>{to_svg(figure, described)}<figcaption>Blue: private policies, mean of {runs} with two standard "
        f"errors; the ring marks the budget of the saved policy. “Most frequent” always does what doctors do most "
        f"often in a condition, and needs no learning at all.</figcaption></figure>"
    )


def _table(study: Study) -> str:
    rows = "".join(
        f"<tr{' class=chosen' if name == study.chosen_row else ''}><td>{escape(name)}</td>"
        f'<td class="number">{written(values)}</td><td class="number">{100 * gap:.0f}&nbsp;%</td></tr>'
        for name, values, gap in study.rows()
    )
    return (
        '<table><thead><tr><th>policy</th><th class="number">survive</th>'
        '<th class="number">gap closed</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
        '<p class="small">Gap closed: 0&nbsp;% is what doctors reach, 100&nbsp;% the best possible. Values are exact, '
        "computed from the simulated world; repetitions draw new stays and new, seeded noise. On real patients nobody "
        "knows these numbers, and estimating them from the same stays would cost budget too.</p>"
    )


def _certificate_words(study: Study) -> str:
    answers = "".join(
        f"<dt>{escape(question)}</dt><dd>{_with_code(answer)}</dd>"
        for question, answer in in_words(study.result.certificate)
    )
    return f"<dl>{answers}</dl>"


def _with_code(text: str) -> str:
    """Escaped text in which `backticks` become code."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces))


def _spending(study: Study) -> str:
    parts = shares(study.result.certificate)
    if not parts:
        return "<p>There was no budget: this policy is not private.</p>"
    figure = to_svg(shares_figure(parts), "Share of the privacy budget that each release was given")
    known = [(name, _RELEASES[name]) for name in parts if name in _RELEASES]
    explained = "".join(f"<li><b>{escape(name)}</b>: {escape(text)}</li>" for name, text in known)
    return (
        "<p>The learner never sees a stay. It sees noisy sums over all stays, and each of these costs part of the "
        f"budget.</p><figure>{figure}</figure>{f'<ul>{explained}</ul>' if explained else ''}"
    )


_RELEASES = {
    "visits": "how often each treatment was given in each condition",
    "transitions": "which condition came next",
    "rewards": "how it ended",
}


def _use(study: Study) -> str:
    lines: Sequence[str] = (
        "import privrl",
        'result = privrl.Result.load("policy")',
        "result.policy.action(state=42, step=0)   # needs none of the stays",
        "print(result.certificate)",
    )
    source = escape(study.result.certificate.noise_source.split(",")[0])
    return (
        "<p>The folder <code>policy</code> beside this file holds the policy and <code>certificate.json</code>, "
        f"nothing about any stay. Its noise came from {source}, as it should for real people. In this folder:</p>"
        f"<pre>{escape(chr(10).join(lines))}</pre><pre>$ privrl certify policy</pre>"
    )
