"""The part of a page that shows a policy on measurements: its advice along each measurement, and current practice.

Everything shown follows from the policy and from public bounds (`mdp/policy_slices.py`). No record is read.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from markupsafe import Markup

from privrl.mdp.measured_policy import MeasuredPolicy
from privrl.mdp.measurements import Category, Feature
from privrl.mdp.policy_slices import Slice, Stretch, importance, map_policy, slice_policy
from privrl.plots.policy_maps import draw_map, draw_strips
from privrl.reports.display_names import Names
from privrl.reports.rendering import HtmlTable, embed_plot, format_measurement, format_percent, render

_MAX_COLUMNS = 12  # most columns that are drawn; the others matter less


def render_measured_policy(policy: MeasuredPolicy, names: Names) -> Markup:
    """Show a map over the two measurements that matter most, a strip for each measurement, and the same as tables."""
    matters = importance(policy)
    order = np.argsort(-matters, kind="stable").tolist()
    slices = [slice_policy(policy, place) for place in order[:_MAX_COLUMNS]]
    measured = [place for place in order if isinstance(policy.columns[place], Feature)]
    return render(
        "measured_policy.html",
        columns=len(policy.columns),
        actions=policy.num_actions,
        size=sum(value.size for value in policy.arrays().values() if value.dtype.kind == "f"),
        support=float(policy.support),
        map=_render_map(policy, measured[0], measured[1], names) if len(measured) > 1 else "",
        strips=embed_plot(
            draw_strips(slices, names.number_action, names.doses),
            "The advised action along each measurement, and current practice",
        ),
        has_categories=any(isinstance(one.column, Category) for one in slices),
        has_missing=_may_be_missing(slices),
        not_drawn=len(order) - len(slices),
        importance=_table_of_importance(policy, order, matters),
        stretches=_table_of_stretches(slices, names),
    )


def _render_map(policy: MeasuredPolicy, x: int, y: int, names: Names) -> Markup:
    found = map_policy(policy, x, y)
    described = f"Regions of actions over {found.x.column.name} and {found.y.column.name}"
    return render(
        "policy_map.html",
        x=found.x.column.name,
        y=found.y.column.name,
        advised=embed_plot(draw_map(found, "advised", names.number_action, names.doses), f"{described}, as advised"),
        practised=embed_plot(
            draw_map(found, "practised", names.number_action, names.doses), f"{described}, in current practice"
        ),
        categories=[column.name for column in policy.columns if isinstance(column, Category)],
        has_missing=_may_be_missing((found.x, found.y)),
    )


def _may_be_missing(slices: Sequence[Slice]) -> bool:
    return any(one.missing is not None for one in slices)


def _table_of_importance(policy: MeasuredPolicy, order: Sequence[int], matters: Float[np.ndarray, " D"]) -> HtmlTable:
    rows = [(policy.columns[place].name, format_percent(float(matters[place]))) for place in order]
    return HtmlTable(("column", "changes the advice"), rows, "How much each column matters", numbers=(1,))


def _table_of_stretches(slices: Sequence[Slice], names: Names) -> HtmlTable:
    rows = []
    for one in slices:
        for part in one.advised:
            today = [other.action for other in one.practised if other.low < part.high and other.high > part.low]
            rows.append((one.column.name, _describe_values(one, part), part.action, today))
        if one.missing is not None:
            rows.append((one.column.name, "not measured", one.missing[0], [one.missing[1]]))
    texts = [
        (column, values, names.number_action(advised), _describe_practice(advised, today, names))
        for column, values, advised, today in rows
    ]
    return HtmlTable(("column", "value", "advice", "today"), texts, "The strips as a table", stacked=True)


def _describe_practice(advised: int, practised: Sequence[int], names: Names) -> str:
    found = list(dict.fromkeys(practised))
    return "the same" if found == [advised] else " or ".join(names.number_action(action) for action in found)


def _describe_values(one: Slice, part: Stretch) -> str:
    if isinstance(one.column, Category):
        return ", ".join(one.column.values[int(part.low) : int(part.high)])
    ends = " to ".join(_format_value(one.column, end) for end in (part.low, part.high))
    return f"{ends} (always)" if len(one.advised) == 1 else ends


def _format_value(feature: Feature, value: float) -> str:
    """Write a value with as many digits as the slice resolves."""
    if feature.log:
        return format_measurement(value)
    digits = int(np.clip(np.ceil(2.5 - np.log10(feature.high - feature.low)), 0, 12))
    return f"{value:,.{digits}f}"
