"""A policy on measurements in pictures: which action where, over its measurements, beside what practice does.

All of it is made of the policy and of public bounds (`mdp/policy_slices.py`); no record is looked at.
"""

from collections.abc import Sequence

import numpy as np

from privrl.mdp.measured_policy import MeasuredPolicy
from privrl.mdp.measurements import Category, Feature
from privrl.mdp.policy_slices import Slice, Stretch, importance, map_of, slice_of
from privrl.plots.policy_maps import draw_map, draw_strips
from privrl.plots.style import to_svg
from privrl.reports.names import Names
from privrl.reports.page import drawing, paragraph, percent, table

_MOST_COLUMNS = 12  # that are drawn; the others matter less


def measured_section(policy: MeasuredPolicy, names: Names) -> str:
    """What the policy does over its measurements: a map of the two that matter most, a strip for each, and a table."""
    matters = importance(policy)
    order = np.argsort(-matters, kind="stable").tolist()
    slices = [slice_of(policy, place) for place in order[:_MOST_COLUMNS]]
    others = len(order) - len(slices)
    return "".join(
        [
            _size(policy),
            _map(policy, order, names),
            "<h3>One measurement at a time</h3>",
            _strips(slices, others, names),
            _importance(policy, order, matters),
            _stretches(slices, names),
        ]
    )


def _size(policy: MeasuredPolicy) -> str:
    kept = sum(value.size for value in policy.arrays().values() if value.dtype.kind == "f")
    return paragraph(
        f"A policy on {len(policy.columns):,} columns with {policy.num_actions:,} actions; it does the same at every "
        f"step, and a value may be missing. It is {kept:,} numbers, all made of releases. It advises an action only "
        f"where practice takes it at least {percent(float(policy.support))} as often as its most frequent one, and "
        "where little is known the advice is what practice does most. Below, “today” is what practice does most often, "
        "as far as the releases tell."
    )


def _map(policy: MeasuredPolicy, order: Sequence[int], names: Names) -> str:
    """Of the two measurements that matter most; nothing where there is one alone."""
    places = [place for place in order if isinstance(policy.columns[place], Feature)]
    if len(places) < 2:
        return ""
    found = map_of(policy, *places[:2])
    x, y = found.x.column.name, found.y.column.name
    advised, practised = (draw_map(found, whose, names.numbered_action) for whose in ("advised", "practised"))
    about = f"over `{x}` and `{y}`, the two measurements that matter most; all others at their released medians"
    categories = [column.name for column in policy.columns if isinstance(column, Category)]
    at = (
        f", and {' and '.join(f'`{name}`' for name in categories)} at the first value of the list" if categories else ""
    )
    caption = (
        f"What is advised {about}{at}. Axes end at the public bounds. Dashed: released medians; dotted: about the "
        "middle 80 % of records, and outside of that the advice rests on few records."
        f"{_none((found.x, found.y))}"
    )
    described = f"Regions of actions over {x} and {y}"
    return (
        "<h3>Which action where</h3>"
        + drawing(to_svg(advised, f"{described}, as advised"), caption)
        + drawing(to_svg(practised, f"{described}, in practice"), "What practice does most often there, today.")
    )


def _strips(slices: Sequence[Slice], others: int, names: Names) -> str:
    figure = draw_strips(slices, names.numbered_action)
    categories = any(isinstance(one.column, Category) for one in slices)
    at = " (a category at the first value of its list)" if categories else ""
    left = f" {others:,} further columns, which matter less, are not drawn." if others > 0 else ""
    return drawing(
        to_svg(figure, "The advised action along each measurement, and that of practice"),
        f"Each column alone moves between its public bounds; all others stay at the released median{at}. The dashed "
        f"line is its own median, the grey bar about the middle 80 % of records.{_none(slices)}{left}",
    )


def _none(slices: Sequence[Slice]) -> str:
    return " “None”: no value was measured." if any(one.missing is not None for one in slices) else ""


def _importance(policy: MeasuredPolicy, order: Sequence[int], matters: np.ndarray) -> str:
    rows = [(policy.columns[place].name, percent(float(matters[place]))) for place in order]
    return table(("column", "changes the advice"), rows, caption="How much columns matter", numbers=(1,)) + paragraph(
        "Computed from the policy alone: situations are drawn with every measurement within one released half-width of "
        "its released median, each independently, and every category from its list. A column matters as often as the "
        "advice changes when this column alone is drawn again. Real measurements move together, so this says what the "
        "policy looks at, not what is important to patients.",
        "small",
    )


def _stretches(slices: Sequence[Slice], names: Names) -> str:
    rows = []
    for one in slices:
        for part in one.advised:
            today = [other.action for other in one.practised if other.low < part.high and other.high > part.low]
            rows.append((one.column.name, _where(one, part), part.action, today))
        if one.missing is not None:
            rows.append((one.column.name, "not measured", one.missing[0], [one.missing[1]]))
    written = [
        (column, where, names.numbered_action(advised), _today(advised, today))
        for column, where, advised, today in rows
    ]
    return table(("column", "value", "advice", "today"), written, caption="The strips in words", stacked=True)


def _today(advised: int, practised: Sequence[int]) -> str:
    numbers = [str(action) for action in dict.fromkeys(practised)]
    return "the same" if numbers == [str(advised)] else " or ".join(numbers)


def _where(one: Slice, part: Stretch) -> str:
    """The values of a stretch in words."""
    if isinstance(one.column, Category):
        return ", ".join(one.column.values[int(part.low) : int(part.high)])
    ends = " to ".join(_number(one.column, end) for end in (part.low, part.high))
    return f"{ends} (always)" if len(one.advised) == 1 else ends


def _number(feature: Feature, value: float) -> str:
    """With as many digits as the slice can tell."""
    if feature.log:
        return f"{value:.3g}"
    digits = int(np.clip(np.ceil(2.5 - np.log10(feature.high - feature.low)), 0, 12))
    return f"{value:,.{digits}f}"
