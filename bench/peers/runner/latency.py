"""Latency percentiles, from the enqueue to the handler. Independent of any queue."""

# The first calls are a warm-up and are left out, but at most a quarter of all calls.
WARM_UP_CALLS = 100


def percentiles(calls, handler_calls):
    """Latency from the call and from its commit, of calls [due, committed] and handler calls [due, called] in microseconds.

    A handler may be called before the producer has received the commit: that counts as one microsecond.
    """
    called = dict(map(tuple, handler_calls))
    kept = [call for call in calls[min(WARM_UP_CALLS, len(calls) // 4) :] if call[0] in called]
    from_call = sorted(called[due] - due for due, _ in kept)
    from_commit = sorted(max(called[due] - committed, 1) for due, committed in kept)
    return {
        "p50_ms": quantile(from_call, 50), "p99_ms": quantile(from_call, 99),
        "commit_p50_ms": quantile(from_commit, 50), "commit_p99_ms": quantile(from_commit, 99),
    }


def quantile(ordered, percent):
    """The percentile by the nearest rank, in milliseconds."""
    rank = max(-(-len(ordered) * percent // 100), 1)
    return ordered[rank - 1] / 1000 if ordered else None
