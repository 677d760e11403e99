"""The tables and guards of `sqlite_schema.py` for PostgreSQL: the same rules, with locks if two writers could race.

A guard of SQLite is a condition. Here it is the function of a trigger that always fires (also for replication). What
SQLite decides under its one write lock is decided here under a lock of its own: charges of a pool under the row of the
pool, seals and sums under the name of the sum. Only a statement that begins after the lock was taken sees what the
previous owner of the lock wrote, so these guards refuse every transaction that is not READ COMMITTED. `TRUNCATE`, which
SQLite does not have, is refused for every table.
"""

import re
from decimal import Decimal
from typing import NamedTuple

from privrl.privacy.store.sqlite_schema import FORMAT, GUARDS, TABLES

COMMENT = f"privrl store, format {FORMAT}"
_TYPES = {"INTEGER": "bigint", "BLOB": "bytea", "REAL": "double precision", "TEXT": 'text COLLATE "C"'}
_OWNERS = (
    "study",
    "pools",
    "digest_key",
    "purges",
)  # tables that only the owner of a study writes: to declare it and to purge it
_BITS = {"INSERT": 4, "DELETE": 8, "UPDATE": 16}
_ROW_BEFORE, _BEFORE_TRUNCATE = 1 | 2, 2 | 32
_FRESH = (
    "IF current_setting('transaction_isolation') <> 'read committed' THEN"
    " RAISE EXCEPTION 'charges, seals and sums are written in READ COMMITTED transactions only'; END IF;"
)
_SUM_LOCK = f"{_FRESH} PERFORM pg_advisory_xact_lock(hashtextextended(TG_TABLE_SCHEMA || ' sum ' || NEW.name, 0));"
_LOCKS = {
    ("INSERT", "releases"): f"{_FRESH} PERFORM 1 FROM pools WHERE pool = NEW.pool FOR UPDATE;",
    ("INSERT", "seals"): _SUM_LOCK,
    ("INSERT", "sums"): _SUM_LOCK,
    ("UPDATE", "sums"): _SUM_LOCK,
}


class Guard(NamedTuple):
    """A trigger: its name, table, kind as PostgreSQL numbers it, and the body of its function."""

    name: str
    table: str
    kind: int
    body: str


def _condition(when: str) -> str:
    """Translates a condition from SQLite to PostgreSQL."""
    when = re.sub(r"\bIS NOT (?!NULL)", "IS DISTINCT FROM ", when)
    return "TRUE" if when == "1" else when.replace("TOTAL(charge)", "COALESCE(SUM(charge), 0.0)")


def _columns(definition: str) -> str:
    definition = re.sub(r"typeof\(\w+\) = 'real' AND ", "", definition)
    for lite, postgres in _TYPES.items():
        definition = re.sub(rf"\b{lite}\b", postgres, definition)
    return definition.replace(" WITHOUT ROWID", "")


tables = tuple(re.findall(r"CREATE TABLE (\w+)", TABLES))
guards = (
    *(
        Guard(
            f"guard_{i}",
            table,
            _ROW_BEFORE | _BITS[event],
            f"BEGIN {_LOCKS.get((event, table), '')} IF {_condition(when)} THEN RAISE EXCEPTION '{words}'; END IF; "
            f"RETURN {'OLD' if event == 'DELETE' else 'NEW'}; END",
        )
        for i, (event, table, when, words) in enumerate(GUARDS)
    ),
    *(
        Guard(f"guard_{table}", table, _BEFORE_TRUNCATE, "BEGIN RAISE EXCEPTION 'a store is not emptied'; END")
        for table in tables
    ),
)


def _parts(definition: str) -> list[str]:
    """The columns and constraints of a table."""
    parts, depth = [""], 0
    for letter in definition:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _check(part: str) -> str:
    """The condition of a column or table, as PostgreSQL writes it."""
    condition = part[part.index("CHECK (") + len("CHECK (") : -1].removeprefix(
        f"typeof({part.split()[0]}) = 'real' AND "
    )
    if between := re.fullmatch(r"(\w+) BETWEEN 0 AND (\S+)", condition):
        name, largest = between[1], int(Decimal(between[2]))
        condition = f"{name} >= (0)::double precision AND {name} <= ('{largest}'::numeric)::double precision"
    terms = condition.split(" AND ")
    return f"CHECK (({condition if len(terms) == 1 else ' AND '.join(f'({term})' for term in terms)}))"


def _expected() -> tuple[list[tuple[str, str, str, bool, bool]], list[tuple[str, str, str, bool]]]:
    """Columns (table, name, type, whether it is never missing, True) and constraints, as the catalogue lists them."""
    columns, constraints = [], []
    for table, definition in re.findall(r"CREATE TABLE (\w+) \((.*?)\)(?: WITHOUT ROWID)?;\n", TABLES, re.DOTALL):
        parts = _parts(definition)
        key = next((part for part in parts if part.startswith("PRIMARY KEY")), "")
        keyed = key or f"PRIMARY KEY ({next(part.split()[0] for part in parts if 'PRIMARY KEY' in part)})"
        constraints.append((table, f"{table}_pkey", keyed, True))
        for part in parts:
            name, kind, *rest = part.split()
            if part.startswith("CHECK"):
                constraints.append((table, f"{table}_check", _check(part), True))
            elif part != key:
                needed = "NOT NULL" in part or "PRIMARY KEY" in part or name in re.findall(r"\w+", key)
                columns.append((table, name, _TYPES[kind].split(" COLLATE")[0], needed, True))
                if "CHECK" in rest:
                    constraints.append((table, f"{table}_{name}_check", _check(part), True))
    return sorted(columns, key=lambda row: row[0]), sorted(constraints)


expected_columns, expected_constraints = _expected()
expected_triggers = sorted((*guard, "A", True, True, True) for guard in guards)


def statements(schema: str) -> list[str]:
    """The statements that create the tables and guards in a schema, whose name must be quoted."""
    made = [_columns(statement).strip() for statement in TABLES.split(";\n") if statement.strip()]
    for guard in guards:
        event = next((word for word, bit in _BITS.items() if guard.kind & bit), "TRUNCATE")
        each = "STATEMENT" if event == "TRUNCATE" else "ROW"
        made += [
            f"CREATE FUNCTION {guard.name}() RETURNS trigger LANGUAGE plpgsql SET search_path = {schema}, pg_temp "
            f"AS $guard${guard.body}$guard$",
            f"CREATE TRIGGER {guard.name} BEFORE {event} ON {guard.table} FOR EACH {each} "
            f"EXECUTE FUNCTION {guard.name}()",
            f"ALTER TABLE {guard.table} ENABLE ALWAYS TRIGGER {guard.name}",
        ]
    made.append(f"COMMENT ON TABLE chain IS '{COMMENT}'")
    return made


def grants(schema: str, role: str) -> list[str]:
    """The statements that let a role run a service and no more: it cannot declare a study, purge it, delete, empty or
    alter a table, or drop a guard."""
    added = [table for table in tables if table not in _OWNERS]
    return [
        f"GRANT USAGE ON SCHEMA {schema} TO {role}",
        f"REVOKE ALL ON {', '.join(tables)} FROM {role}",
        f"GRANT SELECT ON {', '.join(tables)} TO {role}",
        f"GRANT INSERT ON {', '.join(added)} TO {role}",
        f"GRANT UPDATE ON releases, sums, ranges TO {role}",
        f"GRANT UPDATE (revoked) ON access_keys TO {role}",
        f"GRANT UPDATE (pool) ON pools TO {role}",  # so that it can lock a row; a guard refuses every change
    ]


# Queries for what a store must contain: triggers with their functions; columns of tables that keep rows as they are
# written (logged, without rules, row security or children); and constraints.
TRIGGERS = """
SELECT t.tgname, c.relname, t.tgtype::int, p.prosrc, t.tgenabled::text, t.tgqual IS NULL, t.tgattr = '',
       p.proconfig = ARRAY['search_path=' || quote_ident(n.nspname) || ', pg_temp']
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_proc p ON p.oid = t.tgfoid
WHERE n.nspname = current_schema() AND NOT t.tgisinternal ORDER BY t.tgname COLLATE "C"
"""
COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
       c.relkind = 'r' AND c.relpersistence = 'p' AND NOT (c.relhasrules OR c.relrowsecurity OR c.relhassubclass)
       AND NOT a.atthasdef AND a.attidentity = '' AND a.attcollation IN (0, 'pg_catalog."C"'::regcollation)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p', 'f', 'v', 'm')
  AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY c.relname COLLATE "C", a.attnum
"""
CONSTRAINTS = """
SELECT c.relname, k.conname, pg_get_constraintdef(k.oid), k.convalidated
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
WHERE c.relnamespace = current_schema()::regnamespace AND k.contype IN ('p', 'c')
ORDER BY c.relname COLLATE "C", k.conname COLLATE "C"
"""
