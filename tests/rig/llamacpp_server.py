"""llama.cpp's own HTTP server, from the wheel xllamacpp, in the foreground: ``MODEL PORT KV_TOKENS SLOTS THREADS``.

Runs in the engine's environment.
"""

import sys
import threading

import xllamacpp

model, port, kv_tokens, slots, threads = sys.argv[1], *map(int, sys.argv[2:])
params = xllamacpp.CommonParams()
params.model.path = model
params.model_alias = {"tiny"}
params.hostnames = ["127.0.0.1"]
params.port = port
params.n_ctx = kv_tokens
params.n_parallel = slots
params.kv_unified = True  # slots share one cache instead of having equal parts of it
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
params.endpoint_metrics = True
params.warmup = False
server = xllamacpp.Server(params)
print("listens on", server.listening_address, flush=True)
threading.Event().wait()
