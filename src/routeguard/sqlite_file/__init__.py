"""One thread that writes an SQLite file for a whole process.

The ledger and the journal are written through it: `writer` is the thread, `operation` a question to it, `file` how
the file is opened, `checkpoint` how its log is kept short.
"""
