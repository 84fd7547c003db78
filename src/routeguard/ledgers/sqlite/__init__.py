"""A ledger in one file, for all processes of one host.

`ledger` is what the guard talks to, `book` what is done inside a transaction, `schema` what is in the file. The
thread that writes it is `sqlite_file`.
"""

from routeguard.ledgers.sqlite.ledger import SqliteLedger

__all__ = ["SqliteLedger"]
