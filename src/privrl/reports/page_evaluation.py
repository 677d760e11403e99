"""How a policy compares with practice, for a page: the verdict, the intervals as a picture, and what they rest on."""

import math

from privrl.evaluation.estimates import Evaluation, Interval
from privrl.plots.charts import draw_intervals
from privrl.plots.style import to_svg
from privrl.reports.names import noun_of
from privrl.reports.page import drawing, listed, paragraph, percent, table
from privrl.reports.page_dial import dial_section
from privrl.studies.offline.situations import Situations
from privrl.studies.results.certified_evaluation import CertifiedEvaluation

NOT_COMPARED = (
    "Not compared with practice. Whether this policy is better or worse than what is done today is not known: "
    "`privrl fit --evaluate .3` holds people out to find it."
)
_ASSUMPTION = (
    "All of this assumes that how people were treated depended on the recorded state alone, and on nothing that those "
    "who treated them saw and did not record."
)
_BOX = {"better": "key", "worse": "bad", "not shown": "warn"}


def verdict_box(evaluation: Evaluation | None, withheld: bool = False) -> str:
    """The verdict in one line, to stand on top of a page; and why a policy that is there gives no advice."""
    if evaluation is None:
        return paragraph(NOT_COMPARED, "warn")
    verdict = paragraph(evaluation.line, _BOX[evaluation.verdict])
    if evaluation.held_back is None or withheld:
        return verdict
    held = f"The policy is held back: every decision is left as it is today. {evaluation.held_back}"
    return verdict + paragraph(held, "warn")


def evaluation_section(evaluation: Evaluation, unit: str, situations: Situations | None = None) -> str:
    """The comparison with practice, from releases alone; its people are those of its own certificate, if it has one,
    and otherwise of the one whose `unit` this is."""
    own = evaluation.certificate if isinstance(evaluation, CertifiedEvaluation) else None
    unit = noun_of(unit if own is None else own.unit)
    dial = evaluation.policy.dial
    gains = {
        f"assisted (dial {dial:g})": (evaluation.gain, True),
        f"assisted (dial {dial:g}, practice estimated)": (evaluation.assisted_gain, False),
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
        figure = to_svg(draw_intervals(ends), "Gain over practice with 95% intervals, practice at zero")
        caption = "Filled: certified. Hollow: without a guarantee. Right of 0 is better than practice."
        kinds = {True: "certified", False: "no guarantee"}
        rows = [(name, *_row(interval), kinds[sure]) for name, (interval, sure) in shown.items()]
        parts += [
            drawing(figure, caption),
            table(("policy", "gain", "95% interval", "kind"), rows, caption="Gain over practice", numbers=(1, 2)),
        ]
    else:
        parts.append(paragraph("There is no estimate of a gain.", "warn"))
    parts.append(dial_section(evaluation, None if situations is None else situations.seen))
    without = min(max(evaluation.unsupported.value, 0.0), 1.0)
    parts.append("<h3>What it rests on</h3>")
    parts.append(
        paragraph(f"In {percent(without)} of decisions no advice has enough evidence: these are left to practice.")
    )
    parts.append(paragraph(f"{_ASSUMPTION} {_checked(evaluation)} {_sensitivity(evaluation, unit)}"))
    parts.append(listed(evaluation.refused))
    if own is not None:
        parts.append(
            paragraph(
                f"This evaluation has a certificate of its own: epsilon = {own.epsilon:.3g}, delta = {own.delta:.3g}. "
                f"It covers the evaluation alone: for a {unit} who is in the policy's table too, the policy's cost "
                "counts as well.",
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


def _checked(evaluation: Evaluation) -> str:
    """What was seen of the assumption, as far as it can be seen in records."""
    if evaluation.trend is None or evaluation.continuity is None:
        return ""
    arrival = evaluation.arrival
    return (
        "What can be seen of that in the records: beyond the recorded state, practice goes along with how it has "
        f"changed by {evaluation.trend.words()}, and with the decision before by {evaluation.continuity.words()}"
        + ("" if arrival is None else f", and the first decision differs from later ones by {arrival.words()}")
        + "; 0 is expected of each."
    )


def _sensitivity(evaluation: Evaluation, unit: str) -> str:
    """How strong something unrecorded would have to be, for somebody who treats people."""
    odds = evaluation.sensitivity
    if odds is None:
        return "As nothing better or worse was shown, there is no verdict that this could overturn."
    if math.isinf(odds):
        return "No unrecorded influence, however strong, could overturn the verdict."
    return (
        f"The verdict could be overturned by something that is not in the records, such as how ill a {unit} looked, if "
        f"it made the advised treatment {odds:.2f} times as likely, or as unlikely (in odds, over a whole stay), as it "
        f"is on average for {unit}s who look the same in the records. The closer that number is to 1, the less it "
        "takes."
    )
