"""A ledger in one file, for all processes of one host.

`ledger` is what the guard talks to, `writer` the one thread of a process that touches the file, `book` what is
done inside a transaction, `file` how the file is opened.
"""

from routeguard.ledgers.sqlite.ledger import SqliteLedger

__all__ = ["SqliteLedger"]
