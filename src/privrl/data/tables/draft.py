"""Draft a schema file from the names and types of a table's columns, never from its values."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privrl.data.rows.files import parquet_files
from privrl.data.schema.columns import check_type
from privrl.data.schema.declaration import FILL_IN, SETTINGS
from privrl.data.schema.guard import redact_errors
from privrl.data.schema.outcomes import sounds_like_outcome
from privrl.data.schema.table_schema import TableError

if TYPE_CHECKING:
    import pyarrow as pa

_HINTS: dict[str, tuple[str, ...]] = {
    "unit": (
        *("patient_id", "subject_id", "person_id", "user_id", "unit_id", "patient", "subject", "person", "user"),
        *("patientid", "subjectid", "personid", "userid", "pid", "mrn", "id"),
        *("pat_id", "pat_nr", "patient_nr", "patient_no", "patnr", "pat"),
    ),
    "episode": ("stay_id", "hadm_id", "admission_id", "visit_id", "episode_id", "stay", "visit", "episode"),
    "step": ("step", "hour", "t", "day", "window"),
    "reward": ("reward", "alive", "survived", "outcome"),
    "terminated": ("terminated", "done", "end", "ended", "last"),
    "propensity": ("propensity",),
    "action": ("action", "dose", "treatment", "drug"),
    "state": ("state",),
    "next_state": ("next_state",),
}
"""Common names of the column of each part, the likeliest first."""

_HEAD = """# A draft from the names and types of columns; no value of the table was read.
# Replace FILL-IN by public knowledge. Never read bounds off the data, because a bound that moved with one person's
# record would reveal that record. Delete the columns that do not belong to a state, such as what is not known when a
# decision is made.
"""
_CSV_HEAD = """# A CSV file has no types: move columns of text to category = ["NAME:a,b,c"]. `privrl prepare` turns
# the records of a CSV file into the Parquet file that `privrl fit` reads.
"""
_ID = re.compile(
    r"(.*[^a-z0-9])?(id|ids|nr|guid|uuid|mrn|nhs_?number)|.*[a-z0-9](ID|Id|Nr)"
    r"|(pat|patients?|subjects?|persons?|users?|cases?|stays?|visits?|records?|episodes?)_?"
    r"(no|nr|num|numbers?|nummer|key|code|name)?|fall_?(nr|nummer)"
)
"""A column with such a name numbers people, stays or records, and is not a measurement."""
_TIME = re.compile(
    r"(?:chart|in|out|start|stop|end|store|admit|admission|disch|birth|event|order|record|measure|obs)?"
    r"(?:time|date|datetime|timestamp)s?|dttm|ts|zeit|zeitpunkt|zeitstempel|uhrzeit|datum|fecha|hora|heure"
)
_DOSE = re.compile(
    r"actions?|dos(?:es?|ages?|ings?|is|ierung)|treatments?|drugs?|infusions?|bolus(?:es)?|medications?|behandlung"
    r"|traitement|tratamiento"
)
_DRUG = re.compile(
    r"(?:nor)?epi|(?:nor)?epine\w*|(?:nor)?adrenalin\w*|levophed|vasopress\w*|(?:dop|dobut)amine?|milrinone?"
    r"|phenylephrine?|heparine?|enoxaparine?|warfarine?|propofol|(?:mid|lor|di)azepam|midazolam"
    r"|(?:remi|su)?fentanil|fentanyl|(?:hydro)?morphine?|s?ketamine?|dexmedetomidine?|furosemide?|amiodarone?"
    r"|(?:metopro|esmo|labeta)lol|(?:hydrocorti|methylpredniso|predniso)\w+|dexamethasone?|vancomycine?|meropenem"
    r"|piperacillin\w*|crystalloids?|colloids?|saline|ringers?"
)
"""Drugs whose names are rarely those of a measurement."""
_ALSO_MEASURED = re.compile(r"insulin\w*|fluids?|potassium|kalium|magnesium|albumin|glucose|oxygen|testosterone?")
"""Drugs that are measured too."""
_GIVEN = re.compile(r"iu|ie|rates?|given|gave|administered|infused|injected|perfusor|pump")
"""With such a word, one of these is a dose: `insulin_rate`, but not `glucose_mg`, which may be a concentration."""
_PROPENSITY = re.compile(r"propensit(?:y|ies)|pscore|logprobs?")
_PROBABILITY = re.compile(r"p|pi|probs?|probabilit(?:y|ies)|likelihood")
_LOGGED = re.compile(r"actions?|a|b|behaviou?rs?|logged|log|policy|chosen|taken|treat(?:ed|ment)?|trt|tx")
_BEFORE = {"last", "previous", "prev", "prior", "level", "levels", "concentration", "conc"}
"""With such a word, a dose is known before the decision."""
_FIGURE = re.compile(r"|[-+]?[\d.,:/ T-]*\d[\d.,:/ TZ-]*")  # an empty cell, a number or a time


def draft_schema(path: str | Path) -> str:
    """Draft a schema file to be completed by hand, for a Parquet file or a folder of Parquet files.

    **Formal guarantee.** The draft depends only on the names and the types of the columns, and on the public settings
    that `privrl prepare` writes into a file. The footer of a Parquet file also holds the smallest and the largest value
    of each column; they are not read.
    """
    import pyarrow.parquet as pq

    file = parquet_files(path)[0]
    with redact_errors(f"The names and types of the columns of `{file.name}` cannot be read"):
        schema = pq.read_schema(file)
        types = {field.name: field.type for field in schema}
        written = (schema.metadata or {}).get(SETTINGS.encode())
        known = dict({} if written is None else json.loads(written))
    lines = []
    features, categories = [], []
    parts = _parts(types, known)
    for column, dtype in types.items():
        if column in parts.values() or column in known.get("action", ()):
            continue
        if column in (known.get("by"), known.get("outcome")):
            continue
        if why := _why_left_out(column):
            lines.append(why)
        elif "state" in parts:
            lines.append(f"# {_quoted(column)}: not used, because `state` is the whole state")
        elif _holds(dtype, "feature", column):
            features.append(column)
        elif _holds(dtype, "category", column):
            categories.append(column)
        else:
            lines.append(f"# {_quoted(column)}: neither numbers nor text, so it cannot be part of a state")
    return _HEAD + "\n".join([*_lines(parts, known), *lines, *_states(features, categories)]) + "\n"


def draft_from_names(names: Sequence[str], file: str) -> str:
    """Draft a schema file from the first line of a CSV file, which has no types.

    Raises:
        TableError: the first line has empty cells, numbers or a single cell, so it does not name columns. It is not
            quoted.
    """
    if any(_FIGURE.fullmatch(name.strip()) for name in names) or len(set(names)) != len(names) or len(names) < 2:
        raise TableError(
            f"The first line of `{file}` must name the columns, each once. If another character than a comma is "
            "between cells, declare it (`--delimiter`)."
        )
    parts = _parts(names, {})
    rest = [name for name in names if name not in parts.values()]
    lines = [why for name in rest if (why := _why_left_out(name))]
    features = [] if "state" in parts else [name for name in rest if not _why_left_out(name)]
    return _HEAD + _CSV_HEAD + "\n".join([*_lines(parts, {}), *lines, *_states(features, [])]) + "\n"


def _parts(present: Iterable[str], known: Mapping[str, Any]) -> dict[str, str]:
    """The column of each part, from the settings of `prepare` or from its name."""
    columns = list(present)
    found = {part: known.get(part) or _first(names, columns) for part, names in _HINTS.items() if part != "action"}
    action = known["action"][0] if known.get("action") else _first(_HINTS["action"], columns)
    return {part: column for part, column in {**found, "action": action}.items() if column in columns}


def _lines(parts: Mapping[str, str], known: Mapping[str, Any]) -> list[str]:
    """The lines of a draft before the measurements."""
    lines = [f"{part} = {_quoted(parts.get(part, FILL_IN))}" for part in ("unit", "step", "reward")]
    direction = "which values of the reward are good: high or low"
    lines += [f"good = {_quoted(known.get('good', FILL_IN))}  # {direction}"]
    lines += ["rewards_at_end = true  # only the last step of an episode pays"] if known.get("rewards_at_end") else []
    optional = ("episode", "terminated", "state", "next_state", "propensity")
    lines += [f"{part} = {_quoted(parts[part])}" for part in optional if part in parts]
    if "state" in parts:
        lines += [f"num_states = {known.get('num_states') or _quoted(FILL_IN)}  # states are 0, 1, ..."]
        lines += [f"terminal = {known['terminal']}  # the end of an episode"] if known.get("terminal") else []
    lines += [f"horizon = {known.get('horizon') or _quoted(FILL_IN)}  # the largest number of steps in an episode"]
    reported = {"by": f"{FILL_IN},{FILL_IN}", "outcome": FILL_IN}
    comments = {"by": "groups to report by", "outcome": "a second outcome, with its largest total in an episode"}
    for part in (part for part in reported if part in known):
        lines += [f"{part} = {_quoted(f'{known[part]}:{reported[part]}')}  # {comments[part]}"]
    actions = known.get("action") or [parts.get("action", FILL_IN)]
    lines += [f"action = {_entries(actions)}"]
    edges = "for example 0,0.02,0.05: each edge starts an action. Or num_actions = 5"
    return [*lines, f"action_edges = {_entries([FILL_IN] * len(actions))}  # {edges}"]


def _states(features: Sequence[str], categories: Sequence[str]) -> list[str]:
    """The lines of measurements."""
    numbers = [f"{column}:{FILL_IN}..{FILL_IN}" for column in features]
    listed = [f"{column}:{FILL_IN},{FILL_IN}" for column in categories]
    return [
        *_list("feature", numbers, "NAME:LO..HI; append :missing if values may be absent, :log for a log scale"),
        *_list("category", listed, "NAME:a,b,c, with all values that may occur"),
    ]


def _why_left_out(column: str) -> str | None:
    """A comment about a column that is not a measurement, by its name; `None` if it may be one."""
    if sounds_like_outcome(column):
        return f"# {_quoted(column)}: sounds like an outcome, which is not known when a decision is made"
    words = re.findall(r"[^\W\d_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column).lower())
    if _names_propensity(words):
        remedy = "if a program logged it, use it as `propensity`; else, if it is a measurement, add it below"
        return f"# {_quoted(column)}: sounds like the probability of an action; {remedy}"
    if _names_dose(words) and not _BEFORE.intersection(words):
        remedy = "use it in `action`; if it is known before the decision, add it below"
        return f"# {_quoted(column)}: sounds like an action or a dose; {remedy}"
    if any(map(_TIME.fullmatch, words)) or column.lower() in _HINTS["step"]:
        remedy = "use it as `--time` of `privrl prepare`, or as `step`; if it is a measurement, add it below"
        return f"# {_quoted(column)}: sounds like a time; {remedy}"
    if _ID.fullmatch(column) or _ID.fullmatch(column.lower()):
        remedy = "if it names a person or a stay, use it as `unit` or `episode`"
        return f"# {_quoted(column)}: sounds like an identifier; {remedy}"
    return None


def _names_dose(words: Sequence[str]) -> bool:
    """Whether the words of a name sound like an action, or like a drug that is given."""
    given = any(map(_ALSO_MEASURED.fullmatch, words)) and any(map(_GIVEN.fullmatch, words))
    return given or any(_DOSE.fullmatch(word) or _DRUG.fullmatch(word) for word in words)


def _names_propensity(words: Sequence[str]) -> bool:
    """Whether the words of a name sound like the probability with which the recorded action was taken."""
    if any(map(_PROPENSITY.fullmatch, words)):
        return True
    others = [word for word in words if not _PROBABILITY.fullmatch(word)]
    return len(others) < len(words) and all(map(_LOGGED.fullmatch, others))


def _entries(texts: Sequence[str]) -> str:
    return _quoted(texts[0]) if len(texts) == 1 else f"[{', '.join(map(_quoted, texts))}]"


def _first(names: tuple[str, ...], present: Iterable[str]) -> str | None:
    lower = {column.lower(): column for column in present}
    return next((lower[name] for name in names if name in lower), None)


def _holds(dtype: "pa.DataType", part: str, column: str) -> bool:
    try:
        check_type(dtype, part, column, "")
    except TableError:
        return False
    return True


def _list(name: str, entries: list[str], comment: str) -> list[str]:
    return [f"{name} = [  # {comment}", *(f"    {_quoted(entry)}," for entry in entries), "]"] if entries else []


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped) + '"'
