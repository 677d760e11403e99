"""How a policy compares with practice, for a page: the verdict, the intervals as a picture, and what they rest on."""

from privrl.figures.plots import forest_figure, to_svg
from privrl.learners.evaluation.estimates import Evaluation, Interval
from privrl.reports.page import drawing, listed, paragraph, table
from privrl.studies.certified_evaluation import CertifiedEvaluation

NOT_COMPARED = (
    "Not compared with practice. Whether this policy is better or worse than what is done today is not known: "
    "`privrl fit --evaluate .3` holds people out to find it."
)
_ASSUMPTION = (
    "All of this assumes that how people were treated depended on the recorded state alone, and on nothing that those "
    "who treated them saw and did not record."
)
_BOX = {"better": "key", "worse": "bad", "not shown": "warn"}


def verdict_box(evaluation: Evaluation | None) -> str:
    """The verdict in one line, to stand on top of a page."""
    if evaluation is None:
        return paragraph(NOT_COMPARED, "warn")
    return paragraph(evaluation.line, _BOX[evaluation.verdict])


def evaluation_section(evaluation: Evaluation, unit: str) -> str:
    """The comparison with practice, from releases alone."""
    dial = evaluation.policy.dial
    gains = {
        f"assisted (dial {dial:g})": (evaluation.gain, True),
        "full advice (model)": (evaluation.model_gain, False),
    }
    shown = {name: (interval, certified) for name, (interval, certified) in gains.items() if interval is not None}
    parts = [
        "<h2>Compared with practice</h2>",
        paragraph(
            f"From {evaluation.people:,} {unit}s who were held out. Under practice the mean return is "
            f"{evaluation.practice.words('')}. Intervals are at 95%, with sampling error and privacy noise together."
        ),
        _balance(evaluation.balance),
    ]
    if shown:
        ends = {name: (i.low, i.value, i.high, certified) for name, (i, certified) in shown.items()}
        figure = to_svg(forest_figure(ends), "Gain over practice with 95% intervals, practice at zero")
        caption = "Filled: certified. Hollow: by a model, without a guarantee. Right of 0 is better than practice."
        rows = [(name, *_row(interval), "certified" if sure else "model") for name, (interval, sure) in shown.items()]
        parts += [
            drawing(figure, caption),
            table(("policy", "gain", "95% interval", "kind"), rows, caption="Gain over practice", numbers=(1, 2)),
        ]
    else:
        parts.append(paragraph("There is no estimate of a gain.", "warn"))
    without = min(max(evaluation.unsupported.value, 0.0), 1.0)
    parts.append(
        paragraph(f"In {100 * without:.0f} % of decisions no advice has enough evidence: these are left to practice.")
    )
    parts.append(paragraph(f"{_ASSUMPTION} {_sensitivity(evaluation)}"))
    parts.append(listed(evaluation.refused))
    if isinstance(evaluation, CertifiedEvaluation):
        own = evaluation.certificate
        parts.append(
            paragraph(
                f"This evaluation has a certificate of its own: epsilon = {own.epsilon:.3g}, delta = {own.delta:.3g}. "
                f"For a {unit} who is in both tables the two costs add up.",
                "warn",
            )
        )
    return "\n".join(part for part in parts if part)


def _balance(balance: Interval | None) -> str:
    """The mean weight, which is 1 where the probabilities of practice are right."""
    if balance is None:
        return ""
    text = f"Balance: the mean weight is {balance.words('')}, and 1 is expected"
    if balance.low <= 1.0 <= balance.high:
        return paragraph(f"{text}: the probabilities of practice agree with these people.")
    return paragraph(f"{text}: these people were not treated by the probabilities of practice. Trust no gain.", "bad")


def _row(interval: Interval) -> tuple[str, str]:
    return f"{interval.value:+.3f}", f"{interval.low:+.3f} to {interval.high:+.3f}"


def _sensitivity(evaluation: Evaluation) -> str:
    if evaluation.sensitivity is None:
        return ""
    return (
        f"The verdict would fall if something unrecorded changed the odds of getting the advised treatment by a factor "
        f"of {evaluation.sensitivity:.2f} over a whole stay."
    )
