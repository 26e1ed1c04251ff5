"""How late the event loop was."""

import asyncio
import time

from concur_proxy.observe.lag import watch_loop


def test_what_holds_the_loop_up_is_told():
    async def run():
        loop = asyncio.get_running_loop()
        told, late = [], loop.create_future()

        def tell(seconds):
            told.append(seconds)
            if seconds > 0.05 and not late.done():
                late.set_result(seconds)

        watch = asyncio.create_task(watch_loop(tell, period_s=0.01))
        await asyncio.sleep(0)
        time.sleep(0.1)  # nobody else gets a turn meanwhile
        await late
        watch.cancel()
        return told

    told = asyncio.run(run())
    assert all(seconds >= 0 for seconds in told)
