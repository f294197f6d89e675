"""Tables in a database: the columns that a query returns."""

from __future__ import annotations

import os

from fedssca.data.lines import Reading
from fedssca.data.tables import Table, column_of
from fedssca.errors import UserError
from fedssca.system import pip_install

__all__ = ["read_query"]


def read_query(database: str, query: str, reading: Reading | None = None, ids: str = "") -> Table:
    """Return the columns of a query; `database` is a SQLAlchemy URL, or env:NAME of a variable.

    The column `ids` is text, so that no digit of long numbers is lost.
    """
    try:
        import sqlalchemy
    except ImportError:
        raise UserError(f"a query needs SQLAlchemy: {pip_install('deploy')}") from None
    url = database
    if url.startswith("env:"):
        url = os.environ.get(url.removeprefix("env:"), "")
        if not url:
            raise UserError(
                f"database = {database!r}: that variable is not set; export it before the start"
            )
    try:
        engine = sqlalchemy.create_engine(url)
        with engine.connect() as connection:
            result = connection.execute(sqlalchemy.text(query))
            names, rows = list(result.keys()), result.fetchall()
        engine.dispose()
    except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
        # The driver's message may quote the URL and its password, so only its type is shown.
        raise UserError(
            f"the database did not answer the query ({type(error).__name__}): "
            "try database and query in a SQL client"
        ) from None
    if not rows:
        raise UserError("the query gave no rows: try it in a SQL client")
    columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    if ids in columns:
        columns[ids] = [None if value is None else str(value) for value in columns[ids]]
    rule = reading or Reading()
    return {name: column_of(name, cells, rule, "the query") for name, cells in columns.items()}
