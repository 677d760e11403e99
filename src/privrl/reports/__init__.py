"""Reports: one HTML file about a result, an evaluation, an audit or a figure; and the demos, which end in one."""
