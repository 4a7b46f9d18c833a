"""Lets coroutines wait for tickets of an engine."""

import asyncio

# The first and the longest pause between two polls, in seconds. The first polls have no pause,
# because small jobs take only microseconds.
_FIRST, _LONGEST = 0.0001, 0.002


async def done(ticket):
    """Returns when the job is done. Raises an exception if the job can no longer be done."""
    for _ in range(20):
        if ticket.done():
            return
        await asyncio.sleep(0)
    pause = _FIRST
    while not ticket.done():
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST)
