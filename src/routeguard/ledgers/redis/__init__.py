"""The ledger for several machines: counters in a Redis or Valkey server, changed by one script a step."""

from routeguard.ledgers.redis.ledger import RedisLedger

__all__ = ["RedisLedger"]
