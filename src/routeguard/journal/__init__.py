"""The journal: a row for whatever changed what is charged, in a file of its own or the ledger's.

`journal` takes the records and never loses one, `table` is what lies in the file, `reading` is for whoever looks at
it afterwards, `audit` compares it with a ledger.
"""

from routeguard.journal.books import Books
from routeguard.journal.journal import SqliteJournal, open_journal

__all__ = ["Books", "SqliteJournal", "open_journal"]
