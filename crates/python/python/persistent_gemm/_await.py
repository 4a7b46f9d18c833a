"""Waiting for tickets of engines in coroutines."""

import asyncio

# Seconds between two questions: none at first, since small jobs take microseconds, and then longer.
_FIRST, _LONGEST = 0.0001, 0.002


async def done(ticket):
    """Returns when the job is done; raises where it will never be."""
    for _ in range(20):
        if ticket.done():
            return
        await asyncio.sleep(0)
    pause = _FIRST
    while not ticket.done():
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST)
