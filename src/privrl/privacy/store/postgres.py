"""A store on a PostgreSQL server, for studies that several machines work on: the extra `privrl[postgres]`.

The tables are in the first schema of the search path, which must be empty or hold a store. Give each study a database
or a schema of its own (`postgresql:///river`, `postgresql:///studies?options=-csearch_path%3Driver`).

Transactions run at READ COMMITTED, where each statement sees what was committed before it, and decide under a lock. A
transaction locks what it is about (a sum, a queue, a range), adds digests in sorted order, and locks the chain last, so
no two transactions wait for each other in a circle. While a release is drawn, its name is locked for as long as the
connection of the drawing process lives; `purge` waits for all draws. Guards inside the database (`postgres_schema.py`)
lock again, and hold for every other program.

**Formal guarantee.** The guarantee of `ReleaseStore`, as long as the server runs with `fsync` and `synchronous_commit`
on (the latter is set here). The owner of the tables can remove the guards, so a service should connect as a role that
owns nothing (`grant_service`). A replica that lags, or a restored backup, lacks what was spent since; only a `log`
refuses it. `purge` requires the owner of the tables. It rewrites them; old bytes stay in the server's write-ahead log
and its archive until these are recycled.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from privrl.privacy.store import chain as _chain
from privrl.privacy.store.engine import AbstractEngine, T
from privrl.privacy.store.errors import StoreError, UnreachableError
from privrl.privacy.store.log import AuditLog
from privrl.privacy.store.postgres_schema import (
    COLUMNS,
    COMMENT,
    CONSTRAINTS,
    TRIGGERS,
    expected_columns,
    expected_constraints,
    expected_triggers,
    grants,
    statements,
)
from privrl.privacy.store.statements import QueryRows, Row, SqlValue

try:
    import psycopg
except ImportError as error:  # pragma: no cover
    raise ImportError(
        'A store on a PostgreSQL server needs psycopg 3: pip install "privrl[postgres]". Or use a file.'
    ) from error

_MAX_ATTEMPTS = 20  # attempts at a transaction that the server aborts in favour of another one
_KEY = "hashtextextended(current_schema() || ' ' || %s, 0)"
_AT_WORK = f"""
SELECT r.name FROM releases r WHERE r.value IS NULL AND EXISTS (
    SELECT 1 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND ((l.classid::bigint << 32) | l.objid::bigint) = {_KEY.replace("%s", "'draw ' || r.name")})
"""

_Connection: TypeAlias = "psycopg.Connection[Row]"


class PostgresEngine(AbstractEngine):
    """A schema of one store. If the connection is lost, the next transaction connects and verifies the store again."""

    refusals = (psycopg.errors.RaiseException, psycopg.IntegrityError)
    one_machine = False

    def __init__(
        self,
        address: str,
        log: AuditLog | None,
        *,
        accept_missing_log: bool,
        reached: Callable[[str], None],
    ) -> None:
        super().__init__(log, reached)
        self._address = address
        self._connection: _Connection | None = None
        self._renewals = 0
        self._connect()
        self._check_log(accept_missing_log)

    @property
    def title(self) -> str:
        return title_of(self._address)

    def execute(self, query: str, *values: SqlValue) -> QueryRows:
        return self._run(lambda connection: connection.execute(query.replace("?", "%s"), values or None))

    @property
    def connections(self) -> int:
        self._renew()
        return self._renewals

    def _renew(self) -> None:
        """Connects again if the connection is lost."""
        self.check_process()
        if self._lost and not self._depth and self._owning is None:
            # Only outside of transactions and draws: the server has freed the locks of the old connection.
            self._renewals += 1
            self._connect()
            self._check_log()  # the server that answers now may be a replica that lags

    def _run(self, statement: Callable[[_Connection], QueryRows]) -> QueryRows:
        self._renew()
        assert self._connection is not None
        try:
            return statement(self._connection)
        except psycopg.OperationalError as error:
            if not self._connection.closed:
                raise
            raise StoreError(
                f"The connection to `{self.title}` was lost. The transaction under way was committed as a whole or not "
                "at all. Repeat it; nothing is counted twice."
            ) from error

    def insert_contributions(self, rows: Sequence[tuple[bytes, bytes | None]]) -> set[bytes]:
        insert = (
            "INSERT INTO contributions SELECT * FROM unnest(?::bytea[], ?::bytea[]) ON CONFLICT DO NOTHING"
            " RETURNING digest"
        )
        return {digest for (digest,) in self.execute(insert, [row[0] for row in rows], [row[1] for row in rows])}

    def retry(self, attempt: Callable[[], T]) -> T:
        for _ in range(_MAX_ATTEMPTS if not self._depth else 0):
            with contextlib.suppress(psycopg.errors.DeadlockDetected):
                return attempt()
        return attempt()

    def erase(self) -> None:
        self._reached("purge:rewritten")
        for table in ("sums", "contributions", "arrivals", "digest_key"):
            self.execute(f"VACUUM FULL {table}")
        self._reached("purge:truncated")

    def backup(self, path: str) -> None:
        raise StoreError(
            f"`{self.title}` is on a PostgreSQL server, which has its own tools. Back up its database with `pg_dump "
            "--format=custom --file=FILE DATABASE`, restore it with `pg_restore --dbname=DATABASE FILE`, and then "
            "check it against the audit logs of all machines: `privrl store show ADDRESS --store-log LOG`."
        )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, StoreError):
            self.check_process()  # a forked child must not end its parent's connection
            self.close()

    def _check_log(self, accept_missing: bool = False) -> None:
        """Checks the store against its log, and closes the connection if the log refuses it."""
        try:
            self.tell_log(accept_missing)
        except BaseException:
            self.close()
            raise

    @property
    def _lost(self) -> bool:
        return self._connection is None or self._connection.closed

    # --------------------------------------------------------------------------------------------------------- locks

    def _begin(self, about: str | None) -> None:
        self.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        try:
            self._lock(about)
        except BaseException:
            self._rollback()
            raise

    def _lock(self, about: str | None) -> None:
        # All transactions share the lock of the store, except a purge, which takes it exclusively.
        if about is None:
            self.execute(f"SELECT pg_advisory_xact_lock({_KEY})", "store")
        else:
            self.execute(f"SELECT pg_advisory_xact_lock_shared({_KEY})", "store")
            if about:
                self.execute(f"SELECT pg_advisory_xact_lock({_KEY})", about)

    def _lock_chain(self) -> None:
        self.execute(f"SELECT pg_advisory_xact_lock({_KEY})", "chain")

    def _begin_reading(self) -> None:
        self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def _rollback(self) -> None:
        connection = self._connection
        if connection is None or connection.closed:
            return
        if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            with contextlib.suppress(psycopg.OperationalError):
                connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def _owner_lock(self, name: str, drawing: bool) -> Iterator[None]:
        # All draws share one lock, in addition to that of their name; a purge (no name) takes it exclusively.
        with contextlib.ExitStack() as locks:
            if name or drawing:
                locks.enter_context(self._held("draws", "_shared"))
                locks.enter_context(self._held(f"draw {name}"))
            else:
                locks.enter_context(self._held("draws"))
            yield

    @contextlib.contextmanager
    def _held(self, what: str, how: str = "") -> Iterator[None]:
        """Holds a lock of this connection, across its transactions."""
        self.execute(f"SELECT pg_advisory_lock{how}({_KEY})", what)
        try:
            yield
        finally:
            if not self._lost:  # if the connection is lost, the server has freed the lock
                self._rollback()
                self.execute(f"SELECT pg_advisory_unlock{how}({_KEY})", what)

    def at_work(self) -> set[str]:
        return {name for (name,) in self.execute(_AT_WORK)}

    # ------------------------------------------------------------------------------------------------------- opening

    def _connect(self) -> None:
        self._connection = _open_connection(self._address)
        try:
            self._open()
        except psycopg.Error as error:
            self.close()
            words = f"`{self.title}` cannot be opened as a store of releases: {error.diag.message_primary or error}."
            if isinstance(error, psycopg.errors.InsufficientPrivilege):
                words += " Let the owner of the database create the store and grant rights: `privrl store grant`."
            raise StoreError(words) from error
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self.execute("SET synchronous_commit = on")
        (schema,) = self.execute("SELECT quote_ident(current_schema())").fetchone()
        if schema is None:
            raise StoreError(
                f"The search path of `{self.title}` has no schema that exists and that this role may use. Create it "
                "first, or let the owner of its tables grant the rights: `privrl store grant`."
            )
        if self._comment() is None:
            self._refuse_lost_store()
            with self._held("create"):  # two processes may create it at once
                if self._comment() is None:
                    self._write_schema(schema)
        if self._comment() != COMMENT:
            raise StoreError(
                f"`{self.title}` holds {self._comment()!r} and this version of privrl reads {COMMENT!r}. Finish that "
                "study with the version of privrl that began it; a new study needs a new schema."
            )
        with self.snapshot():
            found = (
                sorted(tuple(row) for row in self.execute(TRIGGERS)),
                [tuple(row) for row in self.execute(COLUMNS)],
                sorted(tuple(row) for row in self.execute(CONSTRAINTS)),
            )
            if found != (expected_triggers, expected_columns, expected_constraints):
                raise StoreError(f"The tables or guards of `{self.title}` were changed. It can no longer be trusted.")
            _chain.verify_chain(self.execute, self.title)

    def _comment(self) -> str | None:
        """The comment that marks a store; `None` for a schema without tables."""
        found = self.execute(COLUMNS).fetchone()
        if found is None:
            return None
        query = "SELECT obj_description(to_regclass(quote_ident(current_schema()) || '.chain'), 'pg_class')"
        (comment,) = self.execute(query).fetchone()
        return comment or "tables of another program"

    def _write_schema(self, schema: str) -> None:
        with self.transaction("create", None):
            self.execute(";\n".join(statements(schema)))
            self._first_rows()


def title_of(address: str) -> str:
    """An address without user and password, for messages."""
    try:
        known = psycopg.conninfo.conninfo_to_dict(address)
    except psycopg.ProgrammingError:  # its message may quote a password
        raise StoreError(
            "The address of the store is malformed. Write it as `postgresql://HOST/DATABASE`; to name a schema, append "
            "`?options=-csearch_path%3DSCHEMA`. Set user and password by PGUSER and PGPASSFILE."
        ) from None
    return f"postgresql://{known.get('host', '')}/{known.get('dbname', '')}"


def _open_connection(address: str) -> _Connection:
    title = title_of(address)
    try:
        return psycopg.connect(address, autocommit=True)
    except psycopg.OperationalError as error:
        raise UnreachableError(f"`{title}` cannot be reached: {' '.join(str(error).split())}") from error


def has_tables(address: str) -> bool:
    """Whether there are tables in the schema of an address. Creates nothing."""
    with _open_connection(address) as connection:
        return connection.execute(COLUMNS).fetchone() is not None


def check_writable(address: str) -> None:
    """Refuses a server that is read-only, such as a replica."""
    with _open_connection(address) as connection:
        if connection.execute("SHOW transaction_read_only").fetchone() == ("on",):
            raise UnreachableError(
                f"`{title_of(address)}` is read-only: it is a replica, or configured so. Use the primary server."
            )


def grant_service(address: str, role: str) -> None:
    """Grants a role the rights to run a service on the store at an address. The owner of its tables must call this.

    The role may read, and may add and update what a service writes, which guards check. It cannot declare or purge a
    study, delete, empty or alter a table, or drop a guard.
    """
    with _open_connection(address) as connection:
        (schema, quoted), *_ = connection.execute("SELECT quote_ident(current_schema()), quote_ident(%s)", (role,))
        for statement in grants(schema, quoted):
            connection.execute(statement)
