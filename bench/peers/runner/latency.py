"""How long it took until a handler was called. Knows no queue."""

# So many calls at the beginning, but no more than a quarter of all, are for warming up.
WARMING_UP = 100


def percentiles(calls, seen):
    """Of calls [due, committed] and handlers [due, called], all in microseconds: from the call, and from its commit.

    A handler may be called before the producer has received the commit: that counts as a microsecond.
    """
    called = dict(map(tuple, seen))
    kept = [call for call in calls[min(WARMING_UP, len(calls) // 4) :] if call[0] in called]
    from_call = sorted(called[due] - due for due, _ in kept)
    from_commit = sorted(max(called[due] - committed, 1) for due, committed in kept)
    return {
        "p50_ms": quantile(from_call, 50), "p99_ms": quantile(from_call, 99),
        "commit_p50_ms": quantile(from_commit, 50), "commit_p99_ms": quantile(from_commit, 99),
    }


def quantile(ordered, percent):
    """The value below which so many percent lie, by the nearest rank, in milliseconds."""
    rank = max(-(-len(ordered) * percent // 100), 1)
    return ordered[rank - 1] / 1000 if ordered else None
