"""A proxy process for tests of its end: prints its port, serves until it is told to stop."""

import socket
import sys

import uvicorn
import uvloop

from concur_proxy.config import UpstreamSettings
from concur_proxy.core.gate import Gate, GatePolicy
from concur_proxy.gateway.app import Readiness, create_app
from concur_proxy.gateway.dispatch import Dispatcher
from concur_proxy.gateway.handler import Handler
from concur_proxy.gateway.models import ask_all
from concur_proxy.gateway.protocol import fast_lane_protocol
from concur_proxy.gateway.server import Server
from concur_proxy.gateway.upstream import UpstreamPool
from concur_proxy.model import BackendEvent, BackendId, PoolId
from concur_proxy.windows.base import Unit

BACKEND, POOL = BackendId("b"), PoolId("p")


async def serve(url, grace_s):
    dispatcher = Dispatcher(Gate(GatePolicy()))
    pools = {BACKEND: UpstreamPool(url, UpstreamSettings())}
    handler = Handler(dispatcher, pools, lambda _model: POOL)
    app = create_app(models=lambda headers: ask_all(pools, headers), readiness=lambda: Readiness(True, {}))
    config = uvicorn.Config(app, http=fast_lane_protocol(handler), ws="none", lifespan="off", log_config=None)
    dispatcher.add_backend(BACKEND, POOL, unit=Unit.SESSIONS, window=1)
    dispatcher.set_members(POOL, [BACKEND])
    dispatcher.backend_event(BACKEND, BackendEvent.UP)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        await Server(config, handler, grace_s=grace_s).serve(sockets=[listener])
    pools[BACKEND].close()
    dispatcher.close()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], float(sys.argv[2])))
